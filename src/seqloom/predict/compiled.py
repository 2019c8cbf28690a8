"""The compiled copy of a network: what makes answers fast, and never decides what they are.

The network is an ordinary module, and the truth. What is kept here is derived from it: a private copy in which
Transformer blocks, linear layers and the output layer have laid their weights out as the kernels of `native/` read
them. It never changes. Where the network has changed since, in any way, a new copy is made; where the network does
something that a copy could not promise to do alike, such as calling a hook, the network itself answers.

A kernel serves exactly the classes and options that are named here. All other parts of a copy compute as ever.
"""

import copy
import threading
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from seqloom import native
from seqloom.decoders.transformer import TransformerDecoder, TransformerState
from seqloom.errors import RunError
from seqloom.native.library import HOOKS
from seqloom.native.structures import ACTIVATIONS
from seqloom.nn.cache import LayerCache, LayerSource
from seqloom.nn.dropout import Dropout
from seqloom.nn.embeddings import OutputLayer, TokenEmbedding, check_ids
from seqloom.nn.feedforward import FeedForward
from seqloom.nn.multihead import CrossAttention, SelfAttention
from seqloom.nn.packing import Packing, Pairing
from seqloom.nn.positions import Rotary
from seqloom.nn.transformer import Residual, TransformerBlock
from seqloom.predict.faithful import is_disturbed, is_faithful
from seqloom.predict.snapshot import Snapshot
from seqloom.types import DecodeState

_WIDEST = 512  # beyond this width a product is limited by memory bandwidth, and packing gains nothing


class Compiler:
    """Gives whatever computes fastest what a network computes."""

    def __init__(self, network: nn.Module, *, private: bool = False, enabled: bool = True) -> None:
        self.network, self.enabled = network, enabled
        self.private = private
        """Whether nobody else can have changed the network, so that it need not be looked at again."""
        self._lock = threading.Lock()
        self._made: tuple[Snapshot | None, nn.Module] | None = None

    def __getstate__(self) -> dict[str, Any]:
        return {"network": self.network, "enabled": self.enabled}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__init__(**state)  # type: ignore[misc]

    def get(self) -> nn.Module:
        """The compiled copy of the network as it is now, or the network itself."""
        if not self.enabled or is_disturbed() or not native.serves():
            self._refuse_random()
            return self.network
        with self._lock:
            if self._made is not None and (self.private or (self._made[0] is not None and self._made[0].holds())):
                return self._made[1]
            self._refuse_random()
            self._made = None
            if self.private or is_faithful(self.network):
                self._made = None if self.private else Snapshot(self.network), compile_network(self.network)
                return self._made[1]
            return self.network

    def _refuse_random(self) -> None:
        if not self.private and any(map(_is_random, self.network.modules())):
            raise RunError(
                "the network is in training mode, in which dropout makes its answers random; call "
                "model.network.eval() first"
            )

    def freeze(self) -> nn.Module:
        """Like `get`, but later changes of the network do not reach it; its hooks are those of the network.

        A `forward` of an instance's own may still reach around the copy, to what it was written for.
        """
        found = self.get()
        if found is not self.network:
            return found
        hooks = [hook for module in found.modules() for name in HOOKS for hook in module.__dict__[name].values()]
        return copy.deepcopy(found, {id(hook): hook for hook in hooks})


