"""Attention of packed sequences on a GPU: PyTorch's variable-length kernel (FlashAttention-2; Dao 2023).

It takes rows of all sequences, one after the other, and where each begins: no rectangles, no masks, no padding. It
exists in float16 and bfloat16, on GPUs of NVIDIA from Ampere on, without dropout. Everything else takes the open path,
whose numbers are the same up to rounding.
"""

import inspect
from collections.abc import Callable
from functools import cache
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from seqloom.nn.packing import Packing

_SHORT = (torch.float16, torch.bfloat16)
_WIDEST = 256
_OPTIONS = {"window_size", "enable_gqa"}  # which the first versions of the function lacked


@cache
def find_kernel(device: torch.device) -> Callable[..., Any] | None:
    """PyTorch's function, where this device has it."""
    if device.type != "cuda" or torch.version.hip is not None or torch.cuda.get_device_capability(device) < (8, 0):
        return None
    try:
        from torch.nn.attention.varlen import varlen_attn
    except ImportError:
        return None
    found: Callable[..., Any] = varlen_attn
    return found if inspect.signature(found).parameters.keys() >= _OPTIONS else None


def serves(rows: Tensor, head_dim: int, target: Packing, source: Packing) -> bool:
    """Whether `attend_varlen` can compute with heads of this width, made of such rows."""
    fits = rows.dtype in _SHORT and head_dim % 8 == 0 and head_dim <= _WIDEST
    return fits and bool(target.num_tokens and source.counts.all()) and find_kernel(rows.device) is not None


def attend_varlen(
    query: Float[Tensor, "N H K"],
    key: Float[Tensor, "M G K"],
    value: Float[Tensor, "M G K"],
    target: Packing,
    source: Packing,
    *,
    causal: bool = False,
) -> Float[Tensor, "N D"]:
    """The concatenated outputs of the heads for each row of queries, which sees the keys of its own sequence."""
    kernel = find_kernel(query.device)
    assert kernel is not None
    bounds, lengths = (target.bounds, source.bounds), (target.longest, source.longest)
    sees, shared = (-1, 0) if causal else (-1, -1), key.shape[1] != query.shape[1]
    mixed: Tensor = kernel(query, key, value, *bounds, *lengths, window_size=sees, enable_gqa=shared)
    return mixed.flatten(1)
