"""What a user may do to the network of a loaded model: each changes what the model must answer from then on."""

import copy
import pickle
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules import module as every_module
from torch.nn.utils import parametrize
from torch.nn.utils.parametrizations import weight_norm

from seqloom.decoders.base import Decoder
from seqloom.nn.convolution import GatedConvolution
from seqloom.nn.embeddings import OutputLayer, TokenEmbedding
from seqloom.nn.feedforward import FeedForward
from seqloom.nn.lookup import Lookup
from seqloom.nn.multihead import CrossAttention, SelfAttention
from seqloom.nn.pooling import Pool
from seqloom.nn.recurrent import RecurrentLayer
from seqloom.nn.transformer import TransformerBlock

Undo = Callable[[], Any]
Change = tuple[Any, Undo | None]
"""The model that is changed, most often the one that was given, and what undoes the change, where that can be done."""
LAYERS = (TransformerBlock, RecurrentLayer, GatedConvolution)
KINDS: dict[str, type[nn.Module] | tuple[type[nn.Module], ...]] = {
    "self-attention": SelfAttention,
    "cross-attention": CrossAttention,
    "lookup": Lookup,
    "feed-forward": FeedForward,
    "linear": nn.Linear,
    "norm": (nn.LayerNorm, nn.RMSNorm),
    "block": TransformerBlock,
    "recurrent-layer": RecurrentLayer,
    "convolution": GatedConvolution,
    "pool": Pool,
    "embedding": TokenEmbedding,
    "output": OutputLayer,
    "decoder": Decoder,
}
"""What a hook may be on."""


@dataclass(frozen=True)
class Mutation:
    """Something done to a model, and how near the answers must then be to those of the open one."""

    apply: Callable[[Any], Change]
    fits: Callable[[nn.Module], bool] = lambda network: True
    """Whether a network has what is changed."""
    tolerance: float = 1e-5
    precision: bool = False
    """Whether the processor may not be able to compute in it; a model may then say so."""


def find_parts(network: nn.Module, kind: Any, under: str = "") -> list[tuple[str, nn.Module]]:
    """The modules of a kind in one part of a network, by name."""
    return [(name, m) for name, m in network.named_modules() if isinstance(m, kind) and name.startswith(under)]


def _middle(network: nn.Module, kind: Any, under: str = "") -> tuple[str, Any]:
    found = find_parts(network, kind, under)
    return found[len(found) // 2]


def _has(kind: Any, under: str = "") -> Callable[[nn.Module], bool]:
    return lambda network: bool(find_parts(network, kind, under))


def _weight(network: nn.Module) -> nn.Parameter:
    """A matrix that every answer of a search depends on, row by row: of the last layer that has one."""
    wanted = re.compile(r"(in_projection\.weight|weight_ih_l0|value\.weight)$")
    return [parameter for name, parameter in network.named_parameters() if wanted.search(name)][-1]


def _seeded(shape: Any, seed: int = 5) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def _direct(output: Tensor) -> Tensor:
    """Moved by the same vector at every position: what a norm does not take back."""
    move = torch.linspace(-2.0, 3.0, output.shape[-1]).sin().to(output)
    return output * 1.5 + move


# ---------------------------------------------------------------------------------------------------------- weights


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
        other = {name: value + 0.3 * _seeded(value.shape, len(name)) for name, value in old.items()}
        model.network.load_state_dict(other, assign=assign)
        return model, lambda: model.network.load_state_dict(old)

    return Mutation(apply)


def _new_parameter(model: Any) -> Change:
    _, layer = _middle(model.network, (TokenEmbedding, OutputLayer))
    old = layer.weight
    layer.weight = nn.Parameter(old.detach() + _seeded(old.shape))
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
        buffer.copy_(buffer * 2.0 + _seeded(buffer.shape).to(buffer).abs())
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
    "data": _in_place(lambda p: p.data.add_(_seeded(p.shape))),
    "data-one-element": _in_place(lambda p: p.data[-1, -1:].add_(32.0)),
    "numpy-view": _in_place(lambda p: _scale_view(p, 4.0), lambda p: _scale_view(p, 0.25)),
    "data-set": _in_place(_set_data),
    "new-parameter": Mutation(_new_parameter),
    "optimizer-step": Mutation(_learn),
    "pruned-head": Mutation(_prune_heads, _has((SelfAttention, CrossAttention))),
    "buffers": Mutation(_edit_buffers, lambda network: any(True for _ in network.buffers())),
    "deepcopy": _edited_copy(copy.deepcopy),
    "pickle": _edited_copy(lambda model: pickle.loads(pickle.dumps(model))),
    "double": _cast(torch.float64, 1e-5, back=True),
    "bfloat16": _cast(torch.bfloat16, 0.1),
    "half": _cast(torch.float16, 0.02),
}
"""Of the numbers. In 16 bits, the order of a sum is seen in the second or third digit."""

