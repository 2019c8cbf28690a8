"""Position encodings: where in its sequence is a token?

Attention alone treats a sequence as a set. A position encoding adds the order, in one of three places: an absolute
encoding combines a vector p_k for position k with the input embedding; a relative encoding acts inside attention, on
queries and keys or on the scores.

    index         p_k = k                                     the first three are naive: instructive to see fail
    normalised    p_k = k / (n − 1), n the sequence's length
    one-hot       p_k = e_k, from a table of n positions
    sinusoidal    p_{k,2i} = sin(k / b^{2i/d}),  p_{k,2i+1} = cos(k / b^{2i/d}),  b = 10 000   Vaswani et al. 2017, §3.5
    learned       p_k = row k of a table: one-hot followed by a linear map                     Gehring et al. 2017
                  of the last two, positions may be counted from another number than 0
    rotary        q_m·k_n depends on m − n: pairs of coordinates rotate by k·b^{−2i/d}         Su et al. 2021
    ALiBi         −m_h·|i − j| is added to the score of head h                                 Press et al. 2022
    relative      a learned number for the bucket of i − j is added to the score of head h     Raffel et al. 2020, §2.1
"""

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Literal, NamedTuple

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor, nn

from seqloom.errors import ShapeError
from seqloom.nn.cache import NewTokens
from seqloom.nn.packing import Packing

Positions = Int[Tensor, "*N"]
Vectors = Float[Tensor, "*N P"]
Distances = Int[Tensor, "*B Q S"]
ScoreBias = Float[Tensor, "*B H Q S"]


@dataclass(frozen=True)
class PositionTable:
    """The vectors of the first positions, computed once for all steps of decoding; None if the encoding has none."""

    vectors: Float[Tensor, "L P"] | None

    @property
    def length(self) -> int:
        """How many positions it has."""
        return 0 if self.vectors is None else len(self.vectors)


class PositionEncoding(nn.Module):
    """Gives a model the position of each token.

    An encoding can act in three places: `encode_input`, `encode_query_key` and `score_bias`. A subclass overrides the
    methods it needs. Attention, windows and cached steps check which these are, and call no others.
    """

    def encode_input(self, x: Float[Tensor, "*N D"], positions: Positions, lengths: Positions) -> Float[Tensor, "*N D"]:
        """The embeddings of tokens at these positions of sequences of these lengths."""
        return x

    def encode_query_key(
        self, query: Float[Tensor, "*N H K"], key: Float[Tensor, "*N G K"], positions: Positions
    ) -> tuple[Float[Tensor, "*N H K"], Float[Tensor, "*N G K"]]:
        """The queries and keys of tokens at these positions."""
        return query, key

    def score_bias(self, distance: Distances) -> ScoreBias:
        """What each head adds to the score of a key `distance` positions behind its query."""
        raise NotImplementedError

    def check_length(self, length: int) -> None:
        """Refuse a sequence that is too long, before its positions are looked up."""

    @property
    def acts_on_input(self) -> bool:
        """Whether it changes the input embeddings."""
        return type(self).encode_input is not PositionEncoding.encode_input

    @property
    def acts_on_query_key(self) -> bool:
        """Whether it changes queries and keys."""
        return type(self).encode_query_key is not PositionEncoding.encode_query_key

    @property
    def acts_on_scores(self) -> bool:
        """Whether it adds to the scores."""
        return type(self).score_bias is not PositionEncoding.score_bias

    def tabulate(self, length: int, device: torch.device) -> PositionTable:
        """A table for `encode_step`, so that it need not compute the vectors at each step."""
        return PositionTable(None)

    def encode_step(self, x: Float[Tensor, "R T D"], new: NewTokens, table: PositionTable) -> Float[Tensor, "R T D"]:
        """`encode_input` for new tokens; each counts as the last of its sequence."""
        self.check_length(new.end)
        positions = new.row_positions(len(x))
        return self.encode_input(x, positions, positions + 1)


