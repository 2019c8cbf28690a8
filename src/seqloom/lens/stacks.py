"""The walk through encoders and decoders: three families, each layer by its own class.

A site is named by its place: `encoder.2.head.5` (what a head gives), `decoder.0.cross.1`, `encoder.1.backward`,
`encoder.3.kernel`, `decoder.lookup`; `encoder.2.attention`, `decoder.0.cross` and `encoder.2.feedforward` are what a
sublayer adds to the stream; `encoder.2` is the stream after a layer, `encoder.input` before the first.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import torch
from jaxtyping import Float
from torch import Tensor, nn

from seqloom.decoders.convolutional import ConvolutionalDecoder
from seqloom.decoders.transformer import TransformerDecoder
from seqloom.encoders.convolutional import ConvolutionalEncoder
from seqloom.encoders.transformer import TransformerEncoder
from seqloom.lens import layers
from seqloom.lens.layers import States
from seqloom.lens.mixing import AttentionMixer, ConvolutionMixer
from seqloom.lens.passes import Pass
from seqloom.nn.multihead import CrossAttention
from seqloom.nn.positions import PositionEncoding
from seqloom.nn.transformer import NoResidual, Residual, TransformerBlock

StackKind = Literal["attention", "recurrent", "convolution", "pool"]


@dataclass(frozen=True)
class Layer:
    """The sites of one layer: those with a map, and others."""

    name: str
    sites: tuple[str, ...]
    others: tuple[str, ...] = ()


@dataclass(frozen=True)
class Stack:
    """A group of maps between the same two sides."""

    name: str
    kind: StackKind
    family: str
    queries: str
    keys: str
    layers: tuple[Layer, ...]
    raw: str
    """What the raw number of a map is."""
    norm: str
    """What its norm is."""


@dataclass(frozen=True)
class Memory:
    """What a decoder sees of its source."""

    states: Float[Tensor, "S E"]
    summary: Float[Tensor, "E"]
    final: Float[Tensor, "L P H"] | None = None
    """The last state of each layer of a recurrent encoder that keeps it."""


class OpenStack(ABC):
    """An encoder or a decoder, layer by layer."""

    family = "transformer"

    def __init__(self, name: str, module: Any, side: str, source: str | None = None) -> None:
        self.name, self.module, self.side, self.source = name, module, side, source

    @abstractmethod
    def run(self, p: Pass, x: States, memory: Memory | None = None) -> States:
        """The states after the last layer; `finish` makes of them what the stack gives."""

    def finish(self, p: Pass, x: States) -> States:
        """The stack's output from the states after a layer; for the last layer, what the stack itself gives."""
        return x

    def summarise(self, states: States) -> Float[Tensor, "E"]:
        """One vector for the text."""
        return states.mean(0)

    def encode(self, p: Pass, x: States) -> Memory:
        """What a decoder sees of a source."""
        states = self.finish(p, self.run(p, x))
        return Memory(states, self.summarise(states), p.context.get(f"{self.name}.final"))

    @abstractmethod
    def describe(self) -> list[Stack]:
        """Its groups of maps."""

    def _begin(self, p: Pass, x: States, positions: PositionEncoding | None, norm: nn.Module | None = None) -> States:
        x = add_positions(p, f"{self.name}.positions", positions, x)
        x = p.note(f"{self.name}.input", x if norm is None else p.norm(norm, x))
        p.layers[self.name] = [(f"{self.name}.input", x)]
        return x

    def _end(self, p: Pass, index: int, x: States) -> States:
        x = p.note(f"{self.name}.{index}", x)
        p.layers[self.name].append((f"{self.name}.{index}", x))
        return x

    def _make(self, kind: StackKind, made: list[Layer], cell: str = "") -> Stack:
        return Stack(self.name, kind, self.family, self.side, self.side, tuple(made), *say(kind, cell))

    def _make_cross(self, made: list[Layer]) -> list[Stack]:
        """The maps between a target and its source, if there are any."""
        if not made or self.source is None:
            return []
        return [Stack("cross", "attention", self.family, self.side, self.source, tuple(made), *say("attention"))]

    def _cross(self, p: Pass, index: int, cross: CrossAttention, x: States, memory: Memory | None) -> States:
        assert memory is not None
        site, h = f"{self.name}.{index}.cross", p.enter(x)
        source = p.enter(memory.states)
        p.watch(AttentionMixer(list_heads(site, cross.num_heads), cross, h, source))
        return add_heads(p, site, site, cross, *layers.attend_source(p, cross, h, source))


_RAW = {
    "attention": "the attention weight: each row sums to 1",
    "lstm": "the mean over units of the gates: what was written at a position (i) times what was kept since (f)",
    "gru": "the mean over units of the gates: what was written at a position (1 − z) times what was kept since (z)",
    "rnn": "the share of each norm in its row: a plain RNN has no gates, so nothing weighs a position as a whole",
    "convolution": "the share of each norm in its row",
    "pool": "the weight of each position in the pooled vector, as the mean over its coordinates",
}
_NORM = {
    "attention": "the length of what each position adds: weight × ‖W_o v‖",
    "recurrent": "the length of what each position has left in the output",
    "convolution": "the length of what each position adds, after the gate",
    "pool": "the length of what each position adds to the pooled vector",
}


