"""Where a text may be cut so that the ids of the parts, end to end, are those of the text.

A tokeniser normalises a text, splits it into words, and gives each word its pieces. A cut is safe where neither of the
first two looks across it. Normalisation does not if the characters on both sides are the same in every Unicode form and
the second never joins one before it (Unicode Standard Annex 15, §9). Splitting does not if a word always ends there,
which depends on the classes of the two characters and on how the tokeniser splits. What is known to be safe is named
here; the texts of every other tokeniser are never cut.
"""

import unicodedata
from collections.abc import Mapping
from functools import cache
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from seqloom.text.patterns import WORD

NO_CUT, LETTER, DIGIT, PUNCTUATION, SPACE = range(5)
"""Classes of characters; a cut is never beside one of the first. The only space is U+0020."""
MARK = "▁"
"""What SentencePiece writes for a space."""
_UNSURE = "'’Σ"  # apostrophes are part of words; what Σ is in lower case depends on who asks
_SIGNS = "$+<=>^`|~"  # punctuation for every splitter, symbols in Unicode
_CODES = range(1 << 16)

_BEFORE_SPACES = ((LETTER, SPACE), (DIGIT, SPACE), (PUNCTUATION, SPACE))
_AFTER_SPACES = ((SPACE, LETTER), (SPACE, DIGIT), (SPACE, PUNCTUATION))
_AROUND_SIGNS = ((LETTER, PUNCTUATION), (DIGIT, PUNCTUATION), (PUNCTUATION, LETTER), (PUNCTUATION, DIGIT))
_AROUND_NUMBERS = ((LETTER, DIGIT), (DIGIT, LETTER))


class Splitting(NamedTuple):
    """What is known of a way to split texts into words."""

    pairs: tuple[tuple[int, int], ...]
    """Classes of characters between which a word always ends."""
    words: tuple[tuple[int, ...], ...]
    """A part with characters of such classes only, after at most one space, is a single word."""
    spelling: Literal["as it is", "without space", "bytes", "mark"]
    """What the model then reads: the part, the part without its space, its bytes in visible characters, or ▁ and it."""


_BYTES = Splitting(_BEFORE_SPACES + _AROUND_SIGNS + _AROUND_NUMBERS, ((LETTER,), (DIGIT,), (PUNCTUATION,)), "bytes")
_LETTERS = ((LETTER,), (DIGIT,), (LETTER, DIGIT))
_WORDS = Splitting(_BEFORE_SPACES + _AFTER_SPACES + _AROUND_SIGNS, _LETTERS, "without space")
_BERT = _WORDS._replace(pairs=(*_WORDS.pairs, (PUNCTUATION, PUNCTUATION)))
_ANY = (*_LETTERS, (PUNCTUATION,), (LETTER, PUNCTUATION), (DIGIT, PUNCTUATION), (LETTER, DIGIT, PUNCTUATION))
_SPACES = Splitting(_BEFORE_SPACES + _AFTER_SPACES, _ANY, "without space")
_CHARACTERS = Splitting(_BYTES.pairs, _ANY, "as it is")
_MARKS = Splitting(_BEFORE_SPACES, _ANY, "mark")


def find_splitting(spec: Mapping[str, Any]) -> Splitting | None:
    """How a `tokenizer.json` splits; None where nothing is known of it, or texts are not split."""
    model = spec["model"]
    if model.get("type") not in ("BPE", "Unigram", "WordPiece", "WordLevel") or model.get("dropout"):
        return None
    if any(not token["special"] for token in spec["added_tokens"]):  # these are looked for in whole texts
        return None
    match spec.get("pre_tokenizer"):
        case None if _is_alphabet(model):  # every character is a word
            found = _CHARACTERS
        case {"type": "ByteLevel", "use_regex": False, "add_prefix_space": False} if _is_alphabet(model):
            found = _BYTES  # every byte is a word
        case {"type": "BertPreTokenizer"}:
            found = _BERT
        case {"type": "Whitespace"}:
            found = _WORDS
        case {"type": "WhitespaceSplit"}:
            found = _SPACES
        case {"type": "ByteLevel", "use_regex": True, "add_prefix_space": False}:
            found = _BYTES
        case {"type": "Sequence", "pretokenizers": [first, {"type": "ByteLevel", "use_regex": False} as last]} if (
            not last["add_prefix_space"] and first == _split({"Regex": WORD}, "Isolated")
        ):
            found = _BYTES
        case {"type": "Sequence", "pretokenizers": [first, last]} if first == _split(
            {"String": MARK}, "MergedWithNext"
        ) and last == _split({"String": "<0x"}, "Isolated"):
            found = _MARKS
        case _:
            return None
    return found if all(_is_known(step, found) for step in list_steps(spec.get("normalizer"))) else None


