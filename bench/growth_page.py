"""docs/growth.md and its picture, from what bench/growth.py has found."""

import textwrap
from collections.abc import Sequence
from typing import NamedTuple

from growth_arithmetic import CORES, write_arithmetic
from growth_cells import ROW, ROWS
from growth_data import TOKENS
from growth_fits import POINTS, Grown, MissingError, spell_bytes
from growth_walls import describe_wall
from results import draw_table

from seqloom.lab.chart import Axis, Lines, Series, draw


class Section(NamedTuple):
    """An axis on the page: what grows, and how many tokens, pairs or lines a cell of a size works on."""

    title: str
    about: str
    unit: str
    work: str
    amount: int | None = None
    """None: as many as the size says."""


WIDTH = 120  # of a line
STACK = f"2 layers, vocabulary 1,000, a step of {ROWS} rows of {ROW} tokens, Muon"
SECTIONS = {
    "length": Section(
        "The length of a text",
        "One text of n tokens, read by a causal language model: 2 layers, width 64, 4 heads, 256 different tokens. "
        "Training: forwards, backwards and an update; scoring: forwards only.",
        "tokens of the text", "tokens",
    ),
    "width": Section("Width", f"A language model: {STACK}; heads of 32.", "width", "tokens", ROWS * ROW),
    "depth": Section("Depth", "The same with width 128, and as many layers.", "layers", "tokens", ROWS * ROW),
    "vocabulary": Section(
        "Vocabulary",
        "The same with 2 layers, width 128: embedding and output layer have a row for every token.",
        "tokens in the vocabulary", "tokens", ROWS * ROW,
    ),
    "preparation": Section(
        "Lines of text",
        "What `seqloom prepare` does before the first step, each part by itself: two files of random sentences of 9 "
        "words on average by Zipf's law, a BPE of 8,000. \"Hand out chunks\" is encoding on a cluster without the "
        "cluster: what the command does itself, with records pickled for the workers.",
        "pairs of lines", "pairs",
    ),
    "corpus": Section(
        "Pairs in a corpus",
        "Opening a training's shards, measuring them and making the order. The corpus is simulated: its index names "
        "one shard of 65,536 pairs again and again, to 10⁸ pairs, and it is hashed as often, from the system's cache.",
        "pairs", "pairs",
    ),
    "bulk": Section(
        "Lines of a bulk job",
        "`seqloom translate -o` with 3 + 3 layers, width 256, vocabulary 8,000, 12 tokens for every line, greedy; and "
        "the same job with workers that answer at once.",
        "lines", "lines",
    ),
    "processes": Section(
        "Processes",
        f"A step of {TOKENS:,} tokens that N processes share over gloo: a language model of 4 layers, width 256, "
        "vocabulary 8,000. Seconds are of the processor time of all of them, memory of the largest.",
        "processes", "tokens", TOKENS,
    ),
}  # fmt: skip
TITLE = """# How it grows, and what stops it

```sh
make growth
```

writes this page. Along each axis one size grows and the others stay. Every size is measured in a process of its own, on
one thread, in seconds of **processor time**: the machine did other things as well, which makes everything take longer
on the clock, and processor time longer by some tenths. Memory is the peak of the resident set above what Python,
PyTorch and the kernels took before. Exponents are least squares over the logarithms of the {points} largest sizes of a
column, so they describe the upper end, where the walls are. Measured on {machines}.

![Curves over the size of each axis: time and memory]({picture})

## Exponents

Time and memory grow as x to the power of what follows. Below 1, a part that does not grow still counts at these sizes:

{exponents}
"""
ARITHMETIC = """## From here to 10⁹ pairs on a Ray cluster

**Everything in the last column is extrapolated**, from one row of the tables above and by the arithmetic beside it: for
10⁹ pairs of such sentences, {cores} cores like the one that measured, and 10 Gbit/s between machines. No such cluster
was at hand. The arithmetic leaves out reading from disks and network drives, Ray's own work, waiting for the slowest
process, and several threads in a process.

{table}
"""


