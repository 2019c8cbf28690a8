"""A compiled copy computes what the network computes: every encoder and decoder, in each precision, where kernels run.

In bfloat16 and int8, what it computes is said by the formulas of native/bfloat16.c and native/int8.c. A sum that
differs in its last bit may be rounded to its other neighbour; then some numbers are off by what a step of an input
changes.
"""

import copy

import pytest
import torch
from torch import Tensor, nn

from contracts.zoo import DECODERS, DIM, ENCODERS, SWITCHES, make_decoder, make_encoder, make_memory, ones
from seqloom.decoders.base import Decoder
from seqloom.native.library import describe
from seqloom.native.structures import PRECISIONS
from seqloom.nn.dropout import Dropout
from seqloom.nn.feedforward import FeedForward
from seqloom.nn.positions import Rotary
from seqloom.nn.transformer import TransformerBlock
from seqloom.predict.compiled import CompiledBlock, CompiledDecoder, find_obstacle
from seqloom.predict.compiler import compile_network
from seqloom.types import Encoded

pytestmark = [
    pytest.mark.usefixtures("as_users_run"),
    pytest.mark.skipif(describe().level is None, reason=describe().reason),
]
close = {"rtol": 1e-5, "atol": 1e-5}
every_decoder = pytest.mark.parametrize(("options", "source"), DECODERS.values(), ids=DECODERS)
STEPPED = {
    name: (options, source)
    for name, (options, source) in DECODERS.items()
    if isinstance(compile_network(make_decoder(options, source).float()), CompiledDecoder)
}
"""Decoders whose steps are a kernel's."""


def make_memory32(options, source, lengths) -> Encoded | None:
    memory = make_memory(options, source, lengths)
    if memory is None:
        return None
    final = None if memory.final is None else memory.final.detach().float()
    return Encoded(memory.states.detach().float(), memory.mask, memory.summary.detach().float(), final=final)


def decode(decoder: Decoder, x: Tensor, memory: Encoded | None, sizes: list[int]) -> Tensor:
    state, outputs = decoder.start(memory, x.shape[0], x.shape[1]), []
    for tokens in x.split(sizes, dim=1):
        out, state = decoder.step(tokens, state)
        outputs.append(out)
    return torch.cat(outputs, dim=1)


@pytest.mark.parametrize("options", ENCODERS.values(), ids=ENCODERS)
@torch.inference_mode()
def test_a_compiled_encoder_computes_what_it_computes_in_the_open(options):
    encoder = make_encoder(options).float()
    compiled = compile_network(encoder)
    mask = torch.arange(7) < torch.tensor([7, 3, 0, 5])[:, None]
    x = torch.randn(4, 7, DIM)
    for ours, wanted in zip(
        compiled(x, mask, all_layers=True).layers, encoder(x, mask, all_layers=True).layers, strict=True
    ):
        torch.testing.assert_close(ours, wanted, **close)


@every_decoder
@torch.inference_mode()
def test_a_compiled_decoder_computes_what_it_computes_in_the_open(options, source):
    decoder, memory = make_decoder(options, source).float(), make_memory32(options, source, [4, 5, 1])
    compiled, x = compile_network(decoder), torch.randn(3, 6, DIM)
    whole = decoder(x, ones(3, 6), memory)
    torch.testing.assert_close(compiled(x, ones(3, 6), memory), whole, **close)
    for sizes in ([1] * 6, [2, 1, 3]):
        torch.testing.assert_close(decode(compiled, x, memory, sizes), whole, **close)
        torch.testing.assert_close(decode(decoder, x, memory, sizes), whole, **close)


def test_kernels_serve_most_transformers():
    names = {name.removesuffix("-source").removeprefix("transformer-") for name in STEPPED}
    left = {"positions-alibi", "positions-relative", "window"}
    left |= {f"window-{name}" for name in ("1", "rotary", "relative", "alibi")} | SWITCHES.keys()
    transformers = {name.removesuffix("-source").removeprefix("transformer-") for name in DECODERS if "former" in name}
    assert names == transformers - left


class Rounded(nn.Linear):
    """What a linear layer in bfloat16 or int8 computes, in the open."""

    def forward(self, x):
        return self.round_rows(x) @ self.round_weights(self.weight).T + (0.0 if self.bias is None else self.bias)


def shorten(x: Tensor) -> Tensor:
    return x.bfloat16().float()


def count_steps(x: Tensor) -> Tensor:
    low, range = x.amin(-1, keepdim=True), x.amax(-1, keepdim=True) - x.amin(-1, keepdim=True)
    return low + ((x - low) * (255 / range)).round() * (range / 255)


def count_symmetric_steps(weight: Tensor) -> Tensor:
    scale = weight.abs().amax(1, keepdim=True) / 127
    return (weight / scale).round() * scale


ROUNDED = {"bfloat16": (shorten, shorten), "int8": (count_steps, count_symmetric_steps)}


