"""English without labels to pretrain on: everyday sentences (Tatoeba) and those of an encyclopedia (enwik8)."""

import gzip
import html
import lzma
import re
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

Cut = Callable[[str], str]
WORDS = re.compile(r"\w+(?=n't\b)|n't\b|'(?:s|m|d|re|ve|ll)\b|\w+|\.\.\.|[^\w\s]", re.IGNORECASE)
"""Words as treebanks cut them: do n't, it 's."""


MARKUP = (
    (re.compile(r"<ref[^>]*>.*?</ref>|<[^>]*>|\{\{[^}]*\}\}|\[\[[a-z-]+:[^\]]*\]\]", re.IGNORECASE), ""),
    (re.compile(r"\[\[(?:[^\]|]*\|)?([^\]]*)\]\]"), r"\1"),
    (re.compile(r"\[https?:\S*\s?([^\]]*)\]"), r"\1"),
    (re.compile(r"'{2,}"), ""),
)


def cut_words(text: str) -> str:
    """Words and signs with spaces between them."""
    return " ".join(WORDS.findall(text.replace("’", "'")))


def read_everyday(shared: Path, cut: Cut = cut_words) -> Iterator[str]:
    """The English of Tatoeba, each sentence once."""
    with gzip.open(shared / "tatoeba" / "eng-deu.tsv.gz", "rt", encoding="utf-8") as file:
        yield from dict.fromkeys(cut(line.partition("\t")[0]) for line in file)


def read_encyclopedia(shared: Path, cut: Cut = cut_words, most: int = 60) -> Iterator[str]:
    """The sentences of the first 10 MB of enwik8, without their markup, of five to so many words, each once."""
    with lzma.open(shared / "enwik8" / "enwik8.first10MB.xz", "rt", encoding="utf-8", errors="ignore") as file:
        sentences = map(cut, _read_sentences(file))
        yield from dict.fromkeys(words for words in sentences if 5 <= len(words.split()) <= most)


def _read_sentences(lines: Iterable[str]) -> Iterator[str]:
    for line in lines:
        text = html.unescape(html.unescape(line.strip()))
        if not re.match(r"[\w'\[\"]", text):
            continue
        for pattern, put in MARKUP:
            text = pattern.sub(put, text)
        yield from re.split(r"(?<=[.!?])\s+(?=[A-Z])", text)