def say(kind: StackKind, cell: str = "") -> tuple[str, str]:
    """What the raw number of a map is, and its norm."""
    return _RAW[cell if kind == "recurrent" else kind], _NORM[kind]


def list_heads(site: str, count: int) -> list[str]:
    """The sites of heads."""
    return [f"{site}.{head}" for head in range(count)]


def add_positions(p: Pass, site: str, positions: PositionEncoding | None, x: States) -> States:
    """Embeddings with their positions, whose part is what is left when the embeddings are 0."""
    if positions is None:
        return x
    places = torch.arange(len(x), device=x.device)
    lengths = torch.full_like(places, len(x))
    out = positions.encode_input(x, places, lengths)
    if not p.frozen:
        return out
    alone = positions.encode_input(torch.zeros_like(x), places, lengths).detach()
    return out - alone + p.place(site, alone)


def add_heads(p: Pass, site: str, sublayer: str, module: Any, weights: Tensor, values: Tensor) -> States:
    """W_o [head_1; …; head_H] + b_o."""
    heads = p.heads(site, (weights @ values).transpose(0, 1))
    return p.note(sublayer, p.linear(module.out_projection, heads.flatten(1)))


def add_residual(p: Pass, residual: Residual, x: States, sublayer: Callable[[States], States]) -> States:
    """A sublayer's output added to its input or, without residual connections, in its place.

    The norm is before the sublayer, or after the sum.
    """
    added = sublayer(p.enter(p.norm(residual.norm, x) if residual.position == "pre" else x))
    out = added if isinstance(residual, NoResidual) else x + added
    return out if residual.position == "pre" else p.norm(residual.norm, out)


class OpenTransformer(OpenStack):
    """A Transformer encoder or decoder."""

    module: TransformerEncoder | TransformerDecoder

    def run(self, p: Pass, x: States, memory: Memory | None = None) -> States:
        """Block after block."""
        x = self._begin(p, x, self.module.positions, self.module.input_norm)
        for index, block in enumerate(self.module.blocks):
            x = self._end(p, index, self._block(p, index, block, x, memory))
        return x

    def finish(self, p: Pass, x: States) -> States:
        """The final norm, fresh at each layer; a post-norm stack has none."""
        return p.norm(self.module.final_norm, x)

    def _block(self, p: Pass, index: int, block: TransformerBlock, x: States, memory: Memory | None) -> States:
        site, attention, cross = f"{self.name}.{index}", block.attention, block.cross

        def attend(h: States) -> States:
            p.watch(AttentionMixer(list_heads(f"{site}.head", attention.num_heads), attention, h))
            parts = layers.attend(p, attention, h)
            return add_heads(p, f"{site}.head", f"{site}.attention", attention, *parts)

        x = add_residual(p, block.attention_residual, x, attend)
        if cross is not None and block.cross_residual is not None:
            x = add_residual(p, block.cross_residual, x, lambda h: self._cross(p, index, cross, h, memory))
        if (feedforward := block.feedforward) is None or block.feedforward_residual is None:
            return x

        def transform(h: States) -> States:
            return p.component(f"{site}.feedforward", layers.feed_forward(p, feedforward, h))

        return add_residual(p, block.feedforward_residual, x, transform)

    def describe(self) -> list[Stack]:
        """Self-attention, and cross-attention if there is a source."""
        own, cross = [], []
        for index, block in enumerate(self.module.blocks):
            site = f"{self.name}.{index}"
            others = (f"{site}.attention", *(() if block.feedforward is None else (f"{site}.feedforward",)))
            own.append(Layer(site, tuple(list_heads(f"{site}.head", block.attention.num_heads)), others))
            if block.cross is not None:
                heads = tuple(list_heads(f"{site}.cross", block.cross.num_heads))
                cross.append(Layer(site, heads, (f"{site}.cross",)))
        return [self._make("attention", own), *self._make_cross(cross)]


class OpenConvolution(OpenStack):
    """A convolutional encoder or decoder."""

    module: ConvolutionalEncoder | ConvolutionalDecoder
    family = "convolutional"

    def run(self, p: Pass, x: States, memory: Memory | None = None) -> States:
        """Layer after layer; √½ keeps the variance of each sum."""
        x = self._begin(p, x, self.module.positions)
        crosses = self.module.cross if isinstance(self.module, ConvolutionalDecoder) else ()
        for index, layer in enumerate(self.module.layers):
            h, site = p.enter(x), f"{self.name}.{index}.kernel"
            p.watch(ConvolutionMixer([site], layer, h))
            out = p.component(site, layers.convolve(p, layer, h).output)
            if crosses:
                out = (out + self._cross(p, index, crosses[index], out, memory)) * math.sqrt(0.5)
            x = self._end(p, index, (x + out) * math.sqrt(0.5) if self.module.residual else out)
        return x

    def describe(self) -> list[Stack]:
        """The kernels, and cross-attention if there is a source."""
        names = [f"{self.name}.{index}" for index in range(len(self.module.layers))]
        crosses = self.module.cross if isinstance(self.module, ConvolutionalDecoder) else ()
        cross = [
            Layer(name, tuple(list_heads(f"{name}.cross", module.num_heads)), (f"{name}.cross",))
            for name, module in zip(names, crosses, strict=False)
        ]
        own = self._make("convolution", [Layer(name, (f"{name}.kernel",)) for name in names])
        return [own, *self._make_cross(cross)]
