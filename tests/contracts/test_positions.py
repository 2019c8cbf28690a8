"""What every position encoding promises, those of the package and one that somebody else writes."""

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from contracts.test_search import END, LONGEST, METHODS, REQUESTS, VOCAB, Whole
from contracts.zoo import DIM, ENCODER_POSITIONS, POSITIONS, make_decoder, make_encoder, ones, randn, shake
from seqloom.decoders.base import Decoder
from seqloom.decoders.transformer import TransformerDecoder
from seqloom.encoders.base import Encoder
from seqloom.encoders.transformer import TransformerEncoder
from seqloom.hub.onnx.stacks import PaddedEncoder, step_by_step
from seqloom.nn.attention import attention_weights
from seqloom.nn.feedforward import FeedForward
from seqloom.nn.multihead import SelfAttention
from seqloom.nn.packing import Packing
from seqloom.nn.positions import PositionEncoding
from seqloom.nn.transformer import Norm, TransformerBlock
from seqloom.predict.compiler import compile_network

HEADS, LENGTH = 2, 9
PRECISION = {torch.float64: {"rtol": 1e-9, "atol": 1e-9}, torch.float32: {"rtol": 1e-4, "atol": 1e-5}}
precisions = pytest.mark.parametrize("dtype", PRECISION, ids=["float64", "float32"])
windows = pytest.mark.parametrize("window", [None, 1, 3], ids=["everything", "window-1", "window-3"])


class Decay(PositionEncoding):
    """A learned decay of each head's scores with distance; farther ones count less."""

    def __init__(self) -> None:
        super().__init__()
        self.rate = nn.Parameter(torch.linspace(-1.0, 1.0, HEADS))

    def score_bias(self, distance: Tensor) -> Tensor:
        return -F.softplus(self.rate)[:, None, None] * distance.abs().unsqueeze(-3)


class Everywhere(Decay):
    """One that acts in all three places, on queries otherwise than on keys."""

    def __init__(self) -> None:
        super().__init__()
        self.shift = nn.Parameter(torch.linspace(-0.1, 0.1, DIM))

    def encode_input(self, x: Tensor, positions: Tensor, lengths: Tensor) -> Tensor:
        return x + positions.unsqueeze(-1) * self.shift

    def encode_query_key(self, query: Tensor, key: Tensor, positions: Tensor) -> tuple[Tensor, Tensor]:
        growth = (1.0 + 0.1 * positions.to(query.dtype))[..., None, None]
        return query * growth, key / growth


FOREIGN = {"decay": Decay, "everywhere": Everywhere}
foreign = pytest.mark.parametrize("kind", FOREIGN.values(), ids=FOREIGN)


def build(positions: PositionEncoding, stack: type, window: int | None) -> Encoder | Decoder:
    """What somebody does who brings an encoding along."""
    torch.manual_seed(0)
    causal = stack is TransformerDecoder
    blocks = []
    for _ in range(2):
        attention = SelfAttention(DIM, HEADS, num_kv_heads=1, causal=causal, window=window, relative=positions)
        blocks.append(
            TransformerBlock(attention, None, FeedForward(DIM, 12, "gelu"), model_dim=DIM, norm=Norm(), dropout=0.0)
        )
    return shake(stack(blocks, positions if positions.acts_on_input else None, Norm(), model_dim=DIM))


def check_steps(decoder: Decoder, dtype: torch.dtype) -> None:
    decoder, x = decoder.to(dtype), randn(3, LENGTH, DIM).to(dtype)
    whole = decoder(x, ones(3, LENGTH))
    for network in (decoder, compile_network(decoder)):
        torch.testing.assert_close(network(x, ones(3, LENGTH)), whole, **PRECISION[dtype])
        for sizes in ([1] * LENGTH, [4, 1, 4]):
            state, outputs = network.start(None, 3, LENGTH), []
            for tokens in x.split(sizes, dim=1):
                out, state = network.step(tokens, state)
                outputs.append(out)
            torch.testing.assert_close(torch.cat(outputs, dim=1), whole, **PRECISION[dtype])


def check_order(stack: Encoder | Decoder, kind: str) -> None:
    """Whether it knows in what order earlier tokens came; without positions it sees a set."""
    x = randn(1, 4, DIM)
    swapped = x[:, [1, 0, 2, 3]]
    found = [stack(one, ones(1, 4)) for one in (x, swapped)]
    ours, theirs = (one if isinstance(one, Tensor) else one.states for one in found)
    assert torch.allclose(ours[:, -1], theirs[:, -1]) == (kind == "none")


