"""Linear layers and blocks in use: what plain PyTorch computes in double precision, row by row the same bits."""

import copy
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch import Tensor

from seqloom.errors import ShapeError
from seqloom.native.block import BlockWeights, NormWeights, PackedBlock, PackedLinear, PackedStack

ACTIVATIONS = {
    "relu": F.relu,
    "gelu": F.gelu,
    "gelu-tanh": lambda h: F.gelu(h, approximate="tanh"),
    "silu": F.silu,
    "tanh": torch.tanh,
    "squared-relu": lambda h: F.relu(h).square(),
}
KINDS = [*ACTIVATIONS, *(f"{kind}-gated" for kind in ACTIVATIONS)]
pytestmark = pytest.mark.usefixtures("kernels")


def make_weights(
    *,
    heads: int = 4,
    kv_heads: int = 2,
    head_dim: int = 6,
    model_dim: int = 24,
    hidden_dim: int = 37,
    activation: str = "relu",
    post_norm: bool = False,
    rms: bool = False,
    rotary: bool = False,
    source: bool = False,
    bias: bool = True,
) -> BlockWeights:
    def linear(inputs: int, outputs: int) -> tuple[Tensor, Tensor | None]:
        return torch.randn(outputs, inputs) / inputs**0.5, torch.randn(outputs) if bias else None

    def norm() -> NormWeights:
        return NormWeights(torch.rand(model_dim) + 0.5, None if rms else torch.randn(model_dim), 1e-5)

    inner, wide = heads * head_dim, hidden_dim * (2 if activation.endswith("-gated") else 1)
    layers = {
        "in": linear(model_dim, inner + 2 * kv_heads * head_dim),
        "out": linear(inner, model_dim),
        "expand": linear(model_dim, wide),
        "contract": linear(hidden_dim, model_dim),
    }
    norms = {"attention": norm(), "feedforward": norm()}
    if source:
        layers |= {"query": linear(model_dim, inner), "cross_out": linear(inner, model_dim)}
        norms["cross"] = norm()
    frequencies = 1.0 / 10_000 ** (torch.arange(0, head_dim - 1, 2) / head_dim) if rotary else None
    return BlockWeights(heads, kv_heads, head_dim, activation, post_norm, norms, layers, frequencies)


def apply_linear(x: Tensor, weights: tuple[Tensor, Tensor | None]) -> Tensor:
    weight, bias = weights
    return F.linear(x, weight.double(), None if bias is None else bias.double())


def apply_norm(x: Tensor, norm: NormWeights) -> Tensor:
    if norm.shift is None:
        return F.rms_norm(x, x.shape[-1:], norm.gain.double(), norm.epsilon)
    return F.layer_norm(x, x.shape[-1:], norm.gain.double(), norm.shift.double(), norm.epsilon)


def rotate(x: Tensor, position: int, frequencies: Tensor) -> Tensor:
    angles = (position * frequencies).double()  # as the network makes them
    first, second = x.chunk(2, -1)
    return torch.cat([first * angles.cos() - second * angles.sin(), second * angles.cos() + first * angles.sin()], -1)


def attend(query: Tensor, keys: Tensor, values: Tensor, bias: Tensor | None = None) -> Tensor:
    """One query (K) over keys and values (T, K)."""
    scores = keys @ query / len(query) ** 0.5
    if bias is not None:
        scores = scores + bias.double()
    if bool((scores == -torch.inf).all()):
        return torch.zeros_like(query)
    return scores.softmax(0) @ values


@dataclass
class Situation:
    """Lines in the midst of decoding, each at a position of its own."""

    x: Tensor
    cache: Tensor
    positions: Any
    slots: Tensor | None
    source: tuple[Tensor, Tensor, Tensor | None] | None

    def pick(self, line: int) -> "Situation":
        """One line alone."""
        beams = self.cache.shape[3]
        source = self.source and tuple(None if t is None else t[line : line + 1] for t in self.source)
        return Situation(
            self.x[line * beams : (line + 1) * beams],
            self.cache[line : line + 1].clone(),
            self.positions[line : line + 1],
            None if self.slots is None else self.slots[line : line + 1].clone(),
            source,  # type: ignore[arg-type]
        )

    def step(self, block: PackedBlock) -> Tensor:
        sources, bias = (None, None) if self.source is None else ([self.source[:2]], self.source[2])
        return PackedStack([block]).step(self.x, [self.cache], self.positions, self.slots, sources, bias)


