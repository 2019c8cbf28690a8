"""How matrices lie in memory when a model is used, not trained.

For a few rows x, x Wᵀ reads each number of W once: it is as fast as memory, if W is read in the order in which the
product wants it. That is by columns where W has at least as many rows as columns, and makes a step of decoding of one
line up to twice as fast; for many rows it is no slower. Values, shapes and names stay what they are.
"""

from functools import partial

import torch.nn.functional as F
from torch import Tensor, nn

from weft.nn.embeddings import OutputLayer
from weft.nn.stepping import hasten_block, hasten_linear
from weft.nn.transformer import TransformerBlock


def lay_out(model: nn.Module) -> None:
    """Lay the matrices of linear layers out for use.

    An output layer gets a copy, as large as the embedding it may share its table with, which is looked up by rows; so
    do the blocks of a decoder, for steps of few rows.
    """
    for module in model.modules():
        match module:
            case TransformerBlock():
                module.hasten = hasten_block(module)
            case OutputLayer(weight=weight, bias=bias):
                columns = _by_columns(weight.detach())
                module.product = hasten_linear(partial(F.linear, weight=columns, bias=bias), weight, bias)
    for module in model.modules():
        if isinstance(module, nn.Linear) and module.weight.shape[0] >= module.weight.shape[1]:
            module.weight.data = _by_columns(module.weight.data)


def _by_columns(matrix: Tensor) -> Tensor:
    return matrix.t().contiguous().t()
