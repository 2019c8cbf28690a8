"""What search promises over every decoder: a line for itself, scores that can be checked, one source for all beams."""

from dataclasses import dataclass, replace

import pytest
import torch
from torch import Tensor

from contracts.zoo import DECODERS, DIM, make_decoder, make_memory, ones, randn
from seqloom.decode.options import Request, SearchOptions
from seqloom.decode.record import Recorder
from seqloom.decode.search import search
from seqloom.decoders.base import Decoder
from seqloom.errors import ShapeError
from seqloom.lens.networks import open_stack
from seqloom.lens.passes import Pass
from seqloom.lens.stacks import Memory
from seqloom.predict.compiler import compile_network
from seqloom.tasks.translation import TranslationModelConfig
from seqloom.types import DecodeState, Encoded, SharedState, TokenBatch

pytestmark = pytest.mark.usefixtures("as_users_run")
every_decoder = pytest.mark.parametrize(("options", "source"), DECODERS.values(), ids=DECODERS)
every_third_at_once = pytest.mark.parametrize(
    ("options", "source"),
    [
        pytest.param(*decoder, id=name, marks=[pytest.mark.long] if number % 3 else [])
        for number, (name, decoder) in enumerate(DECODERS.items())
    ],
)
"""Every decoder; two of three are left to the long tests."""
attending = {n: o for n, (o, source) in DECODERS.items() if source and o.get("context", "attention") == "attention"}
close = {"rtol": 1e-9, "atol": 1e-9}
VOCAB, END, LONGEST = 6, 0, 7
METHODS = (
    SearchOptions(),
    SearchOptions(beam=3, nbest=2),
    SearchOptions(sample=True, top_p=0.9, nbest=2),
    SearchOptions(beam=3, nbest=2, no_repeat_ngram=2),
)
PENALISED = tuple(replace(options, repetition_penalty=1.7) for options in METHODS)
REQUESTS = [
    Request(1, 6, seed=1),
    Request(2, LONGEST, (3, 4), seed=2),
    Request(1, 5, (5,), seed=2, forbidden=((2,), (3, 4))),
    Request(1, LONGEST, seed=1, required=((5, 5),)),
]
LENGTHS = [4, 2, 5, 1]
"""Of the sources."""


@dataclass(frozen=True)
class Whole:
    """A decoder between an embedding and an output layer, with its sources."""

    decoder: Decoder
    memory: Encoded | None
    embedding: Tensor
    output: Tensor
    transitions: Tensor
    """What is added to the scores after each token at each position: a decoder that forgets would leave ties."""

    def find(self, lines: list[int], options: SearchOptions, recorder: Recorder | None = None):
        rows = torch.tensor(lines)
        memory = None if self.memory is None else self.memory.select(rows)
        state = self.decoder.start(memory, len(lines), LONGEST, attention=options.coverage_penalty > 0)
        return search(self.step, state, [REQUESTS[line] for line in lines], options, ends=(END,), recorder=recorder)

    def step(self, ids: Tensor, state: DecodeState) -> tuple[Tensor, DecodeState]:
        states, state = self.decoder.step(self.embedding[ids], state)
        return states[:, -1] @ self.output + self.transitions[state.position - 1, ids[:, -1]], state

    def score(self, line: int, ids: list[int]) -> Tensor:
        """log P after each of the tokens, by one pass over all of them."""
        memory = None if self.memory is None else self.memory.select(torch.tensor([line]))
        states = self.decoder(self.embedding[ids][None], ones(1, len(ids)), memory)
        return (states[0] @ self.output + self.transitions[range(len(ids)), ids]).log_softmax(-1)


def make_whole(options, source) -> Whole:
    decoder, memory = make_decoder(options, source), make_memory(options, source, LENGTHS)
    transitions = randn(LONGEST + 1, VOCAB, VOCAB)
    return Whole(decoder, memory, randn(VOCAB, DIM), randn(DIM, VOCAB), transitions)


@every_third_at_once
@torch.no_grad()
def test_a_line_is_found_as_if_it_were_alone(options, source):
    whole, order = make_whole(options, source), [2, 0, 3, 1]
    for method in (*METHODS, *PENALISED):
        for line, together in zip(order, whole.find(order, method), strict=True):
            (alone,) = whole.find([line], method)
            assert [h.ids for h in together] == [h.ids for h in alone]
            assert [h.score for h in together] == pytest.approx([h.score for h in alone], abs=1e-9)


@every_decoder
@torch.no_grad()
def test_scores_equal_those_of_the_whole_answer(options, source):
    whole = make_whole(options, source)
    for line, found in enumerate(whole.find([0, 1, 2, 3], METHODS[1])):
        for hypothesis in found:
            read, given = [REQUESTS[line].start, *hypothesis.ids], len(REQUESTS[line].prefix)
            chosen = [*hypothesis.ids, END] if hypothesis.finished else [*hypothesis.ids]
            scores = whole.score(line, read)[range(len(chosen)), chosen][given:]
            torch.testing.assert_close(
                torch.tensor(hypothesis.token_scores, dtype=torch.float64), scores, rtol=0, atol=1e-6
            )


