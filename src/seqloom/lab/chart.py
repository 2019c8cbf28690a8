"""Charts as SVG: lines, bars, intervals and grids, with axes, ticks and legends; no library, no script, no fonts.

A chart is a list of panels side by side. Colours are those of Okabe & Ito (2008), which most people with a colour
vision deficiency can tell apart; lines also differ in their dashes. In a dark page the background is dark.
"""

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from html import escape

Point = tuple[float, float]
_COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#56b4e9", "#e69f00", "#8a8a8a", "#5d3a9b")
_DASHES = ("", "6 3", "2 2", "8 3 2 3", "4 2", "9 2 2 2 2 2", "10 4", "3 1 1 1")
_STYLE = """text{font:12px system-ui,sans-serif;fill:#444}.title{font-weight:600;fill:#222}.axis{stroke:#888;fill:none}
.grid{stroke:#e4e4e4}.page{fill:#fff}.mark{fill:#999;opacity:.16}
@media(prefers-color-scheme:dark){text{fill:#bbb}.title{fill:#eee}.grid{stroke:#333}.page{fill:#181818}}"""
_PLOT, _HIGH = 320.0, 210.0
_LEFT, _RIGHT, _TOP, _BOTTOM = 58.0, 14.0, 34.0, 46.0
_LETTER = 6.9  # the mean width of a letter, in pixels, also where fonts are wide


@dataclass(frozen=True)
class Axis:
    """What an axis shows, from where to where; by default as far as the data."""

    label: str
    log: bool = False
    low: float | None = None
    high: float | None = None
    ticks: tuple[float, ...] = ()
    """Where numbers stand; by default at round ones."""


@dataclass(frozen=True)
class Series:
    """Points that belong together."""

    name: str
    points: Sequence[Point]
    spread: Sequence[tuple[float, float]] = ()
    """The ends of an interval at each point."""
    steps: bool = False
    """Whether it is a staircase."""


@dataclass(frozen=True)
class Lines:
    """Curves over a number. On a logarithmic axis, values that are not above 0 end a curve."""

    title: str
    x: Axis
    y: Axis
    series: Sequence[Series]
    bands: Sequence[tuple[float, float, str]] = ()
    """Stretches of the x axis that are marked: from, to, and what they are."""


@dataclass(frozen=True)
class Bars:
    """Groups of bars."""

    title: str
    groups: Sequence[str]
    y: Axis
    series: Sequence[tuple[str, Sequence[float]]]
    spread: Sequence[Sequence[tuple[float, float]]] = field(default=())
    """The ends of an interval for each bar of each series."""
    label: str = ""
    """What the groups are."""


@dataclass(frozen=True)
class Grid:
    """A matrix of shares between 0 and 1, the darker the larger."""

    title: str
    rows: Sequence[str]
    columns: Sequence[str]
    values: Sequence[Sequence[float]]
    row_label: str = ""
    column_label: str = ""


@dataclass(frozen=True)
class Intervals:
    """Values one below the other, each with its interval: what is compared need not begin at 0."""

    title: str
    x: Axis
    rows: Sequence[tuple[str, float, tuple[float, float]]]
    """A name, a value and the ends of its interval."""


Panel = Lines | Bars | Intervals | Grid


def draw(panels: Sequence[Panel], description: str, columns: int = 2) -> str:
    """A picture of some panels; the description is for those who cannot see it."""
    wide = _LEFT + _PLOT + _RIGHT
    drawn = [(_draw_panel(panel), _below(panel) + 16.0 * _legend_rows(panel)) for panel in panels]
    rows = [drawn[start : start + columns] for start in range(0, len(drawn), columns)]
    parts, top = [], 0.0
    for row in rows:
        for column, (content, _) in enumerate(row):
            parts.append(f'<g transform="translate({column * wide:g} {top:g})">{content}</g>')
        top += _TOP + _HIGH + max(below for _, below in row) + 8.0
    width = wide * min(columns, len(panels))
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:g} {top:g}" width="{width:g}" role="img">'
    page = f'<rect class="page" width="{width:g}" height="{top:g}"/>'
    return f"{head}<title>{escape(description)}</title><style>{_STYLE}</style>{page}{''.join(parts)}</svg>\n"


def _draw_panel(panel: Panel) -> str:
    match panel:
        case Lines():
            parts = _draw_lines(panel)
        case Bars():
            parts = _draw_bars(panel)
        case Intervals():
            parts = _draw_intervals(panel)
        case Grid():
            parts = _draw_grid(panel)
    title = f'<text class="title" x="{_LEFT:g}" y="15">{escape(panel.title)}</text>'
    return title + "".join(parts)


