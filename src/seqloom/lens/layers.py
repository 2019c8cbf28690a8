"""The walk through each sublayer, in the open: what it multiplies by is at hand, and can be held fixed.

Attention weights come from the modules' own `weights`; the cells of recurrent layers are unrolled from PyTorch's
weights. All tensors are of one text, (T, D).

A recurrent layer keeps a memory m, to which each position writes and which decays:

    m_t = decay_t ⊙ m_{t−1} + weight_t ⊙ content_t          h_t = P (read_t ⊙ m_t)

    LSTM    decay = f, weight = i, content = g, read = o ⊙ [tanh(c)/c]; P only with a projection, clipping is a ratio
    GRU     decay = z, weight = 1 − z, content = n, read = 1

A plain RNN has no such gates: with ρ_t = tanh(a_t)/a_t its state is h_t = ρ_t ⊙ (W x_t + b + U h_{t−1}).
"""

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor, nn

from seqloom.lens.passes import Pass
from seqloom.nn.attention import GlobalAttention, Pool
from seqloom.nn.convolution import Convolution, GatedConvolution
from seqloom.nn.feedforward import ActivationLayer, FeedForward
from seqloom.nn.multihead import CrossAttention, SelfAttention
from seqloom.nn.packing import Packing, Pairing
from seqloom.nn.recurrent import ProjectedLSTM, RecurrentLayer

States = Float[Tensor, "T D"]
Maps = Float[Tensor, "H T S"]
Values = Float[Tensor, "H S K"]


def pack_one(x: States) -> Packing:
    """The packing of one text."""
    return Packing(torch.ones(1, len(x), dtype=torch.bool, device=x.device))


