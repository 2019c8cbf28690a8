"""What a person sees of a training: a progress bar in a terminal, plain lines anywhere else, curves in TensorBoard."""

import time
from abc import ABC, abstractmethod
from pathlib import Path
from types import TracebackType
from typing import Self

from rich.console import Console
from rich.progress import BarColumn, TaskID, TextColumn, TimeRemainingColumn
from rich.progress import Progress as Bar

from seqloom.errors import ConfigError
from seqloom.tasks.base import Judge
from seqloom.training.schedule import Budget, Progress
from seqloom.training.step import Outcome
from seqloom.training.validation import Validation
from seqloom.training.word_vectors import WordVectorsProgress

_PAUSE = 10.0  # seconds between two lines


class Monitor(ABC):
    """Receives everything that happens in a training, and shows it."""

    def __init__(self, console: Console) -> None:
        self.console = console
        self._said = time.monotonic()
        self._budget: Budget | None = None
        self._judge: Judge | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def say(self, message: str) -> None:
        """Something worth a line."""
        self.console.print(message, highlight=False, soft_wrap=True)

    def validate(self, progress: Progress, validation: Validation) -> None:
        """A validation was done."""
        measures = "  ".join(
            f"{name} {value:.3f}" if abs(value) < 1e6 else f"{name} {value:.3g}"
            for name, value in validation.measures.items()
        )
        measured = ", ".join(name for name in validation.measures if name not in ("loss", "perplexity"))
        some = f" ({measured}: {validation.sample})" if validation.sample and measured else ""
        judge, score = self._judge, progress.best_score
        if judge is None or score is None:
            best = ""
        elif progress.best_step == progress.step:
            best = f"  (best {judge.name} so far)"
        else:
            best = f"  (best so far: {judge.describe(score)} at step {progress.best_step:,})"
        self.say(f"step {progress.step:,}: validation {measures}{some}{best}")
        for sample in validation.samples[:2]:
            self.say(f"    {sample}")

    def word_vectors(self, progress: WordVectorsProgress) -> None:
        """Word vectors are being learned: say how far, now and then."""
        match progress.phase:
            case "counted":
                self.say(f"{progress.vocabulary:,} words; {progress.rare:,} running words are too rare and left out")
            case "training" if time.monotonic() - self._said >= _PAUSE or progress.done == progress.total:
                self._said = time.monotonic()
                self.say(f"{progress.done / progress.total:.0%} of {progress.total:,} words, loss {progress.loss:.3f}")

    def start(self, budget: Budget, progress: Progress, judge: Judge) -> None:
        """Training begins or resumes."""
        self._budget, self._judge = budget, judge

    def describe(self, progress: Progress) -> str:
        """How far the training has come, and how good the model was at its best."""
        assert self._budget is not None
        assert self._judge is not None
        best = f"  best {self._judge.describe(progress.best_score)}" if progress.best_score else ""
        return f"step {progress.step:,}  {self._budget.describe(progress)}{best}"

    @abstractmethod
    def step(self, progress: Progress, outcome: Outcome, spent: float) -> None:
        """One step was taken."""

    @abstractmethod
    def close(self) -> None:
        """Nothing more will come."""


class BarMonitor(Monitor):
    """A progress bar with loss, speed and the time that is left."""

    def __init__(self, console: Console) -> None:
        super().__init__(console)
        columns = (BarColumn(), "{task.percentage:>3.0f}%", TextColumn("{task.description}"), TimeRemainingColumn())
        self._bar = Bar(*columns, console=console, transient=True)
        self._task = TaskID(0)
        self._loss, self._speed = 0.0, _Speed()

    def start(self, budget: Budget, progress: Progress, judge: Judge) -> None:
        """Show the bar."""
        super().start(budget, progress, judge)
        self._task = self._bar.add_task("starting", total=1.0)
        self._bar.update(self._task, completed=budget.spent(progress))
        self._bar.start()

    def step(self, progress: Progress, outcome: Outcome, spent: float) -> None:
        """Move the bar."""
        self._loss = outcome.loss if progress.step == 1 else 0.95 * self._loss + 0.05 * outcome.loss
        speed = self._speed.add(outcome.count)
        text = f"{self.describe(progress)}  loss {self._loss:.3f}  {speed:,.0f} tokens/s"
        self._bar.update(self._task, completed=min(spent, 1.0), description=text)

    def close(self) -> None:
        """Take the bar away."""
        self._bar.stop()