def compile_network(network: nn.Module) -> nn.Module:
    """A copy of a network for use, whose weights are laid out for the kernels; the network, where none serves it."""
    served = is_faithful(network) and native.serves(*network.parameters()) and any(map(_serves, network.modules()))
    if not served:
        return network
    twin = copy.deepcopy(network).requires_grad_(False)
    for block in [module for module in twin.modules() if _serves_block(module)]:
        assert isinstance(block, TransformerBlock)
        packed = native.PackedBlock(_describe(block))
        block.__class__ = CompiledBlock
        block.__dict__["packed"] = packed
        for name, layer in packed.layers.items():
            _find_layers(block)[name].__dict__["packed"] = layer
    for module in twin.modules():
        if type(module) is TokenEmbedding and type(module.dropout) is Dropout:
            module.__class__ = CompiledEmbedding
        if type(module) is TransformerDecoder and all(map(_serves_step, module.blocks)):
            packed_blocks = [block.__dict__["packed"] for block in module.blocks]
            if len({packed.shape for packed in packed_blocks}) == 1:
                module.__dict__["packed"] = native.PackedStack(packed_blocks)
                module.__class__ = CompiledDecoder
        if _serves_product(module):
            if "packed" not in module.__dict__:
                module.__dict__["packed"] = native.PackedLinear(module.weight, module.bias)  # type: ignore[arg-type]
            module.__class__ = CompiledLinear if isinstance(module, nn.Linear) else CompiledOutput
            module._parameters["weight"] = _forget(module.weight)  # type: ignore[arg-type]
        for name, part in module.named_children():
            if type(part) is Dropout and not part.training:
                setattr(module, name, nn.Identity())
    return twin


def _forget(weight: Tensor) -> nn.Parameter:
    """A matrix of the same shape that takes no memory: its numbers are packed elsewhere."""
    return nn.Parameter(weight.new_zeros(()).expand(weight.shape), requires_grad=False)


class CompiledEmbedding(TokenEmbedding):
    """Vectors of ids; nothing is dropped."""

    def forward(
        self, ids: Int[Tensor, "*N"], documents: Int[Tensor, "*N"] | None = None, *, check: bool = True
    ) -> Float[Tensor, "*N D"]:
        """Look the ids up."""
        if check:
            check_ids(ids, len(self.weight), "ids")
        vectors = torch.embedding(self.weight, ids)
        if self.factor != 1.0:
            vectors = vectors * self.factor
        return vectors if self.segments is None else vectors + self.segments(ids, documents)


class CompiledLinear(nn.Linear):
    """x Wᵀ + b."""

    packed: native.PackedLinear

    def forward(self, x: Float[Tensor, "*N D"]) -> Float[Tensor, "*N E"]:
        """The product."""
        return self.packed(x)


class CompiledOutput(OutputLayer):
    """Scores over the vocabulary."""

    packed: native.PackedLinear

    def forward(self, states: Float[Tensor, "*N D"]) -> Float[Tensor, "*N V"]:
        """Logits."""
        return self.packed(states)


class CompiledBlock(TransformerBlock):
    """One call for all that follows attention, over whole sequences; `CompiledDecoder` takes the steps."""

    packed: native.PackedBlock

    def forward(
        self,
        x: Float[Tensor, "N D"],
        tokens: Packing | LayerCache,
        memory: Float[Tensor, "M E"] | LayerSource | None = None,
        pairing: Pairing | None = None,
    ) -> Float[Tensor, "N D"]:
        """As `TransformerBlock` does."""
        if isinstance(tokens, Packing) and self.cross is None:
            return self.packed.finish(x, self.attention.attend(self.attention_residual.enter(x), tokens))
        return super().forward(x, tokens, memory, pairing)


class CompiledDecoder(TransformerDecoder):
    """A decoder that takes a step in one call; several tokens of a row at once are left to its class."""

    packed: native.PackedStack

    def _advance(
        self, x: Float[Tensor, "R T D"], state: DecodeState, record: list[Tensor] | None
    ) -> tuple[Float[Tensor, "R T E"], TransformerState]:
        assert isinstance(state, TransformerState)
        cache, source = state.cache, state.source
        if x.shape[1] != 1 or record is not None or max(state.positions, default=0) >= cache.layers[0].shape[2]:
            return super()._advance(x, state, record)
        new = cache.extend(state.positions, 1)
        if self.positions is not None:
            x = self.positions.encode_step(x, new, state.table)
        sources, bias = (None, None) if source is None else (source.layers, source.bias)
        x = self.packed.step(self.input_norm(x.squeeze(1)), cache.layers, new.read_int32, new.slots, sources, bias)
        return self.final_norm(x).unsqueeze(1), state


def _is_random(module: nn.Module) -> bool:
    """Whether a module drops out."""
    rates = [module.__dict__.get(name) for name in ("p", "dropout", "word_dropout")]
    return module.training and any(isinstance(rate, float | int) and rate > 0 for rate in rates)


