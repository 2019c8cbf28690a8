"""English without labels to pretrain on: everyday sentences (Tatoeba) and those of an encyclopedia (enwik8)."""

import gzip
import html
import lzma
import re
from collections.abc import Iterable, Iterator
from pathlib import Path

from context import MARKUP

WORDS = re.compile(r"\w+(?=n't\b)|n't\b|'(?:s|m|d|re|ve|ll)\b|\w+|\.\.\.|[^\w\s]", re.IGNORECASE)
"""Words as treebanks cut them: do n't, it 's."""


def cut_words(text: str) -> str:
    """Words and signs with spaces between them."""
    return " ".join(WORDS.findall(text.replace("’", "'")))


def read_everyday(shared: Path) -> Iterator[str]:
    """The English of Tatoeba, each sentence once."""
    with gzip.open(shared / "tatoeba" / "eng-deu.tsv.gz", "rt", encoding="utf-8") as file:
        yield from dict.fromkeys(cut_words(line.partition("\t")[0]) for line in file)


def read_encyclopedia(shared: Path) -> Iterator[str]:
    """The sentences of the first 10 MB of enwik8, without their markup."""
    with lzma.open(shared / "enwik8" / "enwik8.first10MB.xz", "rt", encoding="utf-8", errors="ignore") as file:
        yield from dict.fromkeys(_read_sentences(file))


def _read_sentences(lines: Iterable[str]) -> Iterator[str]:
    for line in lines:
        text = html.unescape(html.unescape(line.strip()))
        if not re.match(r"[\w'\[\"]", text):
            continue
        for pattern, put in MARKUP:
            text = pattern.sub(put, text)
        for sentence in re.split(r"(?<=[.!?])\s+(?=[A-Z])", text):
            words = cut_words(sentence)
            if 5 <= words.count(" ") + 1 <= 60:
                yield words
