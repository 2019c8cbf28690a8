"""Restricted attention in blocks is full attention under a mask."""

import torch
from hypothesis import given
from hypothesis import strategies as st

from seqloom.nn.attention import attend, attention_weights
from seqloom.nn.masks import window_mask
from seqloom.nn.window import windowed_attend


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
    added = (lambda back: -slopes * back.abs()) if biased else None
    ours = windowed_attend(*tensors, mask, window=window, causal=causal, bias=added)

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
