"""The result of an evaluation: each metric with its interval and, against another system, whether it is better."""

from collections.abc import Iterator, Mapping
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
    """The files of the records; of a pair of files, the first."""
    records: int
    metrics: tuple[Estimate, ...]
    labels: tuple[LabelScore, ...] = ()
    """Precision, recall and F1 of each label, or of each kind of span."""
    confusions: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    """For each right label, how often each label was predicted."""
    against: tuple[Estimate, ...] = ()
    """The metrics of the other system."""
    comparisons: tuple[Comparison, ...] = ()
    """The difference of each metric from that of the other system."""
    notes: tuple[str, ...] = ()

    def __repr__(self) -> str:
        values = ", ".join(f"{metric.name} {metric.value:.4g}" for metric in self.metrics)
        return f"<seqloom.Scorecard {self.task}, {self.records:,} records: {values}>"

    def __getitem__(self, name: str) -> Estimate:
        """A metric by its name."""
        if name not in self:
            raise KeyError(f"{name}: there is {', '.join(metric.name for metric in self.metrics)}")
        return next(metric for metric in self.metrics if metric.name == name)

    def __contains__(self, name: object) -> bool:
        return any(metric.name == name for metric in self.metrics)

    def __iter__(self) -> Iterator[str]:
        return (metric.name for metric in self.metrics)

    def as_plain(self) -> dict[str, Any]:
        """The fields as values that JSON can express; empty ones are left out."""
        return {key: value for key, value in asdict(self).items() if value not in ((), {})}


def make_scorecard(
    task: str,
    files: tuple[str, ...],
    records: int,
    found: Performance,
    other: Performance | None = None,
    *,
    samples: int = SAMPLES,
) -> Scorecard:
    """Estimate the intervals and, if there is another system, test the differences."""
    if samples < 1:
        raise ConfigError(f"samples = {samples}: an interval needs at least one sample")
    pairs = [] if other is None else _pair(found, other)
    unlike = [one.name for one, two in pairs if not is_comparable(one, two)]
    notes = [f"{name} does not say which system is better: {UNLIKE[name]}" for name in unlike]
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


UNLIKE = {
    **dict.fromkeys(("perplexity", "pseudo_perplexity"), "it is a mean over tokens, and their tokens differ"),
    "bits_per_byte": "it is a mean over predicted bytes, and one of them does not predict the start of a line",
}


def is_comparable(one: Measure, two: Measure) -> bool:
    """Likelihoods are comparable only over the same tokens or bytes."""
    return one.name not in UNLIKE or np.array_equal(one.rows[:, 1], two.rows[:, 1])
