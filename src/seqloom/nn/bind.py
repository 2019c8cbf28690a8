"""A module as a plain function, its weights looked up once.

To look an attribute of a module up and to call it costs several times what a product with one row does. A step of
decoding is a few dozen of such products, so what does not change between steps is looked up when decoding starts.
"""

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor, nn

Function = Callable[[Tensor], Tensor]


def bind(module: nn.Module) -> Function:
    """What the module computes when it is used, with the weights it has now."""
    match module:
        case nn.Linear():
            weight, bias = module.weight, module.bias
            return lambda x: F.linear(x, weight, bias)
        case nn.LayerNorm():
            shape, gain, shift, epsilon = module.normalized_shape, module.weight, module.bias, module.eps
            return lambda x: torch.layer_norm(x, shape, gain, shift, epsilon)
        case nn.RMSNorm():
            shape, gain, floor = module.normalized_shape, module.weight, module.eps
            return lambda x: torch.rms_norm(x, shape, gain, floor)
        case nn.Identity():
            return lambda x: x
        case _:
            return module
