"""Files whose lines correspond -> records of a line of each: texts and translations, words and tags, alignments.

An alignment says which word of a source belongs to which word of its target, as word aligners write it: `0-0 1-2 2-1`,
counted from 0.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from seqloom.data.conll import describe_counts, split_at_spaces
from seqloom.data.examples import UNREADABLE, Chunk, Fault, Values
from seqloom.data.files import Advance, Block, ignore, read_blocks
from seqloom.data.formats import Format


class ParallelLines(Format):
    """One file for each side of the section, whose names are the roles."""

    one_line = True

    def __init__(self, section: Any, *, numbers: bool = False) -> None:
        super().__init__(section, numbers=numbers)
        self.roles = tuple(section.sides)

    def read(self, paths: Mapping[str, str], max_line: int, advance: Advance = ignore) -> Iterator[Chunk]:
        """Records of a line from each file; a line without a counterpart is counted and reported."""
        for chunk in _read_together(paths, max_line, advance):
            if "tags" in paths:
                yield _split_words(chunk)
            else:
                yield _check_alignments(chunk) if "alignment" in paths else chunk


class _Side:
    """The lines of one file that are not part of a record yet."""

    def __init__(self, path: str, max_line: int, advance: Advance) -> None:
        self.path = path
        self.blocks = read_blocks(path, max_line, advance)
        self.lines: list[str] = []
        self.count = 0
        self.broken = False

    def fill(self, faults: list[Fault]) -> bool:
        """Have at least one line ready, if the file has one."""
        while not self.lines:
            block: Block | None = next(self.blocks, None)
            if block is None:
                return False
            faults += block.faults
            # Where the whole file is at fault, a comparison of line counts would only repeat it.
            self.broken |= any(f.line == 0 and f.kind in UNREADABLE for f in block.faults)
            self.lines = block.lines
            self.count += len(block.lines)
        return True

    def take(self, size: int) -> list[str]:
        taken, self.lines = self.lines[:size], self.lines[size:]
        return taken


def _read_together(paths: Mapping[str, str], max_line: int, advance: Advance) -> Iterator[Chunk]:
    sides = {role: _Side(path, max_line, advance) for role, path in paths.items()}
    leader, *others = sides.values()
    first = 1
    while True:
        faults: list[Fault] = []
        filled = [side.fill(faults) for side in sides.values()]
        if not all(filled):
            break
        size = min(len(side.lines) for side in sides.values())
        columns: dict[str, Values] = {role: side.take(size) for role, side in sides.items()}
        yield Chunk(leader.path, range(first, first + size), columns, faults, paths)
        first += size
    for side in sides.values():
        while side.fill(faults):
            side.lines = []
    for number, side in enumerate(others):
        if side.count != leader.count and not any(one.broken for one in sides.values()):
            # Of two texts the fault is the first one's; an alignment that differs from the texts is itself at fault.
            one, other = (side, leader) if number else (leader, side)
            message = f"the file has {one.count:,} lines, but {other.path} has {other.count:,}"
            faults.append(Fault("unequal_lines", one.path, min(one.count, other.count) + 1, message))
    yield Chunk(leader.path, [], {role: [] for role in sides}, faults, paths)


def _split_words(chunk: Chunk) -> Chunk:
    """Lines of words and lines of tags -> tuples of equal length; a sentence of unequal counts is a fault."""
    faults = chunk.faults.copy()
    words, tags = ([tuple(split_at_spaces(str(line))) for line in chunk.columns[role]] for role in ("words", "tags"))
    for line, w, t in zip(chunk.lines, words, tags, strict=True):
        if len(w) != len(t):
            faults.append(Fault("tag_count", chunk.path, line, describe_counts(len(w), len(t))))
    equal = [len(w) == len(t) for w, t in zip(words, tags, strict=True)]
    return Chunk(chunk.path, chunk.lines, {"words": words, "tags": tags}, faults, chunk.paths).select(equal)


def read_alignment(text: str) -> list[tuple[int, int]]:
    """Pairs of (source word, target word)."""
    pairs = []
    for item in text.split():
        source, dash, target = item.partition("-")
        if not (dash and source.isdecimal() and target.isdecimal()):
            raise ValueError(f'"{item[:40]}" is not a pair of words such as 0-2')
        pairs.append((int(source), int(target)))
    return pairs


def _check_alignments(chunk: Chunk) -> Chunk:
    """Leave out records whose alignment cannot be read or names a word that does not exist; each is a fault."""
    faults = chunk.faults.copy()
    sound = []
    rows = zip(*(chunk.columns[role] for role in ("source", "target", "alignment")), strict=True)
    for line, row in zip(chunk.lines, rows, strict=True):
        fault = _find_fault(*map(str, row))
        if fault:
            faults.append(Fault("bad_alignment", chunk.paths["alignment"], line, fault))
        sound.append(not fault)
    return Chunk(chunk.path, chunk.lines, chunk.columns, faults, chunk.paths).select(sound)


def _find_fault(source: str, target: str, alignment: str) -> str:
    try:
        pairs = read_alignment(alignment)
    except ValueError as error:
        return str(error)
    for side, text, words in (("source", source, {s for s, _ in pairs}), ("target", target, {t for _, t in pairs})):
        count = len(text.split())
        if words and max(words) >= count:
            return f"the alignment names word {max(words)} of the {side}, which has {count} words, counted from 0"
    return ""
