"""Names and other spans, written as a tag a word, scored as CoNLL does (Tjong Kim Sang and De Meulder 2003).

A span is right if its first word, its last word and its kind are; F1 counts spans of all kinds together. The tags may
be of any scheme, for one rule reads them all, also where a sequence breaks the rules of its scheme:

    IOB1          I-PER I-PER O      B- only between two spans of a kind that touch
    BIO (IOB2)    B-PER I-PER O
    BIOES, BILOU  B-PER E-PER O S-LOC

A span begins at a tag other than O that says so (B, S, U), or after a word that is in none, in one of another kind, or
the last of one (E, S, L, U).
"""

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

import numpy as np

from seqloom.metrics.classification import LabelScore, tabulate
from seqloom.metrics.measure import Measure, Metric, Rows

Span = tuple[str, int, int]
"""A kind, the first word, and the one after the last."""

_TAG = re.compile(r"(?P<part>[BIMELSU])(-(?P<kind>.+))?")
_BEGINS, _ENDS = "BSU", "ELSU"


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
        match = _TAG.fullmatch(tag)
        part, here = (match["part"], match["kind"] or "") if match else ("O", None)
        if kind is not None and (here != kind or part in _BEGINS or before in _ENDS):
            yield kind, start, place
            kind = None
        if here is not None and kind is None:
            start, kind = place, here
        before = part


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
