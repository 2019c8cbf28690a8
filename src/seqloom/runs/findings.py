"""What is known of the data of a run: sizes, what the checks found, and what was left out, cut or split."""

from collections import Counter
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from seqloom.data.doctor.report import Report, SplitStats
from seqloom.runs.run import Run

_LABELS, _UNSEEN = 50, 10
"""The most labels, and the most words that training never sees, that are listed."""


def read_findings(run: Run) -> dict[str, Any]:
    """Everything about the data, as JSON has it; `note` says what is missing."""
    report = _find_report(run.data / "checks")
    treated = _count_treated(run.treated)
    if report is None:
        note = "What the checks found is no longer in the run's folder data; `seqloom check CONFIG` finds it again."
        return {"splits": [], "findings": [], "treated": treated, "note": note}
    findings = [
        {
            "kind": finding.kind,
            "meaning": finding.meaning,
            "severity": finding.severity,
            "split": finding.split,
            "count": finding.count,
            "places": [f"{place}: {place.message}" for place in finding.places],
        }
        for finding in report.findings
    ]
    return {"splits": list(map(_describe, report.splits)), "findings": findings, "treated": treated, "note": ""}


def _find_report(folder: Path) -> Report | None:
    """What the last check found."""
    try:
        files = sorted(folder.glob("*.json"), key=lambda path: path.stat().st_mtime, reverse=True)
    except OSError:
        return None
    for path in files:
        try:
            return Report.model_validate_json(path.read_bytes())
        except (OSError, ValidationError):  # one that lists files, or is being written, or damaged
            continue
    return None


def _describe(split: SplitStats) -> dict[str, Any]:
    return {
        "split": split.split,
        "records": split.records,
        "columns": [
            {
                "name": name,
                "words": column.words,
                "distinct": column.distinct_words,
                "complete": column.vocabulary_complete,
                "mean": column.lengths.mean,
                "longest": column.lengths.longest,
                "seen": None if column.coverage is None else column.coverage.words,
                "unseen": [] if column.coverage is None else list(column.coverage.unseen_words[:_UNSEEN]),
            }
            for name, column in split.columns.items()
        ],
        "labels": list(split.labels.items())[:_LABELS],
        "distinct_labels": split.distinct_labels,
    }


def _count_treated(path: Path) -> list[dict[str, Any]]:
    """How many records of each split were left out, cut or split."""
    counts: Counter[tuple[str, str]] = Counter()
    try:
        with path.open(encoding="utf-8", errors="replace", newline="\n") as file:
            for line in file:
                split, _, what = line.rstrip("\n").split("\t", 2) if line.count("\t") >= 2 else ("", "", "unreadable")
                counts[split, what] += 1
    except OSError:  # there were none
        return []
    return [{"split": split, "what": what, "count": count} for (split, what), count in counts.items()]