class PlainMonitor(Monitor):
    """A line every few seconds."""

    def __init__(self, console: Console) -> None:
        super().__init__(console)
        self._speed = _Speed()

    def start(self, budget: Budget, progress: Progress, judge: Judge) -> None:
        """Say where it starts."""
        super().start(budget, progress, judge)
        self.say(f"training, {budget.spent(progress):.0%} done")

    def step(self, progress: Progress, outcome: Outcome, spent: float) -> None:
        """A line when it is time for one."""
        speed = self._speed.add(outcome.count)
        if time.monotonic() - self._said >= _PAUSE:
            self._said = time.monotonic()
            done = f"{spent:.0%}  {self.describe(progress)}"
            self.say(f"{done}  loss {outcome.loss:.3f}  {speed:,.0f} tokens/s")

    def close(self) -> None:
        """Every line is out already."""


class _Speed:
    """Predictions a second, over the last few steps."""

    def __init__(self) -> None:
        self._rate, self._last = 0.0, time.perf_counter()

    def add(self, count: int) -> float:
        now = time.perf_counter()
        rate = count / max(now - self._last, 1e-9)
        self._rate = rate if not self._rate else 0.9 * self._rate + 0.1 * rate
        self._last = now
        return self._rate


def open_monitor(console: Console) -> Monitor:
    """A bar in a terminal, plain lines elsewhere."""
    return BarMonitor(console) if console.is_terminal else PlainMonitor(console)


class TensorBoardMonitor(Monitor):
    """Hands everything on to another monitor, and the numbers to TensorBoard."""

    def __init__(self, monitor: Monitor, folder: Path) -> None:
        try:
            from torch.utils.tensorboard import SummaryWriter
        except ImportError:
            raise ConfigError("TensorBoard is not installed; pip install 'seqloom[tensorboard]'") from None
        super().__init__(monitor.console)
        self._monitor, self._folder, self._open = monitor, folder / "tensorboard", SummaryWriter
        self._writer: SummaryWriter | None = None

    def say(self, message: str) -> None:
        """Hand it on."""
        self._monitor.say(message)

    def start(self, budget: Budget, progress: Progress, judge: Judge) -> None:
        """Curves continue from here; what an interrupted training drew beyond this step is hidden."""
        self._monitor.start(budget, progress, judge)
        self._writer = self._open(str(self._folder), purge_step=progress.step + 1)

    def step(self, progress: Progress, outcome: Outcome, spent: float) -> None:
        """A point on each curve."""
        self._monitor.step(progress, outcome, spent)
        self._draw("train", {"loss": outcome.loss, "gradient norm": outcome.norm}, progress.step)
        self._draw("gradient norm by layer", outcome.layers, progress.step)

    def validate(self, progress: Progress, validation: Validation) -> None:
        """A point for each measure."""
        self._monitor.validate(progress, validation)
        self._draw("valid", validation.measures, progress.step)

    def word_vectors(self, progress: WordVectorsProgress) -> None:
        """Hand it on."""
        self._monitor.word_vectors(progress)

    def close(self) -> None:
        """Write what is left."""
        self._monitor.close()
        if self._writer is not None:
            self._writer.close()

    def _draw(self, group: str, values: dict[str, float], step: int) -> None:
        assert self._writer is not None
        for name, value in values.items():
            self._writer.add_scalar(f"{group}/{name}", value, step)
