"""What flows between the rooms of the house.

Legend, used in every shape of this package: B batch, T time (tokens of a row), N real tokens of a batch without its
padding, D width of a vector, H heads, K width of a head, V vocabulary.

One convention for masks everywhere: True is a real token that may be seen, False is not.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, fields, is_dataclass, replace
from itertools import chain
from typing import Any, Literal, Self, TypeVar

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from numpy.typing import NDArray
from torch import Tensor

from seqloom.errors import ShapeError

Direction = Literal["both", "forward", "backward"]
"""What a position sees: everything, what came before and itself, or what comes after and itself."""


@dataclass(frozen=True)
class TokenBatch:
    """Rows of token ids, padded to one length."""

    ids: Int[Tensor, "B T"]
    mask: Bool[Tensor, "B T"]
    documents: Int[Tensor, "B T"] | None = None
    """Where several documents share a row: the number of each token's document. Nothing looks across documents."""

    @classmethod
    def pad(cls, rows: Sequence[Sequence[int]], pad_id: int) -> "TokenBatch":
        """Rows of ids, filled up to the longest with `pad_id`."""
        ids = np.fromiter(chain.from_iterable(rows), np.int64)
        return cls.unflatten(ids, np.fromiter(map(len, rows), np.int64, len(rows)), pad_id)

    @classmethod
    def unflatten(cls, ids: NDArray[np.int64], lengths: NDArray[np.integer[Any]], pad_id: int) -> "TokenBatch":
        """The same for rows that stand end to end in `ids`."""
        mask = np.arange(lengths.max(initial=1)) < lengths[:, None]
        padded = np.full(mask.shape, pad_id, np.int64)
        padded[mask] = ids
        return cls(torch.from_numpy(padded), torch.from_numpy(mask))


@dataclass(frozen=True)
class PairBatch:
    """A source and the target to be made of it, row by row."""

    source: TokenBatch
    target: TokenBatch
    alignment: "Alignment | None" = None


@dataclass(frozen=True)
class Alignment:
    """What attention should find: each entry is a row, a position of its target and one of its source."""

    entries: Int[Tensor, "P 3"]
    weights: Float[Tensor, "P"]
    """How much each counts."""


@dataclass(frozen=True)
class SharedState:
    """What a decoder keeps for a line as a whole, shared by its beams: each tensor has a row for each line."""

    def select(self, lines: Int[Tensor, "L"]) -> Self:
        """That of some lines, in the given order, repeats allowed."""
        return _map_tensors(self, lambda tensor: tensor.index_select(0, lines))

    def join(self, other: Self) -> Self:
        """That of the lines of both, the shorter rows padded."""
        return _join_fields(self, other)


@dataclass(frozen=True)
class Encoded(SharedState):
    """A sequence after an encoder: one contextual vector a token."""

    states: Float[Tensor, "B T D"]
    mask: Bool[Tensor, "B T"]
    summary: Float[Tensor, "B S"]
    """One vector a row: the final states of a recurrent encoder, the mean of the others."""
    layers: tuple[Float[Tensor, "B T _"], ...] = ()
    """The input and the output of each layer, when they were asked for."""


@dataclass(frozen=True)
class DecodeState:
    """What a decoder keeps between steps, for B lines of W beams each: R = B·W rows, those of a line side by side.

    Search needs to know only `select`, which lets lines leave, `branch`, which says what each beam goes on from, and
    `join`, which lets lines come in. What becomes of a line does not depend on the others.
    Fields of a subclass are tensors with R rows, or a `SharedState` with B.
    """

    positions: tuple[int, ...]
    """How many tokens each line has read so far."""
    width: int = field(default=1, kw_only=True)
    """Beams of each line."""
    attention: Float[Tensor, "R S"] | None = field(default=None, kw_only=True)
    """The attention weights of the last token of each row over the source, if the state was started with them."""

    @property
    def position(self) -> int:
        """How many tokens every line has read, where they all have read as many."""
        first, *others = {*self.positions}
        if others:
            raise ShapeError(f"the lines of this state stand at different positions: {first}, {others[0]}, …")
        return first

    @property
    def device(self) -> torch.device:
        """Where the tensors are, and the tokens must be."""
        return next(_find_tensors(self)).device

    def select(self, lines: Int[Tensor, "L"]) -> Self:
        """The state of some lines, each with all its beams, in the given order, repeats allowed."""
        beams = torch.arange(self.width, device=lines.device)
        rows = (lines.unsqueeze(1) * self.width + beams).flatten()
        state = _map_tensors(self, lambda tensor: tensor.index_select(0, rows), lambda shared: shared.select(lines))
        return replace(state, positions=tuple(self.positions[line] for line in lines.tolist()))

    def branch(self, origins: Int[Tensor, "B W"]) -> Self:
        """A state whose beam w of line b goes on from beam `origins[b, w]` of that line. The source stays as it is."""
        first = torch.arange(len(origins), device=origins.device).unsqueeze(1) * self.width
        rows = (first + origins).flatten()
        state = _map_tensors(self, lambda tensor: tensor.index_select(0, rows))
        return replace(state, width=origins.shape[1])

    def join(self, other: Self) -> Self:
        """The lines of both, each where it stands; those with fewer beams get copies of their last one."""
        width = max(self.width, other.width)
        one, two = self._widen(width), other._widen(width)
        return replace(_join_fields(one, two), positions=one.positions + two.positions)

    def _widen(self, width: int) -> Self:
        if width == self.width:
            return self
        return self.branch(
            torch.arange(width, device=self.device).clamp(max=self.width - 1).expand(len(self.positions), -1)
        )


