"""Output layer and cross-entropy in one function that never holds the whole matrix of logits.

With logits z = W h + b, target y and label smoothing ε (Szegedy et al. 2016, §7), the loss is

    −Σ_v q_v log softmax(z)_v    where q = (1 − ε)·1_y + ε/V

Its gradient is at hand as soon as the loss is, so both are computed chunk by chunk in the forward pass, in one buffer
of `chunk` × V, and the backward pass only scales what is there.
"""

from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.autograd.function import once_differentiable

from seqloom.errors import ShapeError
from seqloom.nn.embeddings import OutputLayer, check_ids
from seqloom.nn.plain import is_plain
from seqloom.nn.softmax import differentiate_loss_

_CHUNK = 512  # tokens; the buffer of logits then stays in the cache's reach at vocabularies of thousands


def linear_cross_entropy(
    output: OutputLayer, states: Float[Tensor, "N D"], targets: Int[Tensor, "N"], *, smoothing: float = 0.0
) -> Float[Tensor, ""]:
    """The sum over tokens of −log P(target), in natural logarithms."""
    if len(states) != len(targets):
        raise ShapeError(f"states has {len(states)} tokens but targets has {len(targets)}")
    check_ids(targets, len(output.weight), "targets")
    if not is_plain(output, OutputLayer):
        return torch.nn.functional.cross_entropy(output(states), targets, reduction="sum", label_smoothing=smoothing)
    states = states.to(output.weight.dtype)  # under autocast they come in a shorter type
    loss: Tensor = _LinearCrossEntropy.apply(states, output.weight, output.bias, targets, smoothing)  # type: ignore[no-untyped-call]
    return loss


class _LinearCrossEntropy(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, states: Tensor, weight: Tensor, bias: Tensor, targets: Tensor, smoothing: float) -> Tensor:
        loss = states.new_zeros(())
        wanted = ctx.needs_input_grad[:3]
        grads = [torch.zeros_like(t) if w else None for t, w in zip((states, weight, bias), wanted, strict=True)]
        buffer = states.new_empty(min(_CHUNK, len(states)), len(weight))
        for start in range(0, len(states), _CHUNK):
            h, y = states[start : start + _CHUNK], targets[start : start + _CHUNK]
            grad = torch.mm(h, weight.t(), out=buffer[: len(h)])
            loss += differentiate_loss_(grad, bias, y, smoothing)
            if grads[0] is not None:
                torch.mm(grad, weight, out=grads[0][start : start + _CHUNK])
            if grads[1] is not None:
                grads[1].addmm_(grad.t(), h)
            if grads[2] is not None:
                grads[2] += grad.sum(0)
        ctx.grads = grads
        return loss

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, scale: Tensor) -> tuple[Tensor | None, ...]:
        states, weight, bias = (None if grad is None else grad.mul_(scale) for grad in ctx.grads)
        return states, weight, bias, None, None
