"""Which word a token is part of; a word is what stands between white space."""

import re
from bisect import bisect_right
from collections.abc import Sequence

_WORD = re.compile(r"\S+")


def find_owners(text: str, offsets: Sequence[tuple[int, int]]) -> tuple[int, list[tuple[int, int]]]:
    """How many words a text has, and pairs of (token, its word); a token of nothing but white space has none."""
    starts = [match.start() for match in _WORD.finditer(text)]
    owners = [
        (token, bisect_right(starts, end - 1) - 1)
        for token, (start, end) in enumerate(offsets)
        if text[start:end].strip()
    ]
    return len(starts), owners
