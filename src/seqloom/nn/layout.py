"""How matrices lie in memory when a model is used, not trained.

For a few rows x, x Wᵀ reads each number of W once: it is as fast as memory, if W is read in the order in which the
product wants it. nn/stepping.py has a copy in that order; where it cannot, W lies by columns if it has at least as many
rows as columns, which is up to twice as fast. Values, shapes and names stay what they are.
"""

from functools import partial

import torch.nn.functional as F
from torch import Tensor, nn

from seqloom.nn.embeddings import OutputLayer
from seqloom.nn.stepping import hasten_block, hasten_linear
from seqloom.nn.transformer import TransformerBlock


def lay_out(model: nn.Module) -> None:
    """Lay the matrices of linear layers out for use; each gets a copy, or the block of a decoder that it is in."""
    packed = set[nn.Module]()
    for module in model.modules():
        match module:
            case TransformerBlock() if (quick := hasten_block(module)) is not None:
                module.hasten, module.finish = quick.hasten, quick.finish
                module.attention.in_projection.__dict__["forward"] = quick.project
                projected = set() if module.cross is None else {module.cross.memory_projection}
                packed |= {*module.modules()} - projected
            case OutputLayer(weight=weight, bias=bias):
                columns = _by_columns(weight.detach())
                module.product = hasten_linear(partial(F.linear, weight=columns, bias=bias), weight, bias)
    for module in model.modules():
        if isinstance(module, nn.Linear):
            if module.out_features >= module.in_features:
                module.weight.data = _by_columns(module.weight.data)
            if type(module) is nn.Linear and module not in packed:
                module.__dict__["forward"] = hasten_linear(module.forward, module.weight, module.bias)


def _by_columns(matrix: Tensor) -> Tensor:
    return matrix.t().contiguous().t()
