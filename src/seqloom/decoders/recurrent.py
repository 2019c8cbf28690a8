"""The recurrent decoder: with attention, or with the fixed-length summary that attention replaced.

    h_t = cell(x_t, h_{t−1}),  h_0 = tanh(W_0 summary), or the encoder's last state, h and c, as it is

    attention       c_t = Σ_k a_k s_k, a = softmax(score(h_t, s)); out = tanh(W [h_t; c_t])   Luong et al. 2015, §3
    every-step      the summary is combined with the input and the output of each step        Cho et al. 2014
    initial-state   the summary is only the initial state                                     Sutskever et al. 2014

The query h_t does not depend on c_{t−1}, so training runs over all steps at once.
"""

from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor, nn

from seqloom.decoders.base import Decoder, Source
from seqloom.errors import ShapeError
from seqloom.nn.attention import GlobalAttention, Score
from seqloom.nn.cache import LayerState, SourceStates
from seqloom.nn.dropout import Dropout
from seqloom.nn.packing import Packing
from seqloom.nn.recurrent import Cell, RecurrentLayer, State
from seqloom.nn.transformer import Stack
from seqloom.types import DecodeState, Encoded

Bridge = Literal["learned", "copy"]
Context = Literal["attention", "every-step", "initial-state"]


@dataclass(frozen=True)
class RecurrentState(DecodeState):
    """The state of each layer, and the source."""

    layers: tuple[State, ...]
    memory: Encoded | None


class RecurrentDecoder(Decoder):
    """A stack of RNN, GRU or LSTM layers that sees its source through a context vector."""

    def __init__(
        self,
        cell: Cell,
        *,
        model_dim: int,
        num_layers: int,
        memory_dim: int | None,
        context: Context,
        score: Score,
        residual: bool,
        dropout: float,
        bridge: Bridge = "learned",
    ) -> None:
        super().__init__()
        self.input_dim = self.output_dim = model_dim
        self.has_source = memory_dim is not None
        self.context, self.residual = context, residual
        self.attends = context == "attention"
        self.layers = Stack(RecurrentLayer(cell, model_dim, model_dim) for _ in range(num_layers))
        self.dropout = Dropout(dropout)
        if memory_dim is not None and bridge == "learned":
            self.bridge = nn.Linear(memory_dim, num_layers * self.layers[0].num_parts * model_dim)
        if memory_dim is not None and context == "attention":
            self.lookup = GlobalAttention(score)
        if memory_dim is not None and context == "every-step":
            self.input_context = nn.Linear(memory_dim, model_dim, bias=False)
        if memory_dim is not None and context != "initial-state":
            self.combine = nn.Linear(model_dim + memory_dim, model_dim)

    def decode(
        self, x: Float[Tensor, "N D"], packing: Packing, source: Source | None, inputs: list[Tensor] | None = None
    ) -> Float[Tensor, "N E"]:
        """Whole targets, packed."""
        initial: tuple[State | None, ...] = (None,) * len(self.layers)
        summary = None
        if source is not None:
            initial = self._bridge(source)
            rows = packing.send(np.repeat(np.arange(len(packing.counts)), packing.counts))
            summary = source.summary.index_select(0, rows)  # (N, S)
        x = self._input(x, summary)
        for index, (layer, start) in enumerate(zip(self.layers, initial, strict=True)):
            before = self._before(index, x)
            if inputs is not None:
                inputs.append(before)
            x = self._after(index, x, layer(before, packing, start))
        if source is None:
            return x
        context = self.lookup(x, source.states, source.pairing) if self.attends else summary
        return self._output(x, context)

    def _start(self, memory: Encoded | None, batch_size: int, capacity: int) -> RecurrentState:
        """The initial states of the layers; `capacity` is not needed."""
        if memory is None:
            return RecurrentState((0,) * batch_size, tuple(layer.start(batch_size) for layer in self.layers), None)
        return RecurrentState((0,) * batch_size, self._bridge(memory), memory)

    def _advance(
        self, x: Float[Tensor, "R T D"], state: DecodeState, record: list[Tensor] | None
    ) -> tuple[Float[Tensor, "R T E"], RecurrentState]:
        assert isinstance(state, RecurrentState)
        memory, (rows, length, _) = state.memory, x.shape
        summary = None
        if memory is not None:  # the beams of a line share it
            summary = memory.summary[:, None, None].expand(-1, state.width, length, -1).reshape(rows, length, -1)
        x = self._input(x, summary)
        layers = []
        for index, (layer, before) in enumerate(zip(self.layers, state.layers, strict=True)):
            own = LayerState(before)
            x = self._after(index, x, layer(self._before(index, x), own))
            layers.append(own.kept)
        if memory is not None:
            context = summary
            if self.attends:
                source = SourceStates(memory.states, memory.mask, record)
                context = self.lookup(x.flatten(0, 1), source).view(rows, length, -1)
            x = self._output(x, context)
        return x, replace(state, layers=tuple(layers))

    def _bridge(self, source: Source | Encoded) -> tuple[State, ...]:
        """The initial state of each layer, made from the summary of the source, or the encoder's last state."""
        parts = self.layers[0].num_parts
        if hasattr(self, "bridge"):
            states = torch.tanh(self.bridge(source.summary)).unflatten(1, (len(self.layers), parts, -1))
        elif source.final is not None and source.final.shape[1:] == (len(self.layers), parts, self.output_dim):
            states = source.final
        else:
            found = "none" if source.final is None else f"one of shape {tuple(source.final.shape[1:])}"
            raise ShapeError(
                f"this decoder takes over the last state of its encoder, of shape "
                f"{(len(self.layers), parts, self.output_dim)} a line, but the source has {found}"
            )
        layers: tuple[Tensor, ...] = states.unbind(1)
        return layers

    def _input(self, x: Tensor, summary: Tensor | None) -> Tensor:
        return x + self.input_context(summary) if summary is not None and self.context == "every-step" else x

    def _before(self, index: int, x: Tensor) -> Tensor:
        return self.dropout(x) if index else x

    def _after(self, index: int, x: Tensor, out: Tensor) -> Tensor:
        return x + out if self.residual and index else out

    def _output(self, x: Tensor, context: Tensor | None) -> Tensor:
        if context is None or self.context == "initial-state":
            return x
        return torch.tanh(self.combine(torch.cat([x, context], dim=-1)))
