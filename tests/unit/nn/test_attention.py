"""Attention: the worked examples of the notes, and the explicit formula on any shape, mask and score."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from seqloom.errors import ShapeError
from seqloom.nn.attention import Additive, Bilinear, Dot, ScaledDot, Score, attend, attention_weights, causal_mask


def softmax(scores: list[float]) -> list[float]:
    powers = [math.exp(score) for score in scores]
    return [power / sum(powers) for power in powers]


def queries_with(scores: list[list[float]], key: Tensor) -> Tensor:
    """Queries whose dot products with the keys are these scores."""
    return torch.tensor(scores, dtype=key.dtype) @ torch.linalg.pinv(key).T


class TestWorkedExamples:
    def test_soft_dictionary_lookup(self):
        """Five keys of width 32, five values of width 64."""
        scores = [2.0, 2.4, -10.0, 1.8, -12.5]
        key, value = torch.randn(5, 32), torch.randn(5, 64)
        query = queries_with([scores], key)
        weights = attention_weights(query, key, score=Dot())[0]
        assert [round(w, 2) for w in weights.tolist()] == [0.30, 0.45, 0.0, 0.25, 0.0]
        found = attend(query, key, value, score=Dot())[0]
        assert found.shape == (64,)
        expected = sum(w * v for w, v in zip(softmax(scores), value, strict=True))
        torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5)

    @pytest.mark.parametrize(
        ("scores", "printed"),
        [
            ([112.0, 96.0, 16.0, 8.0], [0.881, 0.119, 0.000, 0.000]),
            ([92.0, 124.0, 22.0, 8.0], [0.018, 0.982, 0.000, 0.000]),
        ],
    )
    def test_scaled_scores(self, scores, printed):
        """Vaswani et al. 2017, §3.2.1: scores before the division by √64 = 8."""
        key, value = torch.randn(4, 64).double(), torch.randn(4, 64).double()
        query = queries_with([scores], key)
        weights = attention_weights(query, key)[0]
        exact = torch.tensor(softmax([score / 8 for score in scores])).double()
        torch.testing.assert_close(weights, exact, rtol=0, atol=1e-7)
        assert [round(w, 3) for w in weights.tolist()] == printed
        torch.testing.assert_close(attend(query, key, value)[0], exact @ value, rtol=0, atol=1e-6)


def make_score(kind: str, query_dim: int, key_dim: int) -> Score:
    match kind:
        case "dot":
            return Dot()
        case "scaled-dot":
            return ScaledDot()
        case "bilinear":
            return Bilinear(query_dim, key_dim).double()
        case _:
            return Additive(query_dim, key_dim, 3).double()


@st.composite
def lookups(draw: st.DrawFn) -> tuple[Tensor, Tensor, Tensor, Tensor | None, dict[str, object]]:
    """Queries, keys and values of any size; a mask and a bias that broadcast to them; a score function."""
    torch.manual_seed(draw(st.integers(0, 2**32)))
    small = st.integers(1, 5)
    batch = draw(st.lists(st.integers(1, 3), max_size=2))
    kind = draw(st.sampled_from(["dot", "scaled-dot", "bilinear", "additive"]))
    num_queries, num_keys, query_dim, value_dim = draw(small), draw(small), draw(small), draw(small)
    key_dim = query_dim if "dot" in kind else draw(small)

    def broadcastable() -> list[int]:
        shape = [size if draw(st.booleans()) else 1 for size in (*batch, num_queries, num_keys)]
        return shape[draw(st.integers(0, len(batch))) :]

    mask = torch.rand(broadcastable()) < draw(st.sampled_from([0.0, 0.3, 0.7, 1.0])) if draw(st.booleans()) else None
    options = {
        "score": make_score(kind, query_dim, key_dim),
        "causal": draw(st.booleans()),
        "bias": torch.randn(broadcastable()).double() if draw(st.booleans()) else None,
    }
    sizes = [(num_queries, query_dim), (num_keys, key_dim), (num_keys, value_dim)]
    return *(torch.randn(*batch, *size, dtype=torch.float64, requires_grad=True) for size in sizes), mask, options


def score_of(score: Score, query: Tensor, key: Tensor) -> Tensor:
    """One query, one key, one number: each formula to the letter."""
    match score:
        case Dot():
            return sum(q * k for q, k in zip(query, key, strict=True))
        case ScaledDot():
            return sum(q * k for q, k in zip(query, key, strict=True)) / math.sqrt(len(key))
        case Bilinear():
            return query @ score.weight @ key
        case Additive():
            both = torch.cat([score.query.weight, score.key.weight], dim=1) @ torch.cat([query, key])
            return score.vector.weight[0] @ torch.tanh(both + score.query.bias)


@given(lookups())
def test_attend_is_the_explicit_formula(lookup):
    query, key, value, mask, options = lookup
    batch, num_queries, num_keys = query.shape[:-2], query.shape[-2], key.shape[-2]
    allowed = torch.ones(*batch, num_queries, num_keys, dtype=torch.bool)
    if mask is not None:
        allowed = allowed & mask
    if options["causal"]:
        allowed = allowed & torch.tensor(
            [[j <= i + num_keys - num_queries for j in range(num_keys)] for i in range(num_queries)]
        )
    bias = torch.zeros_like(allowed, dtype=torch.float64)
    if options["bias"] is not None:
        bias = bias + options["bias"]

    weights = attention_weights(query, key, mask, **options)
    output = attend(query, key, value, mask, **options)
    assert not weights[~allowed].any()
    torch.testing.assert_close(weights.sum(-1), allowed.any(-1).double())

    rows = []
    flat = [t.reshape(-1, *t.shape[-2:]) for t in (query, key, value, allowed, bias)]
    for queries, keys, values, may, shift in zip(*flat, strict=True):
        for i in range(num_queries):
            power = {
                j: torch.exp(score_of(options["score"], queries[i], keys[j]) + shift[i, j])
                for j in range(num_keys)
                if may[i, j]
            }
            total = sum(power.values())
            rows.append(sum(p / total * values[j] for j, p in power.items()) + 0 * values[0])
    expected = torch.stack(rows).view_as(output)
    torch.testing.assert_close(output, expected)
    torch.testing.assert_close(weights @ value, expected)

    probe = torch.randn_like(output)
    learned = (query, key, value, *options["score"].parameters())
    for ours, theirs in zip(
        torch.autograd.grad((output * probe).sum(), learned, allow_unused=True, materialize_grads=True),
        torch.autograd.grad((expected * probe).sum(), learned, allow_unused=True, materialize_grads=True),
        strict=True,
    ):
        torch.testing.assert_close(ours, theirs)


@given(st.integers(1, 6), st.integers(1, 6))
def test_the_last_query_stands_at_the_last_key(num_queries, num_keys):
    mask = causal_mask(num_queries, num_keys)
    assert mask[-1].all()
    for i in range(num_queries):
        assert mask[i].sum() == max(0, num_keys - (num_queries - 1 - i))


@pytest.mark.usefixtures("as_users_run")
@pytest.mark.parametrize(
    ("sizes", "message"),
    [
        (((2, 3), (4, 5), (4, 5), None), "query has width 3 but key has width 5"),
        (((2, 3), (4, 3), (5, 3), None), "key has 4 positions but value has 5"),
        (((2, 3), (4, 3), (4, 3), (2, 5)), r"mask has shape \(2, 5\), which does not broadcast to \(2, 4\)"),
        (((2, 3), (4, 3), (4, 3), (7, 2, 4)), r"mask has shape \(7, 2, 4\), which does not broadcast to \(2, 4\)"),
    ],
)
def test_wrong_sizes_are_named(sizes, message):
    *tensors, mask = sizes
    with pytest.raises(ShapeError, match=message):
        attend(*(torch.randn(*size) for size in tensors), None if mask is None else torch.ones(mask, dtype=torch.bool))
