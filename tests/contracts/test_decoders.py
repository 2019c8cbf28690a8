"""What every decoder promises, with a source and without, whatever it is made of."""

from dataclasses import replace

import pytest
import torch
from torch import Tensor

from contracts.zoo import DECODERS, DIM, influence, lay_out, make_decoder, make_memory, ones, randn, reach, seen
from seqloom.decoders.base import Decoder
from seqloom.errors import ShapeError
from seqloom.types import Encoded

every_decoder = pytest.mark.parametrize(("options", "source"), DECODERS.values(), ids=DECODERS)
with_source = pytest.mark.parametrize(
    "options",
    [o for o, source in DECODERS.values() if source],
    ids=[n for n, (_, source) in DECODERS.items() if source],
)
without_checks = pytest.mark.usefixtures("as_users_run")  # of shapes: one test of each has them
close = {"rtol": 1e-9, "atol": 1e-9}
LENGTHS = [4, 5, 0]
"""Of three sources; the last has nothing to say."""


def run_at_once(decoder: Decoder, x: Tensor, memory: Encoded | None) -> Tensor:
    return decoder(x, ones(*x.shape[:2]), memory)


def run_in_steps(decoder: Decoder, x: Tensor, memory: Encoded | None, sizes: list[int]) -> Tensor:
    state, outputs = decoder.start(memory, x.shape[0], x.shape[1]), []
    for tokens in x.split(sizes, dim=1):
        out, state = decoder.step(tokens, state)
        outputs.append(out)
    assert state.position == x.shape[1]
    return torch.cat(outputs, dim=1)


@every_decoder
@torch.no_grad()
def test_steps_equal_all_at_once(options, source):
    decoder, memory, x = make_decoder(options, source), make_memory(options, source, LENGTHS), randn(3, 6, DIM)
    expected = run_at_once(decoder, x, memory)
    for sizes in ([1] * 6, [2, 3, 1], [6]):
        torch.testing.assert_close(run_in_steps(decoder, x, memory, sizes), expected, **close)


@every_decoder
@without_checks
@torch.no_grad()
def test_selecting_rows_equals_starting_with_them(options, source):
    decoder, memory, x = make_decoder(options, source), make_memory(options, source, LENGTHS), randn(3, 4, DIM)
    rows, more = torch.tensor([2, 0, 0, 1]), randn(4, 2, DIM)
    state = decoder.start(memory, 3, 6)
    _, state = decoder.step(x[:, :3], state)
    ours, _ = decoder.step(more, state.select(rows))
    chosen = None if memory is None else memory.select(rows)
    expected = run_at_once(decoder, torch.cat([x[rows, :3], more], dim=1), chosen)[:, 3:]
    torch.testing.assert_close(ours, expected, **close)
    untouched, _ = decoder.step(x[:, 3:], state)  # what became of the selection is no concern of the rest
    torch.testing.assert_close(untouched, run_at_once(decoder, x, memory)[:, 3:], **close)


@every_decoder
@torch.no_grad()
def test_a_row_is_decoded_as_if_it_were_alone(options, source, many_groups):
    decoder, memory = make_decoder(options, source), make_memory(options, source, [4, 1, 3, 5, 0])
    rows = [randn(length, DIM) for length in (3, 7, 0, 3, 1)]
    alone = []
    for index, row in enumerate(rows):
        own = None if memory is None else memory.select(torch.tensor([index]))
        alone.append(run_at_once(decoder, row[None], own)[0])
    for padding in ("right", "left", "holes"):
        x, mask = lay_out(rows, padding)
        together = decoder(x, mask, memory)
        assert not together[~mask].any()
        for index, expected in enumerate(alone):
            torch.testing.assert_close(together[index, mask[index]], expected, **close)


@every_decoder
@without_checks
def test_no_position_sees_the_future(options, source):
    decoder, memory = make_decoder(options, source), make_memory(options, source, [4])
    x = randn(1, 7, DIM).requires_grad_()
    out = run_at_once(decoder, x, memory)
    assert torch.equal(influence(out, x), seen(7, *reach(options | {"direction": "forward"})))