def _serves(module: nn.Module) -> bool:
    return _serves_product(module) or _serves_block(module)


def _serves_product(module: nn.Module) -> bool:
    return type(module) in (nn.Linear, OutputLayer) and min(module.weight.shape) <= _WIDEST  # type: ignore[arg-type]


def _serves_block(module: nn.Module) -> bool:
    if type(module) is not TransformerBlock:
        return False
    attention, cross, feedforward = module.attention, module.cross, module.feedforward
    residuals = [module.attention_residual, module.feedforward_residual]
    if cross is not None and module.cross_residual is not None:
        residuals.append(module.cross_residual)
    if type(attention) is not SelfAttention or type(feedforward) is not FeedForward:
        return False
    if cross is not None and (
        type(cross) is not CrossAttention
        or (cross.num_heads, cross.head_dim) != (attention.num_heads, attention.head_dim)
        or type(cross.memory_projection) is not nn.Linear
    ):
        return False
    return (
        all(type(layer) is nn.Linear for layer in _find_layers(module).values())
        and attention.in_projection.in_features <= _WIDEST
        and type(feedforward.dropout) is Dropout
        and feedforward.activation.removesuffix("-gated") in ACTIVATIONS
        and all(_serves_residual(one, attention.in_projection.in_features) for one in residuals)
        and len({one.position for one in residuals}) == 1
        and (cross is None) == (module.cross_residual is None)
    )


def _find_layers(block: TransformerBlock) -> dict[str, nn.Module]:
    """The linear layers of a block, as `native.BlockWeights` names them."""
    attention, cross, feedforward = block.attention, block.cross, block.feedforward
    layers: dict[str, nn.Module] = {
        "in_projection": attention.in_projection,
        "out_projection": attention.out_projection,
        "expand": feedforward.expand,
        "contract": feedforward.contract,
    }
    if cross is not None:
        layers |= {"query_projection": cross.query_projection, "cross_out_projection": cross.out_projection}
    return layers


def _serves_step(block: nn.Module) -> bool:
    if type(block) is not CompiledBlock:
        return False
    attention = block.attention
    known = attention.relative is None or _find_frequencies(attention) is not None
    plain = attention.window is None and not attention.normalise_qk
    return attention.causal and not attention.reverse and plain and known


def _find_frequencies(attention: SelfAttention) -> Tensor | None:
    """Those of rotary positions that the kernels serve."""
    relative = attention.relative
    return relative.frequencies if type(relative) is Rotary and native.serves(relative.frequencies) else None


def _serves_residual(residual: nn.Module, dim: int) -> bool:
    if type(residual) is not Residual or type(residual.dropout) is not Dropout:
        return False
    norm = residual.norm
    known = type(norm) is nn.RMSNorm or (type(norm) is nn.LayerNorm and norm.bias is not None)
    return known and norm.weight is not None and norm.normalized_shape == (dim,) and norm.eps is not None


def _describe(block: TransformerBlock) -> native.BlockWeights:
    attention = block.attention
    return native.BlockWeights(
        num_heads=attention.num_heads,
        num_kv_heads=attention.num_kv_heads,
        head_dim=attention.head_dim,
        activation=block.feedforward.activation,
        post_norm=block.attention_residual.position == "post",
        attention_norm=_describe_norm(block.attention_residual.norm),
        feedforward_norm=_describe_norm(block.feedforward_residual.norm),
        cross_norm=None if block.cross_residual is None else _describe_norm(block.cross_residual.norm),
        rotary_frequencies=_find_frequencies(attention),
        **{name: _describe_linear(layer) for name, layer in _find_layers(block).items()},
    )


def _describe_linear(layer: nn.Module) -> Any:
    assert isinstance(layer, nn.Linear)
    return layer.weight, layer.bias


def _describe_norm(norm: nn.Module) -> native.NormWeights:
    assert isinstance(norm, nn.LayerNorm | nn.RMSNorm)
    assert norm.eps is not None
    return native.NormWeights(norm.weight, None if isinstance(norm, nn.RMSNorm) else norm.bias, norm.eps)
