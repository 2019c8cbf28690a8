"""What a person sees of a training: a live line in a terminal, plain lines anywhere else."""

import time
from abc import ABC, abstractmethod
from types import TracebackType
from typing import Self

from rich.console import Console
from rich.progress import BarColumn, TaskID, TextColumn, TimeRemainingColumn
from rich.progress import Progress as Bar

from seqloom.training.budget import Budget, Progress
from seqloom.training.evaluate import Evaluation
from seqloom.training.step import Outcome
from seqloom.training.word_vectors import Progress as WordProgress

_PAUSE = 10.0  # seconds between two lines


class Watch(ABC):
    """Hears of everything that happens."""

    def __init__(self, console: Console) -> None:
        self.console = console
        self._told = time.monotonic()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def tell(self, message: str) -> None:
        """Something worth a line."""
        self.console.print(message, highlight=False, soft_wrap=True)

    def judge(self, progress: Progress, evaluation: Evaluation) -> None:
        """A look at the validation data."""
        measures = "  ".join(f"{name} {value:.3f}" for name, value in evaluation.measures.items())
        best = "  (best so far)" if progress.best_step == progress.step else ""
        self.tell(f"step {progress.step:,}: validation {measures}{best}")
        for sample in evaluation.samples[:2]:
            self.tell(f"    {sample}")

    def word_vectors(self, progress: WordProgress) -> None:
        """Word vectors are being learned: say how far, now and then."""
        match progress.phase:
            case "counted":
                self.tell(f"{progress.vocabulary:,} words; {progress.rare:,} running words are too rare and left out")
            case "training" if time.monotonic() - self._told >= _PAUSE or progress.done == progress.total:
                self._told = time.monotonic()
                self.tell(f"{progress.done / progress.total:.0%} of {progress.total:,} words, loss {progress.loss:.3f}")

    @abstractmethod
    def start(self, budget: Budget, progress: Progress) -> None:
        """Training begins or goes on."""

    @abstractmethod
    def step(self, progress: Progress, outcome: Outcome, spent: float) -> None:
        """One step was taken."""

    @abstractmethod
    def close(self) -> None:
        """Nothing more will come."""


class LiveWatch(Watch):
    """A progress bar with loss, speed and the time that is left."""

    def __init__(self, console: Console) -> None:
        super().__init__(console)
        columns = (BarColumn(), "{task.percentage:>3.0f}%", TextColumn("{task.description}"), TimeRemainingColumn())
        self._bar = Bar(*columns, console=console, transient=True)
        self._task = TaskID(0)
        self._loss, self._speed = 0.0, _Speed()

    def start(self, budget: Budget, progress: Progress) -> None:
        """Show the bar."""
        self._task = self._bar.add_task("starting", total=1.0)
        self._bar.update(self._task, completed=budget.spent(progress))
        self._bar.start()

    def step(self, progress: Progress, outcome: Outcome, spent: float) -> None:
        """Move the bar."""
        self._loss = outcome.loss if progress.step == 1 else 0.95 * self._loss + 0.05 * outcome.loss
        speed = self._speed.add(outcome.count)
        text = f"step {progress.step:,}  loss {self._loss:.3f}  {speed:,.0f} tokens/s"
        self._bar.update(self._task, completed=min(spent, 1.0), description=text)

    def close(self) -> None:
        """Take the bar away."""
        self._bar.stop()


class PlainWatch(Watch):
    """A line every few seconds."""

    def __init__(self, console: Console) -> None:
        super().__init__(console)
        self._speed = _Speed()

    def start(self, budget: Budget, progress: Progress) -> None:
        """Say where it starts."""
        self.tell(f"training, {budget.spent(progress):.0%} done")

    def step(self, progress: Progress, outcome: Outcome, spent: float) -> None:
        """A line when it is time for one."""
        speed = self._speed.add(outcome.count)
        if time.monotonic() - self._told >= _PAUSE:
            self._told = time.monotonic()
            self.tell(f"step {progress.step:,} ({spent:.0%}): loss {outcome.loss:.3f}, {speed:,.0f} tokens/s")

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


def open_watch(console: Console) -> Watch:
    """Live in a terminal, plain elsewhere."""
    return LiveWatch(console) if console.is_terminal else PlainWatch(console)
