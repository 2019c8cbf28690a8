"""What the doctor says: findings, sizes, and whether training may start. Written to and read from JSON."""

from pydantic import BaseModel, ConfigDict

from seqloom.data.doctor.findings import Finding
from seqloom.errors import DataError


class Part(BaseModel):
    """A piece of the report."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class Lengths(Part):
    """Words per record."""

    mean: float
    median: int
    high: int
    """95% of the records have at most this many words."""
    longest: int
    histogram: tuple[tuple[int, int], ...]
    """(up to this many words, records), each step twice as wide as the one before."""


class Coverage(Part):
    """How much of a validation or test column stands in the training split."""

    words: float
    """Share of the running words."""
    characters: float
    """Share of the characters."""
    unseen_words: tuple[str, ...]
    """The most frequent words that training never sees."""
    unseen_characters: tuple[str, ...]
    """The most frequent characters that training never sees."""


class TextStats(Part):
    """One column of text."""

    words: int
    characters: int
    bytes: int
    """In UTF-8, without line ends."""
    distinct_words: int
    distinct_characters: int
    vocabulary_complete: bool
    """Whether words were collected to the end, or only from the first part of a long column."""
    lengths: Lengths
    coverage: Coverage | None


class SplitStats(Part):
    """One split."""

    split: str
    records: int
    files: int
    columns: dict[str, TextStats]
    labels: dict[str, int]
    """Records per label or words per tag, the most frequent first; empty where there are none or they are numbers."""
    distinct_labels: int
    compared: int
    """Records looked at for duplicates and overlap: all of them, up to a limit."""


class Forecast(Part):
    """What training would take on this machine, measured with a few real steps."""

    size: str
    """The size of the model."""
    steps_per_epoch: int
    minutes_per_epoch: float
    peak_memory_bytes: int | None


class Report(Part):
    """Everything `seqloom check` prints."""

    findings: tuple[Finding, ...]
    splits: tuple[SplitStats, ...]
    forecast: Forecast | None = None

    @property
    def errors(self) -> tuple[Finding, ...]:
        """The findings that training refuses."""
        return tuple(finding for finding in self.findings if finding.severity == "error")

    @property
    def words(self) -> int:
        """The running words there are to learn from, on the longer side of a parallel corpus."""
        train = [split for split in self.splits if split.split == "train"]
        return max((column.words for split in train for column in split.columns.values()), default=0)

    def refuse(self) -> None:
        """Raise `DataError` if there is any error."""
        if not self.errors:
            return
        lines = [
            f"{f.places[0]}: {f.kind}: {f.places[0].message}" + (f" (and {f.count - 1:,} more)" if f.count > 1 else "")
            for f in self.errors
        ]
        advice = "`seqloom check CONFIG` shows all of it, `seqloom check CONFIG --fix DIR` writes a repaired copy"
        raise DataError("the data cannot be trained on:\n  " + "\n  ".join(lines) + f"\n{advice}")
