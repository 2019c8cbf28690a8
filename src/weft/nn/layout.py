"""How matrices lie in memory when a model is used, not trained.

For a few rows x, x Wᵀ reads each number of W once: it is as fast as memory, if W is read in the order in which the
product wants it. That is by columns where W has at least as many rows as columns, and makes a step of decoding of one
line up to twice as fast; for many rows it is no slower. Values, shapes and names stay what they are.
"""

from torch import Tensor, nn

from weft.nn.embeddings import OutputLayer


def store_by_columns(model: nn.Module) -> None:
    """Lay the matrices of linear layers out for use.

    An output layer gets a copy, as large as the embedding it may share its table with, which is looked up by rows.
    """
    for module in model.modules():
        match module:
            case nn.Linear(weight=weight) if weight.shape[0] >= weight.shape[1]:
                weight.data = _by_columns(weight.data)
            case OutputLayer(weight=weight):
                module.columns = _by_columns(weight.data)


def _by_columns(matrix: Tensor) -> Tensor:
    return matrix.t().contiguous().t()