class _Scale:
    """Numbers to pixels."""

    def __init__(self, axis: Axis, values: Iterable[float], start: float, end: float) -> None:
        finite = [value for value in values if math.isfinite(value) and (value > 0 or not axis.log)]
        low = min(finite, default=0.1 if axis.log else 0.0) if axis.low is None else axis.low
        high = max(finite, default=1.0) if axis.high is None else axis.high
        if low == high:
            low, high = (low / 2, high * 2) if axis.log else (low - 0.5, high + 0.5)
        self.axis, self.start, self.end, self.low, self.high = axis, start, end, low, high
        if not axis.ticks and axis.low is None and axis.log:
            self.low = 10.0 ** math.floor(math.log10(low) + 1e-9)
        if not axis.ticks and axis.high is None and axis.log:
            self.high = 10.0 ** math.ceil(math.log10(high) - 1e-9)

    def place(self, value: float) -> float:
        """The pixel of a number, at most at the ends of the axis."""
        if self.axis.log:
            value = max(value, self.low)
            share = math.log(value / self.low) / math.log(self.high / self.low)
        else:
            share = (value - self.low) / (self.high - self.low)
        return round(self.start + min(max(share, 0.0), 1.0) * (self.end - self.start), 1)

    def shows(self, value: float) -> bool:
        """Whether a number can be shown."""
        return math.isfinite(value) and (value >= self.low or not self.axis.log)

    @property
    def ticks(self) -> tuple[float, ...]:
        """Round numbers along the axis."""
        if self.axis.ticks:
            return tuple(tick for tick in self.axis.ticks if self.low <= tick <= self.high)
        if self.axis.log:
            first, last = round(math.log10(self.low)), round(math.log10(self.high))
            apart = max(1, -(-(last - first) // 6))
            return tuple(10.0**power for power in range(apart * -(-first // apart), last + 1, apart))
        rough = (self.high - self.low) / 4
        size = 10.0 ** math.floor(math.log10(rough))
        step = min((size, 2 * size, 5 * size, 10 * size), key=lambda one: abs(one - rough))
        first, last = math.ceil(self.low / step - 1e-9), math.floor(self.high / step + 1e-9)
        return tuple(round(number * step, 12) for number in range(first, last + 1))


def _draw_axes(x: _Scale | None, y: _Scale, x_label: str) -> Iterator[str]:
    right, low = _LEFT + _PLOT, _TOP + _HIGH
    for tick in y.ticks:
        at = y.place(tick)
        yield f'<path class="grid" d="M{_LEFT:g} {at}H{right:g}"/>'
        yield f'<text x="{_LEFT - 6:g}" y="{at + 4:g}" text-anchor="end">{_spell(tick)}</text>'
    for tick in () if x is None else x.ticks:
        at = x.place(tick) if x is not None else 0.0
        yield f'<path class="axis" d="M{at} {low:g}v4"/>'
        yield f'<text x="{at}" y="{low + 17:g}" text-anchor="middle">{_spell(tick)}</text>'
    yield f'<path class="axis" d="M{_LEFT:g} {_TOP:g}V{low:g}H{right:g}"/>'
    yield f'<text x="{_LEFT + _PLOT / 2:g}" y="{low + 35:g}" text-anchor="middle">{escape(x_label)}</text>'
    middle = _TOP + _HIGH / 2
    label = escape(y.axis.label)
    yield f'<text transform="translate(13 {middle:g}) rotate(-90)" text-anchor="middle">{label}</text>'


def _draw_lines(panel: Lines) -> Iterator[str]:
    x = _Scale(panel.x, [point[0] for one in panel.series for point in one.points], _LEFT, _LEFT + _PLOT)
    ends = [end for one in panel.series for pair in one.spread for end in pair]
    y = _Scale(panel.y, [*ends, *(point[1] for one in panel.series for point in one.points)], _TOP + _HIGH, _TOP)
    for low, high, name in panel.bands:
        left, right = x.place(low), x.place(high)
        yield f'<rect class="mark" x="{left}" y="{_TOP:g}" width="{right - left:g}" height="{_HIGH:g}"/>'
        yield f'<text x="{(left + right) / 2:g}" y="{_TOP + 12:g}" text-anchor="middle">{escape(name)}</text>'
    yield from _draw_axes(x, y, panel.x.label)
    for index, one in enumerate(panel.series):
        colour, dash = _COLOURS[index % len(_COLOURS)], _DASHES[index % len(_DASHES)]
        for (at, _), (low, high) in zip(one.points, one.spread, strict=False):
            yield f'<path stroke="{colour}" d="M{x.place(at)} {y.place(low)}V{y.place(high)}"/>'
        shown = [(x.place(a), y.place(b)) for a, b in one.points if x.shows(a) and y.shows(b)]
        if shown:
            join = "H{0:g}V{1:g}" if one.steps else "L{0:g} {1:g}"
            path = f"M{shown[0][0]:g} {shown[0][1]:g}" + "".join(join.format(*point) for point in shown[1:])
            yield f'<path fill="none" stroke="{colour}" stroke-width="2" stroke-dasharray="{dash}" d="{path}"/>'
        if len(shown) <= 24:
            yield from (f'<circle cx="{a:g}" cy="{b:g}" r="2.8" fill="{colour}"/>' for a, b in shown)
    yield from _draw_legend([one.name for one in panel.series], dashed=True, below=_below(panel))


def _draw_bars(panel: Bars) -> Iterator[str]:
    values = [value for _, one in panel.series for value in one] + [e for one in panel.spread for p in one for e in p]
    room_above = [1.08 * max(values, default=1.0)]  # for the number above the highest bar
    y = _Scale(panel.y, [*values, *room_above, *([] if panel.y.log else [0.0])], _TOP + _HIGH, _TOP)
    yield from _draw_axes(None, y, "")
    room, below = _PLOT / max(1, len(panel.groups)), _TOP + _HIGH + _below(panel) - 11
    yield f'<text x="{_LEFT + _PLOT / 2:g}" y="{below:g}" text-anchor="middle">{escape(panel.label)}</text>'
    wide = min(34.0, 0.8 * room / max(1, len(panel.series)))
    zero = y.place(y.low if panel.y.log else max(0.0, y.low))
    numbered = not panel.spread and _LETTER * max((len(_spell_bar(v)) for v in values), default=0) <= wide + 4
    for group, name in enumerate(panel.groups):
        middle = _LEFT + (group + 0.5) * room
        for line, part in enumerate(_break(name, room)):
            place = f'x="{middle:g}" y="{_TOP + _HIGH + 17 + 14 * line:g}" text-anchor="middle"'
            yield f"<text {place}>{escape(part)}</text>"
        for index, (_, one) in enumerate(panel.series):
            left, top = middle + (index - len(panel.series) / 2) * wide, y.place(one[group])
            colour, height = _COLOURS[index % len(_COLOURS)], abs(zero - top)
            size = f'width="{wide - 2:g}" height="{height:g}"'
            yield f'<rect x="{left:g}" y="{min(top, zero):g}" {size} fill="{colour}"/>'
            if numbered:
                place = f'x="{left + wide / 2 - 1:g}" y="{min(top, zero) - 3:g}"'
                yield f'<text {place} text-anchor="middle">{_spell_bar(one[group])}</text>'
            if panel.spread:
                low, high = (y.place(end) for end in panel.spread[index][group])
                yield f'<path class="axis" d="M{left + wide / 2 - 1:g} {low}V{high}"/>'
    names = [name for name, _ in panel.series] if len(panel.series) > 1 else []
    yield from _draw_legend(names, dashed=False, below=_below(panel))


def _spell_bar(value: float) -> str:
    """A number above a bar, as exactly as a bar can be read."""
    if abs(value) >= 10:
        return f"{value:,.0f}"
    return "0" if abs(value) < 0.005 else f"{value:.2f}".rstrip("0").rstrip(".")


def _draw_intervals(panel: Intervals) -> Iterator[str]:
    values = [number for _, value, ends in panel.rows for number in (value, *ends)]
    x, low = _Scale(panel.x, values, _LEFT + 10, _LEFT + _PLOT - 10), _TOP + _HIGH
    for tick in x.ticks:
        at = x.place(tick)
        yield f'<path class="grid" d="M{at} {_TOP:g}V{low:g}"/>'
        yield f'<text x="{at}" y="{low + 17:g}" text-anchor="middle">{_spell(tick)}</text>'
    yield f'<path class="axis" d="M{_LEFT:g} {low:g}h{_PLOT:g}"/>'
    yield f'<text x="{_LEFT + _PLOT / 2:g}" y="{low + 35:g}" text-anchor="middle">{escape(panel.x.label)}</text>'
    room = _HIGH / max(1, len(panel.rows))
    for number, (name, value, (left, right)) in enumerate(panel.rows):
        colour, at = _COLOURS[number % len(_COLOURS)], _TOP + (number + 0.5) * room + 5
        yield f'<path stroke="{colour}" stroke-width="2" d="M{x.place(left)} {at:g}H{x.place(right)}"/>'
        yield f'<circle cx="{x.place(value)}" cy="{at:g}" r="4" fill="{colour}"/>'
        if room >= 14:
            yield f'<text x="{_LEFT + 2:g}" y="{at - 8:g}">{escape(name)}</text>'


def _break(name: str, room: float) -> list[str]:
    """A name in as many lines as it needs."""
    lines: list[str] = []
    for word in name.split(" "):
        if lines and 0.9 * _LETTER * len(f"{lines[-1]} {word}") <= room:
            lines[-1] += f" {word}"
        else:
            lines.append(word)
    return lines


def _draw_grid(panel: Grid) -> Iterator[str]:
    wide, high = _PLOT / max(1, len(panel.columns)), _HIGH / max(1, len(panel.rows))
    for row, name in enumerate(panel.rows):
        at = _TOP + row * high
        if high >= 9:
            yield f'<text x="{_LEFT - 6:g}" y="{at + high / 2 + 4:g}" text-anchor="end">{escape(name)}</text>'
        for column, value in enumerate(panel.values[row]):
            if value < 0.0005:
                continue
            colour = f'fill="{_COLOURS[0]}" fill-opacity="{min(max(value, 0.0), 1.0):.3f}"'
            place = f'x="{_LEFT + column * wide:.1f}" y="{at:.1f}" width="{wide:.2f}" height="{high:.2f}"'
            yield f"<rect {place} {colour}/>"
    low, longest = _TOP + _HIGH, max(map(len, panel.columns), default=0)
    upright = _LETTER * longest > wide  # there is no room side by side
    for column, name in enumerate(panel.columns):
        middle = _LEFT + (column + 0.5) * wide
        place = f'x="{middle:g}" y="{low + 17:g}" text-anchor="middle"'
        if upright:
            place = f'transform="translate({middle + 4:g} {low + 5:g}) rotate(-90)" text-anchor="end"'
        yield f"<text {place}>{escape(name)}</text>"
    yield f'<rect class="axis" x="{_LEFT:g}" y="{_TOP:g}" width="{_PLOT:g}" height="{_HIGH:g}"/>'
    below = low + (50 if upright else 35)
    yield f'<text x="{_LEFT + _PLOT / 2:g}" y="{below:g}" text-anchor="middle">{escape(panel.column_label)}</text>'
    turned = f"translate(13 {_TOP + _HIGH / 2:g}) rotate(-90)"
    yield f'<text transform="{turned}" text-anchor="middle">{escape(panel.row_label)}</text>'


def _place_legend(names: Sequence[str]) -> list[tuple[float, int]]:
    """Where each name of a legend begins, and in which row."""
    places: list[tuple[float, int]] = []
    left, row = 0.0, 0
    for name in names:
        wide = 34.0 + _LETTER * len(name)
        if left and left + wide > _PLOT + _LEFT - 10:
            left, row = 0.0, row + 1
        places.append((left, row))
        left += wide + 10.0
    return places


def _below(panel: Panel) -> float:
    """The room for names and labels between a plot and its legend."""
    if not isinstance(panel, Bars):
        return _BOTTOM
    lines = max((len(_break(name, _PLOT / len(panel.groups))) for name in panel.groups), default=1)
    return max(_BOTTOM, 14.0 * lines + (28.0 if panel.label else 14.0))


def _legend_rows(panel: Panel) -> int:
    if isinstance(panel, Grid | Intervals) or (isinstance(panel, Bars) and len(panel.series) < 2):
        return 0
    names = [one.name if isinstance(one, Series) else one[0] for one in panel.series]
    return 1 + max((row for _, row in _place_legend(names)), default=-1)


def _draw_legend(names: Sequence[str], *, dashed: bool, below: float) -> Iterator[str]:
    for index, (name, (left, row)) in enumerate(zip(names, _place_legend(names), strict=True)):
        colour, dash = _COLOURS[index % len(_COLOURS)], _DASHES[index % len(_DASHES)] if dashed else ""
        x, y = 14.0 + left, _TOP + _HIGH + below + 8 + 16.0 * row
        thick = 2 if dashed else 9
        yield f'<path stroke="{colour}" stroke-width="{thick}" stroke-dasharray="{dash}" d="M{x:g} {y - 4:g}h24"/>'
        yield f'<text x="{x + 30:g}" y="{y:g}">{escape(name)}</text>'


def _spell(value: float) -> str:
    """A number on an axis."""
    if value and (abs(value) >= 1e5 or abs(value) < 1e-3):
        power = math.floor(math.log10(abs(value)) + 1e-9)
        front = value / 10.0**power
        digits = str(power).translate(str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹"))
        return f"10{digits}" if abs(front - 1) < 1e-6 else f"{front:.3g}·10{digits}"
    return f"{value:,.4g}" if abs(value) < 1000 else f"{value:,.0f}"
