"""The walk through recurrent encoders and decoders."""

import torch
from jaxtyping import Float
from torch import Tensor, nn

from seqloom.decoders.recurrent import RecurrentDecoder
from seqloom.encoders.recurrent import RecurrentEncoder
from seqloom.lens import layers
from seqloom.lens.layers import States
from seqloom.lens.mixing import LookupMixer, RecurrentMixer
from seqloom.lens.passes import Pass
from seqloom.lens.stacks import Layer, Memory, OpenStack, Stack
from seqloom.nn.recurrent import RecurrentLayer


class OpenRecurrent(OpenStack):
    """What recurrent encoders and decoders share."""

    family = "recurrent"

    def _recur(
        self, p: Pass, index: int, layer: RecurrentLayer, x: States, initial: Tensor | None = None
    ) -> tuple[States, Float[Tensor, "P H"]]:
        h, site = p.enter(x), self._site(index, layer)
        initial = None if initial is None else p.enter(initial)
        p.watch(RecurrentMixer([site], layer, h, initial))
        steps = layers.unroll(p, layer, h, initial)
        return p.component(site, steps.output.flip(0) if layer.reverse else steps.output), steps.last

    def _site(self, index: int, layer: RecurrentLayer) -> str:
        return f"{self.name}.{index}.{'backward' if layer.reverse else 'forward'}"


class OpenRecurrentEncoder(OpenRecurrent):
    """A recurrent encoder, in one direction or both."""

    module: RecurrentEncoder

    def run(self, p: Pass, x: States, memory: Memory | None = None) -> States:
        """Layer after layer, in its directions."""
        x = self._begin(p, x, None)
        ends = []
        for index, ways in enumerate(self.module.layers):
            parts = [self._recur(p, index, way, x) for way in ways]
            out = torch.cat([states for states, _ in parts], dim=-1)
            ends.append([last for _, last in parts])
            x = self._end(p, index, x + out if self.module.residual and index else out)
        if self.module.keep_final:
            p.context[f"{self.name}.final"] = torch.stack([torch.cat(last, -1) for last in ends])
        return x

    def summarise(self, states: States) -> Float[Tensor, "E"]:
        """The last state of each direction."""
        ways = self.module.layers[-1]
        parts = states.split([way.hidden_dim for way in ways], dim=-1)
        return torch.cat([part[0 if way.reverse else -1] for way, part in zip(ways, parts, strict=True)])

    def describe(self) -> list[Stack]:
        """The memory of each direction."""
        made = [
            Layer(f"{self.name}.{index}", tuple(self._site(index, way) for way in ways))
            for index, ways in enumerate(self.module.layers)
        ]
        return [self._make("recurrent", made, _name_cell(self.module.layers[0][0]))]


class OpenRecurrentDecoder(OpenRecurrent):
    """A recurrent decoder, which sees its source through a context vector."""

    module: RecurrentDecoder

    def run(self, p: Pass, x: States, memory: Memory | None = None) -> States:
        """Layer after layer; the context is kept for the readout."""
        module = self.module
        initial: tuple[Tensor | None, ...] = (None,) * len(module.layers)
        summary = None
        if memory is not None:
            initial = self._bridge(p, memory)
            if module.context == "every-step":
                summary = p.component(f"{self.name}.context", p.enter(memory.summary).expand(len(x), -1))
                x = x + p.linear(module.input_context, summary)
        x = self._begin(p, x, None)
        for index, (layer, start) in enumerate(zip(module.layers, initial, strict=True)):
            out, _ = self._recur(p, index, layer, x, start)
            x = self._end(p, index, x + out if module.residual and index else out)
        if memory is not None and module.attends:
            summary = self._look_up(p, x, memory)
        if summary is not None:
            p.context[self.name] = summary
        return x

    def _look_up(self, p: Pass, x: States, memory: Memory) -> States:
        site, h, source = f"{self.name}.lookup", p.enter(x), p.enter(memory.states)
        p.watch(LookupMixer([site], self.module.lookup, h, source))
        return p.component(site, (layers.look_up(p, self.module.lookup, h, source) @ source)[0])

    def _bridge(self, p: Pass, memory: Memory) -> tuple[Tensor, ...]:
        module, parts = self.module, self.module.layers[0].num_parts
        if hasattr(module, "bridge"):
            states = p.activate(torch.tanh, p.linear(module.bridge, memory.summary))
            states = states.unflatten(0, (len(module.layers), parts, -1))
        else:
            assert memory.final is not None
            states = memory.final
        return tuple(states.unbind(0))

    def finish(self, p: Pass, x: States) -> States:
        """tanh(W [h; c]), with the context that the last layer found."""
        if self.name not in p.context:
            return x
        return p.activate(torch.tanh, p.linear(self.module.combine, torch.cat([x, p.context[self.name]], dim=-1)))

    def describe(self) -> list[Stack]:
        """The memory of each layer, and the attention to the source if there is one."""
        made = [
            Layer(f"{self.name}.{index}", (self._site(index, layer),)) for index, layer in enumerate(self.module.layers)
        ]
        cross = [Layer(self.name, (f"{self.name}.lookup",))] if self.module.attends else []
        return [self._make("recurrent", made, _name_cell(self.module.layers[0])), *self._make_cross(cross)]


def _name_cell(layer: RecurrentLayer) -> str:
    return {nn.GRU: "gru", nn.RNN: "rnn"}.get(type(layer.cell), "lstm")
