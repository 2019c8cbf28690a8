"""Two files whose lines correspond -> pairs."""

from collections.abc import Iterator

from weft.data.chunk import Chunk, Values
from weft.data.conll import split_at_spaces
from weft.data.fault import UNREADABLE, Fault
from weft.data.lines import Advance, Block, ignore, read_blocks


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


def read_pairs(
    left_path: str, right_path: str, roles: tuple[str, str], max_line: int, advance: Advance = ignore
) -> Iterator[Chunk]:
    """Pairs of lines; where one file goes on alone, its lines are counted and reported."""
    left, right = _Side(left_path, max_line, advance), _Side(right_path, max_line, advance)
    paths = dict(zip(roles, (left_path, right_path), strict=True))
    first = 1
    while True:
        faults: list[Fault] = []
        more_left, more_right = left.fill(faults), right.fill(faults)
        if not (more_left and more_right):
            break
        size = min(len(left.lines), len(right.lines))
        columns: dict[str, Values] = {roles[0]: left.take(size), roles[1]: right.take(size)}
        yield Chunk(left_path, range(first, first + size), columns, faults, paths)
        first += size
    for side in (left, right):
        while side.fill(faults):
            side.lines = []
    if left.count != right.count and not (left.broken or right.broken):
        message = f"{left.count:,} lines, but {right_path} has {right.count:,}"
        faults.append(Fault("unequal_lines", left_path, min(left.count, right.count) + 1, message))
    yield Chunk(left_path, [], {roles[0]: [], roles[1]: []}, faults, paths)


def split_words(chunk: Chunk) -> Chunk:
    """Lines of words and lines of tags -> tuples of equal length; a sentence of unequal counts is a fault."""
    faults = chunk.faults.copy()
    words, tags = ([tuple(split_at_spaces(str(line))) for line in chunk.columns[role]] for role in ("words", "tags"))
    for line, w, t in zip(chunk.lines, words, tags, strict=True):
        if len(w) != len(t):
            faults.append(Fault("tag_count", chunk.path, line, f"words: {len(w)}, but tags: {len(t)}"))
    equal = [len(w) == len(t) for w, t in zip(words, tags, strict=True)]
    return Chunk(chunk.path, chunk.lines, {"words": words, "tags": tags}, faults, chunk.paths).select(equal)
