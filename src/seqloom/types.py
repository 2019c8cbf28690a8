"""The data that the parts of the package pass to each other.

Letters in shapes, here and in every module: B batch, T time (tokens of a row), N real tokens of a batch without its
padding, D width of a vector, H heads, K width of a head, V vocabulary.

In every mask, True means a real token that may be seen.
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

from seqloom.devices import send
from seqloom.errors import ShapeError

Direction = Literal["both", "forward", "backward"]
"""What a position sees: everything; itself and what comes before; or itself and what comes after."""


@dataclass(frozen=True)
class TokenBatch:
    """Rows of token ids, padded to one length."""

    ids: Int[Tensor, "B T"]
    mask: Bool[Tensor, "B T"]
    documents: Int[Tensor, "B T"] | None = None
    """The number of each token's document, if several share a row. Nothing attends across documents."""
    host: "TokenBatch | None" = field(default=None, repr=False, compare=False)
    """The same in main memory, where this is on another device and came from there (`move`)."""

    @property
    def known(self) -> "TokenBatch":
        """The same in main memory, if it is there: where asking how long a row is costs nothing."""
        return self if self.host is None else self.host

    def derive(self, change: Callable[["TokenBatch"], "TokenBatch"]) -> "TokenBatch":
        """What a function makes of this batch, and of what is known of it in main memory."""
        made = change(replace(self, host=None))
        return made if self.host is None else replace(made, host=change(self.host))

    @classmethod
    def pad(cls, rows: Sequence[Sequence[int]], pad_id: int) -> "TokenBatch":
        """Rows of ids, padded to the longest with `pad_id`."""
        ids = np.fromiter(chain.from_iterable(rows), np.int64)
        return cls.unflatten(ids, np.fromiter(map(len, rows), np.int64, len(rows)), pad_id)

    @classmethod
    def unflatten(cls, ids: NDArray[np.int64], lengths: NDArray[np.integer[Any]], pad_id: int) -> "TokenBatch":
        """The same for rows that are concatenated in `ids`."""
        mask = np.arange(lengths.max(initial=1)) < lengths[:, None]
        padded = np.full(mask.shape, pad_id, np.int64)
        padded[mask] = ids
        return cls(torch.from_numpy(padded), torch.from_numpy(mask))


@dataclass(frozen=True)
class PairBatch:
    """Sources and the targets to predict from them, row by row."""

    source: TokenBatch
    target: TokenBatch
    alignment: "Alignment | None" = None


@dataclass(frozen=True)
class Alignment:
    """Which source position each target position should attend to."""

    entries: Int[Tensor, "P 3"]
    """A row of the batch, a position of its target and a position of its source."""
    weights: Float[Tensor, "P"]
    """How much each entry counts."""


@dataclass(frozen=True)
class Seen:
    """What the training data held that a model in use has to know; a model from elsewhere has no such record."""

    unseen: tuple[int, ...] = ()
    """Tokens of the vocabulary that the data did not contain: no answer contains them."""
    iob1: bool = False
    """Whether tags are written as IOB1, which has the same tags as BIO: a span begins with I."""


@dataclass(frozen=True)
class SharedState:
    """What a decoder keeps for a line as a whole, shared by its beams: its tensors have a row for each line."""

    def select(self, lines: Int[Tensor, "L"]) -> Self:
        """The state of some lines, in the given order; a line may be repeated."""
        return _map_tensors(lambda tensor: tensor.index_select(0, lines), lambda shared: shared.select(lines), self)

    def join(self, other: Self) -> Self:
        """The state of the lines of both; shorter rows are padded."""
        return _map_tensors(join_rows, lambda a, b: a.join(b), self, other)


@dataclass(frozen=True)
class Encoded(SharedState):
    """The output of an encoder: a contextual vector for each token."""

    states: Float[Tensor, "B T D"]
    mask: Bool[Tensor, "B T"]
    summary: Float[Tensor, "B S"]
    """A vector for each row: the final states of a recurrent encoder, the mean of the states of other encoders."""
    layers: tuple[Float[Tensor, "B T _"], ...] = ()
    """The input and the output of each layer, if they were asked for."""
    final: Float[Tensor, "B L P H"] | None = None
    """The last state of each layer of a recurrent encoder, for a decoder that takes it over."""
    packing: Any = field(default=None, repr=False, compare=False)
    """How the encoder packed its rows (nn/packing.py): true of this `mask` alone, and lost where lines are selected."""