def attend(p: Pass, attention: SelfAttention, x: States) -> tuple[Maps, Values]:
    """The attention weights and the values of each head; several heads may share values."""
    weights = p.freeze(attention.weights(p.freeze(x), pack_one(x))[0])
    heads = p.linear(attention.in_projection, x).unflatten(-1, (-1, attention.head_dim))
    value = heads[:, -attention.num_kv_heads :].transpose(0, 1)  # position encodings act on queries and keys only
    return weights, value.repeat_interleave(attention.num_heads // attention.num_kv_heads, dim=0)


def attend_source(p: Pass, cross: CrossAttention, x: States, memory: States) -> tuple[Maps, Values]:
    """The same for attention to a source."""
    pairing = Pairing.of(pack_one(x), pack_one(memory))
    weights = p.freeze(cross.weights(p.freeze(x), p.freeze(memory), pairing)[0])
    heads = p.linear(cross.memory_projection, memory).unflatten(-1, (2, cross.num_heads, -1))
    return weights, heads[:, 1].transpose(0, 1)


def look_up(p: Pass, lookup: GlobalAttention, x: States, memory: States) -> Maps:
    """The attention weights of a recurrent decoder over its source, whose states are the values."""
    pairing = Pairing.of(pack_one(x), pack_one(memory))
    return p.freeze(lookup.weights(p.freeze(x), p.freeze(memory), pairing)[0])


def weigh_pool(p: Pass, pool: Pool, states: States) -> Float[Tensor, "T D"] | Float[Tensor, "T 1"]:
    """How much each coordinate of each state counts in the pooled vector."""
    held, length = states.detach() if p.frozen else states, len(states)
    match pool.kind:
        case "attention":
            mask = torch.ones(1, length, dtype=torch.bool, device=states.device)
            return p.freeze(pool.weights(held[None], mask)[0, 0]).T
        case "mean":
            return states.new_full((length, 1), 1 / length)
        case "first":
            return (torch.arange(length, device=states.device) == 0).to(states.dtype)[:, None]
        case _:
            highest = held == held.amax(0)
            return highest / highest.sum(0)


def feed_forward(p: Pass, network: FeedForward, x: States) -> States:
    """W₂ f(W₁ x); of a gated network, the gate f(W_g x) is the factor."""
    h = p.linear(network.expand, x)
    function = ActivationLayer(network.activation.removesuffix("-gated"))  # type: ignore[arg-type]
    if network.activation.endswith("-gated"):
        gate, h = h.chunk(2, dim=-1)
        h = p.freeze(function(gate)) * h
    else:
        h = p.activate(function, h)
    return p.linear(network.contract, h)


@dataclass(frozen=True)
class Convolved:
    """A convolution before its gate, and the gate; without one, that is 1 where max(0, ·) lets the value through."""

    value: States
    gate: States

    @property
    def output(self) -> States:
        """What the layer gives."""
        return self.value * self.gate


def convolve(p: Pass, layer: Convolution, x: States) -> Convolved:
    """A convolution and its gate."""
    packing = pack_one(x)
    windows = torch.cat([packing.shift(x, offset) for offset in layer.offsets], dim=1)
    value = p.linear(layer.value, windows)
    gate = layer.gate(windows).sigmoid() if isinstance(layer, GatedConvolution) else (value > 0).to(value.dtype)
    return Convolved(value, p.freeze(gate))


@dataclass(frozen=True)
class Unrolled:
    """A recurrent layer step by step, in the order in which it reads: a backward layer begins at the last token."""

    output: States
    initial: Float[Tensor, "M"]
    """The memory before the first step."""
    content: Float[Tensor, "T M"]
    read: Float[Tensor, "T M"]
    decay: Float[Tensor, "T M"]
    weight: Float[Tensor, "T M"]
    """For a plain RNN, `read` is 1, and `decay` and `weight` both are ρ."""
    last: Float[Tensor, "P H"]
    """The state after the last step: h, and c of an LSTM."""
    gates: dict[str, Float[Tensor, "T M"]]
    """Each gate by its letter."""
    matrix: Float[Tensor, "M M"] | None = None
    """U of a plain RNN: its memory is multiplied by it before it decays."""
    project: Float[Tensor, "H M"] | None = None
    clip: Float[Tensor, "T H"] | None = None
    """What clipping left of each output, as a ratio."""

    def expose(self, memory: Float[Tensor, "*N M"], step: int) -> Float[Tensor, "*N H"]:
        """What a part of the memory gives to the output of a step."""
        out = self.read[step] * memory
        out = out if self.project is None else out @ self.project.T
        return out if self.clip is None else out * self.clip[step]


def unroll(p: Pass, layer: RecurrentLayer, x: States, initial: Float[Tensor, "P H"] | None = None) -> Unrolled:
    """Run a layer step by step."""
    x = x.flip(0) if layer.reverse else x
    match layer.cell:
        case nn.LSTM():
            h, c = (x.new_zeros(2, layer.hidden_dim) if initial is None else initial).unbind(0)
            return _unroll_lstm(p, x, h, c, *_Weights.of(layer.cell).parts, None, None)
        case ProjectedLSTM() as cell:
            h, c = x.new_zeros(cell.output_dim), x.new_zeros(cell.memory_dim)
            weights = (cell.input.weight, cell.input.bias, cell.recurrence.weight, None)
            return _unroll_lstm(p, x, h, c, *weights, cell.projection.weight, cell.clip)
        case nn.GRU():
            return _unroll_gru(p, x, x.new_zeros(layer.hidden_dim) if initial is None else initial[0], layer.cell)
        case _:
            assert isinstance(layer.cell, nn.RNN)
            return _unroll_rnn(p, x, x.new_zeros(layer.hidden_dim) if initial is None else initial[0], layer.cell)


@dataclass(frozen=True)
class _Weights:
    parts: tuple[Tensor, Tensor, Tensor, Tensor]
    """W_ih, b_ih, W_hh and b_hh, with the gates one below the other."""

    @classmethod
    def of(cls, cell: nn.RNNBase) -> "_Weights":
        names = ("weight_ih_l0", "bias_ih_l0", "weight_hh_l0", "bias_hh_l0")
        return cls(tuple(getattr(cell, name) for name in names))


def _unroll_lstm(
    p: Pass,
    x: States,
    h: Tensor,
    c: Tensor,
    w_in: Tensor,
    b_in: Tensor,
    w_back: Tensor,
    b_back: Tensor | None,
    project: Tensor | None,
    clip: float | None,
) -> Unrolled:
    start = c
    steps = []
    for x_t in p.add_bias(x @ w_in.T, b_in):
        i, f, g, o = p.add_bias(x_t + w_back @ h, b_back).chunk(4, dim=-1)
        i, f, o = (p.freeze(gate.sigmoid()) for gate in (i, f, o))
        g = p.activate(torch.tanh, g)
        whole = f * c + i * g
        c = whole if clip is None else p.activate(lambda v: v.clamp(-clip, clip), whole)
        seen = o * p.activate(torch.tanh, c)
        out = seen if project is None else project @ seen
        h = out if clip is None else p.activate(lambda v: v.clamp(-clip, clip), out)
        steps.append((i, f, g, o, whole, c, out, h))
    i, f, g, o, whole, c_all, out, h_all = (torch.stack(part) for part in zip(*steps, strict=True))
    kept = 1.0 if clip is None else _ratio(c_all, whole)
    return Unrolled(
        h_all,
        initial=start,
        content=g,
        read=o * _ratio(c_all.tanh(), c_all),
        decay=kept * f,
        weight=kept * i,
        last=torch.stack([h, c]) if h.shape == c.shape else h[None],
        gates={"i": i, "f": f, "o": o},
        project=project,
        clip=None if clip is None else _ratio(h_all, out),
    )


def _unroll_gru(p: Pass, x: States, h: Tensor, cell: nn.GRU) -> Unrolled:
    w_in, b_in, w_back, b_back = _Weights.of(cell).parts
    start, steps = h, []
    for x_t in p.add_bias(x @ w_in.T, b_in):
        (r_x, z_x, n_x), (r_h, z_h, n_h) = x_t.chunk(3), p.add_bias(w_back @ h, b_back).chunk(3)
        r, z = p.freeze((r_x + r_h).sigmoid()), p.freeze((z_x + z_h).sigmoid())
        n = p.activate(torch.tanh, n_x + r * n_h)
        h = (1 - z) * n + z * h
        steps.append((r, z, n, h))
    r, z, n, h_all = (torch.stack(part) for part in zip(*steps, strict=True))
    gates, last = {"r": r, "z": z}, h[None]
    return Unrolled(h_all, start, content=n, read=torch.ones_like(n), decay=z, weight=1 - z, last=last, gates=gates)


def _unroll_rnn(p: Pass, x: States, h: Tensor, cell: nn.RNN) -> Unrolled:
    w_in, b_in, w_back, b_back = _Weights.of(cell).parts
    start, steps = h, []
    for x_t in p.add_bias(x @ w_in.T, b_in + b_back):
        a = x_t + w_back @ h
        h = p.activate(torch.tanh, a)
        steps.append((x_t, a, h))
    x_all, a_all, h_all = (torch.stack(part) for part in zip(*steps, strict=True))
    ratio, last = _ratio(h_all, a_all), h[None]
    return Unrolled(
        *(h_all, start, x_all, torch.ones_like(h_all), ratio, ratio), last=last, gates={"ρ": ratio}, matrix=w_back
    )


def _ratio(after: Tensor, before: Tensor) -> Tensor:
    return torch.where(before == 0, 0.0, after / before)
