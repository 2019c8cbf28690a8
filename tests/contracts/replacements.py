"""Changes of what a network is made of."""

import copy
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.utils import parametrize
from torch.nn.utils.parametrizations import weight_norm

from contracts.mutation import LAYERS, Change, Mutation, draw_normal, find_middle, find_parts, has_part, shift
from seqloom.nn.attention import Pool
from seqloom.nn.convolution import GatedConvolution
from seqloom.nn.embeddings import OutputLayer, TokenEmbedding
from seqloom.nn.feedforward import FeedForward
from seqloom.nn.multihead import CrossAttention, SelfAttention
from seqloom.nn.positions import PositionEncoding
from seqloom.nn.transformer import TransformerBlock


class Near(PositionEncoding):
    """The nearer a position, the more attention it gets."""

    def __init__(self, num_heads: int) -> None:
        super().__init__()
        self.num_heads = num_heads

    def score_bias(self, distance: Tensor) -> Tensor:
        return -0.8 * distance.abs().unsqueeze(-3).float().expand(*distance.shape[:-2], self.num_heads, -1, -1)


class LoudAttention(SelfAttention):
    """What it says counts twice."""

    def forward(self, *inputs: Any, **named: Any) -> Tensor:
        return 2.0 * super().forward(*inputs, **named)


class SineFeedForward(FeedForward):
    """Another non-linearity."""

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.contract(self.expand(x)[..., : self.contract.in_features].sin())
        return out


class LoudLinear(nn.Linear):
    """A linear layer that is not quite one."""

    def forward(self, x: Tensor) -> Tensor:
        return 2.0 * super().forward(x) + 1.0


class Tripled(nn.Module):
    """Three times the weight."""

    def forward(self, weight: Tensor) -> Tensor:
        return 3.0 * weight


def replace_part(model: Any, name: str, module: nn.Module) -> Change:
    old = model.network.get_submodule(name)
    model.network.set_submodule(name, module)
    return model, lambda: model.network.set_submodule(name, old)


def _subclass(kind: type[nn.Module], new: type[nn.Module], under: str = "") -> Mutation:
    def apply(model: Any) -> Change:
        name, module = find_middle(model.network, kind, under)
        other = copy.deepcopy(module)
        other.__class__ = new
        return replace_part(model, name, other)

    return Mutation(apply, has_part(kind, under))


def _other_weights(kind: Any, under: str = "") -> Mutation:
    def apply(model: Any) -> Change:
        name, module = find_middle(model.network, kind, under)
        other = copy.deepcopy(module)
        for parameter in other.parameters():
            parameter.data = parameter.data + 0.4 * draw_normal(parameter.shape)
        return replace_part(model, name, other)

    return Mutation(apply, has_part(kind, under))


def _new_linear(model: Any) -> Change:
    """A layer that was just made, which is in training; it has no dropout, so nobody sees that."""
    name, old = find_middle(model.network, nn.Linear)
    new = nn.Linear(old.in_features, old.out_features)
    new.weight.data, new.bias.data = draw_normal(new.weight.shape), draw_normal(new.bias.shape)
    return replace_part(model, name, new)


def _own_forward(kind: Any, under: str = "") -> Mutation:
    def apply(model: Any) -> Change:
        _, module = find_middle(model.network, kind, under)
        forward = module.forward
        module.forward = lambda *inputs, **named: shift(forward(*inputs, **named))
        return model, lambda: module.__dict__.pop("forward")

    return Mutation(apply, has_part(kind, under))


def _parametrize(model: Any) -> Change:
    _, linear = find_middle(model.network, nn.Linear)
    parametrize.register_parametrization(linear, "weight", Tripled())
    return model, lambda: parametrize.remove_parametrizations(linear, "weight", leave_parametrized=False)


@torch.no_grad()
def _weight_norm(model: Any) -> Change:
    _, linear = find_middle(model.network, nn.Linear)
    weight_norm(linear)
    linear.parametrizations.weight.original0.mul_(3.0)
    return model, None


def _drop_layer(model: Any) -> Change:
    name, last = find_parts(model.network, (TransformerBlock, GatedConvolution))[-1]
    stack = model.network.get_submodule(name.rpartition(".")[0])
    del stack[-1]
    return model, lambda: stack.append(last)


def _other_positions(model: Any) -> Change:
    _, attention = find_middle(model.network, SelfAttention)
    old = attention.relative
    attention.relative = Near(attention.num_heads)
    return model, lambda: setattr(attention, "relative", old)


def _attribute(kind: Any, name: str, change: Callable[[Any], Any]) -> Mutation:
    def apply(model: Any) -> Change:
        _, module = find_middle(model.network, kind)
        old = getattr(module, name)
        setattr(module, name, change(old))
        return model, lambda: setattr(module, name, old)

    return Mutation(apply, has_part(kind))


def _other_activation(kind: str) -> str:
    return "relu-gated" if kind.endswith("-gated") else "squared-relu"


def _may_drop(network: nn.Module) -> bool:
    """Where no other stack has to have as many layers."""
    alone = not hasattr(network, "forwards") and not find_parts(network, CrossAttention)
    kinds = (TransformerBlock, GatedConvolution) if alone else TransformerBlock
    return bool(find_parts(network, kinds)) and not hasattr(network, "forwards")


STRUCTURE = {
    "replaced-linear": Mutation(_new_linear, has_part(nn.Linear)),
    "replaced-layer": _other_weights(LAYERS),
    "replaced-output": _other_weights((OutputLayer, Pool)),
    "other-positions": Mutation(_other_positions, has_part(SelfAttention)),
    "subclass-attention": _subclass(SelfAttention, LoudAttention),
    "subclass-feed-forward": _subclass(FeedForward, SineFeedForward),
    "subclass-linear": _subclass(nn.Linear, LoudLinear),
    "own-forward-layer": _own_forward(LAYERS),
    "own-forward-linear": _own_forward(nn.Linear),
    "own-forward-norm": _own_forward((nn.LayerNorm, nn.RMSNorm)),
    "parametrized": Mutation(_parametrize, has_part(nn.Linear)),
    "weight_norm": Mutation(_weight_norm, has_part(nn.Linear)),
    "dropped-layer": Mutation(_drop_layer, _may_drop),
    "attribute-epsilon": _attribute((nn.LayerNorm, nn.RMSNorm), "eps", lambda eps: 3.0),
    "attribute-factor": _attribute(TokenEmbedding, "factor", lambda factor: -factor),
    "attribute-activation": _attribute(FeedForward, "activation", _other_activation),
    "attribute-normalise": _attribute(SelfAttention, "normalise_qk", lambda on: not on),
}
"""Of what the network is made of."""
