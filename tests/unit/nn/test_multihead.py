"""Multi-head attention: what its matrices mean, and that `weights` shows what `forward` mixed with."""

import math
from typing import Any

import pytest
import torch
from torch import Tensor

from seqloom.errors import ShapeError
from seqloom.nn.attention import Additive, Bilinear, Dot, GlobalAttention, ScaledDot, attend
from seqloom.nn.cache import SourceStates
from seqloom.nn.multihead import CrossAttention, SelfAttention
from seqloom.nn.packing import Packing, Pairing
from seqloom.nn.positions import Alibi, RelativeBias, Rotary

DIM, LENGTH = 8, 5


def make(**options: Any) -> SelfAttention:
    torch.manual_seed(0)
    return SelfAttention(DIM, options.pop("num_heads", 2), **options).double()


def whole(x: Tensor) -> Packing:
    return Packing(torch.ones(1, len(x), dtype=torch.bool))


def test_a_single_head_is_the_sum_and_the_matrix_expression():
    """Vaswani et al. 2017, §3.2.1, first as the loops over i and j, then as softmax(QKᵀ/√d_k)V."""
    attention, x = make(num_heads=1), torch.randn(LENGTH, DIM).double()
    w_q, w_k, w_v = attention.in_projection.weight.chunk(3)
    b_q, b_k, b_v = attention.in_projection.bias.chunk(3)
    q, k, v = ([w @ x_i + b for x_i in x] for w, b in ((w_q, b_q), (w_k, b_k), (w_v, b_v)))
    looped = []
    for i in range(LENGTH):
        power = [math.exp((q[i] @ k[j]).item() / math.sqrt(DIM)) for j in range(LENGTH)]
        looped.append(sum(power[j] / sum(power) * v[j] for j in range(LENGTH)))
    looped = torch.stack(looped)
    queries, keys, values = x @ w_q.T + b_q, x @ w_k.T + b_k, x @ w_v.T + b_v
    matrix = torch.softmax(queries @ keys.T / DIM**0.5, dim=-1) @ values
    torch.testing.assert_close(looped, matrix)
    torch.testing.assert_close(attend(queries, keys, values), matrix)
    torch.testing.assert_close(attention(x, whole(x)), attention.out_projection(matrix))


