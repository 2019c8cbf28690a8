"""What happened, on one page: curves, samples, gradients by layer, and how to use the model. One file, no scripts."""

import html
import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any, TypeVar

from seqloom.files import write_whole
from seqloom.runs.run import Run

_WIDTH, _HEIGHT, _MARGIN = 640, 220, 46
_STYLE = """
body { font: 16px/1.5 system-ui, sans-serif; max-width: 44rem; margin: 2rem auto; padding: 0 1rem; color: #222 }
h1 { font-size: 1.6rem } h2 { font-size: 1.15rem; margin-top: 2rem }
svg { width: 100%; height: auto } svg text { font-size: 11px; fill: #555 }
.line { fill: none; stroke: #0b6e99; stroke-width: 1.6 } .dot { fill: #c4441a } .axis { stroke: #bbb }
pre { background: #f4f4f2; padding: .8rem; overflow-x: auto } table { border-collapse: collapse }
td, th { padding: .2rem .8rem .2rem 0; text-align: left; font-variant-numeric: tabular-nums }
@media (prefers-color-scheme: dark) { body { background: #181818; color: #ddd } pre { background: #242424 }
  svg text { fill: #aaa } }
"""
Points = Sequence[tuple[float, float]]
T = TypeVar("T")


def write_report(run: Run, facts: dict[str, str], command: str) -> Path:
    """Make the page of a run from its log; what cannot be read of the log is left out, and the page says so."""
    lines, damaged = _read_log(run.log.path)
    measured = [{**line["valid"], "step": line.get("step")} for line in lines if isinstance(line.get("valid"), dict)]
    parts = [f"<h1>{html.escape(run.folder.name)}</h1>", _table(facts)]
    if damaged:
        parts.append(f"<p>{damaged:,} of {damaged + len(lines):,} lines of log.jsonl are damaged and left out.</p>")
    parts += ["<h2>Use it</h2>", f"<pre>{html.escape(command)}</pre>"]
    parts += _curve("Training loss", _smooth(_find_points(lines, "loss")))
    for name in measured[-1] if measured else ():
        if name != "step":
            parts += _curve(f"Validation {name}", _find_points(measured, name), dots=True)
    parts += _curve("Gradient norm", _smooth(_find_points(lines, "norm")))
    parts += _curve("Learning rate, as a share of its peak", _find_points(lines, "rate"))
    parts += _bars("Gradient norm by layer, last measured", _last(lines, "layers", {}))
    samples: list[str] = _last(lines, "samples", [])
    if samples:
        parts += ["<h2>Samples</h2>", f"<pre>{html.escape(chr(10).join(map(str, samples)))}</pre>"]
    title = html.escape(f"seqloom: {run.folder.name}")
    head = f'<meta charset="utf-8"><meta name="viewport" content="width=device-width"><title>{title}</title>'
    page = (
        f"<!doctype html><html lang=en><head>{head}<style>{_STYLE}</style></head><body>{''.join(parts)}</body></html>\n"
    )
    path = run.folder / "report.html"
    write_whole(path, page.encode(errors="backslashreplace"))
    return path


def _read_log(path: Path) -> tuple[list[dict[str, Any]], int]:
    """The lines of a log, and how many are not what was written. Only LF ends a line: a text may hold U+2028."""
    lines, damaged = [], 0
    for text in path.read_bytes().split(b"\n")[:-1]:
        try:
            line = json.loads(text)
        except ValueError:
            line = None
        if isinstance(line, dict):
            lines.append(line)
        else:
            damaged += 1
    return lines, damaged


def _find_points(lines: Sequence[dict[str, Any]], key: str) -> Points:
    """The steps and values of those lines that have both."""
    return [(line["step"], line[key]) for line in lines if _is_finite(line.get("step")) and _is_finite(line.get(key))]


def _is_finite(value: Any) -> bool:
    return isinstance(value, int | float) and math.isfinite(value)


def _last(lines: Sequence[dict[str, Any]], key: str, empty: T) -> T:
    """The last value that is not empty, of the type that `empty` has."""
    values = (line.get(key) for line in reversed(lines))
    return next((value for value in values if value and isinstance(value, type(empty))), empty)


def _table(facts: dict[str, str]) -> str:
    rows = (f"<tr><th>{html.escape(name)}</th><td>{html.escape(value)}</td></tr>" for name, value in facts.items())
    return f"<table>{''.join(rows)}</table>"


def _smooth(points: Points, most: int = 400) -> Points:
    """Means over stretches of steps, so that a long training is still a readable line."""
    size = max(1, -(-len(points) // most))
    stretches = (points[start : start + size] for start in range(0, len(points), size))
    return [(part[-1][0], sum(value for _, value in part) / len(part)) for part in stretches]


def _curve(title: str, points: Points, *, dots: bool = False) -> list[str]:
    points = [(x, y) for x, y in points if math.isfinite(y)]  # a mean may not be finite although its terms are
    if not points:
        return []
    left, right = min(x for x, _ in points), max(x for x, _ in points)
    low, high = min(y for _, y in points), max(y for _, y in points)
    wide, scale = (right - left) or 1.0, max(abs(low), abs(high)) or 1.0
    tall = (high / scale - low / scale) or 1.0  # high - low may be no float

    def place(x: float, y: float) -> tuple[float, float]:
        across = _MARGIN + (x - left) / wide * (_WIDTH - 2 * _MARGIN)
        return round(across, 1), round(_HEIGHT - 24 - (y / scale - low / scale) / tall * (_HEIGHT - 44), 1)

    placed = [place(x, y) for x, y in points]
    shape = f'<polyline class="line" points="{" ".join(f"{x},{y}" for x, y in placed)}"/>'
    marks = "".join(f'<circle class="dot" cx="{x}" cy="{y}" r="3"/>' for x, y in placed) if dots else ""
    labels = (
        f'<text x="4" y="16">{high:.4g}</text><text x="4" y="{_HEIGHT - 24}">{low:.4g}</text>'
        f'<text x="{_MARGIN}" y="{_HEIGHT - 6}">step {left:,.0f}</text>'
        f'<text x="{_WIDTH - _MARGIN}" y="{_HEIGHT - 6}" text-anchor="end">{right:,.0f}</text>'
        f'<line class="axis" x1="{_MARGIN}" x2="{_WIDTH - _MARGIN}" y1="{_HEIGHT - 22}" y2="{_HEIGHT - 22}"/>'
    )
    return [f"<h2>{html.escape(title)}</h2>", _draw(_HEIGHT, labels + shape + marks)]


def _bars(title: str, values: dict[str, float]) -> list[str]:
    values = {name: value for name, value in values.items() if _is_finite(value)}
    if not values:
        return []
    most = max(values.values()) or 1.0
    rows = []
    for number, (name, value) in enumerate(values.items()):
        y = 4 + number * 16
        length = round(value / most * (_WIDTH - 300), 1)
        rows.append(
            f'<text x="0" y="{y + 10}">{html.escape(name)}</text><rect x="210" y="{y}" width="{length}" height="12" '
            f'fill="#0b6e99"/><text x="{214 + length}" y="{y + 10}">{value:.3g}</text>'
        )
    return [f"<h2>{html.escape(title)}</h2>", _draw(8 + 16 * len(values), "".join(rows))]


def _draw(height: int, content: str) -> str:
    return f'<svg viewBox="0 0 {_WIDTH} {height}" role="img">{content}</svg>'