@dataclass(frozen=True)
class Hypothesis:
    """What a search found for a line."""

    ids: tuple[int, ...]
    """The tokens, the forced prefix among them, without the start and the end."""
    score: float
    """What the ranking went by: the sum of `token_scores`, with its length and coverage penalty."""
    token_scores: tuple[float, ...]
    """log P of each token after the prefix in natural logarithms, and that of the end if it is finished."""
    finished: bool
    """Whether the model ended it; else it was cut at its longest length, or nothing more was allowed."""


_S = TypeVar("_S")


def _map_tensors(
    holder: _S, change: Callable[[Tensor], Tensor], change_line: Callable[[Any], Any] = lambda shared: shared
) -> _S:
    """The same dataclass with its tensors changed; what the beams of a line share, as a whole."""

    def visit(value: Any) -> Any:
        match value:
            case Tensor():
                return change(value)
            case tuple():
                return tuple(visit(item) for item in value)
            case SharedState():
                return change_line(value)
            case _:
                return value

    names = [f.name for f in fields(holder)]  # type: ignore[arg-type]
    return replace(holder, **{name: visit(getattr(holder, name)) for name in names})  # type: ignore[type-var]


def move(batch: _S, device: torch.device) -> _S:
    """A batch with all its tensors on a device."""
    if device.type == "cpu":
        return batch

    def visit(value: Any) -> Any:
        if isinstance(value, Tensor):
            return value.to(device, non_blocking=True)
        return move(value, device) if is_dataclass(value) else value

    return replace(batch, **{f.name: visit(getattr(batch, f.name)) for f in fields(batch)})  # type: ignore[type-var, arg-type]


def _join_fields(one: _S, two: _S) -> _S:
    """A dataclass with the rows of both, their other sides padded with zeros to the longer of the two."""
    names = [f.name for f in fields(one) if f.name != "positions"]  # type: ignore[arg-type]
    return replace(one, **{name: _join_values(getattr(one, name), getattr(two, name)) for name in names})  # type: ignore[type-var]


def _join_values(one: Any, two: Any) -> Any:
    if (one is None) != (two is None):
        raise ShapeError("one of the states has what the other lacks (a source, or its attention); start them alike")
    match one:
        case Tensor():
            return join_rows(one, two)
        case tuple():
            return tuple(_join_values(a, b) for a, b in zip(one, two, strict=True))
        case SharedState():
            return one.join(two)
        case _:
            return one


def join_rows(one: Tensor, two: Tensor, padding: float = 0.0) -> Tensor:
    """The rows of both, their other sides padded to the longer of the two."""
    if one.shape[1:] == two.shape[1:]:
        return torch.cat([one, two])
    longest = [max(sizes) for sizes in zip(one.shape[1:], two.shape[1:], strict=True)]
    padded = []
    for tensor in (one, two):
        wider = tensor.new_full((len(tensor), *longest), padding)
        wider[tuple(slice(size) for size in tensor.shape)] = tensor
        padded.append(wider)
    return torch.cat(padded)


def _find_tensors(value: Any) -> Iterator[Tensor]:
    match value:
        case Tensor():
            yield value
        case tuple():
            for item in value:
                yield from _find_tensors(item)
        case SharedState() | DecodeState():
            for f in fields(value):
                yield from _find_tensors(getattr(value, f.name))
