"""How matrices lie in memory when a model is used, not trained.

For a few rows x, x Wᵀ reads each number of W once: it is as fast as memory, if W is read in the order in which the
product wants it. nn/stepping.py has a copy in that order; where it cannot, W lies by columns if it has at least as many
rows as columns, which is up to twice as fast. Values, shapes and names stay what they are.
"""

from torch import nn


def lay_out(model: nn.Module) -> None:
    """Nothing yet: the blocks of native/block.py are not asked here."""
