"""Attention weights of a forward pass that was not asked to make any.

The network never forms the weights if it can help it. While `capture` is open, the input of each attention module, and
of pooling by attention, is remembered at its last call; when a weight is asked for, that one module computes it again,
in the open. A model that answers while its network is watched leaves its compiled copy aside.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from seqloom.errors import SeqloomError
from seqloom.nn.lookup import Lookup
from seqloom.nn.multihead import CrossAttention, SelfAttention
from seqloom.nn.pooling import Pool

Attending = SelfAttention | CrossAttention | Lookup | Pool


class Captured:
    """The attention modules that ran, by their name in the model, in the order they ran."""

    def __init__(self) -> None:
        self._calls: dict[str, tuple[Attending, tuple[Any, ...]]] = {}

    @property
    def names(self) -> list[str]:
        """What can be asked for."""
        return list(self._calls)

    @torch.no_grad()
    def weights(self, name: str) -> Float[Tensor, "B H T S"]:
        """The weights of one module at its last call: row, head, query, key."""
        if name not in self._calls:
            raise SeqloomError(f'no attention module "{name}" ran; these did: {", ".join(self.names) or "none"}')
        module, inputs = self._calls[name]
        return module.weights(*inputs)


@contextmanager
def capture(model: nn.Module) -> Iterator[Captured]:
    """Remember the inputs of every attention module that runs inside the `with` block."""
    captured = Captured()

    def remember(name: str) -> Any:
        def hook(module: Any, inputs: tuple[Any, ...], _: Any) -> None:
            captured._calls[name] = (module, inputs)

        return hook

    handles = [
        module.register_forward_hook(remember(name))
        for name, module in model.named_modules()
        if isinstance(module, Attending) and not (isinstance(module, Pool) and module.kind != "attention")
    ]
    try:
        yield captured
    finally:
        for handle in handles:
            handle.remove()
