"""Transformer blocks with random weights, as the kernels take them."""

import torch
from torch import Tensor

from seqloom.native.block import BlockWeights, NormWeights


def make_weights(
    *,
    heads: int = 4,
    kv_heads: int = 2,
    head_dim: int = 6,
    model_dim: int = 24,
    hidden_dim: int = 37,
    activation: str = "relu",
    post_norm: bool = False,
    rms: bool = False,
    rotary: bool = False,
    source: bool = False,
    bias: bool = True,
    normalise_qk: bool = False,
    precision: str = "float32",
) -> BlockWeights:
    def linear(inputs: int, outputs: int) -> tuple[Tensor, Tensor | None]:
        return torch.randn(outputs, inputs) / inputs**0.5, torch.randn(outputs) if bias else None

    def norm() -> NormWeights:
        return NormWeights(torch.rand(model_dim) + 0.5, None if rms else torch.randn(model_dim), 1e-5)

    inner, wide = heads * head_dim, hidden_dim * (2 if activation.endswith("-gated") else 1)
    layers = {
        "in": linear(model_dim, inner + 2 * kv_heads * head_dim),
        "out": linear(inner, model_dim),
        "expand": linear(model_dim, wide),
        "contract": linear(hidden_dim, model_dim),
    }
    norms = {"attention": norm(), "feedforward": norm()}
    if source:
        layers |= {"query": linear(model_dim, inner), "cross_out": linear(inner, model_dim)}
        norms["cross"] = norm()
    frequencies = 1.0 / 10_000 ** (torch.arange(0, head_dim - 1, 2) / head_dim) if rotary else None
    sizes = (heads, kv_heads, head_dim)
    return BlockWeights(*sizes, activation, post_norm, norms, layers, frequencies, normalise_qk, precision)
