"""What the defaults rest on, task by task: `python bench/ablations.py DATA [--only NAME ...] [--write]`

DATA is a folder with `multi30k`, `ud-english-ewt`, `tatoeba` and `enwik8`. Each model is what `seqloom new` writes for
its task, trained for as many steps in several ways. Optimizers: Muon, AdamW at the rate that `size` gives it, and
AdamW at twice that. Transformers: sinusoidal and rotary positions, and all that the recipe `characters` has. The
figure is the loss on the validation data at the end, in nats a prediction; less is better. A finished run in `--out`
is only read."""

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
    """A model: what is said beyond the file that `seqloom new` writes."""

    about: str
    new: str
    given: tuple[str, ...]


BUDGET = ("train.steps=225", "train.warmup=50")
"""An epoch of Multi30k."""
PAIRS = multi30k.name_files("de", "en")
TEXT = ("data.train.files=everyday.txt", "data.valid.files=valid.en", "data.checks.duplicate=off")
ROWS = {
    "transformer": Row("translation, Transformer", "translation", (*PAIRS, *BUDGET)),
    **{
        recipe: Row(f"translation, `{recipe}`", f"translation --recipe {recipe}", (*PAIRS, *BUDGET))
        for recipe in ("gru-attention", "lstm-initial-state", "convolutional")
    },
    "causal": Row("language model", "language-model", (*TEXT, *BUDGET)),
    "masked": Row("masked language model", "masked-language-model", (*TEXT, *BUDGET)),
    "tagger": Row(
        "tagging, Transformer", "tagging", (*tagging.FILES, "batch.tokens=4096", "train.epochs=2", "train.warmup=50")
    ),
    "lstm-tagger": Row("tagging, `lstm-tagger`", "tagging --recipe lstm-tagger", (*tagging.FILES, "train.epochs=2")),
}
OPTIMIZERS = {
    "Muon": ("train.optimizer=muon",),
    "AdamW": ("train.optimizer=adamw",),
    "AdamW, twice the rate": ("train.optimizer={kind = 'adamw', learning_rate = 0.006}",),
}
"""All of these texts are small, for which AdamW's rate is 0.003."""
SIDES = {"transformer": ("encoder", "decoder"), "causal": ("decoder",), "masked": ("encoder",), "tagger": ("encoder",)}
STACKS = {
    "sinusoidal": {"positions": "sinusoidal"},
    "rotary": {"positions": "rotary"},
    "rotary, RMSNorm, normalised queries and keys, squared ReLU": {
        "positions": "rotary",
        "norm": "rms",
        "normalise_qk": "true",
        "activation": "squared-relu",
    },
}


def lay_down(data: Path, folder: Path) -> None:
    """Everything in one folder."""
    multi30k.lay_down(data / "multi30k", folder)
    tagging.lay_down(data / "ud-english-ewt", folder)
    write_lines(folder / "everyday.txt", read_everyday(data))


def read_loss(run: Path) -> float:
    """The last on the validation data."""
    lines = [json.loads(line) for line in (run / "log.jsonl").read_text().splitlines()]
    return float(next(line["valid"]["loss"] for line in reversed(lines) if "valid" in line))


def compare(name: str, ways: dict[str, tuple[str, ...]], folder: Path, threads: int) -> list[str]:
    """A line of a table."""
    row, cells = ROWS[name], [ROWS[name].about]
    for way, settings in ways.items():
        run = folder / f"{name}-{way.replace(' ', '-').replace(',', '')}"
        train(run, row.new, (*row.given, *settings), threads)
        cells.append(f"{read_loss(run):.3f} ({measure_minutes(run):.1f} min)")
    return cells


def build_stacks(name: str) -> dict[str, tuple[str, ...]]:
    """The ways to build a Transformer, on all its sides."""
    return {
        way: tuple(f"model.{side}.{key}={value}" for side in SIDES[name] for key, value in keys.items())
        for way, keys in STACKS.items()
    }


def main() -> None:
    """Train and compare."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path)
    parser.add_argument("--out", type=Path, default=Path("runs/ablations"), help="where the texts and the runs go")
    parser.add_argument("--only", nargs="*", choices=ROWS, default=list(ROWS), help="what to train")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--write", action="store_true", help="renew the section of docs/results.md")
    options = parser.parse_args()
    lay_down(options.data, options.out)
    folder, threads = options.out, options.threads
    optimizers = [compare(name, OPTIMIZERS, folder, threads) for name in options.only]
    stacks = [compare(name, build_stacks(name), folder, threads) for name in options.only if name in SIDES]
    text = "\n\n".join(
        [
            "## Optimizers and positions\n\nLoss on the validation data, and minutes of one processor; seed 1. "
            "Translation: Multi30k, German to English, one epoch (225 steps). Language models: 225 steps on the "
            "English of Tatoeba, validated on that of Multi30k. Tagging: UD English EWT, two epochs. So short a "
            "training says what learns faster, not where it ends.",
            draw_table(["model", *OPTIMIZERS], optimizers),
            "Transformers, with Muon:",
            draw_table(["model", *STACKS], stacks),
        ]
    )
    print(text)
    if options.write:
        write_section("bench/ablations.py", text)


if __name__ == "__main__":
    main()
