"""The report of an experiment: printed, and as Markdown, SVG and JSON."""

import json
import re
from dataclasses import asdict
from pathlib import Path
from typing import Any

from seqloom.files import write_whole
from seqloom.lab.catalogue import QUESTIONS
from seqloom.lab.chart import draw
from seqloom.lab.experiment import Claim, Report, Table

_NUMBER = re.compile(r"[-–\d.,e ±→]+")


def write_page(
    name: str, teaches: str, report: Report, folder: Path, about: dict[str, Any], results: dict[str, Any]
) -> dict[str, Any]:
    """Write NAME.md, NAME.svg and NAME.json; returns what the last one holds. `about` says how it was made."""
    facts = {
        "experiment": name,
        "question": QUESTIONS[name],
        "teaches": teaches,
        **about,
        "claims": [asdict(claim) for claim in report.claims],
        "results": results,
    }
    write_whole(folder / f"{name}.svg", draw(report.panels, report.picture, report.columns).encode())
    write_whole(folder / f"{name}.json", (json.dumps(facts, ensure_ascii=False, indent=1) + "\n").encode())
    write_whole(folder / f"{name}.md", _write_markdown(name, teaches, report, about).encode())
    return facts


def print_report(name: str, teaches: str, report: Report) -> str:
    """The report as plain text."""
    parts = [QUESTIONS[name]]
    parts += [f"{table.title}\n{align(table)}" for table in report.tables]
    parts += ["\n".join(_say(claim) for claim in report.claims)] if report.claims else []
    return "\n\n".join(part for part in (*parts, *report.notes, teaches) if part)


def _say(claim: Claim) -> str:
    return f"{'holds' if claim.holds else 'does not hold'}: {claim.said} ({claim.found})"


def align(table: Table) -> str:
    """A table as plain text."""
    rows = [table.head, *table.rows]
    widths = [max(len(row[column]) for row in rows) for column in range(len(table.head))]
    sides = [str.rjust if _is_numeric(table, column) else str.ljust for column in range(len(table.head))]
    lines = ["  ".join(side(cell, wide) for side, cell, wide in zip(sides, row, widths, strict=True)) for row in rows]
    return "\n".join(line.rstrip() for line in lines)


def _is_numeric(table: Table, column: int) -> bool:
    """Whether a column holds numbers, which end at the same place."""
    return bool(column) and all(not row[column] or _NUMBER.fullmatch(row[column]) for row in table.rows)


def _write_markdown(name: str, teaches: str, report: Report, about: dict[str, Any]) -> str:
    parts = [f"# {name}: {QUESTIONS[name]}", teaches, f"![{report.picture}]({name}.svg)"]
    parts += [f"**{table.title}**\n\n{write_table(table)}" for table in report.tables]
    if report.claims:
        head = ("what is said", "here", "what was found")
        rows = [(claim.said, "holds" if claim.holds else "does not hold", claim.found) for claim in report.claims]
        parts.append(write_table(Table("", head, rows)))
    parts += report.notes
    parts.append("Made by `" + about["command"] + "`; [every number](" + name + ".json).")
    return "\n\n".join(part for part in parts if part) + "\n"


def write_table(table: Table) -> str:
    """A table in Markdown."""
    marks = ["---:" if _is_numeric(table, column) else "---" for column in range(len(table.head))]
    rows = [table.head, marks, *table.rows]
    return "\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |" for row in rows)