def encode_positions(encoding: PositionEncoding, x: Float[Tensor, "N D"], packing: Packing) -> Float[Tensor, "N D"]:
    """`encode_input` for whole sequences, packed."""
    encoding.check_length(packing.longest)
    return encoding.encode_input(x, packing.positions, packing.token_lengths)


class AbsolutePositions(nn.Module, ABC):
    """A vector for each position of a sequence."""

    width: int
    limit: int | None = None
    """How many positions have a vector; None for all."""

    @abstractmethod
    def forward(self, positions: Positions, lengths: Positions) -> Vectors:
        """The vectors of positions in sequences of these lengths."""


class IndexPositions(AbsolutePositions):
    """The raw index, one number: it grows without bound."""

    width = 1

    def forward(self, positions: Positions, lengths: Positions) -> Vectors:
        """p_k = k."""
        return positions.unsqueeze(-1).to(torch.get_default_dtype())


class NormalisedPositions(AbsolutePositions):
    """The index scaled to 0 … 1: the distance between neighbours depends on the length of the sequence."""

    width = 1

    def forward(self, positions: Positions, lengths: Positions) -> Vectors:
        """p_k = k / (n − 1)."""
        return (positions / (lengths - 1).clamp(min=1)).unsqueeze(-1).to(torch.get_default_dtype())


class OneHotPositions(AbsolutePositions):
    """A separate coordinate for each of `table` positions."""

    def __init__(self, table: int) -> None:
        super().__init__()
        self.width = self.limit = table

    def forward(self, positions: Positions, lengths: Positions) -> Vectors:
        """p_k = e_k."""
        _check_table(positions, self.width)
        return F.one_hot(positions, self.width).to(torch.get_default_dtype())


class SinusoidalPositions(AbsolutePositions):
    """Waves of many lengths: every position has a vector, and a shift of positions rotates it."""

    def __init__(
        self, width: int, base: float = 10_000.0, order: Literal["pairs", "halves"] = "pairs", first: int = 0
    ) -> None:
        """`first` is the number of the first position."""
        super().__init__()
        if width % 2:
            raise ShapeError(f"width = {width} is odd; sines and cosines come in pairs")
        self.width, self.order, self.first = width, order, first
        self.register_buffer("frequencies", base ** (-torch.arange(0, width, 2) / width), persistent=False)
        self.frequencies: Tensor

    def forward(self, positions: Positions, lengths: Positions) -> Vectors:
        """p_{k,2i} = sin(k / b^{2i/d}), p_{k,2i+1} = cos(k / b^{2i/d}); in halves, all sines come first."""
        angles = (positions + self.first).unsqueeze(-1) * self.frequencies
        waves = [angles.sin(), angles.cos()]
        return torch.stack(waves, dim=-1).flatten(-2) if self.order == "pairs" else torch.cat(waves, dim=-1)


class LearnedPositions(AbsolutePositions):
    """A row of a learned table for each of `table` positions; positions beyond have none."""

    def __init__(self, table: int, width: int, first: int = 0) -> None:
        """The rows before the `first` position's, as RoBERTa and BART have them, are not used."""
        super().__init__()
        self.width, self.limit, self.first = width, table, first
        self.table = nn.Embedding(first + table, width)
        nn.init.normal_(self.table.weight, std=0.02)

    def forward(self, positions: Positions, lengths: Positions) -> Vectors:
        """p_k = table[first + k]."""
        _check_table(positions, self.table.num_embeddings - self.first)
        return self.table(positions + self.first)