@with_source
@without_checks
def test_padding_of_the_source_has_no_influence(options):
    decoder, memory, x = make_decoder(options, True), make_memory(options, True, LENGTHS), randn(3, 3, DIM)
    out = run_at_once(decoder, x, memory)
    by_states, by_summary = torch.autograd.grad(
        (out * torch.randn_like(out)).sum(), (memory.states, memory.summary), allow_unused=True
    )
    if by_states is not None:
        assert torch.equal(by_states.abs().amax(-1) > 0, memory.mask)
    if by_summary is not None:
        assert by_summary.any(-1).all()
    assert (by_states is None) == (options.get("context") in ("every-step", "initial-state"))
    other = replace(memory, states=torch.where(memory.mask[:, :, None], memory.states, randn(*memory.states.shape)))
    torch.testing.assert_close(run_in_steps(decoder, x, other, [1, 2]), out, **close)


@with_source
@without_checks
@torch.no_grad()
def test_a_source_with_nothing_in_it_is_no_reason_to_fail(options):
    decoder, memory, x = make_decoder(options, True), make_memory(options, True, LENGTHS), randn(3, 3, DIM)
    empty = replace(memory, mask=torch.zeros_like(memory.mask))
    out = run_at_once(decoder, x, empty)
    assert out.isfinite().all()
    torch.testing.assert_close(run_in_steps(decoder, x, empty, [1, 1, 1]), out, **close)


@every_decoder
@without_checks
def test_every_parameter_gets_a_gradient(options, source, many_groups):
    decoder, memory = make_decoder(options, source), make_memory(options, source, LENGTHS)
    mask = torch.arange(5) < torch.tensor([5, 3, 4])[:, None]
    out = decoder(randn(3, 5, DIM), mask, memory)
    (out * torch.randn_like(out)).sum().backward()
    assert [name for name, p in decoder.named_parameters() if p.grad is None or not p.grad.any()] == []


@every_decoder
@without_checks
def test_gradients_are_those_of_the_function(options, source):
    options = options | {"num_layers": 1}
    decoder, memory = make_decoder(options, source), make_memory(options, source, [2, 0, 3])
    mask = torch.tensor([[True, True, True, False], [False, True, False, False], [False, False, False, False]])
    inputs = (randn(3, 4, DIM).requires_grad_(), *decoder.parameters())

    def run(x: Tensor, *_: Tensor) -> Tensor:
        return decoder(x, mask, memory)

    if memory is not None:
        inputs += (memory.states, memory.summary, *([] if memory.final is None else [memory.final]))
    assert torch.autograd.gradcheck(run, inputs, fast_mode=True)


@every_decoder
@without_checks
def test_documents_in_one_row_do_not_meet(options, source, many_groups):
    decoder, x = make_decoder(options, source), randn(2, 8, DIM)
    documents = torch.tensor([[0, 0, 0, 1, 1, 2, 2, 2], [7, 5, 5, 5, 5, 5, 5, 5]])
    if source:
        with pytest.raises(ShapeError, match="documents cannot be given with a source"):
            decoder(x, ones(2, 8), make_memory(options, source, [3, 2]), documents=documents)
        return
    together = decoder(x, ones(2, 8), documents=documents)
    for row, document in [(0, 0), (0, 1), (0, 2), (1, 7), (1, 5)]:
        own = documents[row] == document
        torch.testing.assert_close(together[row, own], run_at_once(decoder, x[row, own][None], None)[0], **close)


