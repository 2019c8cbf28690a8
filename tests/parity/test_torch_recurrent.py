"""Parity with `nn.RNN`, `nn.GRU` and `nn.LSTM`: stacked, two-way, packed; and a decoder against its formula."""

import pytest
import torch
from torch import nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from parity.matching import assert_same, copy, mask_of
from seqloom.decoders.recurrent import RecurrentDecoder
from seqloom.encoders.recurrent import RecurrentEncoder
from seqloom.nn.attention import Bilinear
from seqloom.types import Encoded

DIM = 8
CELLS = {"rnn": nn.RNN, "gru": nn.GRU, "lstm": nn.LSTM}


@pytest.mark.parametrize("lengths", [[5, 5, 5], [3, 6, 1, 6]], ids=str)
@pytest.mark.parametrize("num_layers", [1, 3])
@pytest.mark.parametrize("direction", ["both", "forward"])
@pytest.mark.parametrize("cell", CELLS)
def test_encoder(cell, direction, num_layers, lengths):
    torch.manual_seed(0)
    two_ways = direction == "both"
    theirs = CELLS[cell](DIM, DIM // (1 + two_ways), num_layers, batch_first=True, bidirectional=two_ways)
    ours = RecurrentEncoder(
        cell, model_dim=DIM, num_layers=num_layers, direction=direction, residual=False, dropout=0.0
    )
    pairs = copy(theirs, ours)  # both list their parameters layer by layer, forwards before backwards
    mask = mask_of(lengths)
    x = torch.randn(*mask.shape, DIM, requires_grad=True)
    packed = pack_padded_sequence(x, torch.tensor(lengths), batch_first=True, enforce_sorted=False)
    states, last = theirs(packed)
    expected, _ = pad_packed_sequence(states, batch_first=True)
    encoded = ours(x, mask)
    assert_same(encoded.states, expected, [x], pairs, mask)
    final = last[0] if cell == "lstm" else last
    torch.testing.assert_close(encoded.summary, torch.cat(list(final[-(1 + two_ways) :]), dim=-1), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("cell", CELLS)
def test_backward_is_forward_over_the_reversed_sequence(cell):
    torch.manual_seed(0)
    theirs = CELLS[cell](DIM, DIM, 2, batch_first=True)
    ours = RecurrentEncoder(cell, model_dim=DIM, num_layers=2, direction="backward", residual=False, dropout=0.0)
    pairs = copy(theirs, ours)
    x, mask = torch.randn(3, 5, DIM, requires_grad=True), mask_of([5, 5, 5])
    assert_same(ours(x, mask).states, theirs(x.flip(1))[0].flip(1), [x], pairs, mask)


def test_attention_decoder_is_its_formula():
    """Luong et al. 2015, §3, with `nn.LSTMCell`: h_t, then a = softmax(hᵀWs), c = Σ a s, then tanh(W[h; c])."""
    torch.manual_seed(0)
    decoder = RecurrentDecoder(
        "lstm",
        model_dim=DIM,
        num_layers=1,
        memory_dim=6,
        context="attention",
        score=Bilinear(DIM, 6),
        residual=False,
        dropout=0.0,
    )
    cell = nn.LSTMCell(DIM, DIM)
    copy(decoder.layers[0].cell, cell)
    source, mask = mask_of([4, 2]), mask_of([3, 3])
    memory = Encoded(torch.randn(2, 4, 6), source, torch.randn(2, 6))
    x = torch.randn(2, 3, DIM)
    hidden, carried = torch.tanh(decoder.bridge(memory.summary)).chunk(2, dim=1)
    expected = []
    for t in range(3):
        hidden, carried = cell(x[:, t], (hidden, carried))
        contexts = []
        for row, length in enumerate([4, 2]):
            states = memory.states[row, :length]
            weights = torch.softmax(states @ decoder.lookup.score.weight.T @ hidden[row], dim=0)
            contexts.append(weights @ states)
        expected.append(torch.tanh(decoder.combine(torch.cat([hidden, torch.stack(contexts)], dim=1))))
    torch.testing.assert_close(decoder(x, mask, memory), torch.stack(expected, dim=1), rtol=1e-5, atol=1e-5)
