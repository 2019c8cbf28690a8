"""Whether labels are right: accuracy, the F1 of each label, and their mean.

precision = right / given    recall = right / wanted    F1 = 2 right / (given + wanted), 0 where nothing is right
macro-F1 = the mean of F1 over the labels that were wanted or given
"""

import hashlib
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from seqloom.metrics.measure import Measure, Metric, Rows, measure_share


@dataclass(frozen=True)
class LabelScore:
    """How well one label is found."""

    label: str
    precision: float
    recall: float
    f1: float
    wanted: int
    """How often it was the right answer."""
    given: int
    """How often it was the answer."""


def measure_accuracy(wanted: Sequence[str], given: Sequence[str]) -> Measure:
    """The share of right answers."""
    right = np.array([one == other for one, other in zip(wanted, given, strict=True)], np.float64)
    return measure_share("accuracy", right, np.ones(len(right)))


def measure_macro_f1(wanted: Sequence[str], given: Sequence[str]) -> Measure:
    """The mean F1 of the labels, each counting alike however rare."""
    rows = [(_number(one), _number(other)) for one, other in zip(wanted, given, strict=True)]
    return Measure("macro_f1", np.array(rows, np.float64).reshape(-1, 2), _macro_f1)


def _macro_f1(rows: Rows) -> float:
    labels, numbers = np.unique(rows, return_inverse=True)
    wanted, given = numbers.reshape(rows.shape).T
    right, *sides = (np.bincount(some, minlength=len(labels)) for some in (wanted[wanted == given], wanted, given))
    return float(np.mean(2 * right / sum(sides)))


def _number(label: str) -> int:
    """A number that is the same whatever other labels there are, since answers of two systems are swapped."""
    return int.from_bytes(hashlib.blake2b(label.encode(), digest_size=6).digest())


def measure_tag_accuracy(wanted: Sequence[Sequence[str]], given: Sequence[Sequence[str]]) -> Measure:
    """The share of right tags over all words."""
    right = [sum(map(str.__eq__, one, other)) for one, other in zip(wanted, given, strict=True)]
    return measure_share("accuracy", np.array(right), np.array([len(tags) for tags in wanted]))


ACCURACY = Metric("accuracy", measure_accuracy)
TAG_ACCURACY = Metric("accuracy", measure_tag_accuracy)
MACRO_F1 = Metric("macro_f1", measure_macro_f1)


def note_unknown(wanted: Sequence[str], known: Sequence[str]) -> tuple[str, ...]:
    """A note on labels that a model has never seen."""
    unknown = sorted({*wanted} - {*known})
    return (f"the model knows no label {', '.join(unknown)}: it cannot be right there",) if unknown else ()


def count_confusions(wanted: Sequence[str], given: Sequence[str]) -> dict[str, dict[str, int]]:
    """For each label that was wanted, how often each was given, the most frequent first."""
    counts: dict[str, Counter[str]] = {name: Counter() for name in sorted(set(wanted))}
    for one, other in zip(wanted, given, strict=True):
        counts[one][other] += 1
    return {name: dict(sorted(row.items(), key=lambda item: (-item[1], item[0]))) for name, row in counts.items()}


def score_labels(wanted: Sequence[str], given: Sequence[str]) -> tuple[LabelScore, ...]:
    """Each label by itself."""
    right = Counter(one for one, other in zip(wanted, given, strict=True) if one == other)
    return tabulate(right, Counter(wanted), Counter(given))


def tabulate(right: Mapping[str, int], wanted: Mapping[str, int], given: Mapping[str, int]) -> tuple[LabelScore, ...]:
    """The scores of labels from how often each was right, wanted and given."""
    return tuple(
        LabelScore(
            name,
            right.get(name, 0) / given[name] if given.get(name) else 0.0,
            right.get(name, 0) / wanted[name] if wanted.get(name) else 0.0,
            2 * right.get(name, 0) / (given.get(name, 0) + wanted.get(name, 0)),
            wanted.get(name, 0),
            given.get(name, 0),
        )
        for name in sorted({*wanted, *given})
    )
