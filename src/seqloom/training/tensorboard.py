"""The curves of a training in TensorBoard, beside what a person sees anyway. Behind the extra `tensorboard`."""

from pathlib import Path

from seqloom.errors import ConfigError
from seqloom.training.budget import Budget, Progress
from seqloom.training.evaluate import Evaluation
from seqloom.training.step import Outcome
from seqloom.training.watch import Watch
from seqloom.training.word_vectors import Progress as WordProgress


class TensorBoardWatch(Watch):
    """Hands everything on to another watch, and the numbers to TensorBoard."""

    def __init__(self, watch: Watch, folder: Path) -> None:
        try:
            from torch.utils.tensorboard import SummaryWriter
        except ImportError:
            raise ConfigError("TensorBoard is not installed; pip install 'seqloom[tensorboard]'") from None
        super().__init__(watch.console)
        self._watch, self._folder, self._open = watch, folder / "tensorboard", SummaryWriter
        self._writer: SummaryWriter | None = None

    def tell(self, message: str) -> None:
        """Hand it on."""
        self._watch.tell(message)

    def start(self, budget: Budget, progress: Progress) -> None:
        """Curves go on from here; what an interrupted training drew beyond it is hidden."""
        self._watch.start(budget, progress)
        self._writer = self._open(str(self._folder), purge_step=progress.step + 1)

    def step(self, progress: Progress, outcome: Outcome, spent: float) -> None:
        """A point on each curve."""
        self._watch.step(progress, outcome, spent)
        self._draw("train", {"loss": outcome.loss, "gradient": outcome.norm}, progress.step)
        self._draw("gradient by layer", outcome.layers, progress.step)

    def judge(self, progress: Progress, evaluation: Evaluation) -> None:
        """A point for each measure."""
        self._watch.judge(progress, evaluation)
        self._draw("valid", evaluation.measures, progress.step)

    def word_vectors(self, progress: WordProgress) -> None:
        """Hand it on."""
        self._watch.word_vectors(progress)

    def close(self) -> None:
        """Write what is left."""
        self._watch.close()
        if self._writer is not None:
            self._writer.close()

    def _draw(self, group: str, values: dict[str, float], step: int) -> None:
        assert self._writer is not None
        for name, value in values.items():
            self._writer.add_scalar(f"{group}/{name}", value, step)