@without_checks
@pytest.mark.parametrize("family", ["transformer", "recurrent", "convolutional"])
class TestWrongSizes:
    def test_width(self, family):
        with pytest.raises(ShapeError, match="x has width 5 but this decoder takes 8"):
            make_decoder({"family": family}, False)(randn(2, 3, 5), ones(2, 3))

    def test_mask(self, family):
        with pytest.raises(ShapeError, match=r"mask has shape \(2, 4\) but x has \(2, 3\)"):
            make_decoder({"family": family}, False)(randn(2, 3, DIM), ones(2, 4))

    def test_a_source_is_missing(self, family):
        decoder = make_decoder({"family": family}, True)
        for run in (lambda: decoder(randn(2, 3, DIM), ones(2, 3)), lambda: decoder.start(None, 2, 3)):
            with pytest.raises(ShapeError, match="memory is missing"):
                run()

    def test_a_source_is_unexpected(self, family):
        decoder, memory = make_decoder({"family": family}, False), make_memory({"family": family}, True, [3, 1])
        for run in (lambda: decoder(randn(2, 3, DIM), ones(2, 3), memory), lambda: decoder.start(memory, 2, 3)):
            with pytest.raises(ShapeError, match="memory is given"):
                run()

    def test_rows_of_the_source(self, family):
        decoder, memory = make_decoder({"family": family}, True), make_memory({"family": family}, True, [3, 1])
        for run in (lambda: decoder(randn(3, 3, DIM), ones(3, 3), memory), lambda: decoder.start(memory, 3, 3)):
            with pytest.raises(ShapeError, match="memory has 2 rows but the target has 3"):
                run()


@torch.no_grad()
def test_a_step_past_the_cache_is_refused():
    decoder = make_decoder({"family": "transformer"}, False)
    _, state = decoder.step(randn(2, 3, DIM), decoder.start(None, 2, 4))
    with pytest.raises(ShapeError, match="the cache has room for 4 tokens but 5 were given"):
        decoder.step(randn(2, 2, DIM), state)


@torch.no_grad()
@pytest.mark.parametrize("family", ["transformer", "convolutional"])
@pytest.mark.parametrize("kind", ["learned", "one-hot"])
def test_a_step_past_the_table_of_positions_is_refused(family, kind):
    decoder = make_decoder({"family": family, "positions": {"kind": kind, "table": 4}}, False)
    _, state = decoder.step(randn(2, 4, DIM), decoder.start(None, 2, 8))
    with pytest.raises(ShapeError, match="a sequence has 5 tokens but the table of positions has 4"):
        decoder.step(randn(2, 1, DIM), state)


@every_decoder
@without_checks
@pytest.mark.parametrize("beams", [(1, 1), (3, 3), (1, 2)])
@torch.no_grad()
def test_joined_lines_go_on_as_separate_ones(options, source, beams):
    """Lines at different positions, with sources of different lengths, room of different sizes and their own beams."""
    decoder = make_decoder(options, source)
    states, alone, fed = [], [], []
    for lengths, read, room, width in (([4, 2], 3, 6, beams[0]), ([1, 3], 1, 7, beams[1])):
        state = decoder.start(make_memory(options, source, lengths), 2, room)
        _, state = decoder.step(randn(2, read, DIM), state)
        if width > 1:
            state = state.branch(torch.randint(state.width, (2, width)))
            _, state = decoder.step(randn(2 * width, 1, DIM), state)
            state = state.branch(torch.randint(width, (2, width)))
        states.append(state)
    joined = states[0].join(states[1])
    assert joined.positions == states[0].positions + states[1].positions
    assert joined.width == max(beams)
    for _ in range(2):
        tokens = [randn(2 * state.width, 1, DIM) for state in states]
        fed = [_repeat_last_beam(x, state.width, joined.width) for x, state in zip(tokens, states, strict=True)]
        alone = []
        for index, x in enumerate(tokens):
            out, states[index] = decoder.step(x, states[index])
            alone.append(_repeat_last_beam(out, states[index].width, joined.width))
        together, joined = decoder.step(torch.cat(fed), joined)
        torch.testing.assert_close(together, torch.cat(alone), **close)
    kept = joined.select(torch.tensor([3, 0]))
    assert kept.positions == (joined.positions[3], joined.positions[0])


def _repeat_last_beam(x: Tensor, width: int, wanted: int) -> Tensor:
    """Rows of lines with `width` beams, with copies of the last beam up to as many as are wanted."""
    return x.unflatten(0, (-1, width))[:, torch.arange(wanted).clamp(max=width - 1)].flatten(0, 1)
