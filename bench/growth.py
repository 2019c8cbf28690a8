"""How Seqloom grows, and what stops it: `python bench/growth.py [--axes AXIS ...] [--stop HH:MM] [--write]`

Along each axis (the length of a text, width, depth, vocabulary, lines of a corpus, lines of a bulk job, processes) one
size grows and the others stay. A cell is one size; it is measured in a process of its own, on one thread: seconds of
processor time, so that the machine may do other things as well, and the peak of memory. What a cell has found is kept
in docs/growth.json with `--write`, so the axes need not be measured at once: all of them take some twenty minutes of
one processor. Remove a cell there to measure it anew. `--stop 11:35` begins no cell after that time of day.

Exponents are fitted to the largest sizes; docs/growth.md has the tables, a picture, where each wall is, and the
arithmetic from there to a billion sentences on a cluster.
"""

import argparse
import json
import multiprocessing
import os
import time
from datetime import date
from multiprocessing.pool import Pool
from pathlib import Path
from typing import NamedTuple

from growth_fits import Grown
from growth_page import write_page
from results import FILE, name_machine

KEPT = FILE.with_name("growth.json")


class Axis(NamedTuple):
    """Something that grows: for each variant the sizes, and the module and function that measure one."""

    variants: dict[str, tuple[int, ...]]
    measure: str


def double(first: int, times: int, by: int = 2) -> tuple[int, ...]:
    return tuple(first * by**number for number in range(times))


KINDS = ("rotary", "ALiBi", "relative", "window of 256", "LSTM")
AXES = {
    "length": Axis(
        {f"training, {kind}": double(2048, 5) for kind in KINDS}
        | {f"scoring, {kind}": double(8192, 3) for kind in KINDS[:3]},
        "growth_cells.measure_length",
    ),
    "width": Axis({"Transformer": double(64, 5), "LSTM": double(64, 5)}, "growth_cells.measure_width"),
    "depth": Axis({"Transformer": double(2, 6)}, "growth_cells.measure_depth"),
    "vocabulary": Axis({"Transformer": double(1000, 5, 4)}, "growth_cells.measure_vocabulary"),
    "preparation": Axis(
        {part: double(10_000, 5, 3) for part in ("check", "learn the tokeniser", "encode", "hand out chunks")},
        "growth_data.measure_preparation",
    ),
    "corpus": Axis({"pairs": double(100_000, 4, 10)}, "growth_data.measure_corpus"),
    "bulk": Axis({"translate": double(1024, 3, 4), "hand out lines": double(16384, 4, 4)}, "growth_data.measure_bulk"),
    "processes": Axis({"Transformer": double(1, 3)}, "growth_data.measure_processes"),
}


class Cell(NamedTuple):
    """One size along an axis."""

    axis: str
    variant: str
    size: int

    @property
    def name(self) -> str:
        """What its numbers are kept under."""
        return f"{self.axis}/{self.variant}/{self.size}"

    def measure(self, folder: Path) -> dict[str, float]:
        """In this process."""
        import growth_cells
        import growth_data

        module, name = AXES[self.axis].measure.split(".")
        measure = getattr({"growth_cells": growth_cells, "growth_data": growth_data}[module], name)
        found: dict[str, float] = measure(self.variant, self.size, folder)
        return found


def list_cells(axes: list[str], smallest: int | None = None) -> list[Cell]:
    """All cells of some axes, the small ones first."""
    cells = [
        Cell(axis, variant, size)
        for axis in axes
        for variant, sizes in AXES[axis].variants.items()
        for size in sizes[:smallest]
    ]
    return sorted(cells, key=lambda cell: (axes.index(cell.axis), cell.size))


def start_processes() -> Pool:
    """A new process for each cell, which has imported everything and computed nothing."""
    os.environ |= {"OMP_NUM_THREADS": "1", "PYTHONPATH": str(Path(__file__).parent)}
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["growth_cells", "growth_data"])
    return context.Pool(1, maxtasksperchild=1)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("runs/growth"), help="where texts and shards go")
    parser.add_argument("--axes", nargs="*", choices=AXES, default=list(AXES), help="what is to grow")
    parser.add_argument("--smallest", type=int, metavar="N", help="only the N smallest sizes of each")
    parser.add_argument("--stop", metavar="HH:MM", default="", help="begin no cell after this time of day")
    parser.add_argument("--write", action="store_true", help="renew docs/growth.json, docs/growth.md and its picture")
    parser.add_argument("--start-ranks", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--rank", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.rank or options.start_ranks:
        import growth_data

        print(json.dumps(growth_data.take_part() if options.rank else growth_data.start_ranks(options.start_ranks)))
        return
    options.out.mkdir(parents=True, exist_ok=True)
    grown = Grown(json.loads(KEPT.read_bytes()) if KEPT.exists() else {})
    with start_processes() as processes:
        for cell in list_cells(options.axes, options.smallest):
            if options.stop and time.strftime("%H:%M") >= options.stop:
                break
            if cell.name not in grown.found:
                when = {"date": str(date.today()), "machine": name_machine()}
                grown.found[cell.name] = processes.apply(cell.measure, (options.out.resolve(),)) | when
                print(cell.name, grown.found[cell.name], flush=True)
                if options.write:
                    KEPT.write_text(json.dumps(grown.found, indent=1) + "\n")
    text, picture = write_page(grown, {name: [*axis.variants] for name, axis in AXES.items()})
    print(text)
    if options.write:
        KEPT.with_suffix(".md").write_text(text)
        KEPT.with_suffix(".svg").write_text(picture)


if __name__ == "__main__":
    main()
