"""The largest scores, as torch finds them."""

import torch
from hypothesis import given
from hypothesis import strategies as st

from weft.decode.top import find_top


@given(st.integers(1, 3), st.integers(33_000, 40_000), st.integers(1, 12), st.integers(0, 1000))
def test_it_finds_what_sorting_finds(rows, vocab_size, count, seed):
    scores = torch.randn(3 * rows, vocab_size, generator=torch.Generator().manual_seed(seed))
    scores[0, -count:] += 9.0  # some in what is left after the last whole block
    scores[-1] = -torch.inf
    scores[-1, seed] = 0.0
    values, places = find_top(scores, count)
    assert torch.equal(values, scores.topk(count).values)
    assert torch.equal(scores.gather(1, places), values)
    assert all(len(set(row)) == count for row in places[:-1].tolist())