@windows
@precisions
@pytest.mark.parametrize("positions", [*POSITIONS.values(), "none"], ids=[*POSITIONS, "none"])
@torch.no_grad()
def test_steps_equal_the_whole_target(positions, dtype, window):
    if isinstance(positions, dict) and positions.get("table", 32) < LENGTH:
        positions = positions | {"table": LENGTH, "combine": "concat"}
    options = {"family": "transformer", "num_heads": HEADS, "positions": positions, "window": window}
    check_steps(make_decoder(options, source=False), dtype)


@pytest.mark.parametrize("name", [*ENCODER_POSITIONS, "none"])
@torch.no_grad()
def test_the_order_of_tokens_is_known(name):
    positions = ENCODER_POSITIONS.get(name, "none")
    options = {"family": "transformer", "num_heads": HEADS, "positions": positions}
    check_order(make_encoder(options), name)
    if name in POSITIONS:
        check_order(make_decoder(options, source=False), name)


@windows
@precisions
@foreign
@torch.no_grad()
def test_anothers_encoding_takes_steps(kind, dtype, window):
    check_steps(build(kind(), TransformerDecoder, window), dtype)


@foreign
@torch.no_grad()
def test_anothers_encoding_tells_the_order(kind):
    for stack in (TransformerEncoder, TransformerDecoder):
        check_order(build(kind(), stack, None), "another's")


@pytest.mark.parametrize("window", [None, 3])
@torch.no_grad()
def test_anothers_encoding_is_added_to_the_scores(window):
    positions, x = Decay().double(), randn(LENGTH, DIM)
    attention = SelfAttention(DIM, HEADS, window=window, relative=positions).double()
    query, key, _ = attention.in_projection(x).unflatten(-1, (3 * HEADS, -1)).transpose(0, 1).chunk(3)
    distance = torch.arange(LENGTH)[:, None] - torch.arange(LENGTH)
    near = None if window is None else distance.abs() <= 1
    expected = attention_weights(query, key, near, bias=positions.score_bias(distance))
    torch.testing.assert_close(attention.weights(x, Packing(ones(1, LENGTH)))[0], expected)


@foreign
def test_anothers_encoding_is_trained(kind):
    positions = kind()
    decoder = build(positions, TransformerDecoder, None).float().train()
    decoder(torch.randn(2, LENGTH, DIM), ones(2, LENGTH)).square().sum().backward()
    assert all(parameter.grad is not None and parameter.grad.any() for parameter in positions.parameters())
    names = [name for name, _ in decoder.named_parameters() if name.endswith(("rate", "shift"))]
    assert len(names) == len(list(positions.parameters())), "all blocks share it"


@foreign
@torch.no_grad()
def test_beams_of_anothers_encoding_have_the_scores_of_whole_answers(kind):
    tables = randn(VOCAB, DIM), randn(DIM, VOCAB), randn(LONGEST + 1, VOCAB, VOCAB)
    whole = Whole(build(kind(), TransformerDecoder, None), None, *tables)
    for line, found in enumerate(whole.find([0, 1, 2, 3], METHODS[1])):
        for hypothesis in found:
            read, given = [REQUESTS[line].start, *hypothesis.ids], len(REQUESTS[line].prefix)
            chosen = [*hypothesis.ids, END] if hypothesis.finished else [*hypothesis.ids]
            scores = whole.score(line, read)[range(len(chosen)), chosen][given:]
            torch.testing.assert_close(torch.tensor(hypothesis.token_scores).double(), scores, rtol=0, atol=1e-6)


@windows
@foreign
@torch.no_grad()
def test_graphs_for_export_know_anothers_encoding(kind, window):
    encoder, decoder = (build(kind(), stack, window).float() for stack in (TransformerEncoder, TransformerDecoder))
    x, mask = torch.randn(2, LENGTH, DIM), ones(2, LENGTH)
    torch.testing.assert_close(PaddedEncoder(encoder)(x, mask), encoder(x, mask).states, rtol=1e-4, atol=1e-5)
    steps, past, outputs = step_by_step(decoder), [torch.zeros(2, 2, 0, DIM // HEADS)] * 2, []
    for tokens in x.split([4, 1, 4], dim=1):
        out, past = steps(tokens, None, [], past)
        outputs.append(out)
    torch.testing.assert_close(torch.cat(outputs, dim=1), decoder(x, mask), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", ["rotary", "alibi", "relative", "sinusoidal", "learned"])
@torch.no_grad()
def test_hooks_of_an_encoding_run(name):
    options = {"family": "transformer", "num_heads": HEADS, "positions": POSITIONS[name]}
    decoder, x = make_decoder(options, source=False).float(), torch.randn(3, LENGTH, DIM)
    before = decoder(x, ones(3, LENGTH))
    (encoding,) = {module for module in decoder.modules() if isinstance(module, PositionEncoding)}
    encoding.register_forward_hook(lambda _, inputs, out: 2.0 * out)
    assert not torch.allclose(decoder(x, ones(3, LENGTH)), before, atol=1e-3)
    check_steps(decoder, torch.float32)
