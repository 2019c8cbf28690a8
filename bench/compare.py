"""The three families at equal size: `python bench/compare.py DATA [--only NAME ...] [--write]`

DATA is the folder of all corpora: `multi30k` (task 1, tokenised and lower-cased), `sentence-classification` (TREC) and
`ud-english-ewt`. Each set is given to `seqloom compare` with the configuration that `seqloom new` writes. There are a
Transformer, an LSTM and a convolutional network with as many weights, three seeds, and the same time for each: ten
minutes for a translation model and two for the others, of one thread's processor time, so that the machine may do
other things as well. That is two and a half hours of one core; `--engine ray` trains on all cores of a Ray cluster. An
interrupted comparison goes on; with `--write`, pages and pictures go to docs/lab.
"""

import argparse
import gzip
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from results import name_machine

SEQLOOM = [sys.executable, "-m", "seqloom"]
PAGES = Path(__file__).parents[1] / "docs" / "lab"
CLOCK = ("train.clock=processor", "train.threads=1")
FAMILIES = "model.encoder.family=transformer,recurrent,convolutional"


class Set(NamedTuple):
    """A corpus, what is said about it beyond the file that `seqloom new` writes, and how long each model may learn."""

    task: str
    minutes: float
    files: dict[str, str]
    """Where a file is in DATA, by the name it gets."""
    given: tuple[str, ...]
    options: tuple[str, ...] = ()


SETS = {
    "multi30k": Set(
        "translation",
        10.0,
        {
            f"{ours}.{side}": f"multi30k/{theirs}.lc.norm.tok.{side}.gz"
            for ours, theirs in {"train": "train", "valid": "val", "test": "test_2016_flickr"}.items()
            for side in ("de", "en")
        },
        (),
        ("--tokenized",),
    ),
    "trec": Set(
        "classification",
        2.0,
        {split: f"sentence-classification/TREC.{split}.all.gz" for split in ("train", "test")},
        (
            *(f"data.{split}={{format = 'label-first', files = '{split}'}}" for split in ("train", "test")),
            "data.valid=[]",
            "data.valid_fraction=0.1",
        ),
    ),
    "ud-english-ewt": Set(
        "tagging",
        2.0,
        {f"{split}.conllu": f"ud-english-ewt/en_ewt-ud-{split}.conllu.gz" for split in ("train", "dev", "test")},
        tuple(
            f"data.{ours}={{format = 'conllu', files = '{theirs}.conllu', tags = 'upos'}}"
            for ours, theirs in {"train": "train", "valid": "dev", "test": "test"}.items()
        ),
    ),
}


def lay_down(name: str, data: Path, folder: Path) -> Path:
    """The texts, uncompressed, and the configuration; returns its path."""
    folder.mkdir(parents=True, exist_ok=True)
    for ours, theirs in SETS[name].files.items():
        with gzip.open(data / theirs) as packed:
            (folder / ours).write_bytes(packed.read())
    config = folder / f"{name}.toml"
    if not config.exists():
        subprocess.run([*SEQLOOM, "new", SETS[name].task, "-o", str(config)], check=True)
    return config


def compare(name: str, config: Path, minutes: float | None, more: Sequence[str], engine: str = "here") -> Path:
    """One comparison; returns its folder."""
    row, out = SETS[name], config.parent / "compared"
    budget = f"train.minutes={row.minutes if minutes is None else minutes:g}"
    options = ["--over", FAMILIES, "--match", "weights", *row.options, "--engine", engine, "--out", str(out)]
    command = [*SEQLOOM, "compare", str(config), *row.given, *CLOCK, budget, *more, *options]
    if subprocess.run(command).returncode not in (0, 1):  # 1: a training failed, which the table says
        sys.exit(f"{name}: could not be compared")
    return out


def write_page(name: str, out: Path) -> None:
    """Copy the page, the picture and the numbers to docs/lab, under the name of the set."""
    PAGES.mkdir(parents=True, exist_ok=True)
    for ending in ("svg", "json"):
        (PAGES / f"compare-{name}.{ending}").write_bytes((out / f"compare.{ending}").read_bytes())
    text = (out / "compare.md").read_text(encoding="utf-8")
    _, _, rest = text.partition("\n")
    text = f"# Three families on {name}\n{rest}".replace("(compare.", f"(compare-{name}.")
    text += f"\nWritten by `make compare` on {name_machine()}.\n"
    (PAGES / f"compare-{name}.md").write_text(text, encoding="utf-8")


def main() -> None:
    """Compare."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path)
    parser.add_argument("--out", type=Path, default=Path("runs/compare"), help="where the texts and the runs go")
    parser.add_argument("--only", nargs="*", choices=SETS, default=list(SETS), help="which sets")
    parser.add_argument("--minutes", type=float, help="another budget, to try it out")
    parser.add_argument("--engine", choices=("here", "ray"), default="here", help="where the models are trained")
    parser.add_argument("--set", nargs="*", default=[], metavar="KEY=VALUE", help="more changes, to try it out")
    parser.add_argument("--write", action="store_true", help="renew the pages in docs/lab")
    options = parser.parse_args()
    for name in options.only:
        config = lay_down(name, options.data, options.out / name)
        out = compare(name, config, options.minutes, options.set, options.engine)
        if options.write:
            write_page(name, out)


if __name__ == "__main__":
    main()