class InputPositions(PositionEncoding):
    """Absolute positions combined with the input embedding: x + p, or a linear map of [x; p]."""

    def __init__(self, positions: AbsolutePositions, model_dim: int, combine: Literal["sum", "concat"]) -> None:
        super().__init__()
        if combine == "sum" and positions.width > model_dim:
            raise ShapeError(
                f"positions have width {positions.width}, more than model_dim = {model_dim}; "
                "concatenate them, or choose a smaller table"
            )
        self.positions = positions
        self.project = nn.Linear(model_dim + positions.width, model_dim) if combine == "concat" else None

    def forward(self, x: Float[Tensor, "*N D"], vectors: Float[Tensor, "*M P"]) -> Float[Tensor, "*N D"]:
        """Combine both. A shorter p is added to the first coordinates: LayerNorm would undo adding it to all."""
        p = vectors.to(x.dtype)
        if self.project is not None:
            return self.project(torch.cat([x, p.expand(*x.shape[:-1], -1)], dim=-1))
        return x + (p if p.shape[-1] == x.shape[-1] else F.pad(p, (0, x.shape[-1] - p.shape[-1])))

    def encode_input(self, x: Float[Tensor, "*N D"], positions: Positions, lengths: Positions) -> Float[Tensor, "*N D"]:
        """The embeddings with their positions."""
        return self(x, self.positions(positions, lengths))

    def check_length(self, length: int) -> None:
        """Refuse a sequence that is longer than the table of positions, if there is one."""
        if self.positions.limit is not None and length > self.positions.limit:
            raise _explain_length(length, self.positions.limit)

    def tabulate(self, length: int, device: torch.device) -> PositionTable:
        """The vectors of the first positions, each as the last of its sequence, as far as they exist."""
        limit = self.positions.limit
        positions = torch.arange(length if limit is None else min(length, limit), device=device)
        return PositionTable(self.positions(positions, positions + 1))

    def encode_step(self, x: Float[Tensor, "R T D"], new: NewTokens, table: PositionTable) -> Float[Tensor, "R T D"]:
        """New tokens with their positions, looked up in the table if it is long enough."""
        if table.vectors is None or new.end > table.length:
            return super().encode_step(x, new, table)
        if new.ragged:
            vectors = F.embedding(new.row_positions(len(x)), table.vectors)
        else:
            vectors = table.vectors[new.first : new.end]
        return self(x, vectors)


class FrequencyScaling(NamedTuple):
    """Lower rotary frequencies, for texts longer than those of the first training."""

    factor: float
    """What frequencies are divided by: position interpolation (Chen et al. 2023)."""
    length: int | None = None
    """The length of the first training's texts; waves much shorter are kept, as in LLaMA 3.1. None: all are scaled."""
    low: float = 1.0
    """Waves that fit into `length` fewer times than this are scaled in full."""
    high: float = 4.0
    """Waves that fit into `length` more times than this are kept; those in between are scaled in part."""

    def apply(self, frequencies: Float[Tensor, "F"]) -> Float[Tensor, "F"]:
        """The scaled frequencies."""
        if self.length is None:
            return frequencies / self.factor
        times = self.length * frequencies / (2 * math.pi)
        kept = ((times - self.low) / (self.high - self.low)).clamp(0.0, 1.0)
        return (1.0 - kept) * frequencies / self.factor + kept * frequencies


class Rotary(PositionEncoding):
    """Rotates each pair of coordinates (i, i + d/2) of a query or key by k·b^{−2i/d}."""

    def __init__(self, head_dim: int, base: float = 10_000.0, scaling: FrequencyScaling | None = None) -> None:
        super().__init__()
        if head_dim % 2:
            raise ShapeError(f"head_dim = {head_dim} is odd; rotary positions rotate pairs of coordinates")
        frequencies = 1.0 / base ** (torch.arange(0, head_dim, 2) / head_dim)
        if scaling is not None:
            frequencies = scaling.apply(frequencies)
        self.register_buffer("frequencies", frequencies, persistent=False)
        self.frequencies: Tensor

    def forward(self, x: Float[Tensor, "*N H K"], positions: Positions) -> Float[Tensor, "*N H K"]:
        """The rotated vectors; dot products between them depend on the distance of their positions."""
        angles = (positions.unsqueeze(-1) * self.frequencies).unsqueeze(-2)  # (*N, 1, K/2)
        cos, sin = angles.cos(), angles.sin()
        first, second = x.chunk(2, dim=-1)
        return torch.cat([first * cos - second * sin, second * cos + first * sin], dim=-1)

    def encode_query_key(
        self, query: Float[Tensor, "*N H K"], key: Float[Tensor, "*N G K"], positions: Positions
    ) -> tuple[Float[Tensor, "*N H K"], Float[Tensor, "*N G K"]]:
        """Both rotated, each by a call of the module, so that its hooks run."""
        return self(query, positions), self(key, positions)

    def tabulate_angles(self, length: int) -> tuple[Float[Tensor, "T J"], Float[Tensor, "T J"]]:
        """Cosines and sines of the first positions."""
        angles = torch.arange(length, device=self.frequencies.device).unsqueeze(-1) * self.frequencies
        return angles.cos(), angles.sin()


