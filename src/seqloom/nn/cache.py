"""The key-value cache: what is kept between steps of decoding, so that a new token costs a row of scores, not a square.

Lines are decoded together, each with its beams and at its own position: one may have read more tokens than another.
The keys and values of a token stay in the slot of the beam that wrote them. When beams are reordered, only `slots`
changes: it holds, for each beam and each earlier token, the beam whose slot the token is in.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from numpy.typing import NDArray
from torch import Tensor

from seqloom.devices import send
from seqloom.errors import ShapeError
from seqloom.types import SharedState, join_rows


class NewTokens:
    """The positions of the new tokens of a step: T for each beam, after those its line has read."""

    def __init__(
        self, read: Sequence[int], length: int, device: torch.device, slots: Int[Tensor, "B W P"] | None = None
    ) -> None:
        self.read, self.length, self.device, self.slots = read, length, device, slots
        """`read`: how many tokens each line has read, which is the position of its first new token."""
        self.first, self.end = min(read, default=0), max(read, default=0) + length
        """The lowest position of a new token, and one past the highest."""
        self.ragged = self.end - length != self.first
        """Whether lines have read different numbers of tokens."""

    @cached_property
    def read_int32(self) -> NDArray[np.int32]:
        """`read` as the kernels take it."""
        return np.array(self.read, dtype=np.int32)

    @cached_property
    def positions(self) -> Int[Tensor, "#B T"]:
        """The position of each new token; one row if all lines have read the same number."""
        new = torch.arange(self.first, self.first + self.length, device=self.device).unsqueeze(0)
        if not self.ragged:
            return new
        return new + send(torch.tensor([count - self.first for count in self.read]), self.device).unsqueeze(1)

    def row_positions(self, rows: int) -> Int[Tensor, "R T"]:
        """The position of each new token, with a row for each beam."""
        if not self.ragged:
            return self.positions.expand(rows, -1)
        return self.positions.repeat_interleave(rows // len(self.read), 0)

    def distances(self, first: int) -> Int[Tensor, "#B T P"]:
        """How far each token from `first` on is behind each new token; negative for tokens after it."""
        return self.positions.unsqueeze(-1) - torch.arange(first, self.end, device=self.device)

    def hidden(self, first: int, window: int | None) -> Bool[Tensor, "B T W P W"] | None:
        """Which tokens from `first` on, in each slot, a new token must not see; None if it may see all."""
        if self.length == 1 and not self.ragged and self.slots is None:
            return None
        distance = self.distances(first)
        hidden = (distance < 0) if window is None else (distance < 0) | (distance >= window)
        hidden = hidden[:, :, None, :, None]
        if self.slots is None:
            return hidden
        slot = torch.arange(self.slots.shape[1], device=self.device)
        return hidden | (self.slots[:, None, :, first : self.end, None] != slot)


class LayerCache(NamedTuple):
    """Keys, then values, of G key-value heads (A = 2G), with room for P tokens of each of the W beams of a line."""

    entries: Float[Tensor, "B A P W K"]
    new: NewTokens

    def write(self, heads: Float[Tensor, "B A T W K"]) -> None:
        """Keep the keys and values of the new tokens."""
        entries, new = self
        if new.end > entries.shape[2]:
            raise ShapeError(
                f"the cache has room for {entries.shape[2]} tokens but {new.end} were given; start with a larger one"
            )
        if new.ragged:
            lines = torch.arange(len(entries), device=entries.device).unsqueeze(1)
            entries[lines, :, new.positions] = heads.transpose(1, 2)
        else:
            entries.narrow(2, new.first, new.length).copy_(heads)

    def read(
        self, num_heads: int, window: int | None, score_bias: Callable[[Tensor], Tensor] | None
    ) -> tuple[Float[Tensor, "B G S K"], Float[Tensor, "B G S K"], Float[Tensor, "#B #G Q S"] | None]:
        """What new tokens attend to: keys and values in the slots of all beams (S = P·W), and the bias of the scores.

        The queries are those of all query heads that share a key-value head, of all new tokens and beams: Q = H/G·T·W.
        `score_bias` gives what each head adds to the score at a distance.
        """
        (_, both, _, width, _), new = self.entries.shape, self.new
        groups = both // 2
        first = 0 if window is None else max(0, new.first - window + 1)
        seen = self.entries.narrow(2, first, new.end - first).flatten(2, 3)
        key, value = seen.narrow(1, 0, groups), seen.narrow(1, groups, groups)
        hidden = new.hidden(first, window)
        if hidden is None and score_bias is None:
            return key, value, None
        bias = self.entries.new_zeros(1, 1, 1, 1, 1, 1, 1)  # (B, G, H/G, T, W, P, W)
        if score_bias is not None:
            added = score_bias(new.distances(first)).unflatten(1, (groups, -1))
            bias = bias + added[:, :, :, :, None, :, None]
        if hidden is not None:
            bias = bias.masked_fill(hidden[:, None, None], -torch.inf)
        bias = bias.expand(*bias.shape[:2], num_heads // groups, new.length, width, new.end - first, width)
        return key, value, bias.flatten(5).flatten(2, 4)


@dataclass(frozen=True)
class KeyValueCache(SharedState):
    """Keys and values of the tokens so far, for each layer, in preallocated tensors."""

    layers: tuple[Float[Tensor, "B _ P W _"], ...]
    slots: Int[Tensor, "B W P"] | None = None
    """The beam whose slot holds each earlier token of a beam; None for a single beam."""

    def branch(self, origins: Int[Tensor, "B W"], used: int, *, ragged: bool) -> "KeyValueCache":
        """Beams that continue others, after at most `used` tokens; there may be more beams than before, not fewer.

        `ragged`: lines have read different numbers of tokens, so that some see positions they have not written to.
        """
        batch, _, room, before, _ = self.layers[0].shape
        added = origins.shape[1] - before
        if added < 0:
            raise ShapeError(f"{before} beams cannot become {origins.shape[1]}")
        slots = torch.empty(batch, origins.shape[1], room, dtype=torch.int32, device=origins.device)
        chosen = origins.unsqueeze(2).expand(-1, -1, used)
        slots[:, :, :used] = 0 if self.slots is None else self.slots[:, :, :used].gather(1, chosen)
        layers = tuple(_widen(kept, added, used, ragged=ragged) for kept in self.layers) if added else self.layers
        return KeyValueCache(layers, slots)

    def extend(self, read: tuple[int, ...], length: int) -> NewTokens:
        """The positions of new tokens; each is kept in the slot of its own beam."""
        new = NewTokens(read, length, self.layers[0].device, self.slots)
        if self.slots is not None:
            own = torch.arange(self.slots.shape[1], dtype=torch.int32, device=self.slots.device).unsqueeze(1)
            if new.ragged:
                lines = torch.arange(len(self.slots), device=self.slots.device).unsqueeze(1)
                self.slots[lines, :, new.positions] = own.T
            else:
                self.slots[:, :, new.first : new.end] = own
        return new

    def clear(self, read: tuple[int, ...]) -> "KeyValueCache":
        """The same with zeros where nothing was written yet: next to longer lines these are read, with weight 0."""
        layers = tuple(kept.clone() for kept in self.layers)
        for line, count in enumerate(read):
            for kept in layers:
                kept[line, :, count:] = 0.0
        return KeyValueCache(layers, self.slots)

    def join(self, other: "KeyValueCache") -> "KeyValueCache":
        """The lines of both, with the larger capacity of the two."""
        layers = tuple(join_rows(one, two) for one, two in zip(self.layers, other.layers, strict=True))
        slots = None if self.slots is None or other.slots is None else join_rows(self.slots, other.slots)
        return KeyValueCache(layers, slots)


def _widen(kept: Tensor, added: int, used: int, *, ragged: bool) -> Tensor:
    """Add empty slots. What is read with weight 0 must still be a number, not NaN."""
    batch, groups, room, width, dim = kept.shape
    shape = (batch, groups, room, width + added, dim)
    wider = kept.new_zeros(shape) if ragged else kept.new_empty(shape)
    wider[:, :, :used, :width] = kept[:, :, :used]
    wider[:, :, :used, width:] = 0.0
    return wider


class LayerSource(NamedTuple):
    """Keys and values of the padded source of each line, computed once for all steps and shared by its beams."""

    keys: Float[Tensor, "B H S K"]
    values: Float[Tensor, "B H S K"]
    bias: Float[Tensor, "B 1 1 S"] | None = None
    """0 for a token and −∞ for padding; None without padding."""
    record: list[Tensor] | None = None
    """Receives the attention weights of the new tokens, averaged over heads: (N, S)."""


class SourceStates(NamedTuple):
    """The states of the padded source of each line, shared by its beams."""

    states: Float[Tensor, "B S E"]
    mask: Bool[Tensor, "B S"]
    record: list[Tensor] | None = None
    """As in `LayerSource`."""


class LayerState:
    """What a recurrent or convolutional layer keeps between steps: each step reads and replaces it."""

    def __init__(self, kept: Tensor) -> None:
        self.kept = kept
