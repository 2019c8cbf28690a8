"""Whether a module is just what its class says.

A fast path may take a module's weights and compute what its class computes only if nothing else happens when the module
is called: no subclass, no `forward` of the instance's own, no hook, no parametrisation (which changes the class).
"""

from collections.abc import Callable
from typing import Any

from torch import nn
from torch.nn.modules.module import _has_any_global_hook

_FORWARDS: dict[type[nn.Module], Callable[..., Any]] = {nn.Linear: nn.Linear.forward}
"""What calling a class did when it was first met."""
HOOKS = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")


def is_plain(module: nn.Module, kind: type[nn.Module]) -> bool:
    """Whether calling the module runs `kind.forward` and nothing else."""
    own = module.__dict__
    plain = type(module) is kind and "forward" not in own and not any(own[name] for name in HOOKS)
    return plain and _FORWARDS.setdefault(kind, kind.forward) is kind.forward and not has_global_hooks()


def has_global_hooks() -> bool:
    """Whether torch runs something around every module's call."""
    return bool(_has_any_global_hook())