@pytest.mark.parametrize("num_heads", [1, 2, 4, 8])
def test_many_heads_are_separate_heads_side_by_side(num_heads):
    """Vaswani et al. 2017, §3.2.2: heads with their own W_q, W_k, W_v are concatenated and projected back."""
    attention, x = make(num_heads=num_heads), torch.randn(LENGTH, DIM).double()
    matrices = zip(*(w.chunk(num_heads) for w in attention.in_projection.weight.chunk(3)), strict=True)
    offsets = zip(*(b.chunk(num_heads) for b in attention.in_projection.bias.chunk(3)), strict=True)
    heads = [
        attend(*(x @ w.T + b for w, b in zip(own, shift, strict=True)))
        for own, shift in zip(matrices, offsets, strict=True)
    ]
    assert [head.shape for head in heads] == [(LENGTH, DIM // num_heads)] * num_heads
    expected = torch.cat(heads, dim=1) @ attention.out_projection.weight.T + attention.out_projection.bias
    torch.testing.assert_close(attention(x, whole(x)), expected)


@pytest.mark.parametrize("num_kv_heads", [1, 2, 4])
def test_shared_heads_are_equal_heads(num_kv_heads):
    """Grouped-query attention is multi-head attention in which the heads of a group have the same W_k and W_v."""
    grouped, full = make(num_heads=4, num_kv_heads=num_kv_heads), make(num_heads=4)
    sizes = [4, num_kv_heads, num_kv_heads]

    def repeat(t: Tensor) -> Tensor:
        query, *shared = t.unflatten(0, (-1, DIM // 4)).split(sizes)
        return torch.cat([query, *(s.repeat_interleave(4 // num_kv_heads, dim=0) for s in shared)]).flatten(0, 1)

    with torch.no_grad():
        full.in_projection.weight.copy_(repeat(grouped.in_projection.weight))
        full.in_projection.bias.copy_(repeat(grouped.in_projection.bias))
    full.out_projection.load_state_dict(grouped.out_projection.state_dict())
    x = torch.randn(LENGTH, DIM).double()
    torch.testing.assert_close(grouped(x, whole(x)), full(x, whole(x)))


def test_normalised_queries_and_keys_do_not_feel_their_scale():
    attention, x = make(num_heads=2, normalise_qk=True, bias=False), torch.randn(LENGTH, DIM).double()
    before = attention.weights(x, whole(x))
    with torch.no_grad():
        attention.in_projection.weight[: 2 * DIM] *= 7.0
    torch.testing.assert_close(attention.weights(x, whole(x)), before, rtol=1e-6, atol=1e-9)


VARIANTS: dict[str, dict[str, Any]] = {
    "full": {},
    "causal": {"causal": True},
    "backward": {"causal": True, "reverse": True},
    "window": {"window": 3},
    "window-causal": {"window": 2, "causal": True},
    "window-backward-alibi": {"window": 2, "causal": True, "reverse": True, "relative": Alibi(2)},
    "window-alibi": {"window": 2, "relative": Alibi(2)},
    "rotary": {"relative": Rotary(4)},
    "alibi": {"relative": Alibi(2)},
    "window-relative": {"window": 2, "relative": RelativeBias(2, 8, 6, causal=False)},
    "multi-query-causal-alibi": {"num_kv_heads": 1, "causal": True, "relative": Alibi(2)},
}


@pytest.fixture(params=[0, 4096], ids=["many-groups", "one-group"])
def mask(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Tensor:
    """Rows of different lengths, with holes and an empty one; the sequences fall into several groups, or one."""
    monkeypatch.setattr("seqloom.nn.packing._GROUP_COST", request.param)
    rows = ["11110111", "01000000", "00000000", "00101110", "11111111"]
    return torch.tensor([[digit == "1" for digit in row] for row in rows])


def documents_of(mask: Tensor, shared: bool) -> Tensor | None:
    return (torch.arange(mask.shape[1]) // 3).expand(mask.shape) if shared else None


def same_sequence(mask: Tensor, documents: Tensor | None) -> Tensor:
    """Which queries and keys are real and of one sequence: (B, T, T)."""
    real = mask[:, :, None] & mask[:, None, :]
    return real if documents is None else real & (documents[:, :, None] == documents[:, None, :])


@pytest.mark.parametrize("shared", [False, True], ids=["rows", "documents"])
@pytest.mark.parametrize("options", VARIANTS.values(), ids=VARIANTS)
def test_weights_of_self_attention_times_values_are_its_output(options, shared, mask):
    attention, x = make(**options), torch.randn(*mask.shape, DIM).double()
    documents = documents_of(mask, shared)
    packing = Packing(mask, documents)
    weights = attention.weights(packing.pack(x), packing)
    allowed = same_sequence(mask, documents)
    if options.get("causal"):
        order = torch.arange(mask.shape[1])
        allowed = allowed & ((order <= order[:, None]) if not options.get("reverse") else (order >= order[:, None]))
    assert not weights.masked_select(~allowed[:, None]).any()
    torch.testing.assert_close(weights.sum(-1), mask[:, None].expand(-1, 2, -1).double())
    value = attention.in_projection(x)[..., -attention.num_kv_heads * 4 :].unflatten(-1, (-1, 4))
    value = value.repeat_interleave(2 // attention.num_kv_heads, dim=2)
    mixed = torch.einsum("bhts,bshk->bthk", weights, value).flatten(2)
    expected = attention.out_projection(mixed)[mask]
    torch.testing.assert_close(attention(packing.pack(x), packing), expected)


def test_weights_of_cross_attention_times_values_are_its_output(mask):
    torch.manual_seed(0)
    attention = CrossAttention(DIM, 6, 2).double()
    x, memory = torch.randn(5, 4, DIM).double(), torch.randn(*mask.shape, 6).double()
    target, source = Packing(torch.arange(4) < torch.tensor([4, 0, 3, 1, 3])[:, None]), Packing(mask)
    pairing = Pairing.of(target, source)
    weights = attention.weights(target.pack(x), source.pack(memory), pairing)
    seen = (target.mask[:, :, None] & mask[:, None, :])[:, None].expand(-1, 2, -1, -1)
    assert torch.equal(weights > 0, seen)
    value = attention.memory_projection(memory)[..., DIM:].unflatten(-1, (2, 4))
    expected = attention.out_projection(torch.einsum("bhts,bshk->bthk", weights, value).flatten(2))[target.mask]
    torch.testing.assert_close(attention(target.pack(x), source.pack(memory), pairing), expected)


SCORES = {"dot": Dot(), "scaled-dot": ScaledDot(), "bilinear": Bilinear(6, 6), "additive": Additive(6, 6, 5)}


@pytest.mark.parametrize("score", SCORES.values(), ids=SCORES)
def test_weights_of_global_attention_times_states_are_its_output(score, mask):
    attention = GlobalAttention(score).double()
    x, memory = torch.randn(5, 4, 6).double(), torch.randn(*mask.shape, 6).double()
    target, source = Packing(torch.arange(4) < torch.tensor([4, 0, 3, 1, 3])[:, None]), Packing(mask)
    pairing = Pairing.of(target, source)
    weights = attention.weights(target.pack(x), source.pack(memory), pairing)
    assert torch.equal(weights[:, 0] > 0, target.mask[:, :, None] & mask[:, None, :])
    expected = (weights[:, 0] @ memory)[target.mask]
    torch.testing.assert_close(attention(target.pack(x), source.pack(memory), pairing), expected)
    torch.testing.assert_close(attention(x.flatten(0, 1), SourceStates(memory, mask))[target.mask.flatten()], expected)


def test_nothing_to_look_at_has_weights_of_the_right_shape():
    packing = Packing(torch.zeros(2, 3, dtype=torch.bool))
    weights = make().weights(torch.zeros(0, DIM).double(), packing)
    assert weights.shape == (2, 2, 3, 3)
    assert not weights.any()


@pytest.mark.parametrize(
    ("run", "message"),
    [
        (lambda: SelfAttention(10, 4), "model_dim = 10 is not divisible by num_heads = 4"),
        (lambda: SelfAttention(8, 4, num_kv_heads=3), "num_heads = 4 is not divisible by num_kv_heads = 3"),
        (lambda: CrossAttention(10, 8, 4), "model_dim = 10 is not divisible by num_heads = 4"),
    ],
)
def test_heads_that_do_not_divide_are_refused(run, message):
    with pytest.raises(ShapeError, match=message):
        run()
