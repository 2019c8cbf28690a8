"""A model also answers for a network that somebody else's modules were put into, or whose parts were taken apart."""

import copy
import threading
from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import seqloom
from contracts.random_models import find_folder
from contracts.zoo import DECODERS, DIM, make_decoder, make_memory, randn
from seqloom.nn.multihead import SelfAttention
from seqloom.nn.positions import Rotary
from seqloom.predict.model import Model

LM, MT = "language-model/transformer", "translation/transformer"
TEXTS = ["w1 w2 w3", "w4 w5 w6 w7"]


class Scaled(nn.Module):
    """Somebody's own module, which keeps its numbers where torch does not look."""

    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner
        self.scale, self.factors, self.hidden = torch.ones(1), [1.0], [nn.Linear(1, 1)]
        self.lock, self.calls = threading.Lock(), 0

    def forward(self, x: Tensor) -> Tensor:
        self.calls += 1
        return self.inner(x) * self.scale * self.factors[0] + self.hidden[0].bias


class Reader(nn.Module):
    """Reads the weights of a layer instead of calling it."""

    def __init__(self, inner: nn.Linear) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, x: Tensor) -> Tensor:
        return F.linear(x, 2 * self.inner.weight, self.inner.bias)


def put_scaled(network: nn.Module) -> Scaled:
    block = network.decoder.blocks[0]
    block.feedforward.expand = Scaled(block.feedforward.expand)
    return block.feedforward.expand


def read_weights(network: nn.Module) -> None:
    block = network.decoder.blocks[0]
    block.feedforward.expand = Reader(block.feedforward.expand)


def other_feedforward(network: nn.Module) -> None:
    network.decoder.blocks[0].feedforward = nn.Sequential(nn.Linear(16, 16), nn.Tanh())


def more_heads(network: nn.Module) -> None:
    torch.manual_seed(3)
    network.decoder.blocks[1].attention = SelfAttention(16, 4, causal=True).eval()


def no_blocks(network: nn.Module) -> None:
    del network.decoder.blocks[:]


def fewer_blocks(network: nn.Module) -> None:
    del network.decoder.blocks[0]


def derived_weight(network: nn.Module) -> None:
    layer = network.decoder.blocks[0].feedforward.expand
    weight = layer.weight * 2
    del layer.weight
    layer.weight = weight


def short_angles(network: nn.Module) -> None:
    for module in network.modules():
        if isinstance(module, Rotary):
            module.bfloat16()


def sparse_buffer(network: nn.Module) -> None:
    network.register_buffer("extra", torch.eye(2).to_sparse())
    network.output.weight.data.mul_(2)


CHANGES: dict[str, Callable[[nn.Module], object]] = {
    change.__name__: change
    for change in (
        *(put_scaled, read_weights, other_feedforward, more_heads, no_blocks, fewer_blocks, derived_weight),
        *(short_angles, sparse_buffer),
    )
}


def score(model: Model) -> list[float]:
    return [found.log_probability for found in model.score(TEXTS)]


def generate(model: Model) -> list[str]:
    return [found.text for found in model.generate(TEXTS, max_length=4)]


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_a_network_taken_apart_answers_as_it_does_in_the_open(change):
    model, wanted = seqloom.load(find_folder(LM)), seqloom.load(find_folder(LM), engine="open")
    before = score(model)
    for one in (model, wanted):
        torch.manual_seed(0)
        change(one.network.requires_grad_(False))
        one.network.eval()
    assert score(model) == pytest.approx(score(wanted), abs=1e-4)
    if change is not no_blocks:  # nothing to decode with
        assert generate(model) == generate(wanted)
    assert change is put_scaled or score(model) != pytest.approx(before, abs=1e-4)


@pytest.mark.parametrize("edit", ["tensor", "list", "hidden"])
def test_numbers_that_torch_does_not_know_of_count(edit):
    model = seqloom.load(find_folder(LM))
    added = put_scaled(model.network)
    before = score(model)
    assert added.calls > 0
    match edit:
        case "tensor":
            added.scale.fill_(-2.0)
        case "list":
            added.factors[0] = -2.0
        case "hidden":
            added.hidden[0].bias.data.fill_(3.0)
    assert score(model) != pytest.approx(before, abs=1e-4)


def test_a_weight_that_is_no_parameter_counts():
    model = seqloom.load(find_folder(LM))
    layer = model.network.decoder.blocks[0].feedforward.expand
    weight = layer.weight.detach().clone()
    del layer.weight
    layer.weight = weight
    before = score(model)
    weight.mul_(-1)
    assert score(model) != pytest.approx(before, abs=1e-4)


def test_a_class_that_is_changed_counts(monkeypatch):
    model = seqloom.load(find_folder(LM))
    before, plain = score(model), nn.Linear.forward
    with monkeypatch.context() as changed:
        changed.setattr(nn.Linear, "forward", lambda self, x: -plain(self, x))
        assert score(model) != pytest.approx(before, abs=1e-4)
    assert score(model) == pytest.approx(before, abs=1e-5)


@pytest.mark.parametrize("engine", ["compiled", "open", "ctranslate2"])
@pytest.mark.parametrize("name", [MT, LM])
def test_another_network_in_its_place(name, engine):
    model, other = seqloom.load(find_folder(name), engine=engine), seqloom.load(find_folder(name))
    with torch.no_grad():
        for parameter in other.network.parameters():
            parameter.mul_(-1)
    ask = {MT: lambda one: [t.text for t in one.translate(TEXTS, align=False)], LM: generate}[name]
    before = ask(model)
    twin = copy.copy(model)
    twin.network = other.network
    assert ask(twin) == ask(other) != before
    assert ask(model) == before
    assert model.network is not None  # from now on it is looked at
    assert ask(model) == before
    model.network = other.network
    assert ask(model) == ask(other)


@pytest.mark.parametrize(
    "name", ["transformer-positions-rotary", "transformer-window-rotary", "transformer-positions-alibi"]
)
@pytest.mark.parametrize("source", [True, False])
@torch.no_grad()
def test_beams_that_come_after_a_joining_see_numbers(name, source):
    """Memory that nobody has written to is filled with NaN here."""
    options, _ = DECODERS[name]
    decoder = make_decoder(options, source)
    torch.use_deterministic_algorithms(True)
    try:
        states = []
        for length, read in ((4, 5), (2, 1)):
            state = decoder.start(make_memory(options, source, [length]), 1, 9)
            states.append(decoder.step(randn(1, read, DIM), state)[1])
        wide = states[0].branch(torch.zeros(1, 2, dtype=torch.long))
        for joined in (wide.join(states[1]), states[0].join(states[1]).branch(torch.zeros(2, 2, dtype=torch.long))):
            for _ in range(2):
                out, joined = decoder.step(randn(4, 1, DIM), joined)
                assert out.isfinite().all()
    finally:
        torch.use_deterministic_algorithms(False)
