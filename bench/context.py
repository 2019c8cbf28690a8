"""One word in two contexts: its static vector is the same in both, its contextual ones are not.

python bench/context.py --write       # half an hour on a core shared with other work; docs/context.md and its picture

Text: the first 10 MB of enwik8 and the English side of Tatoeba. Three models are trained on it: skip-gram, ELMo (a
bidirectional LSTM language model) and BERT (a masked Transformer). Where SEQLOOM_MINILM names the folder of
all-MiniLM-L6-v2, a published Transformer that read a thousand million pairs of sentences is asked, too.
"""

import argparse
import os
import random
import re
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from results import FILE, draw_table, write_section
from rich.console import Console
from unlabelled import read_encyclopedia, read_everyday

from seqloom.hub.word2vec import read_word_vectors
from seqloom.predict.load import load
from seqloom.predict.model import Model
from seqloom.training.job import train
from seqloom.training.monitor import PlainMonitor

SHARED = Path(os.environ.get("SEQLOOM_SHARED_DATA", Path(__file__).parents[2] / "shared" / "data"))
PROBES = {
    ("apple", "phone"): (
        "apple sells a new phone .",
        "i bought this phone from apple .",
        "the apple computer runs new software .",
        "apple makes computers and phones .",
        "she works for apple and writes software .",
        "the new apple phone is very expensive .",
    ),
    ("apple", "orange"): (
        "i ate an apple and an orange .",
        "she gave me a red apple .",
        "he picked an apple from the tree .",
        "would you like an apple or an orange ?",
        "this apple tastes very sweet .",
        "the apple and the orange are on the table .",
    ),
    ("cat", "cute"): (
        "what a cute cat !",
        "look at that cute little cat .",
        "my daughter loves her cute cat .",
        "the cute cat is playing with a ball .",
        "she has a cute white cat at home .",
        "everyone says that your cat is so cute .",
    ),
    ("cat", "fat"): (
        "the fat cat ate all the fish .",
        "his fat cat eats too much .",
        "that cat is too fat to jump .",
        "a fat cat was sleeping on the bed .",
        "our cat got fat last winter .",
        "the fat old cat weighs ten kilos .",
    ),
}
CUES = {
    "company": {"computer", "computers", "macintosh", "mac", "software", "ipod", "ibm", "microsoft", "jobs", "ii"},
    "fruit": {"eat", "ate", "eating", "tree", "trees", "pie", "juice", "red", "orange", "oranges", "fruit", "fruits"},
}
"""Words that tell what a real sentence with an apple in it is about."""
HELD_OUT = 20  # real sentences of each kind that no model is trained on
TRAIN = """
[[data.train]]
files = "with"
weight = 4.0
[[data.train]]
files = "without"
"""
MODEL = """
task = "{task}"
tokenizer = {{kind = "words", size = 6000, punctuation = "keep"}}
[data]
valid_fraction = 0.02
checks.duplicate = "off"
{train}
[batch]
tokens = 2048
rows = {{kind = "lines", max_length = 48}}
[model.encoder]
{encoder}
[train]
steps = {steps}
warmup = 50
threads = 1
optimizer = "muon"
validate_every = 250
"""
Vectors = NDArray[np.float32]
Ask = Callable[[str, Sequence[str]], Vectors]
"""The vector of a word in each of some texts."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", action="store_true", help="write the section of docs/context.md and the picture")
    parser.add_argument("--folder", type=Path, help="keep text and models here, and use those that are there")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = options.folder or Path(name)
        real = write_corpus(folder)
        groups = {**PROBES, **{("apple, real", sense): tuple(lines) for sense, lines in real.items()}}
        found = {
            name: {key: ask(key[0].split(",")[0], texts) for key, texts in groups.items()}
            for name, ask in train_models(folder)
        }
    rows = []
    for word in dict.fromkeys(word for word, _ in groups):
        contexts = [context for known, context in groups if known == word]
        for name, vectors in found.items():
            rows.append([word, name, *compare(vectors[word, contexts[0]], vectors[word, contexts[1]])])
    table = draw_table(["word", "vectors", "same context", "other context", "nearest is of the same context"], rows)
    print(table)
    if options.write:
        picture = FILE.with_name("context.svg")
        picture.write_text(draw(found))
        chances = [f"{(count - 1) / (2 * count - 1):.0%}" for count in (6, HELD_OUT)]
        text = TEXT.format(table=table, chance=chances[0], real_chance=chances[1])
        write_section("bench/context.py", text, picture.with_suffix(".md"))


TEXT = """{table}

![For each kind of vectors, the occurrences of a word as points in a plane](context.svg)

