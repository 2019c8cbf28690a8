"""What is drawn, and how often."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from seqloom.decode.greedy import draw_numbers, sample_tokens, truncate
from seqloom.decode.options import SearchOptions

P = torch.tensor([[0.1, 0.4, 0.05, 0.25, 0.2]]).double()


def kept(options: SearchOptions) -> list[int]:
    return truncate(P, options)[0].nonzero().flatten().tolist()


def test_the_head_of_a_distribution():
    assert kept(SearchOptions(sample=True)) == [0, 1, 2, 3, 4]
    assert kept(SearchOptions(sample=True, top_k=2)) == [1, 3]
    assert kept(SearchOptions(sample=True, top_p=0.64)) == [1, 3]
    assert kept(SearchOptions(sample=True, top_p=0.66)) == [1, 3, 4]
    assert kept(SearchOptions(sample=True, top_p=0.01)) == [1]
    assert kept(SearchOptions(sample=True, min_p=0.5)) == [1, 3, 4]
    assert kept(SearchOptions(sample=True, top_k=3, top_p=0.5)) == [1, 3]  # of the 0.85 that are left
    assert kept(SearchOptions(sample=True, top_p=1.0, top_k=9)) == [0, 1, 2, 3, 4]


def test_tokens_are_drawn_as_often_as_they_are_probable():
    numbers = draw_numbers(7, 0)
    drawn = sample_tokens(
        P.log().repeat(40_000, 1) + 3, SearchOptions(sample=True), torch.tensor([next(numbers) for _ in range(40_000)])
    )
    torch.testing.assert_close(drawn.bincount(minlength=5) / 40_000, P[0].float(), atol=0.01, rtol=0)


def test_temperature_sharpens():
    numbers = torch.rand(40_000, generator=torch.Generator().manual_seed(0))
    drawn = sample_tokens(P.log().repeat(40_000, 1), SearchOptions(sample=True, temperature=0.5), numbers)
    expected = P[0].square() / P[0].square().sum()
    torch.testing.assert_close(drawn.bincount(minlength=5) / 40_000, expected.float(), atol=0.01, rtol=0)


@given(st.integers(0, 10_000), st.sampled_from([0.0, 0.5, 1 - 2**-53]))
def test_what_was_cut_off_is_never_drawn(seed, number):
    scores = torch.randn(1, 9, generator=torch.Generator().manual_seed(seed)) * 4
    scores[0, seed % 9] = -torch.inf
    for options in (
        SearchOptions(sample=True),
        SearchOptions(sample=True, top_k=2),
        SearchOptions(sample=True, top_p=0.5),
        SearchOptions(sample=True, min_p=0.3),
    ):
        chosen = sample_tokens(scores, options, torch.tensor([number], dtype=torch.float64))
        assert truncate(scores.double().softmax(-1), options)[0, chosen] > 0


def test_samples_of_a_line_differ_and_lines_with_other_seeds_do():
    first = [next(draw_numbers(seed, sample)) for seed, sample in ((0, 0), (0, 1), (1, 0), (11, 1), (1, 11))]
    assert len(set(first)) == 5
    assert first[0] == pytest.approx(next(draw_numbers(0, 0)), abs=0)
