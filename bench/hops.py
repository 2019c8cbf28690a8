"""How many files of the package one enters: in one training step, and in a greedy translation.

A profile hook notes the file of every Python function of the package that is called. Both are measured on the second
call, when everything is imported and compiled, on the run of the demo (recurrent, with attention) and, for comparison,
on a Transformer of the same data.

    make demo && python bench/hops.py runs/demo
"""

import argparse
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

from rich.console import Console

import seqloom
from seqloom.training import loop
from seqloom.training.monitor import PlainMonitor

PACKAGE = str(Path(seqloom.__file__).parent)
TEXT = "24. Dezember 2031"


@contextmanager
def entered() -> Iterator[set[str]]:
    """The files of the package whose functions are called inside the block."""
    files: set[str] = set()

    def note(frame: FrameType, event: str, _: Any) -> None:
        if event == "call" and frame.f_code.co_filename.startswith(PACKAGE):
            files.add(frame.f_code.co_filename.removeprefix(PACKAGE + "/"))

    sys.setprofile(note)
    try:
        yield files
    finally:
        sys.setprofile(None)


def follow_translation(run: Path) -> set[str]:
    """The second translation of a run."""
    model = seqloom.load(run)
    model.translate(TEXT)
    with entered() as files:
        model.translate(TEXT)
    return files


def follow_step(config: Path, family: str, out: Path) -> set[str]:
    """The second step of a short training, which also leaves a run."""
    steps: list[set[str]] = []
    take_step: Callable[..., Any] = loop.take_step

    def followed(*arguments: Any) -> Any:
        with entered() as files:
            outcome = take_step(*arguments)
        steps.append(files)
        return outcome

    loop.take_step = followed
    try:
        overrides = ["train.steps=3", f"model.encoder.family={family}"]
        seqloom.train(config, overrides, out=out, monitor=PlainMonitor(Console(quiet=True)))
    finally:
        loop.take_step = take_step
    return steps[1]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("demo", type=Path, help="the folder of the demo")
    parser.add_argument("--list", action="store_true", help="also name the files")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        for family in ("recurrent", "transformer"):
            out = Path(folder) / family
            found = {"step": follow_step(arguments.demo / "dates.toml", family, out)}
            found["translate"] = follow_translation(arguments.demo / "run" if family == "recurrent" else out)
            for name, files in found.items():
                print(f"{family:12} {name:10} {len(files)} files")
                if arguments.list:
                    print(*(f"    {file}" for file in sorted(files)), sep="\n")


if __name__ == "__main__":
    main()
