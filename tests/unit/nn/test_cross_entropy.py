"""Rows of scores, in C and in PyTorch alike: the chunked loss, the normaliser and the largest of each row."""

import pytest
import torch
import torch.nn.functional as F
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from seqloom.errors import ShapeError
from seqloom.native.library import describe
from seqloom.nn import cross_entropy
from seqloom.nn.cross_entropy import _CHUNK, differentiate_loss_, find_top, linear_cross_entropy, normalise
from seqloom.nn.embeddings import OutputLayer


@pytest.fixture(params=["c", "pytorch"], autouse=True)
def by(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Once with the compiled functions, once without."""
    if request.param == "c" and describe().level is None:
        pytest.skip("there are no kernels here")
    if request.param == "pytorch":
        monkeypatch.setattr(cross_entropy, "serves", lambda *_, **__: False)


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
@pytest.mark.parametrize("tokens", [1, _CHUNK, 2 * _CHUNK + 7])
def test_loss_and_gradients_equal_the_plain_ones(tokens: int, smoothing: float) -> None:
    torch.manual_seed(0)
    output = OutputLayer(8, 11).double()
    torch.nn.init.normal_(output.bias)
    targets = torch.randint(0, 11, (tokens,))
    results = []
    for plain in (True, False):
        states = torch.linspace(-1, 1, tokens * 8, dtype=torch.float64).view(tokens, 8).sin().requires_grad_()
        if plain:
            loss = F.cross_entropy(output(states), targets, reduction="sum", label_smoothing=smoothing)
        else:
            loss = linear_cross_entropy(output, states, targets, smoothing=smoothing)
        gradients = torch.autograd.grad(loss * 0.5, [states, output.weight, output.bias])
        results.append((loss, *gradients))
    for expected, actual in zip(*results, strict=True):
        torch.testing.assert_close(actual, expected)


def test_nothing_but_the_loss_is_computed_without_gradients() -> None:
    output = OutputLayer(4, 5)
    states, targets = torch.randn(6, 4), torch.randint(0, 5, (6,))
    with torch.no_grad():
        loss = linear_cross_entropy(output, states, targets)
    torch.testing.assert_close(loss, F.cross_entropy(output(states), targets, reduction="sum"))


@pytest.mark.usefixtures("as_users_run")
def test_wrong_sizes_are_named() -> None:
    output = OutputLayer(4, 5)
    with pytest.raises(ShapeError, match="states has 3 tokens but targets has 2"):
        linear_cross_entropy(output, torch.zeros(3, 4), torch.zeros(2, dtype=torch.long))
    with pytest.raises(ShapeError, match=r"targets holds 5, outside the vocabulary 0 … 4"):
        linear_cross_entropy(output, torch.zeros(1, 4), torch.tensor([5]))


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.integers(1, 3), st.integers(33_000, 40_000), st.integers(1, 12), st.integers(0, 1000))
def test_the_largest_are_those_that_sorting_finds(rows, vocab_size, count, seed):
    scores = torch.randn(3 * rows, vocab_size, generator=torch.Generator().manual_seed(seed))
    scores[0, -count:] += 9.0  # some at the end, where a block is shorter
    scores[-1] = -torch.inf
    scores[-1, seed] = 0.0
    _, bounds = normalise(scores)
    scores[:, ::7] -= 5.0  # since then some have become smaller
    scores[:, seed + 1 : seed + 200] = -torch.inf
    before = scores.clone()
    values, places = find_top(scores, count, bounds)
    assert torch.equal(scores, before)
    assert torch.equal(values, scores.topk(count).values)
    assert torch.equal(scores.gather(1, places), values)
    assert all(len(set(row)) == count for row in places.tolist())


@pytest.mark.parametrize("size", [1, 5, 63, 64, 65, 130])
def test_small_vocabularies_with_many_equal_scores(size: int) -> None:
    scores = torch.randint(0, 3, (20, size)).float()
    for count in {1, min(5, size), size}:
        values, places = find_top(scores, count, normalise(scores)[1])
        assert torch.equal(values, scores.topk(count).values)
        assert torch.equal(scores.gather(1, places), values)
        assert all(len(set(row)) == count for row in places.tolist())


@pytest.mark.parametrize("size", [1, 7, 8000])
def test_the_normaliser(size: int) -> None:
    scores = 30.0 * torch.randn(9, size)
    scores[4, : size // 2] = -torch.inf
    torch.testing.assert_close(normalise(scores)[0], scores.logsumexp(-1))


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
@pytest.mark.parametrize("size", [2, 37, 8000])
def test_the_loss_and_its_gradient(size: int, smoothing: float) -> None:
    scores, bias, targets = 5.0 * torch.randn(50, size), torch.randn(size), torch.randint(0, size, (50,))
    scores[3, 0] = 200.0  # far from the others
    plain = (scores + bias).requires_grad_()
    expected = F.cross_entropy(plain, targets, reduction="sum", label_smoothing=smoothing)
    expected.backward()
    loss = differentiate_loss_(scores, bias, targets, smoothing)
    torch.testing.assert_close(loss, expected.detach())
    assert plain.grad is not None
    torch.testing.assert_close(scores, plain.grad, rtol=1e-4, atol=1e-6)


def test_scores_that_are_no_numbers_are_no_trouble() -> None:
    scores = torch.full((3, 500), torch.nan)
    scores[1, 40] = 1.0
    values, places = find_top(scores, 2, normalise(scores)[1])
    assert values.shape == places.shape == (3, 2)


def test_a_loss_that_is_no_number_says_so() -> None:
    scores = torch.randn(4, 40)
    scores[2] = torch.nan
    assert not differentiate_loss_(scores, torch.zeros(40), torch.zeros(4, dtype=torch.long), 0.1).isfinite()