def fit_row(grown: Grown, axis: str, variant: str) -> list[str] | None:
    """The exponents of a variant; none without enough sizes."""
    try:
        time, memory = (grown.fit(axis, variant, key) for key in ("seconds", "peak"))
    except MissingError:
        return None
    sizes = ", ".join(f"{size:,}" for size in time.sizes)
    return [SECTIONS[axis].title, variant, f"{time.exponent:.2f}", f"{memory.exponent:.2f}", sizes]


def draw_cells(grown: Grown, axis: str, variants: Sequence[str]) -> str:
    """A row a size; in each cell the pace and the peak."""
    section = SECTIONS[axis]
    sizes = sorted({size for variant in variants for size in grown.sizes(axis, variant)})
    rows = []
    for size in sizes:
        row = [f"{size:,}"]
        for variant in variants:
            try:
                seconds, peak = (grown.get(axis, variant, size, key) for key in ("seconds", "peak"))
            except MissingError:
                row.append("")
                continue
            row.append(f"{(section.amount or size) / seconds:,.0f} {section.work}/s, {spell_bytes(1e6 * peak)}")
        rows.append(row)
    return draw_table([section.unit, *variants], rows)


def draw_corpus(grown: Grown) -> str:
    """Where the time of a corpus goes."""
    names = {"open": "hashing (s)", "lengths": "lengths (s)", "order": "order (s)", "jump": "a far step (ms)",
             "batch": "a batch (ms)", "peak": "peak (MB)", "kept": "kept (MB)"}  # fmt: skip
    rows = []
    for size in grown.sizes("corpus", "pairs"):
        found = [grown.get("corpus", "pairs", size, key) * (1e3 if key in ("jump", "batch") else 1.0) for key in names]
        rows.append([f"{size:,}", *(f"{value:,.1f}" if value >= 0.1 else f"{value:.3f}" for value in found)])
    return draw_table(["pairs", *names.values()], rows)


def write_section(grown: Grown, axis: str, variants: Sequence[str]) -> str:
    """The tables of an axis, and its wall."""
    section = SECTIONS[axis]
    parts = [f"## {section.title}", textwrap.fill(section.about, WIDTH)]
    if axis == "corpus":
        parts.append(draw_corpus(grown))
    else:
        kinds = list(dict.fromkeys(variant.partition(", ")[0] if ", " in variant else "" for variant in variants))
        parts += [draw_cells(grown, axis, [one for one in variants if one.startswith(kind)]) for kind in kinds]
    return "\n\n".join([*parts, textwrap.fill(describe_wall(grown, axis), WIDTH, break_on_hyphens=False)])


def draw_picture(grown: Grown, axes: dict[str, Sequence[str]]) -> str:
    """Time and memory along every axis."""
    panels = []
    for axis, variants in axes.items():
        for key, label in (("seconds", "seconds"), ("peak", "megabytes")):
            series = [
                Series(variant, [(float(size), value) for size, value in grown.points(axis, variant, key)])
                for variant in variants
                if not variant.startswith("scoring")
            ]
            title = f"{SECTIONS[axis].title}: {'time' if key == 'seconds' else 'memory'}"
            panels.append(Lines(title, Axis(SECTIONS[axis].unit, log=True), Axis(label, log=True), series))
    return draw(panels, "Curves over the size of each axis: time and memory", columns=2)


def write_page(grown: Grown, axes: dict[str, Sequence[str]]) -> tuple[str, str]:
    """The page, and its picture."""
    fitted = [row for axis, variants in axes.items() for one in variants if (row := fit_row(grown, axis, one))]
    machines = sorted({f"{found['machine']}, {found['date']}" for found in grown.found.values()})
    exponents = draw_table(["axis", "what", "time", "memory", "fitted to"], fitted)
    head = TITLE.format(points=POINTS, machines="; ".join(machines), picture="growth.svg", exponents=exponents)
    sections = [write_section(grown, axis, variants) for axis, variants in axes.items()]
    end = ARITHMETIC.format(cores=CORES, table=write_arithmetic(grown))
    return "\n\n".join(part.strip() for part in (head, *sections, end)) + "\n", draw_picture(grown, axes)
