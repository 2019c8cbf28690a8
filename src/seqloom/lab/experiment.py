"""What an experiment is: a question, units of work, and a report with tables, pictures, claims and one sentence.

A unit is the smallest piece of work whose result is kept, such as one trained model. Each unit is measured once for
each seed; `runner.py` does that, in any order and on several cores, and keeps the results. The report is made from the
results alone. A claim is a sentence that people say about these models: the report says whether it holds here, and by
which numbers.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Generic, TypeVar

from seqloom.config.base import Section
from seqloom.lab.chart import Panel
from seqloom.lab.summary import Summary, summarise

Found = dict[str, Any]
"""The result of a unit: numbers and lists of numbers, by name."""


class Parameters(Section):
    """What can be changed about an experiment; every number has a default that fits two minutes on two cores."""


P = TypeVar("P", bound=Parameters)


@dataclass(frozen=True)
class Table:
    """Rows of text under a head."""

    title: str
    head: Sequence[str]
    rows: Sequence[Sequence[str]]


@dataclass(frozen=True)
class Claim:
    """Something that is said about these models, and what was found."""

    said: str
    holds: bool
    found: str
    """The numbers."""


@dataclass(frozen=True)
class Report:
    """What an experiment shows."""

    tables: Sequence[Table]
    panels: Sequence[Panel]
    claims: Sequence[Claim]
    picture: str
    """What the picture shows, for those who cannot see it."""
    columns: int = 2
    """Panels of the picture side by side."""
    notes: Sequence[str] = ()
    """What a reader should know about how the numbers were made."""


class Results:
    """The results of all units, one for each seed."""

    def __init__(self, found: Mapping[str, Sequence[Found]]) -> None:
        self._found = found

    def __getitem__(self, unit: str) -> Sequence[Found]:
        return self._found[unit]

    def first(self, unit: str) -> Found:
        """The result for the first seed."""
        return self._found[unit][0]

    def summarise(self, unit: str, key: str) -> Summary:
        """A number over all seeds."""
        return summarise([found[key] for found in self._found[unit]])

    def summarise_each(self, unit: str, key: str) -> list[Summary]:
        """A list of numbers over all seeds, number by number."""
        return [summarise(values) for values in zip(*(found[key] for found in self._found[unit]), strict=True)]


class Experiment(ABC, Generic[P]):
    """An experiment; `EXPERIMENT` in each of the files of the lab is one."""

    name: ClassVar[str]
    teaches: ClassVar[str]
    """The one sentence to remember."""
    parameters: type[P]
    smallest: ClassVar[Mapping[str, Any]] = {}
    """Parameters that show the same in a few seconds, for tests."""
    trains: ClassVar[bool] = False
    """Whether units take so long that they are worth a process of their own."""

    @abstractmethod
    def list_units(self, parameters: P) -> Sequence[str]:
        """The names of the units."""

    @abstractmethod
    def measure(self, parameters: P, unit: str, seed: int, folder: Path) -> Found:
        """Measure one unit; `folder` is its own. The same seed gives the same result."""

    @abstractmethod
    def report(self, parameters: P, results: Results) -> Report:
        """What the results show."""