def round_layers(network: nn.Module, precision: str) -> nn.Module:
    """A copy whose blocks round as the precision says."""
    rounded = copy.deepcopy(network)
    for block in [module for module in rounded.modules() if isinstance(module, TransformerBlock)]:
        for layer in block.modules():
            if isinstance(layer, nn.Linear):
                layer.__class__ = Rounded
                layer.__dict__["round_rows"], layer.__dict__["round_weights"] = ROUNDED[precision]
    return rounded


def assert_rounded_alike(found: Tensor, expected: Tensor) -> None:
    """Most are equal; none is off by more than some steps of an input, 1/256 of up to 4, times a weight near 1."""
    difference = (found - expected).abs()
    assert difference.quantile(0.5) < 1e-5
    assert difference.max() < 0.1


NARROW = sorted(ROUNDED)
_OTHERS = ("window", "positions-alibi", "positions-relative", *SWITCHES)
_POSITIONS = ("index", "learned", "normalised", "one-hot", "rotary", "sinusoidal")


def _is_served(name: str) -> bool:
    option = name.removeprefix("transformer-")
    place = option.removeprefix("positions-")
    return "former" in name and not option.startswith(_OTHERS) and (place == option or place.startswith(_POSITIONS))


SERVED = {name for name in ENCODERS if _is_served(name)}


@pytest.mark.parametrize("precision", NARROW)
@pytest.mark.parametrize("name", sorted(SERVED))
@torch.inference_mode()
def test_a_compiled_encoder_rounds_as_its_precision_says(name, precision):
    encoder = make_encoder(ENCODERS[name]).float()
    compiled, rounded = compile_network(encoder, precision), round_layers(encoder, precision)
    mask, x = torch.arange(7) < torch.tensor([7, 3, 0, 5])[:, None], torch.randn(4, 7, DIM)
    found = compiled(x, mask).states
    assert_rounded_alike(found[mask], rounded(x, mask).states[mask])
    assert (found - encoder(x, mask).states)[mask].abs().max() < {"bfloat16": 0.1, "int8": 0.25}[precision]
    for row, length in enumerate((7, 3, 0, 5)):  # bit for bit, whatever its neighbours and its padding
        assert torch.equal(
            compiled(x[row : row + 1, :length], mask[row : row + 1, :length]).states, found[row : row + 1, :length]
        )


@pytest.mark.parametrize("precision", NARROW)
@pytest.mark.parametrize(("options", "source"), STEPPED.values(), ids=STEPPED)
@torch.inference_mode()
def test_a_compiled_decoder_rounds_as_its_precision_says(options, source, precision):
    decoder, memory = make_decoder(options, source).float(), make_memory32(options, source, [4, 5, 1])
    compiled, x = compile_network(decoder, precision), torch.randn(3, 6, DIM)
    assert isinstance(compiled, CompiledDecoder)
    expected = round_layers(decoder, precision)(x, ones(3, 6), memory)
    assert_rounded_alike(compiled(x, ones(3, 6), memory), expected)
    stepped = decode(compiled, x, memory, [1] * 6)
    assert_rounded_alike(stepped, expected)
    assert torch.equal(decode(compiled, x, memory, [2, 1, 3]), stepped)


@pytest.mark.parametrize("precision", NARROW)
def test_other_stacks_are_refused(precision):
    for name, options in ENCODERS.items():
        encoder = make_encoder(options).float()
        assert (find_obstacle(encoder) is None) == (name in SERVED)
        assert (compile_network(encoder, precision) is encoder) == (name not in SERVED)
    for name, (options, source) in DECODERS.items():
        assert (find_obstacle(make_decoder(options, source).float()) is None) == (name in STEPPED)


@torch.inference_mode()
def test_weights_over_the_source_are_those_of_the_open_network():
    options, _ = DECODERS["transformer-positions-rotary-source"]
    decoder, memory = make_decoder(options, True).float(), make_memory32(options, True, [4, 5, 1])
    x, compiled = torch.randn(3, 6, DIM), compile_network(decoder)
    torch.testing.assert_close(compiled.attend_source(x, memory), decoder.attend_source(x, memory), **close)
    states = [one.start(memory, 3, 6, attention=True) for one in (compiled, decoder)]
    for token in range(3):
        states = [
            one.step(x[:, token : token + 1], state)[1] for one, state in zip((compiled, decoder), states, strict=True)
        ]
        torch.testing.assert_close(states[0].attention, states[1].attention, **close)


