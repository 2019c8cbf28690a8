"""Changes of the numbers in a network."""

import copy
import pickle
import re
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from contracts.mutation import Change, Mutation, draw_normal, find_middle, find_parts, has_part
from seqloom.nn.embeddings import OutputLayer, TokenEmbedding
from seqloom.nn.multihead import CrossAttention, SelfAttention


def _weight(network: nn.Module) -> nn.Parameter:
    """A matrix that every answer of a search depends on, row by row: of the last layer that has one."""
    wanted = re.compile(r"(in_projection\.weight|weight_ih_l0|value\.weight)$")
    return [parameter for name, parameter in network.named_parameters() if wanted.search(name)][-1]


def _in_place(edit: Callable[[nn.Parameter], Any], undo: Callable[[nn.Parameter], Any] | None = None) -> Mutation:
    def apply(model: Any) -> Change:
        parameter = _weight(model.network)
        edit(parameter)
        return model, None if undo is None else lambda: undo(parameter)

    return Mutation(apply)


@torch.no_grad()
def _scale(parameter: Tensor, factor: float) -> None:
    parameter.mul_(factor)


@torch.no_grad()
def _set_element(parameter: Tensor, change: float) -> None:
    parameter[-1, 0] += change


def _scale_view(parameter: nn.Parameter, factor: float) -> None:
    view = parameter.detach().numpy()
    view *= factor


def _scale_in_inference_mode(parameter: nn.Parameter) -> None:
    with torch.inference_mode():
        parameter.mul_(3.0)


def _set_data(parameter: nn.Parameter) -> None:
    parameter.data = parameter.detach() * 3.0


def _load_other(assign: bool) -> Mutation:
    def apply(model: Any) -> Change:
        old = {name: value.clone() for name, value in model.network.state_dict().items()}
        other = {name: value + 0.3 * draw_normal(value.shape, len(name)) for name, value in old.items()}
        model.network.load_state_dict(other, assign=assign)
        return model, lambda: model.network.load_state_dict(old)

    return Mutation(
        apply, tolerance=5e-5
    )  # weights of this size make large logits, of which float32 keeps seven digits


def _new_parameter(model: Any) -> Change:
    _, layer = find_middle(model.network, (TokenEmbedding, OutputLayer))
    old = layer.weight
    layer.weight = nn.Parameter(old.detach() + draw_normal(old.shape))
    return model, lambda: setattr(layer, "weight", old)


def _learn(model: Any) -> Change:
    """One step of gradient descent, as an optimiser takes it."""
    network = model.network.train()
    parameters = list(network.parameters())
    sum(parameter.pow(3).sum() for parameter in parameters).backward()
    with torch.no_grad():
        torch._foreach_add_(parameters, [parameter.grad for parameter in parameters], alpha=-0.1)
    network.zero_grad()
    network.eval()
    return model, None


@torch.no_grad()
def _prune_heads(model: Any) -> Change:
    for _, attention in find_parts(model.network, (SelfAttention, CrossAttention)):
        attention.out_projection.weight[:, : attention.head_dim] = 0.0
    return model, None


def _edit_buffers(model: Any) -> Change:
    for buffer in model.network.buffers():
        buffer.copy_(buffer * 2.0 + draw_normal(buffer.shape).to(buffer).abs())
    return model, None


def _edited_copy(make: Callable[[Any], Any]) -> Mutation:
    def apply(model: Any) -> Change:
        other = make(model)
        _scale(_weight(other.network), 3.0)
        return other, None

    return Mutation(apply)


def _cast(dtype: torch.dtype, tolerance: float, *, back: bool = False) -> Mutation:
    def apply(model: Any) -> Change:
        model.network.to(dtype)
        return model, (lambda: model.network.float()) if back else None

    return Mutation(apply, tolerance=tolerance, precision=dtype != torch.float64)


WEIGHTS = {
    "load_state_dict": _load_other(assign=False),
    "load_state_dict-assign": _load_other(assign=True),
    "in-place": _in_place(lambda p: _scale(p, 4.0), lambda p: _scale(p, 0.25)),
    "one-element": _in_place(lambda p: _set_element(p, 32.0)),
    "inference-mode": _in_place(_scale_in_inference_mode),
    "data": _in_place(lambda p: p.data.add_(draw_normal(p.shape))),
    "data-one-element": _in_place(lambda p: p.data[-1, -1:].add_(32.0)),
    "numpy-view": _in_place(lambda p: _scale_view(p, 4.0), lambda p: _scale_view(p, 0.25)),
    "data-set": _in_place(_set_data),
    "new-parameter": Mutation(_new_parameter),
    "optimizer-step": Mutation(_learn),
    "pruned-head": Mutation(_prune_heads, has_part((SelfAttention, CrossAttention))),
    "buffers": Mutation(_edit_buffers, lambda network: any(True for _ in network.buffers())),
    "deepcopy": _edited_copy(copy.deepcopy),
    "pickle": _edited_copy(lambda model: pickle.loads(pickle.dumps(model))),
    "double": _cast(torch.float64, 1e-5, back=True),
    "bfloat16": _cast(torch.bfloat16, 0.1),
    "half": _cast(torch.float16, 0.02),
}
"""Of the numbers. In 16 bits, the order of a sum is seen in the second or third digit."""
