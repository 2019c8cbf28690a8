"""What a change to the network of a loaded model is, and how to find the part that it is made to."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from seqloom.nn.convolution import GatedConvolution
from seqloom.nn.recurrent import RecurrentLayer
from seqloom.nn.transformer import TransformerBlock

Undo = Callable[[], Any]
Change = tuple[Any, Undo | None]
"""The model that is changed, most often the one that was given, and what undoes the change, where that can be done."""
LAYERS = (TransformerBlock, RecurrentLayer, GatedConvolution)


@dataclass(frozen=True)
class Mutation:
    """Something done to a model, and how near the answers must then be to those of the open one."""

    apply: Callable[[Any], Change]
    fits: Callable[[nn.Module], bool] = lambda network: True
    """Whether a network has what is changed."""
    tolerance: float = 1e-5
    precision: bool = False
    """Whether the processor may not be able to compute in it; a model may then say so."""


def find_parts(network: nn.Module, kind: Any, under: str = "") -> list[tuple[str, nn.Module]]:
    """The modules of a kind in one part of a network, by name."""
    return [(name, m) for name, m in network.named_modules() if isinstance(m, kind) and name.startswith(under)]


def find_middle(network: nn.Module, kind: Any, under: str = "") -> tuple[str, Any]:
    found = find_parts(network, kind, under)
    return found[len(found) // 2]


def has_part(kind: Any, under: str = "") -> Callable[[nn.Module], bool]:
    return lambda network: bool(find_parts(network, kind, under))


def draw_normal(shape: Any, seed: int = 5) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def shift(output: Tensor) -> Tensor:
    """Moved by the same vector at every position: what a norm does not take back."""
    move = torch.linspace(-2.0, 3.0, output.shape[-1]).sin().to(output)
    return output * 1.5 + move
