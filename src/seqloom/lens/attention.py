"""Attention weights of a forward pass that was not asked to make any, and a picture of them.

The network never forms the weights if it can help it. While `capture` is open, the input of each attention module, and
of pooling by attention, is remembered at its last call; when a weight is asked for, that one module computes it again,
in the open. A model that answers while its network is watched leaves its compiled copy aside.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from jaxtyping import Float
from rich.text import Text
from torch import Tensor, nn

from seqloom.errors import SeqloomError
from seqloom.nn.attention import GlobalAttention, Pool
from seqloom.nn.multihead import CrossAttention, SelfAttention

AttentionModule = SelfAttention | CrossAttention | GlobalAttention | Pool
_SHADES = " ░▒▓█"


class Captured:
    """The attention modules that ran, by their name in the model, in the order they ran."""

    def __init__(self) -> None:
        self._calls: dict[str, tuple[AttentionModule, tuple[Any, ...]]] = {}

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
        if isinstance(module, AttentionModule) and not (isinstance(module, Pool) and module.kind != "attention")
    ]
    try:
        yield captured
    finally:
        for handle in handles:
            handle.remove()


def picture(weights: Float[Tensor, "T S"], rows: Sequence[str], columns: Sequence[str]) -> Text:
    """Weights in the terminal, the darker the more: a line for each row token, a cell as wide as each column token."""
    widths = [max(len(token), 1) for token in columns]
    margin = max((len(token) for token in rows), default=0)
    text = Text(" " * (margin + 1))
    text.append("".join(token.ljust(width) for token, width in zip(columns, widths, strict=True)), style="bold")
    for token, line in zip(rows, weights.tolist(), strict=True):
        text.append("\n" + token.rjust(margin) + " ", style="bold")
        for weight, width in zip(line, widths, strict=True):
            shade = _SHADES[min(int(weight * len(_SHADES)), len(_SHADES) - 1)]
            text.append(shade * width, style="cyan")
    return text
