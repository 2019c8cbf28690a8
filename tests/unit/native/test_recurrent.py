"""The kernels of LSTM and GRU beside PyTorch's own cells in double precision: states, last states, every gradient."""

import copy
from typing import NamedTuple

import pytest
import torch
from torch import Tensor, nn

from seqloom.nn.packed_recurrence import has_kernel
from seqloom.nn.packing import Packing
from seqloom.nn.recurrent import Cell, RecurrentLayer

pytestmark = pytest.mark.usefixtures("kernels")
CASES = {
    "no line": ([], 8),
    "no token": ([0, 0], 8),
    "one token": ([1], 1),
    "odd sizes and an empty line": ([3, 0, 1, 7, 7], 20),
    "whole panels": ([5, 2, 6], 64),
    "more lines than a job": ([1, 2, 3] * 60, 5),
    "more inputs than a block": ([2, 4, 1], 521),
}


class Answer(NamedTuple):
    """What a layer gives, and the gradients of a weighted sum of it."""

    states: Tensor
    last: Tensor
    gradients: dict[str, Tensor]


def pack(lengths: list[int]) -> Packing:
    return Packing(torch.arange(max(lengths, default=0)) < torch.tensor(lengths, dtype=torch.long).unsqueeze(1))


def answer(layer: RecurrentLayer, lengths: list[int], *, start: bool, dtype: torch.dtype = torch.float32) -> Answer:
    """With a state at the start, or with the last state: a layer is asked for one of them."""
    generator = torch.Generator().manual_seed(1)

    def draw(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=generator, dtype=torch.float32).to(dtype)

    layer, packing = copy.deepcopy(layer).to(dtype), pack(lengths)
    given = {
        "x": draw(packing.num_tokens, layer.cell.input_size),
        "weights": draw(packing.num_tokens, layer.hidden_dim),
    }
    given["initial"] = draw(len(lengths), layer.num_parts, layer.hidden_dim)
    x, initial = given["x"].requires_grad_(), given["initial"].requires_grad_()
    final: list[Tensor] = []
    states = layer(x, packing, initial if start else None, None if start else final)
    last = layer.start(len(lengths)) if start else final[0]
    ((states * given["weights"]).sum() + (last * given["initial"].detach()).sum() + 0.0 * x.sum()).backward()
    gradients = {name: p.grad for name, p in layer.named_parameters() if p.grad is not None}
    gradients |= {"x": x.grad} | ({"initial": initial.grad} if start and initial.grad is not None else {})
    return Answer(states.detach(), last.detach(), gradients)  # type: ignore[arg-type]


@pytest.mark.parametrize("start", [True, False], ids=["from a state", "to the last state"])
@pytest.mark.parametrize("reverse", [False, True], ids=["forwards", "backwards"])
@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("cell", ["lstm", "gru"])
def test_the_same_as_the_cell(cell: Cell, case: str, reverse: bool, start: bool, level: str) -> None:
    torch.manual_seed(0)
    lengths, hidden = CASES[case]
    layer = RecurrentLayer(cell, 7, hidden, reverse=reverse)
    assert has_kernel(layer.cell, torch.empty(0))
    found = answer(layer, lengths, start=start)
    expected = answer(layer, lengths, start=start, dtype=torch.float64)
    torch.testing.assert_close(found.states.double(), expected.states, rtol=1e-6, atol=1e-6)
    torch.testing.assert_close(found.last.double(), expected.last, rtol=1e-6, atol=1e-6)
    for name, gradient in expected.gradients.items():
        scale = float(gradient.abs().max()) if gradient.numel() else 0.0
        own = found.gradients.get(name, torch.zeros(gradient.shape)).double()
        torch.testing.assert_close(own, gradient, rtol=1e-5, atol=2e-6 * scale, msg=lambda text, n=name: f"{n}: {text}")


@pytest.mark.parametrize("cell", ["lstm", "gru"])
def test_without_biases(cell: Cell) -> None:
    torch.manual_seed(0)
    layer = RecurrentLayer(cell, 7, 20)
    layer.cell = type(layer.cell)(7, 20, batch_first=True, bias=False)
    assert has_kernel(layer.cell, torch.empty(0))
    found, expected = (answer(layer, [4, 2], start=True, dtype=dtype) for dtype in (torch.float32, torch.float64))
    torch.testing.assert_close(found.states.double(), expected.states, rtol=1e-6, atol=1e-6)
    for name, gradient in expected.gradients.items():
        torch.testing.assert_close(found.gradients[name].double(), gradient, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("cell", ["lstm", "gru"])
def test_a_line_does_not_depend_on_its_neighbours_or_the_threads(cell: Cell, two_threads: None, level: str) -> None:
    torch.manual_seed(0)
    lengths = [9, 3, 17, 1, 12] * 30
    layer, packing = RecurrentLayer(cell, 24, 40), pack(lengths)
    x = torch.randn(packing.num_tokens, 24)
    torch.set_num_threads(1)
    alone = [layer(part, pack([len(part)])) for part in x.split(lengths)]
    one = answer(layer, lengths, start=False)
    torch.set_num_threads(2)
    two, again = answer(layer, lengths, start=False), answer(layer, lengths, start=False)
    assert torch.equal(one.states, two.states)
    assert torch.equal(one.last, two.last)
    assert all(torch.equal(two.gradients[name], again.gradients[name]) for name in two.gradients)
    torch.testing.assert_close(layer(x, packing), torch.cat(alone), rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("cell", ["lstm", "gru"])
def test_gradients_do_not_depend_on_the_default_type(cell: Cell) -> None:
    torch.manual_seed(0)
    layer = RecurrentLayer(cell, 7, 20)
    expected = answer(layer, [4, 2], start=True)
    torch.set_default_dtype(torch.float64)
    try:
        found = answer(layer, [4, 2], start=True, dtype=torch.float32)
    finally:
        torch.set_default_dtype(torch.float32)
    assert all(torch.equal(found.gradients[name], gradient) for name, gradient in expected.gradients.items())


def test_the_gates_of_odd_numbers(level: str) -> None:
    """What is no number stays in its line, and no sum overflows."""
    layer = RecurrentLayer("lstm", 4, 16)
    x = torch.zeros(6, 4)
    x[0], x[2, 1], x[4] = 1e30, torch.nan, -1e30
    states = layer(x, pack([2, 2, 2]))
    assert torch.equal(states.isnan().any(1), torch.tensor([False, False, True, True, False, False]))


def test_only_the_plain_cell_has_a_kernel() -> None:
    class Own(nn.GRU):
        pass

    x = torch.randn(3, 4)
    assert has_kernel(nn.GRU(4, 4), x)
    for cell in (
        nn.RNN(4, 4),
        nn.GRU(4, 4, 2),
        nn.GRU(4, 4, bidirectional=True),
        nn.LSTM(4, 4, proj_size=2),
        Own(4, 4),
    ):
        assert not has_kernel(cell, x)
    assert not has_kernel(nn.GRU(4, 4), x.double())
    hooked = nn.GRU(4, 4)
    hooked.register_forward_hook(lambda *_: None)
    assert not has_kernel(hooked, x)
