"""The table of `words.c`: which ids the parts of texts have.

A library of its own, which needs neither PyTorch nor a level of instructions, so that text becomes ids without either.
Where it was not built, or `SEQLOOM_KERNELS` says none, there is none, and the `tokenizers` library reads texts whole.
"""

import ctypes
import os
from collections.abc import Callable, Sequence
from functools import cache
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

ABI = 1
PADDING = "\0" * 8
"""What has to follow the texts in memory."""
_FILE = Path(__file__).with_name("libseqloom_words.so")
_int, _int64, _pointer = ctypes.c_int, ctypes.c_int64, ctypes.c_void_p
_SIGNATURES: dict[str, tuple[Any, ...]] = {
    "make": (_pointer,),
    "free": (None, _pointer),
    "measure": (_int64, _pointer),
    "count": (_int64, _pointer),
    "find": (_int64, _pointer, _pointer, _pointer, _int, ctypes.c_char_p, _int64, *[_pointer] * 3),
    "list": (_pointer, *[_pointer] * 2, _int64, *[_pointer] * 3),
    "fill": (_int, _pointer, _int64, *[_pointer] * 2),
    "place": (None, _pointer, _int64, *[_pointer] * 3),
    "gather": (None, _pointer, _int64, _pointer, _int, _pointer),
}


class NewPart(NamedTuple):
    """A part whose ids are asked for."""

    text: str
    begins: bool
    """Whether it begins a text; always false for a table that does not tell."""
    shape: int
    """A bit for each class that its characters have, one space at its start aside."""


Answer = Callable[[Sequence[NewPart]], Sequence[Sequence[int]]]
"""The ids of some parts."""


@cache
def find_library() -> ctypes.CDLL | None:
    """The library, None where there is none that fits."""
    return _load()[0]


def describe() -> str:
    """How texts become ids here, and why, in one sentence."""
    return _load()[1]


@cache
def _load() -> tuple[ctypes.CDLL | None, str]:
    without = "the tokenizers library reads every text whole"
    if os.environ.get("SEQLOOM_KERNELS") == "none":
        return None, f"{without}, because SEQLOOM_KERNELS is none"
    try:
        library = ctypes.CDLL(str(_FILE))
    except OSError as error:
        return None, f"{without}, because the table of words cannot be loaded: {error}"
    library.seqloom_words_abi.restype = _int64
    if library.seqloom_words_abi() != ABI:
        return None, f"{without}, because the table of words is of another version; install the package again"
    for name, (result, *arguments) in _SIGNATURES.items():
        function = getattr(library, f"seqloom_words_{name}")
        function.restype, function.argtypes = result, arguments
    return library, "words that were met before are looked up; the tokenizers library reads the others"


class WordTable:
    """Parts of texts and their ids; for one thread at a time."""

    def __init__(self, classes: NDArray[np.uint8], may_part: NDArray[np.uint8], *, tell_first: bool) -> None:
        library = find_library()
        if library is None:
            raise RuntimeError("there is no library of words here; ask `find_library` first")
        self._call, self._classes, self._may_part, self._tell_first = library, classes, may_part, tell_first
        self._table: int | None = library.seqloom_words_make()
        if self._table is None:
            raise MemoryError("there is not enough memory for a table of words")

    def __del__(self) -> None:
        if getattr(self, "_table", None) is not None:
            self._call.seqloom_words_free(self._table)

    def __len__(self) -> int:
        return int(self._call.seqloom_words_count(self._table))

    @property
    def nbytes(self) -> int:
        """The memory that it takes."""
        return int(self._call.seqloom_words_measure(self._table))

    def encode(
        self, texts: Sequence[str], answer: Answer, *, narrow: bool
    ) -> tuple[NDArray[np.unsignedinteger[Any]], NDArray[np.int64]]:
        """The ids of all texts end to end, and where each begins; of parts that are new, those that `answer` gives.

        With `narrow`, ids have two bytes. After an error, the table may not be used again.
        """
        text = "".join((*texts, PADDING)).encode()
        lengths = np.fromiter(map(len, texts), np.int64, len(texts))
        found, counts = np.empty(len(text), np.uint32), np.empty(len(texts), np.int64)
        known = len(self)
        parts = self._call.seqloom_words_find(
            *(self._table, self._classes.ctypes.data, self._may_part.ctypes.data, int(self._tell_first)),
            *(text, len(texts), lengths.ctypes.data, found.ctypes.data, counts.ctypes.data),
        )
        if parts < 0:
            raise MemoryError("there is not enough memory for the parts of these texts")
        if len(self) > known:
            self._learn(known, answer)
        offsets = np.empty(len(texts) + 1, np.int64)
        places = (array.ctypes.data for array in (counts, found, offsets))
        self._call.seqloom_words_place(self._table, len(texts), *places)
        ids: NDArray[np.unsignedinteger[Any]] = np.empty(int(offsets[-1]), np.uint16 if narrow else np.uint32)
        self._call.seqloom_words_gather(self._table, parts, found.ctypes.data, int(not narrow), ids.ctypes.data)
        return ids, offsets

    def _learn(self, known: int, answer: Answer) -> None:
        """Ask for the ids of all parts after the first `known`."""
        count = len(self) - known
        sizes, begins, shapes = np.empty(count, np.int64), np.empty(count, np.bool_), np.empty(count, np.uint8)
        start = self._call.seqloom_words_list(
            *(self._table, self._classes.ctypes.data, known),
            *(array.ctypes.data for array in (sizes, begins, shapes)),
        )
        ends = np.cumsum(sizes)
        text = ctypes.string_at(start, int(ends[-1]))
        pieces = (text[end - size : end].decode() for end, size in zip(ends.tolist(), sizes.tolist(), strict=True))
        answers = answer(list(map(NewPart, pieces, begins.tolist(), shapes.tolist())))
        counts = np.fromiter(map(len, answers), np.int64, count)
        flat = np.fromiter(chain.from_iterable(answers), np.uint32, int(counts.sum()))
        if not self._call.seqloom_words_fill(self._table, known, counts.ctypes.data, flat.ctypes.data):
            raise MemoryError("there is not enough memory for the ids of these texts")
