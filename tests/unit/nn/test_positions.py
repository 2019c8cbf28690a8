"""Positions against their formulas, computed another way."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from seqloom.errors import ShapeError
from seqloom.nn.positions import (
    IndexPositions,
    InputPositions,
    LearnedPositions,
    NormalisedPositions,
    OneHotPositions,
    RelativeBias,
    Rotary,
    SinusoidalPositions,
    alibi_slopes,
)

POSITIONS = torch.arange(5)
LENGTHS = torch.full((5,), 5)


@pytest.mark.parametrize("base", [10_000.0, 100.0])
@pytest.mark.parametrize("width", [2, 6, 16])
def test_sinusoidal_is_the_formula(width, base):
    """Vaswani et al. 2017, §3.5, in float64 and one number at a time."""
    places = torch.tensor([0, 1, 2, 17, 511])
    table = SinusoidalPositions(width, base)(places, places)
    for k, row in zip(places.tolist(), table.tolist(), strict=True):
        for i in range(width // 2):
            angle = k / base ** (2 * i / width)
            assert row[2 * i] == pytest.approx(math.sin(angle), abs=5e-5)
            assert row[2 * i + 1] == pytest.approx(math.cos(angle), abs=5e-5)


@given(st.integers(0, 2000), st.integers(0, 2000), st.integers(0, 50))
def test_a_shift_of_a_sinusoidal_code_is_a_rotation(first, second, shift):
    """The dot product of two codes depends on their distance alone."""
    encode = SinusoidalPositions(8).double()
    places = torch.tensor([first, second, first + shift, second + shift])
    a, b, c, d = encode(places, places)
    torch.testing.assert_close(a @ b, c @ d)


@given(st.integers(0, 2**32), st.sampled_from([2, 4, 10]), st.sampled_from([10_000.0, 50.0]))
def test_rotary_is_multiplication_by_a_complex_number(seed, width, base):
    torch.manual_seed(seed)
    x, places = torch.randn(3, 2, width).double(), torch.tensor([0, 7, 200])
    rotated = Rotary(width, base).double()(x, places)
    half = width // 2
    for n, head in ((n, head) for n in range(3) for head in range(2)):
        for i in range(half):
            number = complex(x[n, head, i], x[n, head, i + half])
            number *= complex(math.cos(places[n] * base ** (-i / half)), math.sin(places[n] * base ** (-i / half)))
            assert rotated[n, head, i].item() == pytest.approx(number.real, abs=1e-4)
            assert rotated[n, head, i + half].item() == pytest.approx(number.imag, abs=1e-4)


@given(st.integers(0, 300), st.integers(0, 300), st.integers(0, 300))
def test_rotary_scores_depend_on_distance(m, n, shift):
    rotary, q, k = Rotary(8).double(), torch.randn(1, 1, 8).double(), torch.randn(1, 1, 8).double()

    def score(query_position: int, key_position: int) -> torch.Tensor:
        return (rotary(q, torch.tensor([query_position])) * rotary(k, torch.tensor([key_position]))).sum()

    torch.testing.assert_close(score(m, n), score(m + shift, n + shift))


def test_alibi_slopes_of_eight_heads_are_the_published_ones():
    """Press et al. 2022, §3: 1/2, 1/4, …, 1/256 for eight heads."""
    assert alibi_slopes(8).tolist() == [1 / 2, 1 / 4, 1 / 8, 1 / 16, 1 / 32, 1 / 64, 1 / 128, 1 / 256]


@pytest.mark.parametrize("num_heads", [1, 2, 4, 16, 32])
def test_alibi_slopes_are_a_geometric_sequence(num_heads):
    """It starts at 2^(−8/n) and has that ratio."""
    expected = [(2 ** (-8 / num_heads)) ** h for h in range(1, num_heads + 1)]
    torch.testing.assert_close(alibi_slopes(num_heads), torch.tensor(expected))


@pytest.mark.parametrize("num_heads", [3, 6, 12, 20])
def test_alibi_slopes_between_powers_of_two(num_heads):
    """The slopes of the power of two below, then every other one of the power above, from its first."""
    below = 2 ** int(math.log2(num_heads))
    expected = torch.cat([alibi_slopes(below), alibi_slopes(2 * below)[0::2][: num_heads - below]])
    assert torch.equal(alibi_slopes(num_heads), expected)


def test_naive_positions():
    assert IndexPositions()(POSITIONS, LENGTHS).tolist() == [[0.0], [1.0], [2.0], [3.0], [4.0]]
    assert NormalisedPositions()(POSITIONS, LENGTHS).tolist() == [[0.0], [0.25], [0.5], [0.75], [1.0]]
    assert NormalisedPositions()(torch.tensor([0]), torch.tensor([1])).tolist() == [[0.0]]
    assert torch.equal(OneHotPositions(7)(POSITIONS, LENGTHS), torch.eye(7)[:5])


def test_a_learned_table_is_one_hot_and_a_linear_map():
    learned = LearnedPositions(7, 4)
    assert torch.equal(learned(POSITIONS, LENGTHS), OneHotPositions(7)(POSITIONS, LENGTHS) @ learned.table.weight)


@pytest.mark.parametrize(
    "positions",
    [IndexPositions(), NormalisedPositions(), OneHotPositions(5), SinusoidalPositions(6), LearnedPositions(5, 6)],
    ids=lambda p: type(p).__name__,
)
def test_sum_and_concatenation(positions):
    """x + p with p filled up by zeros, and W[x; p] + b."""
    x, p = torch.randn(5, 6), positions(POSITIONS, LENGTHS)
    filled = torch.cat([p, torch.zeros(5, 6 - p.shape[1])], dim=1)
    torch.testing.assert_close(InputPositions(positions, 6, "sum").encode_input(x, POSITIONS, LENGTHS), x + filled)
    joined = InputPositions(positions, 6, "concat")
    w_x, w_p = joined.project.weight.split([6, p.shape[1]], dim=1)
    expected = x @ w_x.T + p @ w_p.T + joined.project.bias
    torch.testing.assert_close(joined.encode_input(x, POSITIONS, LENGTHS), expected)


@pytest.mark.parametrize("positions", [OneHotPositions(4), LearnedPositions(4, 6)], ids=lambda p: type(p).__name__)
def test_a_position_outside_the_table_is_refused(positions):
    with pytest.raises(ShapeError, match="a sequence has 5 tokens but the table of positions has 4"):
        positions(POSITIONS, LENGTHS)


@pytest.mark.parametrize(
    ("run", "message"),
    [
        (lambda: SinusoidalPositions(5), "width = 5 is odd"),
        (lambda: Rotary(3), "head_dim = 3 is odd"),
        (
            lambda: InputPositions(OneHotPositions(9), 8, "sum"),
            "positions have width 9, more than model_dim = 8",
        ),
    ],
)
def test_widths_that_do_not_fit_are_refused(run, message):
    with pytest.raises(ShapeError, match=message):
        run()


class TestRelativeBias:
    """Raffel et al. 2020, §2.1: near distances have a number of their own, far ones share, up to a largest."""

    @pytest.mark.parametrize("causal", [True, False])
    def test_it_depends_on_the_distance_alone(self, causal):
        bias = RelativeBias(3, 8, 20, causal=causal)(torch.arange(3, 9)[:, None] - torch.arange(9))
        assert bias.shape == (3, 6, 9)
        torch.testing.assert_close(bias[:, 1:, 1:], bias[:, :-1, :-1])

    def test_buckets_of_an_encoder(self):
        bucket = RelativeBias(1, 8, 8, causal=False).bucket
        assert bucket(torch.tensor([0, 1, 2, 3, 4, 7, 8, 50])).tolist() == [0, 1, 2, 2, 3, 3, 3, 3]
        assert bucket(torch.tensor([-1, -2, -50])).tolist() == [5, 6, 7]

    def test_buckets_of_a_decoder(self):
        bucket = RelativeBias(1, 8, 16, causal=True).bucket
        assert bucket(torch.tensor([0, 3, 4, 5, 6, 15, 16, 99])).tolist() == [0, 3, 4, 4, 5, 7, 7, 7]
        assert bucket(torch.tensor([-5])).tolist() == [0]  # the future, which is masked


def test_sines_before_cosines_are_the_same_numbers():
    places = torch.arange(7)
    pairs, halves = (SinusoidalPositions(6, order=order)(places, places) for order in ("pairs", "halves"))
    torch.testing.assert_close(torch.cat([pairs[:, ::2], pairs[:, 1::2]], dim=1), halves)
