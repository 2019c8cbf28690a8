"""What every encoder promises, whatever it is made of."""

import pytest
import torch
from torch import Tensor

from contracts.zoo import (
    DIM,
    ENCODER_POSITIONS,
    ENCODERS,
    LAYERS,
    influence,
    lay_out,
    make_encoder,
    ones,
    randn,
    reach,
    seen,
)
from seqloom.errors import ShapeError
from seqloom.nn.packing import _GROUP_COST as GROUP_COST

every_encoder = pytest.mark.parametrize("options", ENCODERS.values(), ids=ENCODERS)
without_checks = pytest.mark.usefixtures("as_users_run")  # of shapes: one test of each has them
close = {"rtol": 1e-9, "atol": 1e-9}


@every_encoder
def test_a_row_is_encoded_as_if_it_were_alone(options, monkeypatch):
    encoder = make_encoder(options)
    rows = [randn(length, DIM) for length in (5, 1, 8, 0, 3)]
    alone = [encoder(row[None], ones(1, len(row)), all_layers=True) for row in rows]
    for padding, group_cost in (("right", GROUP_COST), ("right", 0), ("left", 0), ("holes", GROUP_COST)):
        monkeypatch.setattr("seqloom.nn.packing._GROUP_COST", group_cost)
        x, mask = lay_out(rows, padding)
        together = encoder(x, mask, all_layers=True)
        assert not together.states[~mask].any()
        for index, own in enumerate(alone):
            torch.testing.assert_close(together.states[index, mask[index]], own.states[0], **close)
            torch.testing.assert_close(together.summary[index], own.summary[0], **close)
            for ours, theirs in zip(together.layers, own.layers, strict=True):
                torch.testing.assert_close(ours[index, mask[index]], theirs[0], **close)


@every_encoder
@without_checks
def test_documents_in_one_row_do_not_meet(options, many_groups):
    encoder = make_encoder(options)
    documents = torch.tensor([[0, 0, 0, 1, 1, 2, 2, 2], [7, 5, 5, 5, 5, 5, 5, 5], [0, 0, 0, 0, 0, 0, 0, 0]])
    mask = ones(3, 8)
    mask[0, 6], mask[1, 5:], mask[2] = False, False, False
    x = randn(3, 8, DIM)
    together = encoder(x, mask, documents=documents)
    for row, document in [(0, 0), (0, 1), (0, 2), (1, 7), (1, 5)]:
        own = mask[row] & (documents[row] == document)
        alone = encoder(x[row, own][None], ones(1, int(own.sum())))
        torch.testing.assert_close(together.states[row, own], alone.states[0], **close)
    assert not together.states[2].any()


@every_encoder
@without_checks
def test_nothing_real_gives_zeros(options):
    encoder, mask = make_encoder(options), ~ones(2, 3)
    for documents in (None, torch.zeros(2, 3, dtype=torch.long)):
        encoded = encoder(randn(2, 3, DIM), mask, documents=documents, all_layers=True)
        assert len(encoded.layers) == LAYERS + 1
        for states in (encoded.states, encoded.summary, *encoded.layers):
            assert states.shape[0] == 2
            assert not states.any()


@every_encoder
@without_checks
def test_a_position_sees_what_its_direction_allows(options):
    encoder, length = make_encoder(options), 7
    x = randn(1, length, DIM).requires_grad_()
    states = encoder(x, ones(1, length)).states
    assert torch.equal(influence(states, x), seen(length, *reach(options)))


@every_encoder
@without_checks
def test_every_parameter_gets_a_gradient(options, many_groups):
    encoder = make_encoder(options)
    states = encoder(randn(3, 5, DIM), torch.arange(5) < torch.tensor([5, 3, 4])[:, None]).states
    (states * torch.randn_like(states)).sum().backward()
    assert [name for name, p in encoder.named_parameters() if p.grad is None or not p.grad.any()] == []


@every_encoder
@without_checks
def test_permuting_a_batch_permutes_the_result(options):
    encoder = make_encoder(options)
    x, mask = randn(4, 6, DIM), torch.arange(6) < torch.tensor([6, 2, 0, 4])[:, None]
    order = torch.tensor([2, 3, 0, 1])
    ours, theirs = encoder(x[order], mask[order]), encoder(x, mask).select(order)
    torch.testing.assert_close(ours.states, theirs.states, **close)
    torch.testing.assert_close(ours.summary, theirs.summary, **close)


@every_encoder
@without_checks
def test_gradients_are_those_of_the_function(options):
    encoder = make_encoder(options | {"num_layers": 1})
    mask = torch.tensor([[True, True, True, False], [False, True, False, False], [False, False, False, False]])

    def run(x: Tensor, *_: Tensor) -> tuple[Tensor, Tensor]:
        encoded = encoder(x, mask)
        return encoded.states, encoded.summary

    inputs = (randn(3, 4, DIM).requires_grad_(), *encoder.parameters())
    assert torch.autograd.gradcheck(run, inputs, fast_mode=True)


def shuffle_gap(**options: object) -> float:
    """How far shuffling the words is from shuffling the outputs."""
    encoder = make_encoder({"family": "transformer", "num_heads": 2} | options)
    x, mask, order = randn(1, 5, DIM), ones(1, 5), torch.tensor([3, 0, 4, 1, 2])
    return (encoder(x[:, order], mask).states - encoder(x, mask).states[:, order]).abs().max().item()


norms = pytest.mark.parametrize("norm", ["layer", "rms"])
norm_positions = pytest.mark.parametrize("norm_position", ["pre", "post"])


@norms
@norm_positions
def test_without_positions_a_sentence_is_a_set(norm, norm_position):
    assert shuffle_gap(positions="none", norm=norm, norm_position=norm_position) < 1e-9


@norms
@norm_positions
@pytest.mark.parametrize("positions", ENCODER_POSITIONS.values(), ids=ENCODER_POSITIONS)
def test_with_positions_it_is_not(positions, norm, norm_position):
    assert shuffle_gap(positions=positions, norm=norm, norm_position=norm_position) > 1e-2


@without_checks
@pytest.mark.parametrize("family", ["transformer", "recurrent", "convolutional"])
class TestWrongSizes:
    def test_width(self, family):
        with pytest.raises(ShapeError, match=r"x has width 5 but this encoder takes 8"):
            make_encoder({"family": family})(randn(2, 3, 5), ones(2, 3))

    def test_mask(self, family):
        with pytest.raises(ShapeError, match=r"mask has shape \(2, 4\) but x has \(2, 3\)"):
            make_encoder({"family": family})(randn(2, 3, DIM), ones(2, 4))

    def test_documents(self, family):
        documents = torch.zeros(2, 2, dtype=torch.long)
        with pytest.raises(ShapeError, match=r"documents has shape \(2, 2\) but mask has \(2, 3\)"):
            make_encoder({"family": family})(randn(2, 3, DIM), ones(2, 3), documents=documents)


@pytest.mark.parametrize("family", ["transformer", "convolutional"])
@pytest.mark.parametrize("kind", ["learned", "one-hot"])
def test_a_sequence_past_the_table_is_refused(family, kind):
    encoder = make_encoder({"family": family, "positions": {"kind": kind, "table": 4}})
    encoder(randn(1, 4, DIM), ones(1, 4))
    with pytest.raises(ShapeError, match="a sequence has 5 tokens but the table of positions has 4"):
        encoder(randn(1, 5, DIM), ones(1, 5))
