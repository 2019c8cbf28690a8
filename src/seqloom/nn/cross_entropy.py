"""Rows of scores over a vocabulary: their cross-entropy, their normaliser and their largest entries.

With logits z = W h + b, target y and label smoothing ε (Szegedy et al. 2016, §7), the loss is

    −Σ_v q_v log softmax(z)_v    where q = (1 − ε)·1_y + ε/V

Its gradient follows directly from the softmax, so the forward pass computes both, chunk by chunk, in one buffer of
`chunk` × V, and the backward pass only scales the gradient: the whole matrix of logits never exists.

On a CPU, PyTorch passes over all scores once for each of five operations. native/softmax.c does all five on one row
while it is in the cache.
"""

import math
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.autograd.function import once_differentiable

from seqloom.errors import ShapeError
from seqloom.native import library as native
from seqloom.native.library import in_bfloat16, is_plain, serves
from seqloom.nn.embeddings import OutputLayer, check_ids

_CHUNK = (
    512  # tokens, or twice as many in 16 bits; with a vocabulary of some thousands, their logits fit into the cache
)
_SMALL = 100_000  # scores; for fewer, one call to PyTorch is faster than the five of `_find_top`


def linear_cross_entropy(
    output: OutputLayer,
    states: Float[Tensor, "N D"],
    targets: Int[Tensor, "N"],
    *,
    host: Int[Tensor, "N"] | None = None,
    smoothing: float = 0.0,
) -> Float[Tensor, ""]:
    """The sum over tokens of −log P(target), in natural logarithms; `host` are the targets in main memory, if known."""
    if len(states) != len(targets):
        raise ShapeError(f"states has {len(states)} tokens but targets has {len(targets)}")
    check_ids(targets if host is None else host, len(output.weight), "targets")
    if not is_plain(output, OutputLayer):
        return torch.nn.functional.cross_entropy(output(states), targets, reduction="sum", label_smoothing=smoothing)
    states, weight = output.narrow(states).to(output.weight.dtype), output.weight  # under autocast, states are shorter
    kind = _find_type(weight, output.bias)
    return _LinearCrossEntropy.apply(states, weight, output.bias, targets, smoothing, kind)  # type: ignore[no-untyped-call]


def _find_type(weight: Tensor, bias: Tensor) -> torch.dtype:
    """That of the products with a weight: shorter under autocast, on a processor where native/softmax.c serves."""
    kind = weight.device.type
    if kind == "cpu":
        mixed = in_bfloat16() and bias.dtype is torch.float32 and serves(weight, bias, mixed=True)
    else:
        mixed = torch.is_autocast_enabled(kind)
    return torch.get_autocast_dtype(kind) if mixed else weight.dtype


class _LinearCrossEntropy(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, states: Tensor, weight: Tensor, bias: Tensor, targets: Tensor, smoothing: float, kind: torch.dtype
    ) -> Tensor:
        # The scores are of the short type, too, where native/softmax.c reads them and gives their gradients so.
        scores = kind if weight.is_cpu else torch.promote_types(kind, weight.dtype)
        chunk = _CHUNK * weight.element_size() // scores.itemsize
        loss = weight.new_zeros(())
        wanted = ctx.needs_input_grad[:3]
        grads = [torch.zeros_like(t) if w else None for t, w in zip((states, weight, bias), wanted, strict=True)]
        buffer = states.new_empty(min(chunk, len(states)), len(weight), dtype=scores)
        states, weight = states.to(kind), weight.to(kind)
        for start in range(0, len(states), chunk):
            h, y = states[start : start + chunk], targets[start : start + chunk]
            grad = _multiply(h, weight.t(), buffer[: len(h)])
            loss += differentiate_loss_(grad, bias, y, smoothing)
            given = grad.to(kind)
            if grads[0] is not None:
                _multiply(given, weight, grads[0][start : start + chunk])
            if grads[1] is not None and kind is grads[1].dtype:
                grads[1].addmm_(given.t(), h)
            elif grads[1] is not None:
                grads[1] += given.t() @ h
            if grads[2] is not None:
                grads[2] += grad.sum(0)
        ctx.grads = grads
        return loss

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, scale: Tensor) -> tuple[Tensor | None, ...]:
        states, weight, bias = (None if grad is None else grad.mul_(scale) for grad in ctx.grads)
        return states, weight, bias, None, None, None


def _multiply(a: Tensor, b: Tensor, out: Tensor) -> Tensor:
    return torch.mm(a, b, out=out) if a.dtype is out.dtype else out.copy_(a @ b)


def differentiate_loss_(
    scores: Float[Tensor, "R V"], bias: Float[Tensor, "V"], targets: Int[Tensor, "R"], smoothing: float
) -> Float[Tensor, ""]:
    """The sum of the rows' cross-entropies; `scores`, given without their bias, are replaced by its gradient.

    q = (1 − ε)·1_y + ε/V    loss = logsumexp(z) − Σ_v q_v z_v    ∂loss/∂z = softmax(z) − q
    """
    if _serves(scores, bias, mixed=True):
        return native.cross_entropy_(scores, bias, targets, smoothing).sum()
    scores += bias
    normaliser, right = scores.logsumexp(1, keepdim=True), targets.unsqueeze(1)
    loss = (normaliser - (1.0 - smoothing) * scores.gather(1, right)).sum() - smoothing / len(bias) * scores.sum()
    scores.sub_(normaliser).exp_().sub_(smoothing / len(bias))
    scores.scatter_add_(1, right, scores.new_full((), smoothing - 1.0).expand_as(right))
    return loss


def normalise(scores: Float[Tensor, "R V"]) -> tuple[Float[Tensor, "R"], Float[Tensor, "R B"] | None]:
    """The normaliser of each row, log Σ exp, so that log P = score − normaliser; and for `find_top`, bounds.

    A bound is the largest score of a block of the vocabulary; there are none if PyTorch computes.
    """
    return native.normalise(scores) if _serves(scores) else (scores.logsumexp(-1), None)


def find_top(
    scores: Float[Tensor, "R V"], count: int, bounds: Float[Tensor, "R B"] | None
) -> tuple[Float[Tensor, "R N"], Int[Tensor, "R N"]]:
    """The `count` largest scores of each row and their indices, largest first.

    `bounds` come from `normalise` and are overwritten; scores may have become smaller since then, but not larger.
    """
    if bounds is None or scores.shape[1] < 4 * count or not _serves(scores):
        return _find_top(scores, count)
    return native.find_top(scores, count, bounds)


def _find_top(scores: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """The n largest scores are in the n blocks with the largest maxima, so only these are sorted."""
    size = math.isqrt(scores.shape[1])
    blocks = scores.shape[1] // size
    if scores.numel() < _SMALL or blocks < 4 * count:
        values, indices = scores.topk(count)
        return values, indices
    body = scores[:, : blocks * size].unflatten(1, (blocks, size))
    chosen = body.amax(-1).topk(count).indices
    inside = body.gather(1, chosen.unsqueeze(2).expand(-1, -1, size)).flatten(1)
    values, index = torch.cat([inside, scores[:, blocks * size :]], dim=1).topk(count)
    block, offset = index // size, index % size
    first = torch.where(block < count, chosen.gather(1, block.clamp(max=count - 1)), block + blocks - count)
    return values, first * size + offset


def _serves(scores: Tensor, *others: Tensor, mixed: bool = False) -> bool:
    return scores.is_contiguous() and serves(scores, *others, mixed=mixed)
