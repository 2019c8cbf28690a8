"""Names and other spans, written as a tag a word, scored as CoNLL does (Tjong Kim Sang and De Meulder 2003).

A span is right if its first word, its last word and its kind are; F1 counts spans of all kinds together. The tags may
be of any scheme, for one rule reads them all, also where a sequence breaks the rules of its scheme:

    IOB1          I-PER I-PER O      B- only between two spans of a kind that touch
    BIO (IOB2)    B-PER I-PER O
    BIOES, BILOU  B-PER E-PER O S-LOC

A span begins at a tag other than O that says so (B, S, U), or after a word that is in none, in one of another kind, or
the last of one (E, S, L, U).

A scheme also says which tags may follow each other; its rules are read from the tags of each kind. I-PER must follow
B-PER or I-PER where there is a B-PER, except in IOB1; B-PER must be continued where there is an E-PER.
"""

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from seqloom.metrics.classification import LabelScore, tabulate
from seqloom.metrics.measure import Measure, Metric, Rows

Span = tuple[str, int, int]
"""A kind, the first word, and the one after the last."""

_TAG = re.compile(r"(?P<part>[BIMELSU])(-(?P<kind>.+))?")
_BEGINS, _CONTINUES, _ENDS, _OPEN = "BSU", "IMEL", "ELSU", "BIM"


def holds_spans(tags: Iterable[str]) -> bool:
    """Whether tags are of such a scheme: O, and parts of spans."""
    found = set(tags)
    return bool(found - {"O"}) and all(tag == "O" or _TAG.fullmatch(tag) for tag in found)


def find_spans(tags: Sequence[str]) -> set[Span]:
    """The spans of a sentence."""
    return set(_read(tags))


def _read(tags: Sequence[str]) -> Iterator[Span]:
    start, kind, before = 0, None, "O"
    for place, tag in enumerate([*tags, "O"]):
        part, here = _divide(tag)
        if kind is not None and (here != kind or part in _BEGINS or before in _ENDS):
            yield kind, start, place
            kind = None
        if here is not None and kind is None:
            start, kind = place, here
        before = part


def _divide(tag: str) -> tuple[str, str | None]:
    """The part of a span that a tag stands for, and the kind of the span; O has none."""
    match = _TAG.fullmatch(tag)
    return (match["part"], match["kind"] or "") if match else ("O", None)


class Transitions(NamedTuple):
    """Which of C tags may follow each other, and which may be the first and the last of a sentence."""

    following: NDArray[np.bool_]
    """Row b, column a: whether tag a may follow tag b."""
    first: NDArray[np.bool_]
    last: NDArray[np.bool_]


def find_transitions(tags: Sequence[str], *, iob1: bool = False) -> Transitions | None:
    """The rules of the tags' scheme; None where tags are not of such a scheme, so that any may follow any.

    IOB1 and BIO have the same tags, so `iob1` says which it is.
    """
    if not holds_spans(tags):
        return None
    divided = [_divide(tag) for tag in tags]
    parts: dict[str | None, set[str]] = {}
    for part, kind in divided:
        parts.setdefault(kind, set()).add(part)

    def may_follow(before: tuple[str, str | None], after: tuple[str, str | None]) -> bool:
        (part, kind), (next_part, next_kind) = before, after
        continues = kind == next_kind and part in _OPEN and next_part in _CONTINUES
        if part in _OPEN and parts[kind] & {"E", "L"}:
            return continues
        if iob1 and next_part == "B":
            return kind == next_kind
        return continues or iob1 or next_part not in _CONTINUES or "B" not in parts[next_kind]

    outside = ("O", None)
    return Transitions(
        np.array([[may_follow(one, other) for other in divided] for one in divided]),
        np.array([may_follow(outside, one) for one in divided]),
        np.array([may_follow(one, outside) for one in divided]),
    )


def is_iob1(sentences: Iterable[Sequence[str]]) -> bool:
    """Whether spans begin with I, and B stands only between two spans of a kind that touch."""
    found = False
    for tags in sentences:
        before = None
        for part, kind in map(_divide, tags):
            if part == "B" and kind != before:
                return False
            found = found or (part == "I" and kind != before)
            before = kind
    return found


def measure_span_f1(wanted: Sequence[Sequence[str]], given: Sequence[Sequence[str]]) -> Measure:
    """F1 over the spans of all sentences."""
    rows = [
        (len(one & other), len(one), len(other))
        for one, other in zip(map(find_spans, wanted), map(find_spans, given), strict=True)
    ]
    return Measure("span_f1", np.array(rows, np.float64).reshape(-1, 3), _f1)


def score_spans(wanted: Sequence[Sequence[str]], given: Sequence[Sequence[str]]) -> tuple[LabelScore, ...]:
    """Each kind of span by itself."""
    right: Counter[str] = Counter()
    sought: Counter[str] = Counter()
    found: Counter[str] = Counter()
    for one, other in zip(map(find_spans, wanted), map(find_spans, given), strict=True):
        for counts, spans in ((right, one & other), (sought, one), (found, other)):
            counts.update(kind for kind, _, _ in spans)
    return tabulate(right, sought, found)


def _f1(rows: Rows) -> float:
    right, wanted, given = rows.sum(0)
    return float(2 * right / (wanted + given)) if wanted + given else 0.0


SPAN_F1 = Metric("span_f1", measure_span_f1)
