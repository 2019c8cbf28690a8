"""Translation models of each family, on Multi30k: `python bench/multi30k.py DATA [--only NAME ...] [--write]`

DATA is a folder with Multi30k, task 1, tokenised and lower-cased (train, val and test_2016_flickr, `.lc.norm.tok.de.gz`
and `.en.gz`). Each model is trained from the file that `seqloom new translation` writes, with or without a recipe;
nothing but the names of the files and the budget is put into it. The figures are BLEU of the tokens as they are, on
the 1,000 lines of test 2016, with their 95% interval. A finished run in `--out` is only evaluated; the table is of all
that are finished.
"""

import argparse
import gzip
import json
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

from engines import is_installed
from results import draw_table, write_section

SEQLOOM = [sys.executable, "-m", "seqloom"]
SPLITS = {"train": "train", "valid": "val", "test": "test_2016_flickr"}


class Row(NamedTuple):
    """What is trained, and what others have reached."""

    about: str
    recipe: str | None
    theirs: float
    languages: tuple[str, str] = ("de", "en")
    budget: str = "epochs=10"


ROWS = {
    "lstm-initial-state": Row("LSTM, one vector at the start", "lstm-initial-state", 13.76),
    "gru-every-step": Row("GRU, one vector at every step", "gru-every-step", 20.61),
    "gru-attention": Row("GRU, additive attention", "gru-attention", 28.30),
    "convolutional": Row("convolutional", "convolutional", 34.14),
    "transformer": Row("Transformer, no recipe", None, 36.52),
    "transformer-en-de": Row(
        "Transformer, no recipe, English to German, 57 minutes", None, 41.02, ("en", "de"), "minutes=57"
    ),
}
ENGINES = {"greedy, CTranslate2": "ctranslate2", "greedy, CTranslate2, int8": "ctranslate2-int8"}


def lay_down(data: Path, folder: Path) -> None:
    """The texts, uncompressed."""
    folder.mkdir(parents=True, exist_ok=True)
    for ours, theirs in SPLITS.items():
        for side in ("de", "en"):
            with gzip.open(data / f"{theirs}.lc.norm.tok.{side}.gz") as packed:
                (folder / f"{ours}.{side}").write_bytes(packed.read())


def name_files(source: str, target: str) -> list[str]:
    """What a configuration is told of the texts."""
    return [
        f"data.{split}.{side}={split}.{language}"
        for split in SPLITS
        for side, language in (("source", source), ("target", target))
    ]


def train(name: str, folder: Path, threads: int) -> None:
    """One run; it goes on where it was interrupted."""
    row, config = ROWS[name], folder / f"{name}.toml"
    if not config.exists():
        recipe = [] if row.recipe is None else ["--recipe", row.recipe]
        subprocess.run([*SEQLOOM, "new", "translation", *recipe, "-o", str(config)], check=True)
    given = [*name_files(*row.languages), f"train.{row.budget}", f"train.threads={threads}"]
    subprocess.run([*SEQLOOM, "train", str(config), *given, "--out", str(folder / name)], check=True)


def evaluate(name: str, folder: Path, *options: str) -> str:
    """BLEU and its interval."""
    texts = [str(folder / f"test.{side}") for side in ROWS[name].languages]
    run = str(folder / name)
    command = [*SEQLOOM, "eval", run, "--data", *texts, "--tokenized", "--metrics", "bleu", "--json", *options]
    bleu = json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout)["metrics"][0]
    return f"{bleu['value']:.2f} ({bleu['low']:.2f} to {bleu['high']:.2f})"


def tabulate(names: list[str], folder: Path) -> str:
    """The section of docs/results.md."""
    rows = []
    for name in names:
        last = json.loads((folder / name / "speed.jsonl").read_text().splitlines()[-1])
        found = [evaluate(name, folder), evaluate(name, folder, "--beam", "5")]
        rows.append([ROWS[name].about, *found, f"{ROWS[name].theirs:.2f}", f"{last['seconds'] / 60:.0f}"])
    head = ["model", "greedy", "beam of 5", "published", "minutes of training"]
    parts = [
        "## Multi30k\n\n29,000 pairs, tokenised and lower-cased, German to English and 10 epochs unless said: BLEU of "
        "the tokens on test 2016. Every model is what `seqloom new translation` writes, with the recipe of its name "
        "where it has one; seed 1. Some were trained on one thread of a machine that did other things as well.",
        draw_table(head, rows),
        "Published: after 10 epochs in the notebooks of https://github.com/bentrevett/pytorch-seq2seq, greedy; English "
        "to German by Wu et al. 2021 (Good for Misconceived Reasons) for a Transformer of 4 + 4 layers, d = 128.",
    ]
    if "transformer" in names and is_installed("ctranslate2"):
        others = [[way, evaluate("transformer", folder, "--engine", engine)] for way, engine in ENGINES.items()]
        parts.append(draw_table(["the Transformer on other engines", "BLEU"], others))
    return "\n\n".join(parts)


def main() -> None:
    """Train and evaluate."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path)
    parser.add_argument("--out", type=Path, default=Path("runs/multi30k"), help="where the texts and the runs go")
    parser.add_argument("--only", nargs="*", choices=ROWS, default=list(ROWS), help="what to train")
    parser.add_argument("--threads", type=int, default=0)
    parser.add_argument("--write", action="store_true", help="renew the section of docs/results.md")
    options = parser.parse_args()
    lay_down(options.data, options.out)
    for name in options.only:
        if not (options.out / name / "manifest.json").exists():
            train(name, options.out, options.threads)
    text = tabulate([name for name in ROWS if (options.out / name / "manifest.json").exists()], options.out)
    print(text)
    if options.write:
        write_section("bench/multi30k.py", text)


if __name__ == "__main__":
    main()
