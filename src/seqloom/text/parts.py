"""Text to ids, by parts that were met before.

A text is cut where that is safe (`text/cuts.py`). Of running text, nine parts in ten have been met; their ids are kept
in a table (`native/words.c`). The others are asked of the `tokenizers` library, so all ids are its own: a part that is
a single word goes to the model alone, any other through everything that a text goes through. A table that has grown
past its limit is emptied, which changes no answer.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import tokenizers
from numpy.typing import NDArray

from seqloom.native.words import NewPart, WordTable, find_library
from seqloom.text.cuts import MARK, Splitting, classify, list_pairs, list_shapes, list_steps

MOST_BYTES = 64 << 20
"""Of a table between two calls; each thread that encodes has one of its own."""
_LONGEST_WORD = 64


def has_table() -> bool:
    """Whether there is a library for the table here."""
    return find_library() is not None


class PartEncoder:
    """The ids of texts that are cut into parts."""

    def __init__(
        self, whole: Any, spec: Mapping[str, Any], splitting: Splitting, size: int, most_bytes: int = MOST_BYTES
    ) -> None:
        """`whole` is the library's tokeniser, made of `spec`; its ids are below `size`."""
        steps = list_steps(spec.get("normalizer"))
        inner = [step for step in steps if step["type"] != "Prepend"]
        self._tell_first = inner != steps
        self._whole = self._inner = whole
        if self._tell_first:  # what is put before a text is not put before its parts
            normaliser = {"type": "Sequence", "normalizers": inner}
            self._inner = tokenizers.Tokenizer.from_str(json.dumps({**spec, "normalizer": normaliser}))
        self._model, self._spell = whole.model, _choose_spelling(splitting, steps)
        self._splitting, self._shapes = splitting, list_shapes(splitting)
        self._narrow, self._most_bytes = size <= 1 << 16, most_bytes
        self._tables: list[WordTable] = []

    def encode(self, texts: Sequence[str]) -> tuple[NDArray[np.unsignedinteger[Any]], NDArray[np.int64]]:
        """The ids of all texts end to end, in two bytes each where that is enough, and where each text begins."""
        try:
            table = self._tables.pop()
        except IndexError:
            table = self._open()
        ids, offsets = table.encode(texts, self._answer, narrow=self._narrow)
        self._tables.append(table if table.nbytes <= self._most_bytes else self._open())
        return ids, offsets

    def _open(self) -> WordTable:
        return WordTable(classify(), list_pairs(self._splitting), tell_first=self._tell_first)

    def _answer(self, parts: Sequence[NewPart]) -> list[list[int]]:
        """The ids of parts, by the library."""
        answers: list[list[int]] = [[]] * len(parts)
        others: dict[Any, list[int]] = {}
        for index, part in enumerate(parts):
            word = self._spell(part) if part.shape in self._shapes and len(part.text) <= _LONGEST_WORD else None
            if word is None:
                others.setdefault(self._whole if part.begins else self._inner, []).append(index)
            else:
                answers[index] = [token.id for token in self._model.tokenize(word)]
        for library, indices in others.items():
            texts = [parts[index].text for index in indices]
            encodings = library.encode_batch_fast(texts, add_special_tokens=False)
            for index, encoding in zip(indices, encodings, strict=True):
                answers[index] = encoding.ids
        return answers


def _choose_spelling(splitting: Splitting, steps: Sequence[Mapping[str, Any]]) -> Callable[[NewPart], str | None]:
    """What the model reads of a part that is a single word; None where that is left to the library."""
    kinds = {step["type"] for step in steps}
    lowers = "Lowercase" in kinds or any(step.get("lowercase") for step in steps)
    any_letter = "BertNormalizer" not in kinds  # which treats accents and Chinese characters in its own way
    marks = kinds >= {"Prepend", "Replace"}

    def spell(part: NewPart) -> str | None:
        text = part.text
        if not text.isascii() and not any_letter:
            return None
        text = text.lower() if lowers else text
        match splitting.spelling:
            case "as it is":
                return text
            case "without space":
                return text.removeprefix(" ")
            case "bytes":
                return _show_bytes(text)
            case "mark":  # of a text's own space, or put before it; "<0x" would be split
                whole = marks and part.begins != text.startswith(" ") and "<" not in text
                return MARK + text.removeprefix(" ") if whole else None

    return spell


def _show_bytes(text: str) -> str:
    """Bytes as the visible characters that byte-level tokenisers have for them."""
    if text.isascii():
        return text.replace(" ", "Ġ")
    return text.encode().decode("latin-1").translate(_VISIBLE)


_PLAIN = {*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)}
_VISIBLE = {byte: 0x100 + rank for rank, byte in enumerate(sorted(set(range(256)) - _PLAIN))}