@dataclass(frozen=True)
class DecodeState:
    """What a decoder keeps between steps, for B lines of W beams each: R = B·W rows, the beams of a line together.

    Search needs only three methods: `select` removes lines, `branch` reorders beams, and `join` adds lines. The result
    of a line does not depend on the others. The fields of a subclass are tensors with R rows or a `SharedState` with B.
    """

    positions: tuple[int, ...]
    """How many tokens each line has read so far."""
    width: int = field(default=1, kw_only=True)
    """The number of beams of each line."""
    attention: Float[Tensor, "R S"] | None = field(default=None, kw_only=True)
    """The attention weights of the last token of each row over the source, if the state was started with them."""

    @property
    def position(self) -> int:
        """How many tokens every line has read, if all have read the same number."""
        first, *others = {*self.positions}
        if others:
            raise ShapeError(f"the lines of this state are at different positions: {first}, {others[0]}, …")
        return first

    @property
    def device(self) -> torch.device:
        """The device of its tensors, on which the tokens must be, too."""
        return next(_find_tensors(self)).device

    def select(self, lines: Int[Tensor, "L"]) -> Self:
        """The state of some lines, each with all its beams, in the given order; a line may be repeated.

        `lines` are best given in main memory, wherever the state is.
        """
        positions = tuple(self.positions[line] for line in lines.tolist())
        lines = send(lines, self.device)
        beams = torch.arange(self.width, device=lines.device)
        rows = (lines.unsqueeze(1) * self.width + beams).flatten()
        state = _map_tensors(lambda tensor: tensor.index_select(0, rows), lambda shared: shared.select(lines), self)
        return replace(state, positions=positions)

    def branch(self, origins: Int[Tensor, "B W"]) -> Self:
        """A state whose beam w of line b continues beam `origins[b, w]` of that line. Shared states do not change."""
        first = torch.arange(len(origins), device=origins.device).unsqueeze(1) * self.width
        rows = (first + origins).flatten()
        state = _map_tensors(lambda tensor: tensor.index_select(0, rows), lambda shared: shared, self)
        return replace(state, width=origins.shape[1])

    def join(self, other: Self) -> Self:
        """The lines of both, each at its own position; lines with fewer beams get copies of their last one."""
        width = max(self.width, other.width)
        joined = _map_tensors(join_rows, lambda a, b: a.join(b), self._widen(width), other._widen(width))
        return replace(joined, positions=self.positions + other.positions)

    def _widen(self, width: int) -> Self:
        if width == self.width:
            return self
        return self.branch(
            torch.arange(width, device=self.device).clamp(max=self.width - 1).expand(len(self.positions), -1)
        )


@dataclass(frozen=True)
class Hypothesis:
    """One result of a search for a line."""

    ids: tuple[int, ...]
    """The tokens, including a forced prefix, without the start and the end."""
    score: float
    """What hypotheses are ranked by: the sum of `token_scores`, with its length and coverage penalty."""
    token_scores: tuple[float, ...]
    """The log-probability of each token after the prefix and, if it is finished, of the end; in natural logarithms."""
    finished: bool
    """Whether the model ended it; otherwise it was cut at `max_length`, or nothing more was allowed."""


_S = TypeVar("_S")


def move(batch: _S, device: torch.device) -> _S:
    """A batch with all its tensors on a device; parts with a field `host` keep there what they were in main memory."""
    if device.type == "cpu":
        return batch

    def visit(value: Any) -> Any:
        if isinstance(value, Tensor):
            return send(value, device)
        return move(value, device) if is_dataclass(value) else value

    parts = {f.name: getattr(batch, f.name) for f in fields(batch)}  # type: ignore[arg-type]
    host = parts.pop("host", None)
    moved: dict[str, Any] = {name: visit(part) for name, part in parts.items()}
    if hasattr(batch, "host"):
        moved["host"] = batch if all(tensor.is_cpu for tensor in _find_tensors(batch)) else host
    return replace(batch, **moved)  # type: ignore[type-var]


def join_rows(one: Tensor, two: Tensor, padding: float = 0.0) -> Tensor:
    """The rows of both, with the other dimensions padded to the larger of the two."""
    if one.shape[1:] == two.shape[1:]:
        return torch.cat([one, two])
    longest = [max(sizes) for sizes in zip(one.shape[1:], two.shape[1:], strict=True)]
    padded = []
    for tensor in (one, two):
        wider = tensor.new_full((len(tensor), *longest), padding)
        wider[tuple(slice(size) for size in tensor.shape)] = tensor
        padded.append(wider)
    return torch.cat(padded)


def _map_tensors(change: Callable[..., Tensor], change_shared: Callable[..., Any], *states: _S) -> _S:
    """The first state with each tensor, and each state that beams share, replaced by a function of those of all."""

    def visit(*values: Any) -> Any:
        first = values[0]
        if len({value is None for value in values}) == 2:
            raise ShapeError("only one of the states has a source or its attention; start them alike")
        match first:
            case Tensor():
                return change(*values)
            case tuple():
                return tuple(visit(*items) for items in zip(*values, strict=True))
            case SharedState():
                return change_shared(*values)
            case _:
                return first

    names = [f.name for f in fields(states[0]) if f.name not in ("positions", "packing")]  # type: ignore[arg-type]
    changed: dict[str, Any] = {name: visit(*(getattr(state, name) for state in states)) for name in names}
    lost = {"packing": None} if hasattr(states[0], "packing") else {}  # of other rows
    return replace(states[0], **changed, **lost)  # type: ignore[type-var]


def _find_tensors(value: Any) -> Iterator[Tensor]:
    if isinstance(value, Tensor):
        yield value
    elif is_dataclass(value) or isinstance(value, tuple):
        for part in value if isinstance(value, tuple) else [getattr(value, f.name) for f in fields(value)]:
            yield from _find_tensors(part)
