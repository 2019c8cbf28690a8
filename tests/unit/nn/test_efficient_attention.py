"""Attention in C and in blocks is attention: its numbers and gradients beside those of the open form."""

import itertools
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from seqloom.nn import efficient_attention, multihead
from seqloom.nn.attention import Bilinear, attend, attention_weights
from seqloom.nn.efficient_attention import attend_packed, attend_window, can_attend, window_mask
from seqloom.nn.multihead import CrossAttention, SelfAttention
from seqloom.nn.packing import Packing, Pairing
from seqloom.nn.positions import Alibi, PositionEncoding, RelativeBias, Rotary
from seqloom.nn.scored_attention import ScoredSelfAttention


def make_packing(lengths: list[int]) -> Packing:
    return Packing(torch.arange(max(lengths)) < torch.tensor(lengths)[:, None])


compiled = pytest.mark.skipif(not can_attend(torch.zeros(1, 1)), reason="needs kernels")
KINDS: list[dict[str, Any]] = [
    {},
    {"causal": True},
    {"causal": True, "reverse": True},
    {"num_kv_heads": 2, "rotary": True, "causal": True},
    {"num_kv_heads": 1, "normalise_qk": True},
    {"rotary": True, "normalise_qk": True, "causal": True},
]


def differentiate(module: torch.nn.Module, *given: Any) -> list[Tensor]:
    leaves = [x.detach().clone().requires_grad_() for x in given if isinstance(x, Tensor)]
    rest = [x for x in given if not isinstance(x, Tensor)]
    module.zero_grad()
    out = module(*leaves, *rest)
    (out * torch.linspace(-1.0, 2.0, out.numel()).view_as(out)).sum().backward()
    return [out, *(leaf.grad for leaf in leaves), *(p.grad for p in module.parameters())]  # type: ignore[list-item]


@compiled
@pytest.mark.parametrize("kind", KINDS, ids=str)
@pytest.mark.parametrize(("dim", "lengths"), [(6, [3, 1, 9, 0]), (8, [17, 8]), (32, [64, 40, 1])])
def test_the_same_as_pytorch(
    kind: dict[str, Any], dim: int, lengths: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    options = dict(kind)
    if options.pop("rotary", False):
        options["relative"] = Rotary(dim)
    module, packing = SelfAttention(4 * dim, 4, **options), make_packing(lengths)
    x = torch.randn(sum(lengths), 4 * dim)
    ours = differentiate(module, x, packing)
    monkeypatch.setattr(multihead, "can_attend", lambda *_: False)
    for found, expected in zip(ours, differentiate(module, x, packing), strict=True):
        torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-4)


@compiled
@pytest.mark.parametrize(("targets", "sources"), [([3, 1, 9], [5, 5, 1]), ([4, 0, 2], [3, 7, 6])])
def test_from_one_sequence_to_another(targets: list[int], sources: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    module = CrossAttention(24, 20, 4)
    pairing = Pairing.of(make_packing(targets), make_packing(sources))
    x, memory = torch.randn(sum(targets), 24), torch.randn(sum(sources), 20)
    ours = differentiate(module, x, memory, pairing)
    monkeypatch.setattr(multihead, "can_attend", lambda *_: False)
    for found, expected in zip(ours, differentiate(module, x, memory, pairing), strict=True):
        torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-4)


@compiled
def test_dropout_drops_its_share_and_the_same_for_the_gradient() -> None:
    tokens, rate = 200, 0.3
    packing = make_packing([tokens])
    # Queries of zeros look at all keys alike, and the values are unit vectors: what comes out are the weights.
    query = torch.zeros(tokens, 3 * tokens)
    query[:, 2 * tokens :] = torch.eye(tokens)
    query.requires_grad_()

    def draw() -> Tensor:
        return attend_packed(query, None, packing, packing, 1, 1, tokens, dropout=rate)

    torch.manual_seed(3)
    weights = draw()
    kept = weights > 0
    torch.testing.assert_close(weights[kept], torch.full_like(weights[kept], 1.0 / (tokens * (1.0 - rate))))
    assert abs(kept.float().mean().item() - (1.0 - rate)) < 0.01
    assert (kept.float().mean(0) - (1.0 - rate)).abs().max() < 0.15
    upstream = torch.randn(tokens, tokens)
    weights.backward(upstream)
    assert query.grad is not None
    torch.testing.assert_close(query.grad[:, 2 * tokens :], weights.detach().T @ upstream)
    torch.manual_seed(3)
    assert torch.equal(draw(), weights)
    assert not torch.equal(draw(), weights)


@compiled
def test_a_sequence_does_not_depend_on_its_neighbours_or_on_threads() -> None:
    module, lengths = SelfAttention(32, 4, causal=True), [5, 40, 1, 23]
    x = torch.randn(sum(lengths), 32)
    with torch.inference_mode():
        rows = module.in_projection(x)
        packing = make_packing(lengths)
        together, threads = attend_packed(rows, None, packing, packing, 4, 4, 8, sees="past"), torch.get_num_threads()
        try:
            torch.set_num_threads(1)
            assert torch.equal(attend_packed(rows, None, packing, packing, 4, 4, 8, sees="past"), together)
        finally:
            torch.set_num_threads(threads)
        for start, length in zip(itertools.accumulate([0, *lengths]), lengths, strict=False):
            alone = make_packing([length])
            own = attend_packed(rows[start : start + length], None, alone, alone, 4, 4, 8, sees="past")
            assert torch.equal(own, together[start : start + length])


