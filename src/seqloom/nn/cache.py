"""What attention keeps between steps of decoding, so that a new token costs a row of scores and not a square.

Lines are decoded together, each with its beams, and each at a position of its own: a line may have read more tokens
than its neighbour. A token's keys and values stay in the slot of the beam that wrote them. Where beams are reordered,
only `slots` is: it says in whose slot each earlier token of a beam stands.
"""

from collections.abc import Sequence
from functools import cached_property
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from numpy.typing import NDArray
from torch import Tensor

from seqloom.errors import ShapeError


class NewTokens:
    """Where the new tokens of a step stand: T of each beam, after those that its line has read. One for all layers."""

    def __init__(
        self, positions: Sequence[int], length: int, device: torch.device, slots: Int[Tensor, "B W P"] | None = None
    ) -> None:
        self.positions, self.length, self.device, self.slots = positions, length, device, slots
        self.start, self.end = min(positions, default=0), max(positions, default=0) + length
        self.ragged = self.end - length != self.start
        """Whether lines stand at different positions."""

    @cached_property
    def starts(self) -> NDArray[np.int32]:
        """The positions, as kernels take them."""
        return np.array(self.positions, dtype=np.int32)

    @cached_property
    def places(self) -> Int[Tensor, "#B T"]:
        """The position of each new token; one row where all lines stand at the same."""
        new = torch.arange(self.start, self.start + self.length, device=self.device).unsqueeze(0)
        if not self.ragged:
            return new
        return new + torch.tensor([p - self.start for p in self.positions], device=self.device).unsqueeze(1)

    def spread(self, rows: int) -> Int[Tensor, "R T"]:
        """The position of each new token, row by row: a line's beams repeat it."""
        if not self.ragged:
            return self.places.expand(rows, -1)
        return self.places.repeat_interleave(rows // len(self.positions), 0)

    def back(self, first: int) -> Int[Tensor, "#B T P"]:
        """How far behind each new token the tokens from `first` on lie; negative for those after it."""
        return self.places.unsqueeze(-1) - torch.arange(first, self.end, device=self.device)

    def hidden(self, first: int, window: int | None) -> Bool[Tensor, "B T W P W"] | None:
        """What a new token must not see, of the tokens from `first` on in each slot; None where it may see all."""
        if self.length == 1 and not self.ragged and self.slots is None:
            return None
        back = self.back(first)
        hidden = (back < 0) if window is None else (back < 0) | (back >= window)
        hidden = hidden[:, :, None, :, None]
        if self.slots is None:
            return hidden
        slot = torch.arange(self.slots.shape[1], device=self.device)
        return hidden | (self.slots[:, None, :, first : self.end, None] != slot)


class KeyValueCache(NamedTuple):
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
            entries[lines, :, new.places] = heads.transpose(1, 2)
        else:
            entries.narrow(2, new.start, new.length).copy_(heads)


class LayerSource(NamedTuple):
    """Keys and values of the padded source of each line, which its beams share; made once for all steps."""

    keys: Float[Tensor, "B H S K"]
    values: Float[Tensor, "B H S K"]
    bias: Float[Tensor, "B 1 1 S"] | None = None
    """0 for a token, −∞ for padding, if there is any."""
    record: list[Tensor] | None = None
    """Where to put the attention weights of the new tokens, the mean over heads: (N, S)."""


class SourceStates(NamedTuple):
    """The states of the padded source of each line, which its beams share."""

    states: Float[Tensor, "B S E"]
    mask: Bool[Tensor, "B S"]
    record: list[Tensor] | None = None
    """As in `LayerSource`."""


class Carry:
    """What a recurrent or convolutional layer keeps of a sequence: read by a step, and replaced by it."""

    def __init__(self, kept: Tensor) -> None:
        self.kept = kept
