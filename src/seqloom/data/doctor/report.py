"""The doctor's report: findings by kind with the first few places of each, sizes, and whether training may start.

A report is written to and read from JSON.
"""

from typing import Literal

from pydantic import BaseModel, ConfigDict

from seqloom.config.checks import Checks, Severity
from seqloom.data.examples import KINDS, UNREADABLE, Fault
from seqloom.errors import DataError

SHOWN = 5
"""Places kept of each kind."""


class _Part(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Place(_Part):
    """A place and the message about it."""

    path: str
    line: int
    """Counted from 1; 0 is the file as a whole."""
    message: str

    def __str__(self) -> str:
        return f"{self.path}:{self.line}" if self.line else self.path


class Finding(_Part):
    """One kind of fault in one split."""

    kind: str
    severity: Literal["error", "warn"]
    split: str
    count: int
    """Records (or files) concerned."""
    places: tuple[Place, ...]
    """The first of them."""

    @property
    def meaning(self) -> str:
        """What this kind of finding means."""
        return KINDS[self.kind]


def get_severity(kind: str, checks: Checks) -> Severity:
    """How severe a finding is under these settings."""
    return "error" if kind in UNREADABLE else getattr(checks, kind)


class Findings:
    """Collects faults; with `remember`, also the line of every error, which a repair needs."""

    def __init__(self, checks: Checks, *, remember: bool = False) -> None:
        self.checks = checks
        self.counts: dict[tuple[str, str], int] = {}
        self.places: dict[tuple[str, str], list[Place]] = {}
        self.remember = remember
        self.error_lines: dict[str, dict[int, str]] = {}
        """By file: the lines of records that are errors, and of which kind."""

    def wants(self, kind: str) -> bool:
        """Whether this kind is looked for at all."""
        return get_severity(kind, self.checks) != "off"

    def add(self, split: str, fault: Fault) -> None:
        """Count a fault."""
        severity = get_severity(fault.kind, self.checks)
        if severity == "off":
            return
        key = (split, fault.kind)
        self.counts[key] = self.counts.get(key, 0) + fault.count
        places = self.places.setdefault(key, [])
        if len(places) < SHOWN:
            places.append(Place(path=fault.path, line=fault.line, message=fault.message))
        if self.remember and severity == "error" and fault.line:
            self.error_lines.setdefault(fault.path, {}).setdefault(fault.line, fault.kind)

    def has_unreadable(self, split: str) -> bool:
        """Whether something in a split could not be read."""
        return any(where == split and kind in UNREADABLE for where, kind in self.counts)

    def limit(self, kind: str) -> int | None:
        """How many places of a kind are described one by one; None is all of them."""
        return None if self.remember and get_severity(kind, self.checks) == "error" else SHOWN

    def summary(self) -> tuple[Finding, ...]:
        """The findings, errors first, then in the order they were found."""
        found = [
            Finding(
                kind=kind,
                severity="error" if get_severity(kind, self.checks) == "error" else "warn",
                split=split,
                count=count,
                places=tuple(self.places[split, kind]),
            )
            for (split, kind), count in self.counts.items()
        ]
        return tuple(sorted(found, key=lambda f: f.severity != "error"))


class Lengths(_Part):
    """Words per record."""

    mean: float
    median: int
    high: int
    """95% of the records have at most this many words."""
    longest: int
    histogram: tuple[tuple[int, int], ...]
    """(up to this many words, records), each step twice as wide as the one before."""


class Coverage(_Part):
    """How much of a validation or test column also occurs in the training split."""

    words: float
    """Share of the running words."""
    characters: float
    """Share of the characters."""
    unseen_words: tuple[str, ...]
    """The most frequent words that training never sees."""
    unseen_characters: tuple[str, ...]
    """The most frequent characters that training never sees."""


class TextStats(_Part):
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


class SplitStats(_Part):
    """One split."""

    split: str
    records: int
    files: int
    columns: dict[str, TextStats]
    labels: dict[str, int]
    """Records per label or words per tag, the most frequent first; empty where there are none or they are numbers."""
    distinct_labels: int
    compared: int
    """Records that were compared for duplicates and overlap: all of them, up to a limit."""
    several_sentences: float | None
    """Share of the sources of pairs that have several sentences; None where there are no pairs."""


class TokenLengths(_Part):
    """Tokens per record of one column, without special tokens."""

    tokens: int
    mean: float
    median: int
    high: int
    """95% of the records have at most this many tokens."""
    longest: int


class TreatedRecords(_Part):
    """Records of a split that training will leave out, cut or split."""

    split: str
    what: str
    """Which ones, and what is done with them."""
    count: int
    places: tuple[str, ...]
    """Where each of them is, as `file:line`."""


class Rehearsal(_Part):
    """What training will do with the records, found out by preparing them as training does."""

    tokenizer: str
    """Where the tokeniser is from, in words."""
    vocabulary: int
    target_vocabulary: int | None = None
    """That of targets, where they have a tokeniser of their own."""
    first_records: int | None
    """How many records of each corpus were prepared; None is all of them."""
    lengths: dict[str, dict[str, TokenLengths]]
    """By split and column."""
    batches: str
    """How large they are, and why, in words."""
    treated: tuple[TreatedRecords, ...]


class Forecast(_Part):
    """What training would take on this machine, measured with a few real steps."""

    size: str
    """The size of the model."""
    steps_per_epoch: int
    minutes_per_epoch: float
    budget: str
    """The budget of the configuration: `10 minutes`."""
    epochs: float
    """How many that is."""
    minutes: float
    """How long that takes."""
    peak_memory_bytes: int | None
    snapshots: int
    """How many snapshots of the weights the run would keep."""
    snapshot_bytes: int
    """How much room each of them takes."""


class Report(_Part):
    """Everything `seqloom check` prints."""

    findings: tuple[Finding, ...]
    splits: tuple[SplitStats, ...]
    rehearsal: Rehearsal | None = None
    not_rehearsed: str = ""
    """Why the data was not prepared as training prepares it; empty where it was, or where nothing is prepared."""
    refusal: str = ""
    """Why training would refuse to start although the data are sound; empty where it would not."""
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

    @property
    def several_sentences(self) -> float | None:
        """The share of the training sources that have several sentences."""
        return next((split.several_sentences for split in self.splits if split.split == "train"), None)

    def refuse(self) -> None:
        """Raise `DataError` if there is any error."""
        if not self.errors:
            return
        lines = [
            f"{f.places[0]}: {f.kind}: {f.places[0].message}" + (f" (and {f.count - 1:,} more)" if f.count > 1 else "")
            for f in self.errors
        ]
        advice = "`seqloom check CONFIG` shows all of them"
        if any(place.line for finding in self.errors for place in finding.places):
            advice += ", `seqloom check CONFIG --fix DIR` writes a repaired copy"
        elif any(finding.kind == "missing_file" for finding in self.errors):
            advice += "; names of files are relative to the folder of the configuration"
        raise DataError("training refuses this data:\n  " + "\n  ".join(lines) + f"\n{advice}")
