"""How much of each position enters each other: the same picture, (T, S), for every family.

A sublayer that mixes positions gives at position t a sum over positions s, plus what depends on no position:

    attention     Σ_s α_ts W_o v_s + b_o                             raw: α_ts
    LSTM, GRU     Σ_s P (read_t ⊙ (Π_{s<r≤t} decay_r) ⊙ weight_s ⊙ content_s) + what is left of the initial state
                                                                     raw: the mean over units of Π decay ⊙ weight_s
    plain RNN     the same with U in between; no number weighs a position, so raw is the norm's share of its row
    convolution   Σ_j gate_t ⊙ W_j x_{t+j} + gate_t ⊙ b              raw: the norm's share of its row
    pooling       Σ_s w_s ⊙ h_s                                      raw: the mean over units of w_s

`terms` are the vectors of the sum; together they are the sublayer's output. Instead of the raw number, `norms` gives
the length of each vector (Kobayashi et al. 2020). Each sublayer keeps its input and computes the rest when it is asked,
so that a long text does not hold all maps of all layers.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence

import torch
import torch.nn.functional as F
from jaxtyping import Float, UInt8
from torch import Tensor

from seqloom.lens import layers
from seqloom.lens.layers import Maps, States, Unrolled
from seqloom.lens.passes import Pass
from seqloom.nn.attention import GlobalAttention, Pool
from seqloom.nn.convolution import Convolution
from seqloom.nn.multihead import CrossAttention, SelfAttention
from seqloom.nn.recurrent import RecurrentLayer

Terms = tuple[Float[Tensor, "R S D"], Float[Tensor, "R D"]]
"""The vectors of a sum for some rows, and what depends on no position."""


class Mixer(ABC):
    """A sublayer that mixes positions, with its input."""

    def __init__(self, sites: Sequence[str]) -> None:
        self.sites = tuple(sites)
        """The site of each of its maps."""

    @abstractmethod
    def weights(self) -> Maps:
        """The raw number of each pair of positions, for each map."""

    @abstractmethod
    def norms(self) -> Maps:
        """The length of each vector of the sum."""

    @abstractmethod
    def terms(self, index: int, rows: Sequence[int]) -> Terms:
        """The vectors of the sum that a map stands for."""

    def grid(self, size: int) -> UInt8[Tensor, "H t s"]:
        """Thumbnails of the raw maps: round(255·√w), the maximum of each cell, at most `size` cells a side."""
        weights = self.weights()
        shape = [min(size, side) for side in weights.shape[1:]]
        pooled = F.adaptive_max_pool2d(weights[None].float(), shape)[0]
        return (255 * pooled.clamp(0, 1).sqrt()).round().to(torch.uint8)


class AttentionMixer(Mixer):
    """Self-attention or cross-attention: a map for each head."""

    def __init__(
        self, sites: Sequence[str], module: SelfAttention | CrossAttention, x: States, memory: States | None = None
    ) -> None:
        super().__init__(sites)
        self.module, self.x, self.memory = module, x.detach(), None if memory is None else memory.detach()

    def open(self) -> tuple[Maps, layers.Values]:
        """The attention weights and the values of each head."""
        p = Pass(self.x)
        if isinstance(self.module, SelfAttention):
            return layers.attend(p, self.module, self.x)
        assert self.memory is not None
        return layers.attend_source(p, self.module, self.x, self.memory)

    def weights(self) -> Maps:
        """The attention weights."""
        return self.open()[0]

    def norms(self) -> Maps:
        """α_ts ‖W_o v_s‖."""
        weights, values = self.open()
        sizes = torch.stack([self.project(value, head).norm(dim=-1) for head, value in enumerate(values)])
        return weights * sizes[:, None]

    def project(self, value: Float[Tensor, "S K"], head: int) -> Float[Tensor, "S D"]:
        """W_o v_s, with the columns of W_o that belong to a head."""
        first = head * self.module.head_dim
        matrix: Tensor = self.module.out_projection.weight
        return value @ matrix[:, first : first + self.module.head_dim].T

    def terms(self, index: int, rows: Sequence[int]) -> Terms:
        """α_ts W_o v_s of one head; the bias of W_o belongs to none."""
        weights, values = self.open()
        vectors = weights[index, rows, :, None] * self.project(values[index], index)
        return vectors, vectors.new_zeros(len(rows), vectors.shape[-1])

    def sum_terms(self, rows: Sequence[int]) -> Terms:
        """The same for all heads together, with the bias of W_o: the sublayer's output."""
        weights, values = self.open()
        vectors = sum(weights[h, rows, :, None] * self.project(value, h) for h, value in enumerate(values))
        assert isinstance(vectors, Tensor)
        bias = self.module.out_projection.bias
        return vectors, vectors.new_zeros(len(rows), vectors.shape[-1]) + (0.0 if bias is None else bias)


class LookupMixer(Mixer):
    """The attention of a recurrent decoder: the source's states are the values."""

    def __init__(self, sites: Sequence[str], module: GlobalAttention, x: States, memory: States) -> None:
        super().__init__(sites)
        self.module, self.x, self.memory = module, x.detach(), memory.detach()

    def weights(self) -> Maps:
        """The attention weights."""
        return layers.look_up(Pass(self.x), self.module, self.x, self.memory)

    def norms(self) -> Maps:
        """α_ts ‖s_s‖."""
        sizes: Tensor = self.memory.norm(dim=-1)
        return self.weights() * sizes

    def terms(self, index: int, rows: Sequence[int]) -> Terms:
        """α_ts s_s."""
        vectors = self.weights()[index, rows, :, None] * self.memory
        return vectors, vectors.new_zeros(len(rows), vectors.shape[-1])


