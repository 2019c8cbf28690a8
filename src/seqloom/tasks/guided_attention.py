"""Guided attention: weights that follow a given alignment (Chen et al. 2016; Garg et al. 2019).

L = − Σ_t Σ_s G_ts log A_ts

A is the last attention to the source, the mean over its heads, from which alignments are read, too. G is the alignment
that is given: a target token that belongs to several source tokens is shared out among them.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from seqloom.errors import ConfigError
from seqloom.models.seq2seq import Seq2Seq
from seqloom.nn.attention import GlobalAttention
from seqloom.nn.multihead import CrossAttention
from seqloom.types import Alignment

_LEAST = 1e-9  # no attention at all would be infinitely wrong


class Guidance:
    """The last attention to the source: what it was given, from which its weights are computed again."""

    def __init__(self, module: CrossAttention | GlobalAttention) -> None:
        self.module = module
        self.inputs: tuple[Any, ...] = ()

    def measure(self, alignment: Alignment) -> Float[Tensor, ""]:
        """How far attention is from an alignment."""
        weights = self.module.weights(*self.inputs).mean(1)  # (B, T, S)
        rows, targets, sources = alignment.entries.unbind(1)
        return -(alignment.weights * weights[rows, targets, sources].float().clamp_min(_LEAST).log()).sum()


@contextmanager
def record_attention(model: Seq2Seq) -> Iterator[Guidance]:
    """Remember what the last attention to the source is given inside the `with` block."""
    modules = [module for module in model.decoder.modules() if isinstance(module, CrossAttention | GlobalAttention)]
    if not modules:
        raise ConfigError(
            "data.train.alignment guides attention to the source, but this decoder has none: it knows its source by "
            "model.decoder.context alone; choose a context with attention, or leave the alignments out"
        )
    guidance = Guidance(modules[-1])

    def remember(_: torch.nn.Module, inputs: tuple[Any, ...], __: object) -> None:
        guidance.inputs = inputs

    handle = guidance.module.register_forward_hook(remember)
    try:
        yield guidance
    finally:
        handle.remove()
