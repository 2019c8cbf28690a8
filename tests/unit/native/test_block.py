"""Blocks in use: what plain PyTorch computes in double precision, row by row the same bits."""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from blocks import make_weights
from seqloom.errors import ShapeError
from seqloom.native.block import BlockWeights, NormWeights, PackedBlock, PackedStack
from seqloom.native.structures import PRECISIONS

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
    weights: Tensor | None = None

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
        x = self.x.unsqueeze(1) if self.x.dim() == 2 else self.x
        found = PackedStack([block]).step(x, [self.cache], self.positions, self.slots, sources, bias, self.weights)
        return found.view(self.x.shape)


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
            if weights.normalise_qk:
                parts = torch.cat([F.rms_norm(parts[:-groups], (dim,), eps=1.1920929e-7), parts[-groups:]])
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
    normalise_qk=st.booleans(),
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
@pytest.mark.parametrize("precision", PRECISIONS)
@pytest.mark.parametrize("beams", [1, 3])
def test_a_line_answers_as_it_does_alone(beams: int, precision: str, level: str) -> None:
    """Bit for bit, whatever the positions, the padding and the number of the others, and of threads."""
    sizes = {"heads": 8, "kv_heads": 4, "head_dim": 32, "model_dim": 256, "hidden_dim": 700}
    weights = make_weights(**sizes, source=True, rotary=True, precision=precision)  # type: ignore[arg-type]
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


@pytest.mark.usefixtures("two_threads")
@pytest.mark.parametrize("precision", PRECISIONS)
def test_several_tokens_are_read_as_one_after_the_other(precision: str, level: str) -> None:
    """Bit for bit; the weights over the source, too."""
    weights = make_weights(source=True, rotary=True, normalise_qk=True, precision=precision)
    s, block = make_situation(weights, [4, 0, 2], beams=2, padded=True), PackedBlock(weights)
    x, cache, slots = torch.randn(6, 3, 24), s.cache.clone(), s.slots.clone()  # type: ignore[union-attr]
    together = replace(s, x=x, weights=torch.empty(6, 3, 7))
    out = together.step(block)
    alone = replace(s, cache=cache, slots=slots, weights=torch.empty(6, 1, 7))
    for token in range(3):
        alone.x, alone.positions = x[:, token], s.positions + np.int32(token)
        assert torch.equal(alone.step(block), out[:, token])
        assert torch.equal(alone.weights[:, 0], together.weights[:, token])  # type: ignore[index]
        for line, position in enumerate(alone.positions):  # as the cache of a decoder does
            slots[line, :, position] = torch.arange(2)
    assert torch.equal(cache.nan_to_num(), s.cache.nan_to_num())


def test_the_weights_over_the_source_are_the_mean_of_the_heads() -> None:
    weights = make_weights(source=True, post_norm=True)
    s, captured, plain = make_situation(weights, [0], padded=True), [], attend
    s.weights = torch.empty(1, 1, 7)
    s.step(PackedBlock(weights))

    def look(query: Tensor, keys: Tensor, values: Tensor, bias: Tensor | None = None) -> Tensor:
        if bias is not None:
            captured.append((keys @ query / len(query) ** 0.5 + bias.double()).softmax(0))
        return plain(query, keys, values, bias)

    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(compute_step.__globals__, "attend", look)
        compute_step(weights, s)
    assert_close(s.weights[0, 0], torch.stack(captured).mean(0))


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
        {"weights": torch.zeros(4, 1, 6)},
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


@pytest.mark.parametrize("rows", [0, 1, 59, 500])
@pytest.mark.parametrize("post_norm", [True, False])
@pytest.mark.parametrize(("activation", "source"), [("gelu", False), ("silu-gated", True)])
def test_whole_sequences(rows: int, post_norm: bool, activation: str, source: bool, level: str) -> None:
    """More rows than a chunk, and fewer; the same bits, whatever the threads and neighbours."""
    weights = make_weights(activation=activation, post_norm=post_norm, source=source)
    block, x, mixed = PackedBlock(weights), torch.randn(rows, 24), torch.randn(rows, 24)
    h = x.double() + apply_linear(mixed.double(), weights.layers["cross_out" if source else "out"])
    if post_norm:
        h = apply_norm(h, weights.norms["cross" if source else "attention"])
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


@pytest.mark.parametrize("precision", PRECISIONS)
def test_whole_sequences_in_any_precision(precision: str, level: str) -> None:
    """A row has the same bits alone and among so many that each thread takes some; it is near float32's."""
    weights = make_weights(model_dim=48, head_dim=12, hidden_dim=100, activation="gelu")
    x, mixed = torch.randn(600, 48), torch.randn(600, 48)
    block = PackedBlock(replace(weights, precision=precision))
    torch.set_num_threads(2)
    found = block.finish(x, mixed)
    torch.set_num_threads(1)
    assert torch.equal(
        torch.cat([block.finish(x[n : n + 1], mixed[n : n + 1]) for n in range(0, 600, 100)]), found[::100]
    )
    exact = PackedBlock(weights).finish(x, mixed)
    assert (found - exact).abs().max() < {"float32": 1e-5, "bfloat16": 0.05, "int8": 0.2}[precision]
