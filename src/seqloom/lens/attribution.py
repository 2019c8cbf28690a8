"""Why this prediction: its logit as a sum over components, and over the tokens that were read.

    contributions     of heads, feed-forward networks, kernels, recurrent layers, embeddings, positions and biases along
                      the residual stream: direct logit attribution (Elhage et al. 2021)
    conserved         of tokens, with everything that multiplies held fixed (Ali et al. 2022; Arras et al. 2019)
    gradient          x·∂logit/∂x, with the true gradient; it adds up to nothing in particular
    integrated        x·∫₀¹ ∂logit/∂x(αx) dα, by Gauss–Legendre quadrature; it adds up to the logit minus the logit with
                      every embedding at 0 (Sundararajan et al. 2017). Steps are added where they are needed
    occlusion         how much the logit falls when a token's embedding is set to 0 (Zeiler & Fergus 2014)

The first two add up to the logit exactly; `gap` is what is missing.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from seqloom.lens.networks import Ids, OpenNetwork
from seqloom.lens.passes import Edit, Kind, Pass
from seqloom.lens.texts import Question

Method = Literal["conserved", "gradient", "integrated", "occlusion"]
_NODES = 8  # of the quadrature, in each part of the way
_MOST = 64  # parts
_CLOSE = 5e-3  # of what integrated gradients have to add up to


@dataclass(frozen=True)
class Item:
    """What one component adds to a logit."""

    site: str
    name: str
    value: float


@dataclass(frozen=True)
class Contributions:
    """A logit, or the difference of two, as a sum over components."""

    items: tuple[Item, ...]
    total: float
    """The sum of the items."""
    logit: float
    """What the network gives."""
    gap: float
    token: int
    against: int | None = None

    def to_json(self) -> dict[str, Any]:
        """The sum as a value that JSON can express."""
        return asdict(self)


@dataclass(frozen=True)
class Attribution:
    """A logit, or the difference of two, as a sum over the tokens that were read."""

    sides: dict[str, list[float]]
    """The share of each token of each side."""
    biases: float
    """What belongs to no token: biases and position vectors; of integrated gradients, the logit without any token."""
    positions: float
    """What of that belongs to position vectors."""
    total: float
    logit: float
    gap: float
    method: Method
    note: str

    def to_json(self) -> dict[str, Any]:
        """The sum as a value that JSON can express."""
        return asdict(self)


@dataclass(frozen=True)
class Subject:
    """A logit to explain: of a token at a prediction, or how much larger it is than that of another."""

    open: OpenNetwork
    ids: Ids
    edits: tuple[Edit, ...]
    question: Question
    token: int
    against: int | None = None

    def run(self, kind: Kind = "plain", more: Sequence[Edit] = (), **options: Any) -> tuple[Tensor, Pass]:
        """The logit, and the pass that computed it."""
        p = Pass(self.open.like, (*self.edits, *more), kind=kind, **options)
        last = self.open.run(p, self.ids)[self.question.direction]
        states = self.open.read(p, last, self.question.direction)[self.question.row]
        logits = self.open.score(p, states[None])[0]
        return logits[self.token] if self.against is None else logits[self.token] - logits[self.against], p

    @torch.no_grad()
    def logit(self, more: Sequence[Edit] = (), **options: Any) -> float:
        """The network's own logit."""
        return float(self.run(more=more, **options)[0])


def contribute(subject: Subject) -> Contributions:
    """The logit as a sum over the components that write to the stream which the head reads."""
    with torch.enable_grad():
        logit, p = subject.run("direct")
        leaves = {**p.embeddings, **p.positions, **p.components, "biases": p.one}
        shares = _share(logit, leaves)
    items = []
    for site, share in shares.items():
        if share.dim() == 3:  # heads
            values = share.sum((0, 2)).tolist()
            items += [Item(f"{site}.{head}", name_site(f"{site}.{head}"), value) for head, value in enumerate(values)]
        else:
            items.append(Item(site, name_site(site), float(share.sum())))
    total, found = sum(item.value for item in items), subject.logit()
    return Contributions(tuple(items), total, found, total - found, subject.token, subject.against)


def attribute(subject: Subject, method: Method) -> Attribution:
    """The logit as a sum over tokens."""
    return _METHODS[method](subject)


