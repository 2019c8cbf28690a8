"""Muon beside AdamW, task by task: `python bench/optimizers.py DATA [--only NAME ...] [--write]`

DATA is a folder with `multi30k`, `ud-english-ewt`, `tatoeba` and `enwik8`. Each model is what `weft new` writes for its
task, trained for as many steps with one of three optimizers: Muon, AdamW at the rate that `size` gives it, and AdamW at
twice that. The figure is the loss on the validation data at the end, in nats a prediction; less is better. A finished
run in `--out` is only read.
"""

import argparse
import json
from pathlib import Path
from typing import NamedTuple

import multi30k
import tagging
from labelling import measure_minutes, train, write_lines
from results import draw_table, write_section
from unlabelled import read_everyday


class Row(NamedTuple):
    """A model: what is said beyond the file that `weft new` writes."""

    about: str
    new: str
    given: tuple[str, ...]


BUDGET = "train.steps=225"
"""An epoch of Multi30k."""
PAIRS = multi30k.name_files("de", "en")
TEXT = ("data.train.files=everyday.txt", "data.valid.files=valid.en", "data.checks.duplicate=off")
ROWS = {
    "transformer": Row("translation, Transformer", "translation", (*PAIRS, BUDGET)),
    "gru-attention": Row("translation, `gru-attention`", "translation --recipe gru-attention", (*PAIRS, BUDGET)),
    "convolutional": Row("translation, `convolutional`", "translation --recipe convolutional", (*PAIRS, BUDGET)),
    "masked": Row("masked language model", "masked-language-model", (*TEXT, BUDGET)),
    "tagger": Row("tagging, `lstm-tagger`", "tagging --recipe lstm-tagger", (*tagging.FILES, "train.epochs=1")),
}
WAYS = {
    "Muon": "train.optimizer=muon",
    "AdamW": "train.optimizer=adamw",
    "AdamW, twice the rate": "train.optimizer={kind = 'adamw', learning_rate = 0.006}",
}
"""All of these texts are small, for which AdamW's rate is 0.003."""


def lay_down(data: Path, folder: Path) -> None:
    """Everything in one folder."""
    multi30k.lay_down(data / "multi30k", folder)
    tagging.lay_down(data / "ud-english-ewt", folder)
    write_lines(folder / "everyday.txt", read_everyday(data))


def read_loss(run: Path) -> float:
    """The last on the validation data."""
    lines = [json.loads(line) for line in (run / "log.jsonl").read_text().splitlines()]
    return float(next(line["valid"]["loss"] for line in reversed(lines) if "valid" in line))


def compare(row: Row, name: str, folder: Path, threads: int) -> list[str]:
    """A line of the table."""
    cells = [row.about]
    for number, optimizer in enumerate(WAYS.values()):
        run = folder / f"{name}-{number}"
        train(run, row.new, (*row.given, optimizer), threads)
        cells.append(f"{read_loss(run):.3f} ({measure_minutes(run):.1f} min)")
    return cells


def main() -> None:
    """Train and compare."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path)
    parser.add_argument("--out", type=Path, default=Path("runs/optimizers"), help="where the texts and the runs go")
    parser.add_argument("--only", nargs="*", choices=ROWS, default=list(ROWS), help="what to train")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--write", action="store_true", help="renew the section of docs/results.md")
    options = parser.parse_args()
    lay_down(options.data, options.out)
    rows = [compare(ROWS[name], name, options.out, options.threads) for name in options.only]
    text = "\n\n".join(
        [
            "## Muon beside AdamW\n\nLoss on the validation data, and minutes of one processor; seed 1. Translation: "
            "Multi30k, German to English, one epoch (225 steps). Masked language model: 225 steps on the English of "
            "Tatoeba, validated on that of Multi30k. Tagging: UD English EWT, one epoch.",
            draw_table(["model", *WAYS], rows),
        ]
    )
    print(text)
    if options.write:
        write_section("bench/optimizers.py", text)


if __name__ == "__main__":
    main()