@compiled
def test_long_sequences_and_other_precisions_are_left_to_pytorch() -> None:
    assert not can_attend(torch.zeros(1, 1), make_packing([300]))
    assert not can_attend(torch.zeros(1, 1, dtype=torch.bfloat16), make_packing([3]))


@given(
    seed=st.integers(0, 2**32),
    batch=st.integers(1, 3),
    length=st.integers(1, 30),
    window=st.integers(1, 9),
    causal=st.booleans(),
    density=st.sampled_from([None, 0.0, 0.5, 1.0]),
    biased=st.booleans(),
)
def test_blocks_equal_the_mask(seed, batch, length, window, causal, density, biased):
    torch.manual_seed(seed)
    tensors = [torch.randn(batch, 2, length, 3, dtype=torch.float64, requires_grad=True) for _ in range(3)]
    mask = None if density is None else torch.rand(batch, length) < density
    slopes = torch.tensor([0.5, 0.1], dtype=torch.float64)[:, None, None]
    added = (lambda distance: -slopes * distance.abs()) if biased else None
    ours = attend_window(*tensors, mask, window=window, causal=causal, score_bias=added)

    distance = torch.arange(length)[:, None] - torch.arange(length)
    behind, ahead = (window - 1, 0) if causal else (window // 2, window - 1 - window // 2)  # `window` positions in all
    near = (distance <= behind) & (distance >= -ahead)
    assert torch.equal(window_mask(length, window, causal=causal), near)
    allowed = near if mask is None else near & mask[:, None, None, :]
    bias = None if added is None else added(distance)
    expected = attention_weights(*tensors[:2], allowed, bias=bias) @ tensors[2]
    torch.testing.assert_close(ours, expected)
    torch.testing.assert_close(attend(*tensors, allowed, bias=bias), expected)

    probe = torch.randn_like(ours)
    for got, wanted in zip(
        torch.autograd.grad((ours * probe).sum(), tensors),
        torch.autograd.grad((expected * probe).sum(), tensors),
        strict=True,
    ):
        torch.testing.assert_close(got, wanted)


BIASED: dict[str, Any] = {
    "ALiBi": lambda causal: Alibi(2),
    "relative": lambda causal: RelativeBias(2, 16, 40, causal=causal),
    "none": lambda causal: None,
}


def make_attention(name: str, causal: bool, **options: Any) -> SelfAttention:
    encoding: PositionEncoding | None = BIASED[name](causal)
    if encoding is None:  # without a bias, only a score function of its own needs blocks
        return ScoredSelfAttention(Bilinear(4, 4, 2), 8, 2, causal=causal, **options)
    return SelfAttention(8, 2, causal=causal, relative=encoding, **options)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("name", BIASED)
def test_blocks_of_queries_equal_all_at_once(
    name: str, causal: bool, dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = make_attention(name, causal, num_kv_heads=1 if name != "none" else 2).to(dtype)
    lengths = [150, 131, 140]
    x, packing = torch.randn(sum(lengths), 8, dtype=dtype), make_packing(lengths)
    expected = differentiate(module, x, packing)
    monkeypatch.setattr(efficient_attention, "_LONG", 40)
    monkeypatch.setattr(efficient_attention, "_BLOCK", 32)
    limits = {"rtol": 1e-12, "atol": 1e-12} if dtype == torch.float64 else {"rtol": 1e-5, "atol": 1e-5}
    for got, wanted in zip(differentiate(module, x, packing), expected, strict=True):
        torch.testing.assert_close(got, wanted, **limits)


def test_dropout_of_blocks_is_the_same_for_the_gradient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(efficient_attention, "_LONG", 40)
    module = make_attention("ALiBi", True, dropout=0.3).double()
    x, packing = torch.randn(300, 8, dtype=torch.float64), make_packing([300])
    direction, step = torch.randn_like(x), 1e-6

    def loss(x: Tensor) -> Tensor:
        torch.manual_seed(7)
        return module(x, packing).square().sum()

    slope = torch.autograd.functional.jvp(loss, x, direction)[1]  # type: ignore[no-untyped-call]
    torch.testing.assert_close(
        slope, (loss(x + step * direction) - loss(x - step * direction)) / (2 * step), rtol=1e-6, atol=0
    )


class LargestTensor(TorchDispatchMode):
    """Writes down the number of elements of the largest tensor that is made."""

    elements = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        for made in out if isinstance(out, tuple | list) else [out]:
            if isinstance(made, Tensor):
                self.elements = max(self.elements, made.untyped_storage().nbytes() // made.element_size())
        return out


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("name", BIASED)
def test_long_texts_never_meet_a_square_of_their_length(name: str, causal: bool) -> None:
    length, module = 4_000, make_attention(name, causal)
    x, packing = torch.randn(length, 8), make_packing([length])
    with torch.inference_mode(), LargestTensor() as used:
        module(x, packing)
    with LargestTensor() as trained, torch.autograd.set_multithreading_enabled(False):
        module(x, packing).sum().backward()
    assert max(used.elements, trained.elements) <= 2 * 128 * length  # a block's, of all heads
    assert module.in_projection.weight.grad is not None