def _share(logit: Tensor, leaves: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """x·∂logit/∂x for each leaf that has a part in it, not yet summed."""
    gradients = torch.autograd.grad(logit, list(leaves.values()), allow_unused=True)
    return {
        name: (leaf * gradient).detach()
        for (name, leaf), gradient in zip(leaves.items(), gradients, strict=True)
        if gradient is not None
    }


def _sum_sides(subject: Subject, shares: Mapping[str, Float[Tensor, "T *D"]]) -> dict[str, list[float]]:
    sides = {}
    for side, sites in subject.open.embeddings.items():
        total = torch.zeros(len(subject.ids[side]), dtype=torch.float64)
        for site in sites:
            if site in shares:
                total += shares[site].cpu().double().flatten(1).sum(1)
        sides[side] = total.tolist()
    return sides


def _add_up(
    subject: Subject, method: Method, sides: dict[str, list[float]], biases: float, positions: float, note: str
) -> Attribution:
    total, logit = sum(map(sum, sides.values())) + biases, subject.logit()
    return Attribution(sides, biases, positions, total, logit, total - logit, method, note)


def _conserve(subject: Subject) -> Attribution:
    with torch.enable_grad():
        logit, p = subject.run("frozen")
        shares = _share(logit, {**p.embeddings, **p.positions, "biases": p.one})
    positions = sum(float(shares[site].sum()) for site in p.positions if site in shares)
    biases = float(shares["biases"]) if "biases" in shares else 0.0
    note = "Attention weights, gates, norms' scales and activations' ratios are held fixed; the shares add up exactly."
    return _add_up(subject, "conserved", _sum_sides(subject, shares), biases + positions, positions, note)


def _differentiate(subject: Subject) -> Attribution:
    with torch.enable_grad():
        logit, p = subject.run(leaves=True)
        shares = _share(logit, p.embeddings)
    note = "Embedding times gradient: how the logit would change at first; the shares do not add up to it."
    return _add_up(subject, "gradient", _sum_sides(subject, shares), 0.0, 0.0, note)


def _integrate(subject: Subject) -> Attribution:
    with torch.no_grad():
        _, p = subject.run(leaves=True)
    path = _Path(subject, {site: vector.detach() for site, vector in p.embeddings.items()})
    start, logit = path.height(0.0), path.height(1.0)
    parts = [path.integrate(0.0, 0.5), path.integrate(0.5, 1.0)]
    while sum(abs(part.gap) for part in parts) > _CLOSE * abs(logit - start) and len(parts) < _MOST:
        worst = max(parts, key=lambda part: abs(part.gap))
        parts.remove(worst)
        middle = (worst.first + worst.last) / 2
        parts += [path.integrate(worst.first, middle), path.integrate(middle, worst.last)]
    shares = {site: sum((part.shares[site] for part in parts), torch.zeros(())) for site in path.vectors}
    gap = abs(sum(part.gap for part in parts)) / max(abs(logit - start), 1e-9)
    note = f"Integrated from every embedding at 0, in {len(parts) * _NODES} steps; the gap is {gap:.2%} of the sum."
    return _add_up(subject, "integrated", _sum_sides(subject, shares), start, 0.0, note)


@dataclass(frozen=True)
class _Part:
    """The integral over a part of the way, and how far it is from what the logit gains there."""

    first: float
    last: float
    shares: dict[str, Tensor]
    gap: float


@dataclass(frozen=True)
class _Path:
    """The way from every embedding at 0 to the text: αx, with α = u⁴.

    A norm does not see the length of its input, so nearly all that happens, happens close to 0. There u is slow. Over
    each part of the way the shares must add up to what the logit gains, so it is known where more steps are needed.
    """

    subject: Subject
    vectors: Mapping[str, Tensor]

    def height(self, u: float) -> float:
        """The logit at a place."""
        return self.subject.logit(vectors={site: u**4 * vector for site, vector in self.vectors.items()})

    def integrate(self, first: float, last: float) -> _Part:
        """x ⊙ ∫ ∂logit/∂x(αx) dα, over a part of the way."""
        total = {site: torch.zeros_like(vector) for site, vector in self.vectors.items()}
        places, weights = np.polynomial.legendre.leggauss(_NODES)
        for place, weight in zip(places.tolist(), weights.tolist(), strict=True):
            u = first + (last - first) * (place + 1) / 2
            with torch.enable_grad():
                scaled = {site: u**4 * vector for site, vector in self.vectors.items()}
                logit, p = self.subject.run(leaves=True, vectors=scaled)
                gradients = torch.autograd.grad(logit, [p.embeddings[site] for site in total], allow_unused=True)
            for site, gradient in zip(total, gradients, strict=True):
                if gradient is not None:
                    total[site] += weight * (last - first) / 2 * 4 * u**3 * gradient
        shares = {site: total[site] * vector for site, vector in self.vectors.items()}
        gained = self.height(last) - self.height(first)
        return _Part(first, last, shares, sum(float(share.cpu().double().sum()) for share in shares.values()) - gained)


def _occlude(subject: Subject) -> Attribution:
    logit = subject.logit()
    sides = {
        side: [
            logit - subject.logit([Edit(site, positions=(place,)) for site in sites])
            for place in range(len(subject.ids[side]))
        ]
        for side, sites in subject.open.embeddings.items()
    }
    note = "How much lower the logit is without the token's embedding; the shares do not add up to it."
    return _add_up(subject, "occlusion", sides, 0.0, 0.0, note)


_METHODS: dict[Method, Callable[[Subject], Attribution]] = {
    "conserved": _conserve,
    "gradient": _differentiate,
    "integrated": _integrate,
    "occlusion": _occlude,
}


def name_site(site: str) -> str:
    """A site in words: `decoder.2.head.5` is head 5 of layer 2."""
    return ", ".join(_say_parts(site.split(".")))


def _say_parts(parts: list[str]) -> Iterator[str]:
    numbered = {"head": "head", "cross": "cross-attention head"}
    while parts:
        part, *parts = parts
        if part.isdecimal():
            yield f"layer {part}"
        elif part in numbered and parts and parts[0].isdecimal():
            number, *parts = parts
            yield f"{numbered[part]} {number}"
        else:
            yield {"feedforward": "feed-forward", "lookup": "attention to the source"}.get(part, part)
