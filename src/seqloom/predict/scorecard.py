"""What an evaluation comes to: each metric with its interval and, against another system, whether it is better."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np

from seqloom.errors import ConfigError
from seqloom.metrics.classification import LabelScore
from seqloom.metrics.measure import Measure
from seqloom.metrics.resampling import SAMPLES, Comparison, Estimate, compare, estimate
from seqloom.predict.evaluate import Performance


@dataclass(frozen=True)
class Scorecard:
    """The metrics of a model, or of outputs, on some records."""

    task: str
    files: tuple[str, ...]
    """Where the records are; of pairs of files, the first."""
    records: int
    metrics: tuple[Estimate, ...]
    labels: tuple[LabelScore, ...] = ()
    """Each label, or each kind of span, by itself."""
    confusions: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    """For each label that was wanted, how often each was given."""
    against: tuple[Estimate, ...] = ()
    """The metrics of the other system."""
    comparisons: tuple[Comparison, ...] = ()
    """By how much the first exceeds the other."""
    notes: tuple[str, ...] = ()

    def __getitem__(self, name: str) -> Estimate:
        """A metric by its name."""
        return {metric.name: metric for metric in self.metrics}[name]

    def as_plain(self) -> dict[str, Any]:
        """The same as values that JSON has; what there is none of is left out."""
        return {key: value for key, value in asdict(self).items() if value not in ((), {})}


def draw_up(
    task: str,
    files: tuple[str, ...],
    records: int,
    found: Performance,
    other: Performance | None = None,
    *,
    samples: int = SAMPLES,
) -> Scorecard:
    """Draw the intervals and, where there is another system, test the differences."""
    if samples < 1:
        raise ConfigError(f"samples = {samples}: an interval needs at least one")
    pairs = [] if other is None else _pair(found, other)
    unlike = [one.name for one, two in pairs if not _is_comparable(one, two)]
    notes = [f"{name} does not say which system is better: {_UNLIKE[name]}" for name in unlike]
    return Scorecard(
        task,
        files,
        records,
        tuple(estimate(one, samples=samples) for one in found.measures),
        found.details.labels,
        found.details.confusions,
        tuple(estimate(two, samples=samples) for _, two in pairs),
        tuple(compare(one, two, samples=samples) for one, two in pairs if one.name not in unlike),
        (*found.details.notes, *notes),
    )


def _pair(found: Performance, other: Performance) -> list[tuple[Measure, Measure]]:
    return [(one, two) for one in found.measures for two in other.measures if one.name == two.name]


_UNLIKE = {
    **dict.fromkeys(("perplexity", "pseudo_perplexity"), "it is of a token, and their tokens are not the same"),
    "bits_per_byte": "it is of a predicted byte, and one of them does not predict the start of a line",
}


def _is_comparable(one: Measure, two: Measure) -> bool:
    """Likelihoods are comparable where they are of the same tokens, or bytes."""
    return one.name not in _UNLIKE or np.array_equal(one.rows[:, 1], two.rows[:, 1])