@pytest.mark.parametrize("precision", PRECISIONS)
@pytest.mark.parametrize(("options", "source"), STEPPED.values(), ids=STEPPED)
@torch.inference_mode()
def test_joined_lines_are_decoded_as_alone_bit_for_bit(options, source, precision):
    decoder = compile_network(make_decoder(options, source).float(), precision)
    states = []
    for lengths, read, room in (([4, 2], 3, 8), ([9, 3, 1], 1, 6)):
        state = decoder.start(make_memory32(options, source, lengths), len(lengths), room)
        for _ in range(read):
            _, state = decoder.step(torch.randn(len(lengths), 1, DIM), state)
        state = state.branch(torch.zeros(len(lengths), 2, dtype=torch.long))
        _, state = decoder.step(torch.randn(2 * len(lengths), 1, DIM), state)
        states.append(state.branch(torch.tensor([[1, 0]]).repeat(len(lengths), 1)))
    joined = states[0].join(states[1])
    for _ in range(2):
        tokens = [torch.randn(2 * len(state.positions), 1, DIM) for state in states]
        alone = []
        for index, x in enumerate(tokens):
            for line in range(len(states[index].positions)):  # each line by itself
                own = states[index].select(torch.tensor([line]))
                alone.append(decoder.step(x[2 * line : 2 * line + 2], own)[0])
            _, states[index] = decoder.step(x, states[index])
        together, joined = decoder.step(torch.cat(tokens), joined)
        assert torch.equal(together, torch.cat(alone))


@pytest.mark.parametrize("training", [False, True])
def test_a_copy_leaves_out_only_dropout_that_does_nothing(training):
    options, source = DECODERS["transformer-positions-rotary"]
    decoder = make_decoder(options, source).float().train(training)
    found = [module for module in compile_network(decoder).modules() if isinstance(module, Dropout)]
    assert len(found) == (sum(isinstance(module, Dropout) for module in decoder.modules()) if training else 0)


class Leaning(Rotary):
    """Favours tokens far back."""

    def score_bias(self, distance):
        return distance.abs().unsqueeze(-3).float().expand(*distance.shape[:-2], self.num_heads, -1, -1)


class Sine(FeedForward):
    """Another activation."""

    def _activate(self, h):
        return h.sin()


def lean(decoder: Decoder) -> None:
    for block in decoder.blocks:
        block.attention.relative = Leaning(block.attention.head_dim)
        block.attention.relative.num_heads = block.attention.num_heads


def wave(decoder: Decoder) -> None:
    for block in decoder.blocks:
        block.feedforward.__class__ = Sine


def halve(decoder: Decoder) -> None:
    class Half(nn.Linear):
        def forward(self, x):
            return super().forward(x) / 2

    decoder.blocks[0].feedforward.expand.__class__ = Half


@pytest.mark.parametrize("change", [lean, wave, halve])
@pytest.mark.parametrize("source", [True, False])
@pytest.mark.parametrize("name", ["positions-rotary", "positions-sinusoidal", "grouped", "window-rotary"])
def test_a_subclass_is_not_taken_for_its_base(name, source, change):
    options, _ = DECODERS[f"transformer-{name}"]
    plain = make_decoder(options, source)
    special = copy.deepcopy(plain)
    change(special)
    x, memory = torch.randn(2, 5, DIM), make_memory32(options, source, [3, 4])
    with torch.inference_mode():
        compiled = compile_network(special.float())
        found = decode(compiled, x, memory, [1] * 5)
        torch.testing.assert_close(found, special(x, ones(2, 5), memory), **close)
        assert not torch.allclose(found, plain.float()(x, ones(2, 5), memory), atol=1e-3)
    with torch.enable_grad():  # where the kernels of training run
        exact = special.double()(x.double(), ones(2, 5), memory and make_double(memory))
        torch.testing.assert_close(special.float()(x, ones(2, 5), memory), exact.float(), rtol=1e-4, atol=1e-4)


def make_double(memory: Encoded) -> Encoded:
    final = None if memory.final is None else memory.final.double()
    return Encoded(memory.states.double(), memory.mask, memory.summary.double(), final=final)


@every_decoder
@pytest.mark.parametrize("precision", PRECISIONS)
@torch.inference_mode()
def test_what_is_not_a_number_stays_so(options, source, precision):
    """A row that is not a number answers with what is not one, and its neighbours do not notice."""
    decoder, memory = make_decoder(options, source).float(), make_memory32(options, source, [4, 5, 1])
    x = torch.randn(3, 4, DIM)
    spoiled = x.clone()
    spoiled[1, 1] = torch.nan
    for one in (decoder, compile_network(decoder, precision)):
        for run in (lambda x, one=one: one(x, ones(3, 4), memory), lambda x, one=one: decode(one, x, memory, [1] * 4)):
            out = run(spoiled)
            assert out[1, 1].isnan().all()
            torch.testing.assert_close(out[[0, 2]], run(x)[[0, 2]], **close)


@pytest.mark.parametrize("precision", PRECISIONS)
@torch.inference_mode()
def test_weights_that_are_not_numbers_show(precision):
    options, source = DECODERS["transformer-positions-rotary"]
    decoder = make_decoder(options, source).float()
    decoder.blocks[1].attention.in_projection.weight.data[0, 0] = torch.inf
    decoder.blocks[1].feedforward.contract.bias.data[3] = torch.nan
    compiled = compile_network(decoder, precision)
    assert isinstance(compiled.blocks[0], CompiledBlock)
    for out in (
        compiled(torch.randn(2, 3, DIM), ones(2, 3)),
        decode(compiled, torch.randn(2, 3, DIM), None, [1, 1, 1]),
    ):
        assert out.isnan().any(-1).all()
