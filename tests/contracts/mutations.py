"""What a user may do to the network of a loaded model: each changes what the model must answer from then on."""

from typing import Any

from torch import Tensor, nn
from torch.nn.modules import module as every_module

from contracts.edits import WEIGHTS
from contracts.mutation import LAYERS, Change, Mutation, find_middle, has_part, shift
from contracts.replacements import STRUCTURE
from seqloom.decoders.base import Decoder
from seqloom.nn.attention import GlobalAttention, Pool
from seqloom.nn.convolution import GatedConvolution
from seqloom.nn.embeddings import OutputLayer, TokenEmbedding
from seqloom.nn.feedforward import FeedForward
from seqloom.nn.multihead import CrossAttention, SelfAttention
from seqloom.nn.recurrent import RecurrentLayer
from seqloom.nn.transformer import TransformerBlock

KINDS: dict[str, type[nn.Module] | tuple[type[nn.Module], ...]] = {
    "self-attention": SelfAttention,
    "cross-attention": CrossAttention,
    "lookup": GlobalAttention,
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


def _after(module: nn.Module, inputs: Any, output: Tensor) -> Tensor:
    return shift(output)


def _before(module: nn.Module, inputs: tuple[Any, ...]) -> tuple[Any, ...]:
    return (shift(inputs[0]), *inputs[1:])


def _hook(kind: Any, under: str) -> Mutation:
    def apply(model: Any) -> Change:
        _, module = find_middle(model.network, kind, under)
        return model, module.register_forward_hook(_after).remove

    return Mutation(apply, has_part(kind, under))


def _pre_hook(kind: Any, under: str) -> Mutation:
    def apply(model: Any) -> Change:
        _, module = find_middle(model.network, kind, under)
        return model, module.register_forward_pre_hook(_before).remove

    return Mutation(apply, has_part(kind, under))


def _hook_all(model: Any) -> Change:
    def after(module: nn.Module, inputs: Any, output: Any) -> Any:
        return shift(output) if isinstance(module, LAYERS) else None

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
ONE = WEIGHTS | EVERYWHERE | STRUCTURE
"""All that is the same for every network; hooks are listed for each part of it."""
KEY = ("load_state_dict", "data-one-element", "hook-global")
"""Those that are tried on every model."""


def list_mutations(network: nn.Module) -> dict[str, Mutation]:
    """Everything that can be done to a network; where it has two stacks, the hooks in each."""
    stacks = [name for name in ("encoder", "decoder", "forwards", "backwards") if hasattr(network, name)]
    found = ONE | list_hooks(*stacks)
    return {name: mutation for name, mutation in found.items() if mutation.fits(network)}
