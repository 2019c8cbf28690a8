"""What a change did: the answer before and after, the probability of every prediction, and where values moved most.

The probabilities after the change are those of the old answer, read under the change: a new answer has other tokens.
"""

from collections.abc import Iterator, Sequence, Set
from dataclasses import asdict, dataclass, replace
from typing import Any

import torch
from torch import Tensor

from seqloom.lens.seen import Seen
from seqloom.lens.texts import Question


@dataclass(frozen=True)
class ComparedPrediction:
    """A prediction before and after a change: its probability or, where a number is predicted, that number."""

    label: str
    before: float
    after: float | None
    """None if the change removed the place of the prediction."""


@dataclass(frozen=True)
class ComparedSite:
    """How far a value moved: ‖after − before‖ / ‖before‖."""

    site: str
    change: float


@dataclass(frozen=True)
class Comparison:
    """Two traces of the same text, with and without a change."""

    answer: tuple[Any, Any]
    """The answer before and after."""
    predictions: tuple[ComparedPrediction, ...]
    sites: tuple[ComparedSite, ...]
    """Where values moved most, the largest move first."""
    said: tuple[Any, Any]
    """The answers as JSON can express them."""

    def to_json(self) -> dict[str, Any]:
        """The comparison as a value that JSON can express."""
        predictions, sites = [asdict(one) for one in self.predictions], [asdict(one) for one in self.sites]
        return {"answer": list(self.said), "predictions": predictions, "sites": sites}


@torch.no_grad()
def compare(after: Seen, before: Seen, swapped: Set[str], top: int) -> Comparison:
    """Compare a text under change with itself; `swapped` are the sides of which words are others."""
    old, new = before.reading, after.reading
    ids = {side: new.ids[side] if side in swapped else own for side, own in old.ids.items()}
    moved = {side: _match(old.ids[side].tolist(), tokens.tolist()) for side, tokens in ids.items()}
    asked = list(_move(before, moved))
    rows = {place: number for number, place in enumerate(place for place, question in asked if question is not None)}
    questions = tuple(question for _, question in asked if question is not None)
    shadow = Seen(after.open, replace(old, ids=ids, questions=questions), after.edits)
    found = shadow.predictions
    predictions = tuple(
        ComparedPrediction(one.label, _value(one), _value(found[rows[place]]) if place in rows else None)
        for place, one in enumerate(before.predictions)
    )
    sites = sorted(_measure(before, shadow), key=lambda one: -one.change)[:top]
    return Comparison((old.answer, new.answer), predictions, tuple(sites), (old.said, new.said))


def _value(prediction: Any) -> float:
    found: float | None = prediction.probability
    return float(prediction.top[0].logit) if found is None else found


def _match(old: Sequence[int], new: Sequence[int]) -> dict[int, int]:
    """Where each token of the old text is in the new one: those before and those after what was swapped."""
    if len(old) == len(new):
        return {place: place for place in range(len(old))}
    shortest = min(len(old), len(new))
    start = next((n for n in range(shortest) if old[n] != new[n]), shortest)
    end = next((n for n in range(shortest - start) if old[-1 - n] != new[-1 - n]), shortest - start)
    shift = len(new) - len(old)
    return {n: n for n in range(start)} | {n: n + shift for n in range(len(old) - end, len(old))}


def _move(before: Seen, moved: dict[str, dict[int, int]]) -> Iterator[tuple[int, Question | None]]:
    """Each question of the old text, at its place in the new one."""
    for place, (question, one) in enumerate(zip(before.reading.questions, before.predictions, strict=True)):
        asked = replace(question, id=one.id)
        if question.at is None:
            yield place, asked
            continue
        side, row = question.at
        yield place, replace(asked, row=moved[side][row]) if row in moved[side] else None


def _measure(before: Seen, after: Seen) -> Iterator[ComparedSite]:
    """How far the value at each site moved, where it has the same shape in both."""
    old: dict[str, Tensor] = {}
    before.run(listen=old.__setitem__)
    found: dict[str, float] = {}

    def listen(site: str, value: Tensor) -> None:
        one = old.pop(site)
        if one.shape == value.shape:
            found[site] = float((value - one).norm()) / max(float(one.norm()), torch.finfo(one.dtype).tiny)

    after.run(listen=listen)
    yield from (ComparedSite(site, change) for site, change in found.items() if change > 0)
