"""What was found: counted by kind, with the first few places of each."""

from typing import Literal

from pydantic import BaseModel, ConfigDict

from seqloom.config.checks import Checks, Severity
from seqloom.data.fault import KINDS, UNREADABLE, Fault

SHOWN = 5
"""Places kept of each kind."""


class Place(BaseModel):
    """Where, and what exactly."""

    model_config = ConfigDict(frozen=True)

    path: str
    line: int
    """Counted from 1; 0 is the file as a whole."""
    message: str

    def __str__(self) -> str:
        return f"{self.path}:{self.line}" if self.line else self.path


class Finding(BaseModel):
    """One kind of fault in one split."""

    model_config = ConfigDict(frozen=True)

    kind: str
    severity: Literal["error", "warn"]
    split: str
    count: int
    """Records (or files) concerned."""
    places: tuple[Place, ...]
    """The first of them."""

    @property
    def meaning(self) -> str:
        """What this kind of finding is."""
        return KINDS[self.kind]


def weigh(kind: str, checks: Checks) -> Severity:
    """How much a finding weighs under these settings."""
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
        return weigh(kind, self.checks) != "off"

    def add(self, split: str, fault: Fault) -> None:
        """Count a fault."""
        severity = weigh(fault.kind, self.checks)
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
        """How many places of a kind are worth describing one by one: None is all of them."""
        return None if self.remember and weigh(kind, self.checks) == "error" else SHOWN

    def summary(self) -> tuple[Finding, ...]:
        """The findings, errors first, then in the order they were met."""
        found = [
            Finding(
                kind=kind,
                severity="error" if weigh(kind, self.checks) == "error" else "warn",
                split=split,
                count=count,
                places=tuple(self.places[split, kind]),
            )
            for (split, kind), count in self.counts.items()
        ]
        return tuple(sorted(found, key=lambda f: f.severity != "error"))