def _is_alphabet(model: Mapping[str, Any]) -> bool:
    """Whether a symbol has the same id wherever it stands: nothing is merged, and every other option is off."""
    known = ("type", "vocab", "unk_token", "byte_fallback")
    return model["type"] == "BPE" and not any(value for name, value in model.items() if name not in known)


def _split(pattern: dict[str, str], behavior: str) -> dict[str, Any]:
    return {"type": "Split", "pattern": pattern, "behavior": behavior, "invert": False}


def list_steps(normaliser: Any) -> list[dict[str, Any]]:
    """The steps of a normaliser, one after the other."""
    match normaliser:
        case None:
            return []
        case {"type": "Sequence", "normalizers": list(parts)}:
            return [step for part in parts for step in list_steps(part)]
    return [normaliser]


def _is_known(step: Mapping[str, Any], splitting: Splitting) -> bool:
    """Whether a step of normalisation changes nothing across a cut."""
    match step:
        case {"type": "NFC" | "NFKC" | "Lowercase"}:
            return True
        case {"type": "BertNormalizer"}:  # it puts spaces around some characters, and takes others away
            return splitting is _BERT
        case {"type": "Prepend", "prepend": "▁"} | {"type": "Replace", "pattern": {"String": " "}, "content": "▁"}:
            return splitting is _MARKS  # for others, spaces would be gone
    return False


def list_pairs(splitting: Splitting) -> NDArray[np.uint8]:
    """For each class, a bit for each class before which there may be a cut after it."""
    bits = np.zeros(SPACE + 1, np.uint8)
    for before, after in splitting.pairs:
        bits[before] |= 1 << after
    return bits


def list_shapes(splitting: Splitting) -> frozenset[int]:
    """The classes that a single word may have, as bits."""
    return frozenset(sum(1 << one for one in classes) for classes in splitting.words)


@cache
def classify() -> NDArray[np.uint8]:
    """The class of each character up to U+FFFF; those beyond have none that is cut beside."""
    joining = {*range(0x1161, 0x1176), *range(0x11A8, 0x11C3)}  # vowels and finals of Hangul
    for code in _CODES:
        parts = unicodedata.decomposition(chr(code)).split()
        if len(parts) == 2 and parts[0][0] != "<":
            joining.add(int(parts[1], 16))
    classes = np.zeros(len(_CODES), np.uint8)
    for code in _CODES:
        if code not in joining:
            classes[code] = _classify_one(chr(code))
    for code in np.flatnonzero(classes).tolist():  # a capital is what its small letter is
        small = chr(code).lower()
        if len(small) > 1 or ord(small) not in _CODES or classes[ord(small)] != classes[code]:
            classes[code] = NO_CUT
    return classes


def _classify_one(character: str) -> int:
    category = unicodedata.category(character)
    if character == " ":
        return SPACE
    # What has been what it is since Unicode 3.2 is so in the tables of every library.
    if category[0] not in "LNPS" or unicodedata.ucd_3_2_0.category(character) != category or character in _UNSURE:
        return NO_CUT
    if unicodedata.combining(character) or not unicodedata.is_normalized("NFKC", character):
        return NO_CUT
    if category[0] == "L":
        return LETTER
    if category == "Nd":
        return DIGIT
    return PUNCTUATION if character in _SIGNS or (category[0] == "P" and category != "Pc") else NO_CUT
