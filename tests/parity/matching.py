"""Two modules, the same weights: do they compute the same, forwards and backwards?"""

import torch
from torch import Tensor

TOLERANCE = {"rtol": 1e-5, "atol": 1e-5}


def assert_same(
    ours: Tensor, theirs: Tensor, inputs: list[Tensor], parameters: list[tuple[Tensor, Tensor]], mask: Tensor
) -> None:
    """Equal outputs at the real positions, equal gradients of the inputs, and of each pair (our parameter, theirs)."""
    ours, theirs = ours[mask], theirs[mask]
    torch.testing.assert_close(ours, theirs, **TOLERANCE)
    probe = torch.randn_like(ours) / ours.numel() ** 0.5
    own, other = zip(*parameters, strict=True)
    our_gradients = torch.autograd.grad((ours * probe).sum(), (*inputs, *own), retain_graph=True)
    their_gradients = torch.autograd.grad((theirs * probe).sum(), (*inputs, *other), retain_graph=True)
    for ours_, theirs_ in zip(our_gradients, their_gradients, strict=True):
        torch.testing.assert_close(ours_, theirs_.view_as(ours_), **TOLERANCE)


def copy(source: torch.nn.Module, target: torch.nn.Module) -> list[tuple[Tensor, Tensor]]:
    """Give `target` the weights of `source`, parameter by parameter; the pairs (target's, source's)."""
    pairs = list(zip(target.parameters(), source.parameters(), strict=True))
    with torch.no_grad():
        for mine, yours in pairs:
            mine.copy_(yours.view_as(mine))
    return pairs


def shake(module: torch.nn.Module) -> None:
    """No bias stays at 0 and no gain at 1."""
    with torch.no_grad():
        for parameter in module.parameters():
            parameter += 0.1 * torch.randn_like(parameter)


def mask_of(lengths: list[int]) -> Tensor:
    return torch.arange(max(lengths)) < torch.tensor(lengths)[:, None]