class PoolMixer(Mixer):
    """Pooling: one row, in which every position counts by its weight."""

    def __init__(self, sites: Sequence[str], module: Pool, states: States) -> None:
        super().__init__(sites)
        self.module, self.states = module, states.detach()

    def open(self) -> Float[Tensor, "T D"] | Float[Tensor, "T 1"]:
        """How much each coordinate of each state counts."""
        return layers.weigh_pool(Pass(self.states), self.module, self.states)

    def weights(self) -> Maps:
        """The mean over the coordinates."""
        weights: Tensor = self.open().mean(-1)
        return weights[None, None]

    def norms(self) -> Maps:
        """‖w_s ⊙ h_s‖."""
        sizes: Tensor = (self.open() * self.states).norm(dim=-1)
        return sizes[None, None]

    def terms(self, index: int, rows: Sequence[int]) -> Terms:
        """w_s ⊙ h_s."""
        vectors = (self.open() * self.states)[None].expand(len(rows), -1, -1)
        return vectors, vectors.new_zeros(len(rows), vectors.shape[-1])


class ConvolutionMixer(Mixer):
    """A convolution: each position sees the k inputs around it."""

    def __init__(self, sites: Sequence[str], module: Convolution, x: States) -> None:
        super().__init__(sites)
        self.module, self.x = module, x.detach()

    def open(self) -> layers.Convolved:
        """The convolution before and after its gate."""
        return layers.convolve(Pass(self.x), self.module, self.x)

    def offset_terms(self) -> Iterator[tuple[int, States]]:
        """For each offset j, gate_t ⊙ W_j x_{t+j} at every position t; zeros beyond the ends."""
        packing, gate, width = layers.pack_one(self.x), self.open().gate, self.x.shape[1]
        for number, offset in enumerate(self.module.offsets):
            kernel = self.module.value.weight[:, number * width : (number + 1) * width]
            yield offset, gate * (packing.shift(self.x, offset) @ kernel.T)

    def norms(self) -> Maps:
        """‖gate_t ⊙ W_j x_{t+j}‖."""
        length = len(self.x)
        found = self.x.new_zeros(length, length)
        for offset, vectors in self.offset_terms():
            row = torch.arange(max(0, -offset), min(length, length - offset), device=self.x.device)
            found[row, row + offset] = vectors.norm(dim=-1)[row]
        return found[None]

    def weights(self) -> Maps:
        """The share of each norm in its row."""
        return share_rows(self.norms())

    def terms(self, index: int, rows: Sequence[int]) -> Terms:
        """gate_t ⊙ W_j x_{t+j}, and gate_t ⊙ b."""
        length, gate = len(self.x), self.open().gate
        found = self.x.new_zeros(len(rows), length, gate.shape[1])
        for offset, vectors in self.offset_terms():
            for place, row in enumerate(rows):
                if 0 <= row % length + offset < length:
                    found[place, row % length + offset] = vectors[row]
        return found, gate[rows] * self.module.value.bias


class RecurrentMixer(Mixer):
    """A recurrent layer in one direction: what is still in its memory of each position it has read."""

    def __init__(
        self, sites: Sequence[str], module: RecurrentLayer, x: States, initial: Float[Tensor, "P H"] | None
    ) -> None:
        super().__init__(sites)
        self.module, self.x = module, x.detach()
        self.initial = None if initial is None else initial.detach()

    def open(self) -> Unrolled:
        """The layer step by step, in the order in which it reads."""
        return layers.unroll(Pass(self.x), self.module, self.x, self.initial)

    def weights(self) -> Maps:
        """The mean over units of Π decay ⊙ weight; for a plain RNN, the share of each norm in its row."""
        steps = self.open()
        if steps.matrix is not None:
            return share_rows(self.norms())
        rows, kept = [], torch.zeros_like(steps.weight)
        for step in range(len(kept)):
            kept = steps.decay[step] * kept
            kept[step] = steps.weight[step]
            rows.append(kept.mean(-1))
        return self._turn(torch.stack(rows)[None])

    def norms(self) -> Maps:
        """The length of what each position gives to the output."""
        steps = self.open()
        rows = [steps.expose(memory, step).norm(dim=-1) for step, memory in enumerate(follow_memory(steps))]
        return self._turn(torch.stack(rows)[None])

    def terms(self, index: int, rows: Sequence[int]) -> Terms:
        """What each position gives to the output, and what is left of the initial state."""
        steps, length = self.open(), len(self.x)
        wanted = [row % length for row in rows]
        wanted = [length - 1 - row for row in wanted] if self.module.reverse else wanted
        found, left, rest = {}, {}, steps.initial
        for step, memory in enumerate(follow_memory(steps)):
            rest = steps.decay[step] * (rest if steps.matrix is None else steps.matrix @ rest)
            if step in wanted:
                found[step], left[step] = steps.expose(memory, step), steps.expose(rest, step)
        vectors = torch.stack([found[step] for step in wanted])
        return vectors.flip(1) if self.module.reverse else vectors, torch.stack([left[step] for step in wanted])

    def _turn(self, maps: Maps) -> Maps:
        return maps.flip(1, 2) if self.module.reverse else maps


def follow_memory(steps: Unrolled) -> Iterator[Float[Tensor, "T M"]]:
    """After each step, what is in the memory of each position; zeros for those still to be read."""
    memory = torch.zeros_like(steps.content)
    for step in range(len(memory)):
        memory = steps.decay[step] * (memory if steps.matrix is None else memory @ steps.matrix.T)
        memory[step] = steps.weight[step] * steps.content[step]
        yield memory


def share_rows(norms: Maps) -> Maps:
    """Each number as a share of its row's sum."""
    return norms / norms.sum(-1, keepdim=True).clamp(min=torch.finfo(norms.dtype).tiny)
