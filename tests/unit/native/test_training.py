"""The kernels of training beside their open forms: odd sizes, nothing at all, and what is no number."""

from itertools import accumulate

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch import Tensor

from seqloom.native import structures
from seqloom.native.attention import AttentionPlan, attend, differentiate
from seqloom.native.library import (
    activate,
    cross_entropy_,
    differentiate_activation_,
    drop,
    find_top,
    normalise,
)

pytestmark = pytest.mark.usefixtures("kernels")
OPEN = {
    "relu": F.relu,
    "gelu": F.gelu,
    "gelu-tanh": lambda h: F.gelu(h, approximate="tanh"),
    "silu": F.silu,
    "tanh": torch.tanh,
    "squared-relu": lambda h: F.relu(h).square(),
}
ODD = [0.0, -0.0, 1e-30, -1e-30, 50.0, -50.0, 1e4, -1e4, 1e30, -1e30, torch.inf, -torch.inf, torch.nan]
quick = settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=30)


def make_plan(lengths: list[int], others: list[int] | None = None, **options: object) -> AttentionPlan:
    def lay(counts: list[int]) -> list[np.ndarray]:
        return [np.array([0, *accumulate(counts)][:-1], np.int64), np.array(counts, np.int64)]

    settled = {"heads": 2, "groups": 1, "dim": 8, "sees": "everything", "normalised": False, "rotary": None}
    return AttentionPlan(*lay(lengths), *lay(others or lengths), **settled | {"rate": 0.0, "seed": 0} | options)  # type: ignore[arg-type]


