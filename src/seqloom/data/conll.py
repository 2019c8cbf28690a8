"""Tagged sentences: one word in each line, a blank line between sentences.

`conll` is the form of the CoNLL shared tasks (2000 chunking, 2003 names): columns, no comments. `conllu` is the form of
the Universal Dependencies (universaldependencies.org/format.html): ten columns, comments, and two kinds of rows that
are not words of the sentence: ranges (`1-2`: one token on the surface, two words in the tree) and empty nodes (`1.1`).
"""

import re
from collections.abc import Iterable, Iterator

from seqloom.config.data import ConlluFiles
from seqloom.data.examples import BadRecord
from seqloom.data.formats import Format, Line, Record, split_at_spaces

_CONLLU = ("id", "form", "lemma", "upos", "xpos", "feats", "head", "deprel", "deps", "misc")
_ID = re.compile(r"[0-9]+(?P<rest>[-.][0-9]+)?")


def split_at_blanks(lines: Iterable[Line]) -> Iterator[list[Line]]:
    """Group the lines between blank lines."""
    group: list[Line] = []
    for line in lines:
        if line[1].strip():
            group.append(line)
        elif group:
            yield group
            group = []
    if group:
        yield group


class ConllColumns(Format):
    """Columns separated by tabs if a line has one, else by spaces; `-DOCSTART-` marks a document, not a sentence."""

    roles = ("words", "tags")

    width = 0
    """The number of columns in the first row."""

    def split(self, lines: Iterable[Line]) -> Iterator[list[Line]]:
        """Group the lines of each sentence."""
        return (group for group in split_at_blanks(lines) if not group[0][1].startswith("-DOCSTART-"))

    def parse(self, lines: list[Line]) -> Record:
        """Return the words and tags of a sentence."""
        words, tags = [], []
        for number, text in lines:
            cells = text.split("\t") if "\t" in text else split_at_spaces(text)
            if len(cells) < 2:
                raise BadRecord("tag_count", number, f'the word "{cells[0][:40]}" has no tag')
            self.width = self.width or len(cells)
            word, tag = self.section.words, len(cells) if self.section.tags == "last" else self.section.tags
            if max(word, tag) > len(cells):
                message = f"column {max(word, tag)} is missing; the row ends with column {len(cells)}"
                raise BadRecord("missing_column", number, message)
            if len(cells) != self.width:
                message = f"the row has {len(cells)} columns, but the rows before it have {self.width}"
                raise BadRecord("ragged_row", number, message)
            if not cells[word - 1].strip() or not cells[tag - 1].strip():
                raise BadRecord("tag_count", number, "a word or a tag is blank")
            words.append(cells[word - 1])
            tags.append(cells[tag - 1])
        return {"words": tuple(words), "tags": tuple(tags)}


class ConlluRows(Format):
    """CoNLL-U with one column chosen for the words and one for the tags."""

    roles = ("words", "tags")

    def __init__(self, section: ConlluFiles, *, numbers: bool = False) -> None:
        super().__init__(section, numbers=numbers)
        self.words, self.tags = _CONLLU.index(section.words), _CONLLU.index(section.tags)

    def split(self, lines: Iterable[Line]) -> Iterator[list[Line]]:
        """Group the lines of each sentence with its comments; comments alone are not a sentence."""
        return (group for group in split_at_blanks(lines) if not group[-1][1].startswith("#"))

    def parse(self, lines: list[Line]) -> Record:
        """Return the syntactic words and their tags."""
        words: list[str] = []
        tags: list[str] = []
        for number, text in lines:
            if text.startswith("#"):
                continue
            cells = text.split("\t")
            if len(cells) != len(_CONLLU):
                message = f"tabs divide the row into {len(cells)} columns, but CoNLL-U has 10; did tabs become spaces?"
                raise BadRecord("missing_column" if len(cells) < len(_CONLLU) else "ragged_row", number, message)
            identity = _ID.fullmatch(cells[0])
            if identity is None:
                message = f'the ID "{cells[0][:20]}" is not a number, a range or an empty node'
                raise BadRecord("bad_row", number, message)
            if identity["rest"]:
                continue
            if int(cells[0]) != len(words) + 1:
                message = f"word {cells[0]} follows word {len(words)}; is the blank line before a new sentence missing?"
                raise BadRecord("bad_row", number, message)
            if not cells[self.words].strip() or not cells[self.tags].strip():
                raise BadRecord("tag_count", number, "a word or a tag is blank")
            words.append(cells[self.words])
            tags.append(cells[self.tags])
        if not words:
            raise BadRecord("bad_row", lines[0][0], "the sentence has no words")
        return {"words": tuple(words), "tags": tuple(tags)}
