"""Where in the sequence is this token?

Attention alone treats a sequence as a set. Absolute encodings turn a position k into a vector p_k that is added to, or
concatenated with, the input embedding; relative ones act inside attention.

    index         p_k = k                                     the naive ones, kept because seeing them fail teaches
    normalised    p_k = k / (n − 1), n the sequence's length
    one-hot       p_k = e_k, from a table of n positions
    sinusoidal    p_{k,2i} = sin(k / b^{2i/d}),  p_{k,2i+1} = cos(k / b^{2i/d}),  b = 10 000   Vaswani et al. 2017, §3.5
    learned       p_k = row k of a table: one-hot followed by a linear map                     Gehring et al. 2017
    rotary        q_m·k_n depends on m − n: pairs of coordinates turn by an angle k·b^{−2i/d}  Su et al. 2021
    ALiBi         −m_h·|i − j| is added to the score of head h                                 Press et al. 2022
    relative      a learned number for the bucket of i − j is added to the score of head h     Raffel et al. 2020, §2.1
"""

import math
from abc import ABC, abstractmethod
from typing import Literal, NamedTuple

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor, nn

from seqloom.errors import ShapeError

Places = Int[Tensor, "*N"]
Vectors = Float[Tensor, "*N P"]


class AbsolutePositions(nn.Module, ABC):
    """A vector for each position of a sequence."""

    width: int
    limit: int | None = None
    """How many positions have a vector; None: all."""

    @abstractmethod
    def forward(self, places: Places, lengths: Int[Tensor, "*N"]) -> Vectors:
        """The vectors of positions in sequences of these lengths."""


class IndexPositions(AbsolutePositions):
    """The raw index, one number: it grows without bound."""

    width = 1

    def forward(self, places: Places, lengths: Int[Tensor, "*N"]) -> Vectors:
        """p_k = k."""
        return places.unsqueeze(-1).to(torch.get_default_dtype())


class NormalisedPositions(AbsolutePositions):
    """The index from 0 to 1: a step means something else in a longer sequence."""

    width = 1

    def forward(self, places: Places, lengths: Int[Tensor, "*N"]) -> Vectors:
        """p_k = k / (n − 1)."""
        return (places / (lengths - 1).clamp(min=1)).unsqueeze(-1).to(torch.get_default_dtype())


class OneHotPositions(AbsolutePositions):
    """A coordinate of its own for each of `table` positions."""

    def __init__(self, table: int) -> None:
        super().__init__()
        self.width = self.limit = table

    def forward(self, places: Places, lengths: Int[Tensor, "*N"]) -> Vectors:
        """p_k = e_k."""
        _check_table(places, self.width)
        return F.one_hot(places, self.width).to(torch.get_default_dtype())


class SinusoidalPositions(AbsolutePositions):
    """Waves of many lengths: any position has a code, and a shift is a rotation of it."""

    def __init__(self, width: int, base: float = 10_000.0, order: Literal["pairs", "halves"] = "pairs") -> None:
        super().__init__()
        if width % 2:
            raise ShapeError(f"width = {width} is odd; sines and cosines come in pairs")
        self.width, self.order = width, order
        self.register_buffer("frequencies", base ** (-torch.arange(0, width, 2) / width), persistent=False)
        self.frequencies: Tensor

    def forward(self, places: Places, lengths: Int[Tensor, "*N"]) -> Vectors:
        """p_{k,2i} = sin(k / b^{2i/d}), p_{k,2i+1} = cos(k / b^{2i/d}); in halves, all sines come first."""
        angles = places.unsqueeze(-1) * self.frequencies
        waves = [angles.sin(), angles.cos()]
        return torch.stack(waves, dim=-1).flatten(-2) if self.order == "pairs" else torch.cat(waves, dim=-1)


class LearnedPositions(AbsolutePositions):
    """A row of a learned table for each position: nothing beyond the table has one."""

    def __init__(self, table: int, width: int) -> None:
        super().__init__()
        self.width, self.limit = width, table
        self.table = nn.Embedding(table, width)
        nn.init.normal_(self.table.weight, std=0.02)

    def forward(self, places: Places, lengths: Int[Tensor, "*N"]) -> Vectors:
        """p_k = table[k]."""
        _check_table(places, self.table.num_embeddings)
        vectors: Tensor = self.table(places)
        return vectors


class PositionedInput(nn.Module):
    """The input embedding with its position: x + p, or a linear map of [x; p]."""

    def __init__(self, positions: AbsolutePositions, model_dim: int, combine: Literal["sum", "concat"]) -> None:
        super().__init__()
        if combine == "sum" and positions.width > model_dim:
            raise ShapeError(
                f"positions have width {positions.width}, more than model_dim = {model_dim}; "
                "concatenate them, or take a smaller table"
            )
        self.positions = positions
        self.project = nn.Linear(model_dim + positions.width, model_dim) if combine == "concat" else None

    def forward(
        self,
        x: Float[Tensor, "*N D"],
        places: Int[Tensor, "*N"] | None = None,
        lengths: Int[Tensor, "*N"] | None = None,
        vectors: Float[Tensor, "*M P"] | None = None,
    ) -> Float[Tensor, "*N D"]:
        """A shorter vector is added to the first coordinates: LayerNorm would undo a number added to all of them.

        Where `tabulate` has made the vectors of the positions before, they may be given instead.
        """
        if vectors is None:
            vectors = self.positions(places, lengths)
        return self._combine(x, vectors.to(x.dtype))

    def tabulate(self, length: int, device: torch.device) -> Float[Tensor, "L P"]:
        """The vectors of the first positions, each as that of the last token so far; as many as there are."""
        limit = self.positions.limit
        places = torch.arange(length if limit is None else min(length, limit), device=device)
        vectors: Tensor = self.positions(places, places + 1)
        return vectors

    def _combine(self, x: Tensor, p: Tensor) -> Tensor:
        if self.project is not None:
            projected: Tensor = self.project(torch.cat([x, p.expand(*x.shape[:-1], -1)], dim=-1))
            return projected
        return x + (p if p.shape[-1] == x.shape[-1] else F.pad(p, (0, x.shape[-1] - p.shape[-1])))