def mix_openly(query: Tensor, memory: Tensor | None, plan: AttentionPlan) -> Tensor:
    """The same by the equations, in double precision."""
    inner = plan.heads * plan.dim
    queries = query[:, :inner].unflatten(1, (plan.heads, plan.dim))
    keys, values = (query[:, inner:] if memory is None else memory).unflatten(1, (2, plan.groups, plan.dim)).unbind(1)
    outs = []
    for start, count, first, number in zip(*plan[:4], strict=True):
        q, k, v = queries[start : start + count], keys[first : first + number], values[first : first + number]
        if plan.normalised:
            q, k = (x * (x.square().mean(-1, keepdim=True) + torch.finfo(torch.float32).eps).rsqrt() for x in (q, k))
        if plan.rotary is not None:
            q, k = (rotate(x, *plan.rotary) for x in (q, k))
        k, v = (x.repeat_interleave(plan.heads // plan.groups, 1) for x in (k, v))
        scores = torch.einsum("qhd,khd->hqk", q, k) * plan.dim**-0.5
        distance = torch.arange(number) - torch.arange(count)[:, None]
        if plan.sees != "everything":
            scores = scores.masked_fill(distance > 0 if plan.sees == "past" else distance < 0, -torch.inf)
        weights = scores.softmax(-1).nan_to_num() if number else scores
        outs.append(torch.einsum("hqk,khd->qhd", weights, v).flatten(1))
    return torch.cat(outs)


def rotate(x: Tensor, cosines: Tensor, sines: Tensor) -> Tensor:
    first, second = x.chunk(2, -1)
    c, s = (t[: len(x), None].double() for t in (cosines, sines))
    return torch.cat([first * c - second * s, second * c + first * s], -1)


def assert_attention(query: Tensor, memory: Tensor | None, plan: AttentionPlan) -> None:
    exact = [None if t is None else t.double().requires_grad_() for t in (query, memory)]
    assert exact[0] is not None
    expected = mix_openly(exact[0], exact[1], plan)
    grad = torch.randn(expected.shape)
    expected.backward(grad.double())
    out, normalisers = attend(query, memory, plan)
    torch.testing.assert_close(out.double(), expected.detach(), rtol=1e-4, atol=1e-4)
    for ours, theirs in zip(differentiate(query, memory, normalisers, grad, plan), exact, strict=True):
        if ours is not None and theirs is not None:
            change = torch.zeros_like(theirs) if theirs.grad is None else theirs.grad
            torch.testing.assert_close(ours.double(), change, rtol=1e-3, atol=1e-3)


@quick
@given(
    lengths=st.lists(st.integers(0, 40), min_size=1, max_size=4),
    groups=st.sampled_from([1, 2, 4]),
    dim=st.integers(1, 40),
    sees=st.sampled_from(structures.SEEN),
    normalised=st.booleans(),
    rotary=st.booleans(),
)
def test_attention(lengths: list[int], groups: int, dim: int, sees: str, normalised: bool, rotary: bool) -> None:
    dim = 2 * dim if rotary else dim
    angles = torch.randn(40, dim // 2)
    turns = (angles.cos(), angles.sin()) if rotary else None
    plan = make_plan(lengths, heads=4, groups=groups, dim=dim, sees=sees, normalised=normalised, rotary=turns)
    assert_attention(torch.randn(sum(lengths), (4 + 2 * groups) * dim), None, plan)


@pytest.mark.parametrize("dim", [1, 7, 8, 31, 64, 100, 256])
def test_attention_of_every_width(dim: int, level: str) -> None:
    assert_attention(torch.randn(30, 4 * dim), None, make_plan([25, 5], dim=dim, sees="past"))


@quick
@given(st.lists(st.tuples(st.integers(0, 30), st.integers(0, 30)), min_size=1, max_size=4))
def test_attention_to_other_sequences(pairs: list[tuple[int, int]]) -> None:
    targets, sources = (list(side) for side in zip(*pairs, strict=True))
    memory = torch.randn(sum(sources), 16)
    assert_attention(torch.randn(sum(targets), 16), memory, make_plan(targets, sources))


@pytest.mark.parametrize("sees", structures.SEEN)
@pytest.mark.parametrize("odd", [torch.nan, torch.inf])
@pytest.mark.parametrize("part", ["query", "key", "value"])
def test_what_is_no_number_reaches_only_those_who_see_it(sees: str, odd: float, part: str) -> None:
    lengths, place = [9, 20, 30], 12  # the place is the fourth of the second sequence
    plan, query = make_plan(lengths, sees=sees), torch.randn(59, 32)
    before, normalisers = attend(query, None, plan)
    grads = differentiate(query, None, normalisers, torch.ones_like(before), plan)[0]
    query[place, {"query": 0, "key": 16, "value": 24}[part]] = odd
    after, normalisers = attend(query, None, plan)
    reached = torch.zeros(59, dtype=torch.bool)
    reached[place] = True
    if part != "query":
        reached[{"everything": slice(9, 29), "past": slice(place, 29), "future": slice(9, place + 1)}[sees]] = True
    assert torch.equal(after[~reached], before[~reached])
    if not (part == "key" and odd == torch.inf):  # then a score is infinite, of either sign
        assert not after[reached].isfinite().all(1).any()
    changed = differentiate(query, None, normalisers, torch.ones_like(before), plan)[0]
    assert torch.equal(changed[:9], grads[:9])
    assert torch.equal(changed[29:], grads[29:])


def test_a_gradient_that_is_no_number_reaches_only_what_was_seen() -> None:
    plan, query, grad = make_plan([20], sees="past"), torch.randn(20, 32), torch.randn(20, 16)
    _, normalisers = attend(query, None, plan)
    clean = differentiate(query, None, normalisers, grad, plan)[0]
    grad[7] = torch.nan
    changed = differentiate(query, None, normalisers, grad, plan)[0]
    assert torch.equal(changed[8:], clean[8:])
    assert changed[:8, 16:].isnan().all()
    assert torch.equal(changed[:7, :16], clean[:7, :16])


def test_dropout_of_attention_does_not_depend_on_threads_or_padding() -> None:
    plan = make_plan([13], sees="past", rate=0.4, seed=11)
    query = torch.randn(13, 32)
    out, _ = attend(query, None, plan)
    longer = make_plan([13, 200], sees="past", rate=0.4, seed=11)
    both, _ = attend(torch.cat([query, torch.randn(200, 32)]), None, longer)
    assert torch.equal(both[:13], out)


@pytest.mark.parametrize("kind", structures.ACTIVATIONS)
@pytest.mark.parametrize(("rows", "width"), [(0, 5), (1, 1), (3, 13), (200, 33), (2, 0)])
def test_activations_and_their_gradients(kind: str, rows: int, width: int, level: str) -> None:
    h, bias, grad = 4.0 * torch.randn(rows, width), torch.randn(width), torch.randn(rows, width)
    exact = [t.double().requires_grad_() for t in (h, bias)]
    expected = OPEN[kind](exact[0] + exact[1])
    expected.backward(grad.double())
    torch.testing.assert_close(activate(h, bias, kind, 0.0, 0).double(), expected.detach(), rtol=1e-5, atol=1e-5)
    again, bias_grad = differentiate_activation_(h, bias, grad, kind, 0.0, 0)
    assert torch.equal(again, activate(h, bias, kind, 0.0, 0))
    torch.testing.assert_close(grad.double(), exact[0].grad, rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(bias_grad.double(), exact[1].grad, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("kind", structures.ACTIVATIONS)
def test_activations_of_odd_numbers(kind: str, level: str) -> None:
    h = torch.tensor([ODD])
    found = activate(h, torch.zeros(len(ODD)), kind, 0.0, 0)
    expected = torch.stack([OPEN[kind](one) for one in h[0]])[None]  # PyTorch's vectors make no number of gelu(inf)
    torch.testing.assert_close(found, expected, rtol=1e-6, atol=1e-6, equal_nan=True)


@pytest.mark.parametrize("count", [0, 1, 4095, 4096, 10_000])
def test_dropout(count: int) -> None:
    x = torch.rand(count) + 0.5
    out = drop(x, 0.25, 3)
    kept = out != 0
    torch.testing.assert_close(out[kept], x[kept] / 0.75)
    assert torch.equal(drop(x, 0.25, 3), out)
    if count > 1000:
        assert abs(float(kept.float().mean()) - 0.75) < 0.03
        assert not torch.equal(drop(x, 0.25, 4), out)
    odd = torch.full((count,), torch.nan)
    assert drop(odd, 0.25, 3).isnan().all()


@pytest.mark.parametrize("size", [1, 31, 32, 33, 64, 1000])
def test_normalisers_of_odd_numbers(size: int, level: str) -> None:
    scores = 20.0 * torch.randn(len(ODD) + 2, size)
    for row, odd in enumerate(ODD):
        scores[row, size // 2] = odd
    scores[-1] = -torch.inf
    torch.testing.assert_close(normalise(scores)[0], scores.logsumexp(-1), equal_nan=True)


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
@pytest.mark.parametrize("size", [2, 33, 700])
def test_losses_of_odd_numbers(size: int, smoothing: float, level: str) -> None:
    scores = 3.0 * torch.randn(len(ODD) + 1, size)
    for row, odd in enumerate(ODD):
        scores[row, size // 2] = odd
    scores[-1] = -torch.inf
    targets, bias = torch.randint(size, (len(scores),)), torch.zeros(size)
    plain = scores.double().requires_grad_()
    expected = F.cross_entropy(plain, targets, reduction="none", label_smoothing=smoothing)
    expected.sum().backward()
    losses = cross_entropy_(scores, bias, targets, smoothing)
    torch.testing.assert_close(losses.double(), expected.detach(), rtol=1e-4, atol=1e-4, equal_nan=True)
    assert plain.grad is not None
    finite = expected.isfinite()
    torch.testing.assert_close(scores[finite].double(), plain.grad[finite], rtol=1e-4, atol=1e-5)
    assert scores[losses.isnan()].isnan().any(1).all()


def test_a_row_of_scores_does_not_depend_on_its_neighbours(two_threads: None, level: str) -> None:
    scores, bias, targets = torch.randn(600, 777), torch.randn(777), torch.randint(777, (600,))
    together, alone = scores.clone(), scores[123:124].clone()
    losses = cross_entropy_(together, bias, targets, 0.1)
    torch.set_num_threads(1)
    assert torch.equal(cross_entropy_(alone, bias, targets[123:124], 0.1), losses[123:124])
    assert torch.equal(alone, together[123:124])
    assert torch.equal(normalise(scores)[0][123:124], normalise(scores[123:124])[0])


def test_the_largest_leave_the_scores_as_they_are() -> None:
    scores = torch.full((2, 200), torch.nan)
    scores[0, 199] = 1.0
    before = scores.clone()
    find_top(scores, 3, normalise(scores)[1])
    assert torch.equal(scores.nan_to_num(nan=-5.0), before.nan_to_num(nan=-5.0))
