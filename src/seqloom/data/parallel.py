"""Files whose lines correspond -> records of a line of each."""

from collections.abc import Iterator, Mapping

from seqloom.data.chunk import Chunk, Values
from seqloom.data.conll import split_at_spaces
from seqloom.data.fault import UNREADABLE, Fault
from seqloom.data.lines import Advance, Block, ignore, read_blocks


class _Side:
    """The lines of one file that have not found their partner yet."""

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


def read_parallel(paths: Mapping[str, str], max_line: int, advance: Advance = ignore) -> Iterator[Chunk]:
    """Records of a line from the file of each role; where a file goes on alone, its lines are counted and reported."""
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
            # Of two texts the first is named, as elsewhere; what goes with them names itself.
            one, other = (side, leader) if number else (leader, side)
            message = f"{one.count:,} lines, but {other.path} has {other.count:,}"
            faults.append(Fault("unequal_lines", one.path, min(one.count, other.count) + 1, message))
    yield Chunk(leader.path, [], {role: [] for role in sides}, faults, paths)


def split_words(chunk: Chunk) -> Chunk:
    """Lines of words and lines of tags -> tuples of equal length; a sentence of unequal counts is a fault."""
    faults = chunk.faults.copy()
    words, tags = ([tuple(split_at_spaces(str(line))) for line in chunk.columns[role]] for role in ("words", "tags"))
    for line, w, t in zip(chunk.lines, words, tags, strict=True):
        if len(w) != len(t):
            faults.append(Fault("tag_count", chunk.path, line, f"words: {len(w)}, but tags: {len(t)}"))
    equal = [len(w) == len(t) for w, t in zip(words, tags, strict=True)]
    return Chunk(chunk.path, chunk.lines, {"words": words, "tags": tags}, faults, chunk.paths).select(equal)
