"""What happened, on one page: curves, samples, gradients by layer, and how to use the model. One file, no scripts."""

import html
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

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


def write_report(run: Run, facts: dict[str, str], command: str) -> Path:
    """Make the page of a run from its log."""
    lines = [json.loads(line) for line in run.log.path.read_text(encoding="utf-8").splitlines()]
    steps = [line for line in lines if "loss" in line]
    valid = [line for line in lines if "valid" in line]
    parts = [f"<h1>{html.escape(run.folder.name)}</h1>", _table(facts)]
    parts += ["<h2>Use it</h2>", f"<pre>{html.escape(command)}</pre>"]
    parts += _curve("Training loss", _smooth([(line["step"], line["loss"]) for line in steps]))
    for name in valid[-1]["valid"] if valid else ():
        parts += _curve(f"Validation {name}", [(line["step"], line["valid"][name]) for line in valid], dots=True)
    parts += _curve("Gradient norm", _smooth([(line["step"], line["norm"]) for line in steps]))
    parts += _curve("Learning rate, as a share of its peak", [(line["step"], line["rate"]) for line in steps])
    parts += _bars("Gradient norm by layer, last measured", _last(lines, "layers"))
    samples = _last(lines, "samples")
    if samples:
        parts += ["<h2>Samples</h2>", f"<pre>{html.escape(chr(10).join(samples))}</pre>"]
    title = html.escape(f"seqloom: {run.folder.name}")
    head = f'<meta charset="utf-8"><meta name="viewport" content="width=device-width"><title>{title}</title>'
    page = (
        f"<!doctype html><html lang=en><head>{head}<style>{_STYLE}</style></head><body>{''.join(parts)}</body></html>\n"
    )
    path = run.folder / "report.html"
    path.write_text(page, encoding="utf-8")
    return path


def _last(lines: Sequence[dict[str, Any]], key: str) -> Any:
    return next((line[key] for line in reversed(lines) if line.get(key)), {})


def _table(facts: dict[str, str]) -> str:
    rows = (f"<tr><th>{html.escape(name)}</th><td>{html.escape(value)}</td></tr>" for name, value in facts.items())
    return f"<table>{''.join(rows)}</table>"


def _smooth(points: Points, most: int = 400) -> Points:
    """Means over stretches of steps, so that a long training is still a readable line."""
    size = max(1, -(-len(points) // most))
    stretches = (points[start : start + size] for start in range(0, len(points), size))
    return [(part[-1][0], sum(value for _, value in part) / len(part)) for part in stretches]


def _curve(title: str, points: Points, *, dots: bool = False) -> list[str]:
    points = [(x, y) for x, y in points if y == y and abs(y) != float("inf")]
    if not points:
        return []
    left, right = points[0][0], max(points[-1][0], points[0][0] + 1)
    low, high = min(y for _, y in points), max(y for _, y in points)
    high = high if high > low else low + 1.0

    def place(x: float, y: float) -> tuple[float, float]:
        across = _MARGIN + (x - left) / (right - left) * (_WIDTH - 2 * _MARGIN)
        return round(across, 1), round(_HEIGHT - 24 - (y - low) / (high - low) * (_HEIGHT - 44), 1)

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