class Alibi(PositionEncoding):
    """Lowers scores in proportion to distance, with a different slope for each head."""

    def __init__(self, num_heads: int) -> None:
        super().__init__()
        self.register_buffer("slopes", alibi_slopes(num_heads), persistent=False)
        self.slopes: Tensor

    def forward(self, distance: Distances) -> ScoreBias:
        """−m_h·|i − j|."""
        return -self.slopes[:, None, None] * distance.abs().unsqueeze(-3)

    def score_bias(self, distance: Distances) -> ScoreBias:
        """A call of the module, so that its hooks run."""
        return self(distance)


def alibi_slopes(num_heads: int) -> Float[Tensor, "H"]:
    """m_h = 2^{−8h/H}: some heads see far, some near. If H is no power of two, every other slope of 2H is added."""
    power = 1 << (num_heads.bit_length() - 1)
    slopes = [2.0 ** (-8.0 * h / power) for h in range(1, power + 1)]
    more = [2.0 ** (-4.0 * h / power) for h in range(1, 2 * (num_heads - power), 2)]
    return torch.tensor(slopes + more)


class RelativeBias(PositionEncoding):
    """A learned number for each head and bucket of distances: one for each short distance, log-spaced for long ones."""

    def __init__(self, num_heads: int, buckets: int, distance: int, *, causal: bool) -> None:
        super().__init__()
        self.distance, self.causal = distance, causal
        self.table = nn.Embedding(buckets, num_heads)
        nn.init.normal_(self.table.weight, std=0.02)

    def forward(self, distance: Distances) -> ScoreBias:
        """The learned number of each head for each distance."""
        return self.table(self.bucket(distance)).movedim(-1, -3)

    def score_bias(self, distance: Distances) -> ScoreBias:
        """A call of the module, so that its hooks run."""
        return self(distance)

    def bucket(self, distance: Int[Tensor, "*N"]) -> Int[Tensor, "*N"]:
        """The bucket of a key `distance` positions behind its query (ahead of it if negative)."""
        size = self.table.num_embeddings
        ahead = torch.zeros_like(distance)
        if not self.causal:  # half of the buckets for each side
            size //= 2
            ahead = (distance < 0) * size
            distance = distance.abs()
        distance = distance.clamp(min=0)
        exact = size // 2
        share = (distance.clamp(min=1) / exact).log() / math.log(self.distance / exact)
        shared = (exact + (share * (size - exact)).long()).clamp(max=size - 1)
        return ahead + torch.where(distance < exact, distance, shared)


def _check_table(positions: Tensor, table: int) -> None:
    """Refuse positions beyond a table, where that can be known without waiting; `check_length` needs no tensor."""
    if not torch.compiler.is_compiling() and positions.is_cpu and positions.numel() and int(positions.max()) >= table:
        raise _explain_length(int(positions.max()) + 1, table)


def _explain_length(length: int, table: int) -> ShapeError:
    return ShapeError(
        f"a sequence has {length} tokens but the table of positions has {table}; "
        "shorten the sequence, or train with a larger table or with sinusoidal positions"
    )