@every_decoder
@torch.no_grad()
def test_beams_go_on_from_others(options, source):
    """Two lines, one beam, then three, then the same three reordered: each as if it had been read by itself."""
    decoder, memory = make_decoder(options, source), make_memory(options, source, [4, 2])
    x = randn(2, 2, DIM)
    _, state = decoder.step(x, decoder.start(memory, 2, 5))
    state = state.branch(torch.zeros(2, 3, dtype=torch.long))
    y = randn(6, 1, DIM)
    _, state = decoder.step(y, state)
    state = state.branch(torch.tensor([[2, 0, 0], [1, 1, 2]])).select(torch.tensor([1, 0]))
    z = randn(6, 2, DIM)
    ours, _ = decoder.step(z, state)
    came_from = torch.tensor([4, 4, 5, 2, 0, 0])
    lines = torch.tensor([1, 1, 1, 0, 0, 0])
    whole = torch.cat([x[lines], y[came_from], z], dim=1)
    expected = decoder(whole, ones(6, 5), None if memory is None else memory.select(lines))
    torch.testing.assert_close(ours, expected[:, 3:], **close)


def source_of(state: DecodeState) -> Encoded | SharedState | None:
    return getattr(state, "source", None) or getattr(state, "memory", None)


@pytest.mark.parametrize(
    "options", [o for o, source in DECODERS.values() if source], ids=[n for n, (_, s) in DECODERS.items() if s]
)
@torch.no_grad()
def test_beams_share_the_source(options):
    """What is kept of a source is neither copied nor moved for as long as no line leaves."""
    whole, seen = make_whole(options, source=True), []

    def step(ids, state):
        seen.append((len(ids), source_of(state)))
        return whole.step(ids, state)

    state = whole.decoder.start(whole.memory.select(torch.tensor([0])), 1, LONGEST)
    search(step, state, [Request(1, 4)], SearchOptions(beam=5, min_length=4), ends=(END,))
    assert [rows for rows, _ in seen] == [1, 5, 5, 5]
    assert all(kept is source_of(state) and kept is not None for _, kept in seen)


@pytest.mark.parametrize("options", attending.values(), ids=attending)
@torch.no_grad()
def test_attention_is_what_the_lens_sees(options):
    decoder, memory = make_decoder(options, source=True), make_memory(options, source=True, lengths=[4, 2])
    x = randn(2, 3, DIM)
    opened, expected = open_stack("decoder", decoder, "target", "source"), torch.zeros(2, 3, 4).double()
    for row, real in enumerate(memory.mask):
        p = Pass(x, watch=True)
        final = None if memory.final is None else memory.final[row]
        opened.run(p, x[row], Memory(memory.states[row, real], memory.summary[row], final))
        last = [mixer for mixer in p.mixers.values() if "cross" in mixer.sites[0] or "lookup" in mixer.sites[0]][-1]
        expected[row][:, real] = last.weights().mean(0)
    state = decoder.start(memory, 2, 3, attention=True)
    assert torch.equal(state.attention, (~memory.mask).double())
    _, state = decoder.step(x[:, :2], state)
    torch.testing.assert_close(state.attention, expected[:, :2].sum(1), **close)
    _, state = decoder.step(x[:, 2:].repeat_interleave(2, 0), state.branch(torch.zeros(2, 2, dtype=torch.long)))
    torch.testing.assert_close(state.attention, expected[:, 2].repeat_interleave(2, 0), **close)
    assert decoder.step(x[:, :1], decoder.start(memory, 2, 3))[1].attention is None


def test_a_decoder_that_does_not_attend_says_so():
    decoder = make_decoder({"family": "recurrent", "context": "initial-state"}, source=True)
    memory = make_memory({"family": "recurrent"}, source=True, lengths=[3])
    with pytest.raises(ShapeError, match="does not attend"):
        decoder.start(memory, 1, 3, attention=True)


@pytest.mark.parametrize("family", ["transformer", "recurrent", "convolutional"])
@torch.no_grad()
def test_in_single_precision_a_score_stays_within_rounding(family):
    torch.manual_seed(1)
    stack = {"family": family, "num_layers": 2, "model_dim": 32}
    config = TranslationModelConfig.model_validate({"encoder": stack, "decoder": stack})
    model = config.build(50, 50).eval()
    model = compile_network(model)
    lengths = torch.randint(1, 20, (5,))
    mask = torch.arange(20) < lengths[:, None]
    ids = torch.randint(3, 50, mask.shape) * mask

    def find(lines: list[int], options: SearchOptions):
        longest = int(lengths[lines].max())
        source = TokenBatch(ids[lines, :longest], mask[lines, :longest])
        requests = [Request(1, 10, seed=line) for line in lines]
        return search(model.step, model.start(model.encode(source), 10), requests, options, ends=(2,))

    for method in METHODS:
        for line, together in enumerate(find(list(range(5)), method)):
            (alone,) = find([line], method)
            assert [h.ids for h in together] == [h.ids for h in alone]
            assert [h.score for h in together] == pytest.approx([h.score for h in alone], abs=1e-5)