def make_situation(
    weights: BlockWeights, positions: list[int], beams: int = 1, room: int = 9, length: int = 7, *, padded: bool = False
) -> Situation:
    batch, model_dim = len(positions), weights.layers["in"][0].shape[1]
    cache = torch.full((batch, 2 * weights.num_kv_heads, room, beams, weights.head_dim), torch.nan)
    slots = torch.full((batch, beams, room), 10**6, dtype=torch.int32)  # what is not read may be anything
    for line, position in enumerate(positions):
        cache[line, :, :position] = torch.randn_like(cache[line, :, :position])
        slots[line, :, :position] = torch.randint(beams, (beams, position))
    source = None
    if "query" in weights.layers:
        shape, bias = (batch, weights.num_heads, length, weights.head_dim), torch.zeros(batch, 1, 1, length)
        bias[torch.rand(bias.shape) < 0.4] = -torch.inf
        source = torch.randn(shape), torch.randn(shape), bias if padded else None
    x = torch.randn(batch * beams, model_dim)
    return Situation(x, cache, np.array(positions, np.int32), None if beams == 1 else slots, source)


def compute_step(weights: BlockWeights, s: Situation) -> tuple[Tensor, Tensor]:
    """The same in the open, in double precision: what comes out, and the cache as it is then."""
    cache, beams, outs = s.cache.double(), s.cache.shape[3], []
    groups, dim = weights.num_kv_heads, weights.head_dim
    for row, x in enumerate(s.x.double()):
        line, beam = divmod(row, beams)
        position = int(s.positions[line])

        def mix(h: Tensor) -> Tensor:
            parts = apply_linear(h, weights.layers["in"]).view(-1, dim)
            if weights.rotary_frequencies is not None:
                turned = rotate(parts[:-groups], position, weights.rotary_frequencies)  # noqa: B023
                parts = torch.cat([turned, parts[-groups:]])
            cache[line, :, position, beam] = parts[-2 * groups :]  # noqa: B023
            own = torch.zeros(position, dtype=torch.int32) if s.slots is None else s.slots[line, beam, :position]  # noqa: B023
            own = torch.cat([own.long(), torch.tensor([beam])])  # noqa: B023
            past = cache[line, :, torch.arange(position + 1), own]  # noqa: B023
            if past.shape[0] != 2 * groups:
                past = past.transpose(0, 1)
            shared = weights.num_heads // groups
            mixed = [attend(parts[h], past[h // shared], past[groups + h // shared]) for h in range(weights.num_heads)]
            return apply_linear(torch.cat(mixed), weights.layers["out"])

        def look(h: Tensor) -> Tensor:
            assert s.source is not None
            queries, (keys, values, bias) = apply_linear(h, weights.layers["query"]).view(-1, dim), s.source
            given = None if bias is None else bias[line].flatten()  # noqa: B023
            sides = zip(queries, keys[line].double(), values[line].double(), strict=True)  # noqa: B023
            return apply_linear(torch.cat([attend(*side, given) for side in sides]), weights.layers["cross_out"])

        parts = [(mix, weights.norms["attention"])]
        if "cross" in weights.norms:
            parts.append((look, weights.norms["cross"]))
        for part, norm in [*parts, (lambda h: feed_forward(weights, h), weights.norms["feedforward"])]:
            x = apply_norm(x + part(x), norm) if weights.post_norm else x + part(apply_norm(x, norm))
        outs.append(x)
    return torch.stack(outs), cache


def feed_forward(weights: BlockWeights, h: Tensor) -> Tensor:
    function, h = ACTIVATIONS[weights.activation.removesuffix("-gated")], apply_linear(h, weights.layers["expand"])
    if weights.activation.endswith("-gated"):
        gate, h = h.chunk(2, -1)
        return apply_linear(function(gate) * h, weights.layers["contract"])
    return apply_linear(function(h), weights.layers["contract"])


def assert_close(found: Tensor, expected: Tensor) -> None:
    torch.testing.assert_close(found.double(), expected, rtol=1e-4, atol=1e-4, equal_nan=True)


def assert_step(weights: BlockWeights, s: Situation) -> None:
    expected, cache = compute_step(weights, s)
    before, block = s.x.clone(), PackedBlock(weights)
    assert_close(s.step(block), expected)
    assert_close(s.cache, cache)
    assert torch.equal(s.x, before)


@pytest.mark.parametrize("activation", KINDS)
def test_every_activation(activation: str, level: str) -> None:
    weights = make_weights(activation=activation)
    assert_step(weights, make_situation(weights, [3]))


@given(
    post_norm=st.booleans(),
    rms=st.booleans(),
    rotary=st.booleans(),
    kv_heads=st.sampled_from([1, 2, 4]),
    bias=st.booleans(),
    source=st.booleans(),
    padded=st.booleans(),
    positions=st.lists(st.integers(0, 8), min_size=1, max_size=5),
    beams=st.integers(1, 4),
    length=st.integers(1, 19),
    head_dim=st.sampled_from([2, 6, 8, 10]),
)
def test_every_kind_of_block(
    positions: list[int], beams: int, length: int, padded: bool, head_dim: int, **options: Any
) -> None:
    weights = make_weights(head_dim=head_dim, **options)
    assert_step(weights, make_situation(weights, positions, beams, length=length, padded=padded))


@pytest.mark.parametrize("head_dim", [1, 2, 3, 7, 8, 9, 16, 31, 32, 33, 48, 64, 100, 128, 256])
def test_every_width_of_a_head(head_dim: int) -> None:
    weights = make_weights(head_dim=head_dim, heads=2, kv_heads=1, source=True)
    assert_step(weights, make_situation(weights, [0, 8, 5], beams=2, padded=True))


@pytest.mark.usefixtures("two_threads")
@pytest.mark.parametrize("beams", [1, 3])
def test_a_line_answers_as_it_does_alone(beams: int, level: str) -> None:
    """Bit for bit, whatever the positions, the padding and the number of the others, and of threads."""
    weights = make_weights(heads=8, kv_heads=4, head_dim=32, model_dim=256, hidden_dim=700, source=True, rotary=True)
    situation = make_situation(weights, [40, 0, 99, 7, 63], beams, room=100, length=50, padded=True)
    alone, block = [situation.pick(line) for line in range(5)], PackedBlock(weights)
    together = situation.step(block).unflatten(0, (5, beams))
    torch.set_num_threads(1)
    for line, own in enumerate(alone):
        assert own.source is not None
        assert own.source[2] is not None
        visible = own.source[2].flatten() == 0.0  # without its padding
        own.source = (*(t[:, :, visible] for t in own.source[:2]), None)  # type: ignore[assignment]
        assert torch.equal(own.step(block), together[line])
        assert torch.equal(own.cache.nan_to_num(), situation.cache[line : line + 1].nan_to_num())


def test_a_line_whose_source_is_all_padding_gets_nothing_from_it() -> None:
    weights = make_weights(source=True, bias=False)
    s = make_situation(weights, [2, 3], padded=True)
    assert s.source is not None
    assert s.source[2] is not None
    s.source[2][0] = -torch.inf
    assert_step(weights, s)


def test_no_number_stays_none_and_harms_no_other_row() -> None:
    weights = make_weights(source=True)
    s = make_situation(weights, [2, 3, 1], beams=2)
    clean = s.pick(0), s.pick(2)
    s.x[2, 5] = torch.nan
    out, block = s.step(PackedBlock(weights)), PackedBlock(weights)
    assert out[2].isnan().all()
    assert torch.equal(out[:2], clean[0].step(block))
    assert torch.equal(out[3:4].isnan(), torch.zeros(1, 24, dtype=torch.bool))
    assert torch.equal(out[4:], clean[1].step(block))


def test_padding_that_is_no_number_is_not_read() -> None:
    weights = make_weights(source=True)
    s = make_situation(weights, [2], padded=True)
    assert s.source is not None
    keys, values, bias = s.source
    assert bias is not None
    bias[0, 0, 0, 3] = -torch.inf
    keys[:, :, 3], values[:, :, 3] = torch.nan, torch.inf
    assert s.step(PackedBlock(weights)).isfinite().all()


def test_a_long_past() -> None:
    """More tokens times beams than a stack holds."""
    weights = make_weights(heads=1, kv_heads=1, head_dim=2, model_dim=8)
    assert_step(weights, make_situation(weights, [40_000], beams=4, room=40_001))


def test_what_does_not_fit_is_refused() -> None:
    weights = make_weights(source=True)
    s, block = make_situation(weights, [2, 3], beams=2), PackedBlock(weights)
    for change in (
        {"x": s.x[:3]},
        {"slots": None},
        {"slots": torch.zeros(2, 2, 9)},
        {"source": None},
        {"positions": np.array([1], np.int32)},
        {"cache": s.cache.double()},
    ):
        with pytest.raises(ShapeError):
            replace(s, **change).step(block)
    for position in (9, -1):
        with pytest.raises(IndexError, match="outside the key-value cache"):
            replace(s, positions=np.array([1, position], np.int32)).step(block)
    assert s.slots is not None
    for slot in (2, -1):
        s.slots[1, 0, 1] = slot
        with pytest.raises(IndexError, match="a slot is that of no beam"):
            s.step(block)
    with pytest.raises(ShapeError, match="the layer out maps 24 → 23 numbers, but the block needs 24 → 24"):
        PackedBlock(replace(weights, layers={**weights.layers, "out": (torch.zeros(23, 24), None)}))
    with pytest.raises(TypeError, match="float64"):
        PackedLinear(torch.zeros(2, 2).double(), None)


@pytest.mark.parametrize("rows", [0, 1, 59, 500])
@pytest.mark.parametrize("post_norm", [True, False])
@pytest.mark.parametrize("activation", ["gelu", "silu-gated"])
def test_whole_sequences(rows: int, post_norm: bool, activation: str, level: str) -> None:
    """More rows than a chunk, and fewer; the same bits, whatever the threads and neighbours."""
    weights = make_weights(activation=activation, post_norm=post_norm)
    block, x, mixed = PackedBlock(weights), torch.randn(rows, 24), torch.randn(rows, 24)
    h = x.double() + apply_linear(mixed.double(), weights.layers["out"])
    if post_norm:
        h = apply_norm(h, weights.norms["attention"])
        expected = apply_norm(h + feed_forward(weights, h), weights.norms["feedforward"])
    else:
        expected = h + feed_forward(weights, apply_norm(h, weights.norms["feedforward"]))
    found = block.finish(x, mixed)
    assert_close(found, expected)
    torch.set_num_threads(2)
    assert torch.equal(block.finish(x, mixed), found)
    torch.set_num_threads(1)
    for few in (1, 7, 61):
        assert torch.equal(block.finish(x[:few], mixed[:few]), found[:few])


@pytest.mark.parametrize("rows", [*range(9), 13, 64, 500])
@pytest.mark.parametrize("outputs", [1, 15, 16, 17, 63, 64, 65, 100, 1200])
@pytest.mark.parametrize("inputs", [1, 19, 300])
def test_a_product_of_any_size(rows: int, outputs: int, inputs: int) -> None:
    weight, bias, x = torch.randn(outputs, inputs), torch.randn(outputs), torch.randn(rows, inputs)
    torch.testing.assert_close(PackedLinear(weight, bias)(x), x @ weight.T + bias, atol=1e-4, rtol=1e-4)


def test_a_product_has_any_shape_and_strides() -> None:
    weight, x = torch.randn(7, 5).T, torch.randn(3, 2, 7).transpose(0, 1)
    packed = PackedLinear(weight, None)
    torch.testing.assert_close(packed(x), x @ weight.T)
    assert (packed.inputs, packed.outputs) == (7, 5)
    assert packed(torch.zeros(2, 0, 7)).shape == (2, 0, 5)
    with pytest.raises(ShapeError, match="x has rows of 6 numbers but the layer takes 7"):
        packed(torch.zeros(1, 6))


def test_a_packed_layer_is_a_copy() -> None:
    weight, bias, x = torch.randn(5, 7), torch.randn(5), torch.randn(2, 7)
    packed = PackedLinear(weight, bias)
    before = packed(x)
    weight.zero_()
    bias.zero_()
    assert torch.equal(packed(x), before)
    assert torch.equal(copy.deepcopy(packed)(x), before)


def test_a_row_does_not_depend_on_its_neighbours_or_on_threads(level: str) -> None:
    weight, bias, x = torch.randn(8000, 64), torch.randn(8000), torch.randn(64, 64)
    product = PackedLinear(weight, bias)
    together = product(x)
    torch.set_num_threads(2)
    assert torch.equal(product(x), together)
    torch.set_num_threads(1)
    for count in (1, 2, 5, 6, 7):
        assert torch.equal(product(x[:count]), together[:count])
    x[3] = torch.nan
    assert torch.equal(product(x)[4:], together[4:])
    assert product(x)[3].isnan().all()


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(inputs=st.integers(1, 40), outputs=st.integers(1, 40), rows=st.integers(0, 14))
def test_products_at_every_level(inputs: int, outputs: int, rows: int, level: str) -> None:
    weight, bias, x = torch.randn(outputs, inputs), torch.randn(outputs), torch.randn(rows, inputs)
    torch.testing.assert_close(PackedLinear(weight, bias)(x), x @ weight.T + bias, atol=1e-4, rtol=1e-4)