# ------------------------------------------------------------------------------------------------------------ hooks


def _after(module: nn.Module, inputs: Any, output: Tensor) -> Tensor:
    return _direct(output)


def _before(module: nn.Module, inputs: tuple[Any, ...]) -> tuple[Any, ...]:
    return (_direct(inputs[0]), *inputs[1:])


def _hook(kind: Any, under: str) -> Mutation:
    def apply(model: Any) -> Change:
        _, module = _middle(model.network, kind, under)
        return model, module.register_forward_hook(_after).remove

    return Mutation(apply, _has(kind, under))


def _pre_hook(kind: Any, under: str) -> Mutation:
    def apply(model: Any) -> Change:
        _, module = _middle(model.network, kind, under)
        return model, module.register_forward_pre_hook(_before).remove

    return Mutation(apply, _has(kind, under))


def _hook_all(model: Any) -> Change:
    def after(module: nn.Module, inputs: Any, output: Any) -> Any:
        return _direct(output) if isinstance(module, LAYERS) else None

    return model, every_module.register_module_forward_hook(after).remove


def _pre_hook_all(model: Any) -> Change:
    def before(module: nn.Module, inputs: Any) -> Any:
        return _before(module, inputs) if isinstance(module, LAYERS) else None

    return model, every_module.register_module_forward_pre_hook(before).remove


def list_hooks(*parts: str) -> dict[str, Mutation]:
    """A hook on each kind of module, in each of these parts of a network where there is more than one of the kind."""
    hooks: dict[str, Mutation] = {}
    for name, kind in KINDS.items():
        shared = kind in (TokenEmbedding, OutputLayer, Pool, Decoder)
        hooks |= {f"hook-{name}@{part}": _hook(kind, part) for part in (("",) if shared else parts)}
    before = ("self-attention", "cross-attention", "linear", "recurrent-layer", "convolution")
    return hooks | {f"pre-hook-{name}": _pre_hook(KINDS[name], parts[-1]) for name in before}


EVERYWHERE = {"hook-global": Mutation(_hook_all), "pre-hook-global": Mutation(_pre_hook_all)}

# -------------------------------------------------------------------------------------------------------- structure


class BiasedAttention(SelfAttention):
    """The nearer a position, the more it is looked at."""

    def score_bias(self, back: Tensor) -> Tensor:
        given = super().score_bias(back)
        bias = -0.8 * back.abs().unsqueeze(-3).float().expand(*back.shape[:-2], self.num_heads, -1, -1)
        return bias if given is None else bias + given


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


def _replace(model: Any, name: str, module: nn.Module) -> Change:
    old = model.network.get_submodule(name)
    model.network.set_submodule(name, module)
    return model, lambda: model.network.set_submodule(name, old)


def _subclass(kind: type[nn.Module], new: type[nn.Module], under: str = "") -> Mutation:
    def apply(model: Any) -> Change:
        name, module = _middle(model.network, kind, under)
        other = copy.deepcopy(module)
        other.__class__ = new
        return _replace(model, name, other)

    return Mutation(apply, _has(kind, under))


def _other_weights(kind: Any, under: str = "") -> Mutation:
    def apply(model: Any) -> Change:
        name, module = _middle(model.network, kind, under)
        other = copy.deepcopy(module)
        for parameter in other.parameters():
            parameter.data = parameter.data + 0.4 * _seeded(parameter.shape)
        return _replace(model, name, other)

    return Mutation(apply, _has(kind, under))


