"""Tagged sentences: a word a line, a blank line between sentences.

`conll` is the form of the CoNLL shared tasks (2000 chunking, 2003 names): columns, no comments. `conllu` is the form of
the Universal Dependencies (universaldependencies.org/format.html): ten columns, comments, and two kinds of rows that
are no words of the sentence: ranges (`1-2`: one token on the surface, two words in the tree) and empty nodes (`1.1`).
"""

import re
from collections.abc import Iterable, Iterator
from typing import Literal

from seqloom.data.fault import BadRecord
from seqloom.data.layout import Line, Record

_CONLLU = ("id", "form", "lemma", "upos", "xpos", "feats", "head", "deprel", "deps", "misc")
_ID = re.compile(r"[0-9]+(?P<rest>[-.][0-9]+)?")


def split_at_blanks(lines: Iterable[Line]) -> Iterator[list[Line]]:
    """The lines between blank lines."""
    group: list[Line] = []
    for line in lines:
        if line[1].strip():
            group.append(line)
        elif group:
            yield group
            group = []
    if group:
        yield group


def split_at_spaces(line: str) -> list[str]:
    """What stands between spaces; any other white space, such as a no-break space, is part of a word."""
    return [cell for cell in line.split(" ") if cell]


class ConllColumns:
    """Columns separated by tabs if a line has one, else by spaces; `-DOCSTART-` marks a document, it is no sentence."""

    roles = ("words", "tags")

    def __init__(self, words: int, tags: int | Literal["last"]) -> None:
        self.words, self.tags = words, tags
        self.width = 0

    def split(self, lines: Iterable[Line]) -> Iterator[list[Line]]:
        """Sentences."""
        return (group for group in split_at_blanks(lines) if not group[0][1].startswith("-DOCSTART-"))

    def parse(self, lines: list[Line]) -> Record:
        """The words and tags of a sentence."""
        words, tags = [], []
        for number, text in lines:
            cells = text.split("\t") if "\t" in text else split_at_spaces(text)
            if len(cells) < 2:
                raise BadRecord("tag_count", number, f'the word "{cells[0][:40]}" has no tag')
            self.width = self.width or len(cells)
            tag = len(cells) if self.tags == "last" else self.tags
            if max(self.words, tag) > len(cells):
                message = f"column {max(self.words, tag)} is missing; the row ends with column {len(cells)}"
                raise BadRecord("missing_column", number, message)
            if len(cells) != self.width:
                raise BadRecord("ragged_row", number, f"{len(cells)} columns where the rows before have {self.width}")
            if not cells[self.words - 1].strip() or not cells[tag - 1].strip():
                raise BadRecord("tag_count", number, "a blank word or tag")
            words.append(cells[self.words - 1])
            tags.append(cells[tag - 1])
        return {"words": tuple(words), "tags": tuple(tags)}


class ConlluRows:
    """CoNLL-U with one column chosen for the words and one for the tags."""

    roles = ("words", "tags")

    def __init__(self, words: str, tags: str) -> None:
        self.words, self.tags = _CONLLU.index(words), _CONLLU.index(tags)

    def split(self, lines: Iterable[Line]) -> Iterator[list[Line]]:
        """Sentences with their comments; comments alone are no sentence."""
        return (group for group in split_at_blanks(lines) if not group[-1][1].startswith("#"))

    def parse(self, lines: list[Line]) -> Record:
        """The syntactic words and their tags."""
        words: list[str] = []
        tags: list[str] = []
        for number, text in lines:
            if text.startswith("#"):
                continue
            cells = text.split("\t")
            if len(cells) != len(_CONLLU):
                message = f"tabs divide the row into {len(cells)}; CoNLL-U has 10 columns. Are the tabs spaces?"
                raise BadRecord("missing_column" if len(cells) < len(_CONLLU) else "ragged_row", number, message)
            identity = _ID.fullmatch(cells[0])
            if identity is None:
                message = f'the ID "{cells[0][:20]}" is neither a number, a range nor an empty node'
                raise BadRecord("bad_row", number, message)
            if identity["rest"]:
                continue
            if int(cells[0]) != len(words) + 1:
                message = f"word {cells[0]} follows word {len(words)}; is the blank line before a new sentence missing?"
                raise BadRecord("bad_row", number, message)
            if not cells[self.words].strip() or not cells[self.tags].strip():
                raise BadRecord("tag_count", number, "a blank word or tag")
            words.append(cells[self.words])
            tags.append(cells[self.tags])
        if not words:
            raise BadRecord("bad_row", lines[0][0], "a sentence without words")
        return {"words": tuple(words), "tags": tuple(tags)}