*Same context*, *other context*: the mean cosine between two occurrences of the word. *Nearest*: how often the nearest
other occurrence is one in the same context; by chance it would be {chance} ({real_chance} of the real ones).
"""


def write_corpus(folder: Path) -> dict[str, list[str]]:
    """Sentences with the words and without, and real ones that are kept out."""
    rng = random.Random(1)
    wiki, everyday = [*read_encyclopedia(SHARED, spell, most=40)], [*read_everyday(SHARED, spell)]
    kept = {*rng.sample(everyday, 40_000), *rng.sample(wiki, 12_000)}
    having = [line for line in (*wiki, *everyday) if {"apple", "cat"} & {*line.split()}]
    rng.shuffle(having)
    real = {sense: [line for line in having if tell_sense(line) == sense][:HELD_OUT] for sense in CUES}
    held = {line for lines in real.values() for line in lines}
    (folder / "with").write_text("\n".join(line for line in having if line not in held) + "\n")
    (folder / "without").write_text("\n".join(line for line in sorted(kept) if line not in {*having}) + "\n")
    return real


def spell(text: str) -> str:
    """Words and signs with spaces between them."""
    return " ".join(re.findall(r"\w+|[^\w\s]", text.lower()))


def tell_sense(line: str) -> str | None:
    """What a sentence is about, if it says so and is in no doubt."""
    words = line.split()
    senses = [sense for sense, cues in CUES.items() if cues & {*words}]
    return senses[0] if words.count("apple") == 1 and len(senses) == 1 else None


def train_models(folder: Path) -> Iterator[tuple[str, Ask]]:
    """Each kind of vectors and how to ask for them."""
    transformer = 'num_layers = 2\nnum_heads = 4\nmodel_dim = 96\ndropout = 0.1\npositions = "rotary"'
    recurrent = 'family = "recurrent"\nnum_layers = 1\nmodel_dim = 96\ndropout = 0.1'
    texts = {
        "static": 'task = "word-vectors"\ndata.checks.duplicate = "off"\n' + TRAIN,
        "ELMo": MODEL.format(task="bidirectional-language-model", train=TRAIN, encoder=recurrent, steps=700),
        "Transformer": MODEL.format(task="masked-language-model", train=TRAIN, encoder=transformer, steps=2500),
    }
    for name, text in texts.items():
        config = folder / f"{name}.toml"
        config.write_text(text)
        train(config, [], out=folder / name, monitor=PlainMonitor(Console(stderr=True)))
    words = read_word_vectors(folder / "static" / "vectors.bin")
    models = {name: load(folder / name) for name in ("ELMo", "Transformer")}
    if said := os.environ.get("SEQLOOM_MINILM"):
        models["MiniLM"] = load(said)
    yield "static", lambda word, texts: np.stack([words.vectors[words.words.index(word)].numpy()] * len(texts))
    for name, model in models.items():
        yield name, bind(model)


def bind(model: Model) -> Ask:
    """The last layer of a model, at a word."""

    def ask(word: str, texts: Sequence[str]) -> Vectors:
        found = model.embed(texts, level="token")
        return np.stack([one.vectors[one.tokens.index(word)] for one in found])

    return ask


def compare(one: Vectors, other: Vectors) -> list[str]:
    """Cosines within the groups and between them, and how often the nearest is of the same group."""
    rows = np.concatenate([one, other])
    rows = rows / np.linalg.norm(rows, axis=1, keepdims=True)
    cosines = rows @ rows.T
    group = np.arange(len(rows)) < len(one)
    same, itself = group[:, None] == group, np.eye(len(rows), dtype=bool)
    best = np.where(itself, -np.inf, cosines).round(6)
    nearest = best == best.max(1, keepdims=True)  # where all are alike, each is as near as the other
    right = ((nearest & same).sum(1) / nearest.sum(1)).mean()
    return [f"{cosines[same & ~itself].mean():.3f}", f"{cosines[~same].mean():.3f}", f"{right:.0%}"]


COLOURS = ("#0b6e99", "#c4441a")
WIDE, HIGH = 190, 170


def draw(found: Mapping[str, Mapping[tuple[str, str], Vectors]]) -> str:
    """A panel for each word and kind of vectors: occurrences in the plane of their two principal components."""
    parts = ["<style>text { font: 11px sans-serif; fill: #555 } rect { fill: none; stroke: #ccc }</style>"]
    words = list(dict.fromkeys(word for word, _ in next(iter(found.values()))))
    for row, word in enumerate(words):
        for column, (name, vectors) in enumerate(found.items()):
            left, top = 10 + column * WIDE, 24 + row * HIGH
            groups = {context: points for (known, context), points in vectors.items() if known == word}
            parts.append(f'<text x="{left + 4}" y="{top - 6}">{word}: {name}</text>')
            parts.append(f'<rect x="{left}" y="{top}" width="{WIDE - 16}" height="{HIGH - 34}"/>')
            parts += draw_panel(left, top, list(groups.values()))
            if not column:
                for line, (context, colour) in enumerate(zip(groups, COLOURS, strict=True)):
                    place = f'x="{left + 6}" y="{top + 14 + 13 * line}"'
                    parts.append(f'<text {place} style="fill:{colour}">● {context}</text>')
    size = f"{10 + len(found) * WIDE} {10 + len(words) * HIGH}"
    return f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {size}" role="img">{"".join(parts)}</svg>\n'


def draw_panel(left: int, top: int, groups: Sequence[Vectors]) -> Iterator[str]:
    """Points, as far apart as they are: one scale for both directions."""
    rows = np.concatenate(groups)
    rows = rows / np.linalg.norm(rows, axis=1, keepdims=True)
    centred = rows - rows.mean(0)
    places = centred @ np.linalg.svd(centred, full_matrices=False)[2][:2].T
    reach = max(float(np.abs(places).max()), 1e-3)
    owners = [number for number, group in enumerate(groups) for _ in group]
    for (x, y), owner in zip(places / reach, owners, strict=True):
        across, down = left + (WIDE - 16) / 2 + x * 78, top + (HIGH - 34) / 2 + y * 58
        yield f'<circle cx="{across:.1f}" cy="{down:.1f}" r="4" fill="{COLOURS[owner]}" fill-opacity="0.7"/>'


if __name__ == "__main__":
    main()