def _new_linear(model: Any) -> Change:
    """A layer that was just made, which is in training; it has no dropout, so nobody sees that."""
    name, old = _middle(model.network, nn.Linear)
    new = nn.Linear(old.in_features, old.out_features)
    new.weight.data, new.bias.data = _seeded(new.weight.shape), _seeded(new.bias.shape)
    return _replace(model, name, new)


def _own_forward(kind: Any, under: str = "") -> Mutation:
    def apply(model: Any) -> Change:
        _, module = _middle(model.network, kind, under)
        forward = module.forward
        module.forward = lambda *inputs, **named: _direct(forward(*inputs, **named))
        return model, lambda: module.__dict__.pop("forward")

    return Mutation(apply, _has(kind, under))


def _parametrize(model: Any) -> Change:
    _, linear = _middle(model.network, nn.Linear)
    parametrize.register_parametrization(linear, "weight", Tripled())
    return model, lambda: parametrize.remove_parametrizations(linear, "weight", leave_parametrized=False)


@torch.no_grad()
def _weight_norm(model: Any) -> Change:
    _, linear = _middle(model.network, nn.Linear)
    weight_norm(linear)
    linear.parametrizations.weight.original0.mul_(3.0)
    return model, None


def _drop_layer(model: Any) -> Change:
    name, last = find_parts(model.network, (TransformerBlock, GatedConvolution))[-1]
    stack = model.network.get_submodule(name.rpartition(".")[0])
    del stack[-1]
    return model, lambda: stack.append(last)


def _attribute(kind: Any, name: str, change: Callable[[Any], Any]) -> Mutation:
    def apply(model: Any) -> Change:
        _, module = _middle(model.network, kind)
        old = getattr(module, name)
        setattr(module, name, change(old))
        return model, lambda: setattr(module, name, old)

    return Mutation(apply, _has(kind))


def _other_activation(kind: str) -> str:
    return "relu-gated" if kind.endswith("-gated") else "squared-relu"


def _may_drop(network: nn.Module) -> bool:
    """Where no other stack has to have as many layers."""
    alone = not hasattr(network, "forwards") and not find_parts(network, CrossAttention)
    kinds = (TransformerBlock, GatedConvolution) if alone else TransformerBlock
    return bool(find_parts(network, kinds)) and not hasattr(network, "forwards")


STRUCTURE = {
    "replaced-linear": Mutation(_new_linear, _has(nn.Linear)),
    "replaced-layer": _other_weights(LAYERS),
    "replaced-output": _other_weights((OutputLayer, Pool)),
    "subclass-attention-bias": _subclass(SelfAttention, BiasedAttention),
    "subclass-attention": _subclass(SelfAttention, LoudAttention),
    "subclass-feed-forward": _subclass(FeedForward, SineFeedForward),
    "subclass-linear": _subclass(nn.Linear, LoudLinear),
    "own-forward-layer": _own_forward(LAYERS),
    "own-forward-linear": _own_forward(nn.Linear),
    "own-forward-norm": _own_forward((nn.LayerNorm, nn.RMSNorm)),
    "parametrized": Mutation(_parametrize, _has(nn.Linear)),
    "weight_norm": Mutation(_weight_norm, _has(nn.Linear)),
    "dropped-layer": Mutation(_drop_layer, _may_drop),
    "attribute-epsilon": _attribute((nn.LayerNorm, nn.RMSNorm), "eps", lambda eps: 3.0),
    "attribute-factor": _attribute(TokenEmbedding, "factor", lambda factor: -factor),
    "attribute-activation": _attribute(FeedForward, "activation", _other_activation),
    "attribute-normalise": _attribute(SelfAttention, "normalise_qk", lambda on: not on),
}
"""Of what the network is made of."""
ONE = WEIGHTS | EVERYWHERE | STRUCTURE
"""All that is the same for every network; hooks are listed for each part of it."""
KEY = ("load_state_dict", "data-one-element", "hook-global")
"""Those that are tried on every model."""


def list_mutations(network: nn.Module) -> dict[str, Mutation]:
    """Everything that can be done to a network; where it has two stacks, the hooks in each."""
    stacks = [name for name in ("encoder", "decoder", "forwards", "backwards") if hasattr(network, name)]
    found = ONE | list_hooks(*stacks)
    return {name: mutation for name, mutation in found.items() if mutation.fits(network)}