class Stretch(NamedTuple):
    """Slower angles for a model that reads texts longer than those it was first trained on."""

    factor: float
    """By how much: position interpolation (Chen et al. 2023)."""
    length: int | None = None
    """How long those were: much shorter waves stay as they are, as in LLaMA 3.1. None: all slow down."""
    low: float = 1.0
    """Waves that fit fewer times than this into `length` slow down in full."""
    high: float = 4.0
    """Waves that fit more often than this stay; in between, in part."""

    def apply(self, frequencies: Float[Tensor, "F"]) -> Float[Tensor, "F"]:
        """The frequencies, slower."""
        if self.length is None:
            return frequencies / self.factor
        times = self.length * frequencies / (2 * math.pi)
        kept = ((times - self.low) / (self.high - self.low)).clamp(0.0, 1.0)
        return (1.0 - kept) * frequencies / self.factor + kept * frequencies


class Rotary(nn.Module):
    """Turns each pair of coordinates (i, i + d/2) of a query or key by k·b^{−2i/d}."""

    def __init__(self, head_dim: int, base: float = 10_000.0, stretch: Stretch | None = None) -> None:
        super().__init__()
        if head_dim % 2:
            raise ShapeError(f"head_dim = {head_dim} is odd; rotary positions turn pairs of coordinates")
        frequencies = 1.0 / base ** (torch.arange(0, head_dim, 2) / head_dim)
        if stretch is not None:
            frequencies = stretch.apply(frequencies)
        self.register_buffer("frequencies", frequencies, persistent=False)
        self.frequencies: Tensor

    def forward(self, x: Float[Tensor, "*N H K"], places: Int[Tensor, "*N"]) -> Float[Tensor, "*N H K"]:
        """The same vectors, turned; dot products between them now depend on their distance."""
        angles = (places.unsqueeze(-1) * self.frequencies).unsqueeze(-2)  # (*N, 1, K/2)
        cos, sin = angles.cos(), angles.sin()
        first, second = x.chunk(2, dim=-1)
        return torch.cat([first * cos - second * sin, second * cos + first * sin], dim=-1)

    def tabulate(self, length: int) -> tuple[Float[Tensor, "T J"], Float[Tensor, "T J"]]:
        """Cosines and sines of the first positions."""
        angles = torch.arange(length, device=self.frequencies.device).unsqueeze(-1) * self.frequencies
        return angles.cos(), angles.sin()


class RelativeBias(nn.Module):
    """One learned number a head and a bucket of distances: near ones have their own, far ones share, log-spaced."""

    def __init__(self, num_heads: int, buckets: int, distance: int, *, causal: bool) -> None:
        super().__init__()
        self.distance, self.causal = distance, causal
        self.table = nn.Embedding(buckets, num_heads)
        nn.init.normal_(self.table.weight, std=0.02)

    def forward(self, back: Int[Tensor, "*B Q S"]) -> Float[Tensor, "*B H Q S"]:
        """What is added to the score of a key that lies `back` positions behind its query."""
        bias: Tensor = self.table(self.bucket(back)).movedim(-1, -3)
        return bias

    def bucket(self, back: Int[Tensor, "*N"]) -> Int[Tensor, "*N"]:
        """The bucket of a key that lies `back` positions behind its query (before it, where negative)."""
        size = self.table.num_embeddings
        ahead = torch.zeros_like(back)
        if not self.causal:  # one half of the buckets for each side
            size //= 2
            ahead = (back < 0) * size
            back = back.abs()
        back = back.clamp(min=0)
        exact = size // 2
        share = (back.clamp(min=1) / exact).log() / math.log(self.distance / exact)
        shared = (exact + (share * (size - exact)).long()).clamp(max=size - 1)
        return ahead + torch.where(back < exact, back, shared)


def alibi_slopes(num_heads: int) -> Float[Tensor, "H"]:
    """m_h = 2^{−8h/H}: some heads look near, some far. For H not a power of two, every other slope of 2H fills up."""
    power = 1 << (num_heads.bit_length() - 1)
    slopes = [2.0 ** (-8.0 * h / power) for h in range(1, power + 1)]
    more = [2.0 ** (-4.0 * h / power) for h in range(1, 2 * (num_heads - power), 2)]
    return torch.tensor(slopes + more)


def _check_table(places: Tensor, table: int) -> None:
    if places.numel() and int(places.max()) >= table:
        raise ShapeError(
            f"a sequence has {int(places.max()) + 1} tokens but the table of positions has {table}; "
            "shorten the sequence, or train with a larger table or with sinusoidal positions"
        )
