"""Recurrent layers: the state at time t depends on the input at t and the state at t − 1.

    RNN    h_t = tanh(W x_t + U h_{t−1} + b)
    LSTM   i, f, o = σ(…);  g = tanh(…);  c_t = f ⊙ c_{t−1} + i ⊙ g;  h_t = o ⊙ tanh(c_t)  Hochreiter & Schmidhuber 1997
    GRU    r, z = σ(…);  n = tanh(W x_t + r ⊙ U h_{t−1});  h_t = (1 − z) ⊙ n + z ⊙ h_{t−1}  Cho et al. 2014

The cells are PyTorch's. Here layers are separate, so that each layer's states can be seen, each has one direction, and
its state is batch-first. A backward layer starts at the last token of each sequence, so that it never reads padding.
"""

from collections.abc import Callable
from typing import Literal

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from seqloom.nn.cache import LayerState
from seqloom.nn.packed_recurrence import has_kernel, recur
from seqloom.nn.packing import Packing

Cell = Literal["rnn", "gru", "lstm"]
State = Float[Tensor, "B P H"]
"""The state of one layer: P = 2 parts (h and c) for an LSTM, else 1."""

_CELLS: dict[Cell, Callable[..., nn.RNNBase]] = {"rnn": nn.RNN, "gru": nn.GRU, "lstm": nn.LSTM}


class ProjectedLSTM(nn.Module):
    """An LSTM with a wide memory and a narrow output, h_t = clip(P (o ⊙ tanh(c_t))), c_t = clip(…). Sak et al. 2014.

    It is called like PyTorch's LSTM, which has projections but no clipping; ELMo (Peters et al. 2018) needs both.
    """

    def __init__(self, input_dim: int, memory_dim: int, output_dim: int, clip: float | None) -> None:
        super().__init__()
        self.memory_dim, self.output_dim, self.clip = memory_dim, output_dim, clip
        self.input = nn.Linear(input_dim, 4 * memory_dim)
        self.recurrence = nn.Linear(output_dim, 4 * memory_dim, bias=False)
        self.projection = nn.Linear(memory_dim, output_dim, bias=False)

    def forward(
        self, x: Float[Tensor, "B T D"], state: tuple[Tensor, Tensor] | None = None
    ) -> tuple[Float[Tensor, "B T H"], tuple[Float[Tensor, "1 B H"], Float[Tensor, "1 B M"]]]:
        """The output at each position, and the last output and memory."""
        if state is None:
            state = x.new_zeros(1, len(x), self.output_dim), x.new_zeros(1, len(x), self.memory_dim)
        h, c = state[0][0], state[1][0]
        outputs = []
        for x_t in self.input(x).unbind(1):
            i, f, g, o = (x_t + self.recurrence(h)).chunk(4, dim=-1)
            c = self._clip(f.sigmoid() * c + i.sigmoid() * g.tanh())
            h = self._clip(self.projection(o.sigmoid() * c.tanh()))
            outputs.append(h)
        return torch.stack(outputs, dim=1), (h[None], c[None])

    def _clip(self, x: Tensor) -> Tensor:
        return x if self.clip is None else x.clamp(-self.clip, self.clip)


class RecurrentLayer(nn.Module):
    """One layer in one direction; with `memory_dim` or `clip`, its LSTM is a `ProjectedLSTM` (only in encoders)."""

    def __init__(
        self,
        cell: Cell,
        input_dim: int,
        hidden_dim: int,
        *,
        reverse: bool = False,
        memory_dim: int | None = None,
        clip: float | None = None,
    ) -> None:
        super().__init__()
        plain = memory_dim is None and clip is None
        self.cell = (
            _CELLS[cell](input_dim, hidden_dim, batch_first=True)
            if plain
            else ProjectedLSTM(input_dim, memory_dim or hidden_dim, hidden_dim, clip)
        )
        self.num_parts = 2 if cell == "lstm" else 1
        self.hidden_dim = hidden_dim
        self.reverse = reverse

    def forward(
        self,
        x: Float[Tensor, "*N D"],
        tokens: Packing | LayerState,
        initial: State | None = None,
        final: list[State] | None = None,
    ) -> Float[Tensor, "*N H"]:
        """Whole sequences, packed, from their initial states or zeros; or new tokens of each row, (B, T, D).

        A list `final` receives the state after the last token of each sequence, which begins with zeros.
        """
        if isinstance(tokens, LayerState):
            return self._step(x, tokens)
        if has_kernel(self.cell, x, initial):
            out, last = recur(self.cell, x, tokens, initial, reverse=self.reverse)
            if final is not None:
                final.append(last)
            return out
        if final is None:
            return self._run(x, tokens, initial)
        out, last = self._run_to_end(x, tokens)
        final.append(last)
        return out

    def _run(self, x: Float[Tensor, "N D"], packing: Packing, initial: State | None) -> Float[Tensor, "N H"]:
        groups = packing.groups(max_groups=1, reverse=self.reverse)
        if not packing.num_tokens:
            return x.new_zeros(0, self.hidden_dim)
        (rows,), (members,) = groups.spread(x), groups.members
        start = None if initial is None else self._split(initial[packing.send(members)])
        return groups.collect([self.cell(rows, start)[0]])

    def _run_to_end(self, x: Float[Tensor, "N D"], packing: Packing) -> tuple[Float[Tensor, "N H"], State]:
        """Whole sequences, packed, and the state after the last token of each; zeros for an empty one."""
        last = self.start(len(packing.lengths)).to(x)
        if not packing.num_tokens:
            return x.new_zeros(0, self.hidden_dim), last
        groups = packing.groups(max_groups=1, reverse=self.reverse)
        (rows,), (members,) = groups.spread(x), groups.members
        lengths = torch.tensor([packing.lengths[member] for member in members])
        falling, order = lengths.clamp(min=1).sort(descending=True)  # here, as PyTorch would wait for another device
        there, back = packing.send(order), packing.send(order.argsort())
        out, state = self.cell(pack_padded_sequence(rows.index_select(0, there), falling, batch_first=True))
        outputs, _ = pad_packed_sequence(out, batch_first=True, total_length=rows.shape[1])
        parts = torch.stack(state if self.num_parts == 2 else (state,), dim=2).squeeze(0)  # (b, P, H)
        outputs, parts = outputs.index_select(0, back), parts.index_select(0, back)
        real = packing.send(lengths > 0)[:, None, None]
        last = last.index_copy(0, packing.send(members), parts * real)
        return groups.collect([outputs]), last

    def _step(self, x: Float[Tensor, "B T D"], state: LayerState) -> Float[Tensor, "B T H"]:
        out: Tensor
        out, last = self.cell(x, self._split(state.kept))
        state.kept = torch.stack(last if self.num_parts == 2 else (last,), dim=2).squeeze(0)
        return out

    def start(self, batch_size: int) -> State:
        """The zero state."""
        return next(self.cell.parameters()).new_zeros(batch_size, self.num_parts, self.hidden_dim)

    def _split(self, state: State) -> Tensor | tuple[Tensor, Tensor]:
        """The state as PyTorch's cells take it: (1, B, H), and two of these for an LSTM."""
        hidden, *memory = (part.contiguous() for part in state.unsqueeze(0).unbind(2))
        return (hidden, memory[0]) if memory else hidden
