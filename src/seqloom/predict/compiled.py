"""The compiled copy of a network: it makes answers fast, and never changes them.

In a copy, the weights of Transformer blocks, linear layers and the output layer are packed in the order in which the
kernels read them. Kernels serve exactly the classes and options named here. All other modules compute as before.
"""

from typing import Any

from jaxtyping import Float
from torch import Tensor, nn

from seqloom.decoders.transformer import TransformerDecoder, TransformerState
from seqloom.native import block as native
from seqloom.native.library import serves
from seqloom.native.structures import ACTIVATIONS
from seqloom.nn.cache import LayerCache, LayerSource
from seqloom.nn.dropout import Dropout
from seqloom.nn.embeddings import OutputLayer, TokenEmbedding
from seqloom.nn.feedforward import FeedForward
from seqloom.nn.multihead import CrossAttention, SelfAttention
from seqloom.nn.packing import Packing, Pairing
from seqloom.nn.positions import Rotary
from seqloom.nn.transformer import Residual, TransformerBlock
from seqloom.types import DecodeState

_WIDEST = 512  # beyond this width a product is limited by memory bandwidth, and packing gains nothing


def pack_weights(clone: nn.Module) -> nn.Module:
    """Change a copy of a network so that kernels compute what they can."""
    for block in [module for module in clone.modules() if _serves_block(module)]:
        assert isinstance(block, TransformerBlock)
        packed = native.PackedBlock(_describe(block))
        block.__class__ = CompiledBlock
        block.__dict__["packed"] = packed
        for name, layer in packed.layers.items():
            _find_layers(block)[name].__dict__["packed"] = layer
    for module in clone.modules():
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
    _remove_dropout(clone)
    return clone


def _remove_dropout(clone: nn.Module) -> None:
    """Remove what does nothing in evaluation mode."""
    for module in clone.modules():
        if type(module) is TokenEmbedding and not module.training:
            module.word_dropout = 0.0
        for name, child in module.named_children():
            if type(child) is Dropout and not child.training:
                module._modules[name] = nn.Identity()


def _forget(weight: Tensor) -> nn.Parameter:
    """A matrix of the same shape that takes no memory: its numbers are packed elsewhere."""
    return nn.Parameter(weight.new_zeros(()).expand(weight.shape), requires_grad=False)


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
        return self.packed(self.narrow(states))


class CompiledBlock(TransformerBlock):
    """Computes whole sequences after attention in one call; `CompiledDecoder` takes the steps of decoding."""

    packed: native.PackedBlock

    def forward(
        self,
        x: Float[Tensor, "N D"],
        tokens: Packing | LayerCache,
        memory: Float[Tensor, "M E"] | LayerSource | None = None,
        pairing: Pairing | None = None,
    ) -> Float[Tensor, "N D"]:
        """The same as `TransformerBlock.forward`."""
        if isinstance(tokens, Packing) and self.cross is None:
            return self.packed.finish(x, self.attention.attend(self.attention_residual.enter(x), tokens))
        return super().forward(x, tokens, memory, pairing)


class CompiledDecoder(TransformerDecoder):
    """Takes a step of one token per row in one call, and other steps as its base class does."""

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


def is_served(module: nn.Module) -> bool:
    """Whether a kernel can compute what a module does."""
    return _serves_product(module) or _serves_block(module)


def _serves_product(module: nn.Module) -> bool:
    return type(module) in (nn.Linear, OutputLayer) and min(module.weight.shape) <= _WIDEST  # type: ignore[arg-type]


def _serves_block(module: nn.Module) -> bool:
    if type(module) is not TransformerBlock:
        return False
    attention, cross, feedforward = module.attention, module.cross, module.feedforward
    if type(attention) is not SelfAttention or type(feedforward) is not FeedForward:
        return False
    residuals = _find_residuals(module)
    if cross is not None and (
        type(cross) is not CrossAttention
        or (cross.num_heads, cross.head_dim) != (attention.num_heads, attention.head_dim)
        or type(cross.memory_projection) is not nn.Linear
    ):
        return False
    return (
        all(type(layer) is nn.Linear for layer in _find_layers(module).values())
        and attention.out_projection.out_features <= _WIDEST
        and type(feedforward.dropout) is Dropout
        and feedforward.activation.removesuffix("-gated") in ACTIVATIONS
        and all(_serves_residual(one, attention.out_projection.out_features) for one in residuals.values())
        and len({one.position for one in residuals.values()}) == 1
        and len(residuals) == (2 if cross is None else 3)
    )


def _find_residuals(block: TransformerBlock) -> dict[str, Residual]:
    """The residual connections of a block, as `native.BlockWeights` names them."""
    found = {
        "attention": block.attention_residual,
        "feedforward": block.feedforward_residual,
        "cross": block.cross_residual,
    }
    return {name: one for name, one in found.items() if one is not None}


def _find_layers(block: TransformerBlock) -> dict[str, nn.Module]:
    """The linear layers of a block, as `native.BlockWeights` names them."""
    attention, cross, feedforward = block.attention, block.cross, block.feedforward
    assert feedforward is not None
    layers: dict[str, nn.Module] = {"in": attention.in_projection, "out": attention.out_projection}
    layers |= {"expand": feedforward.expand, "contract": feedforward.contract}
    return layers if cross is None else layers | {"query": cross.query_projection, "cross_out": cross.out_projection}


def _serves_step(block: nn.Module) -> bool:
    if type(block) is not CompiledBlock:
        return False
    attention = block.attention
    known = attention.relative is None or _find_frequencies(attention) is not None
    plain = attention.window is None and not attention.normalise_qk
    return attention.causal and not attention.reverse and plain and known


def _find_frequencies(attention: SelfAttention) -> Tensor | None:
    """The frequencies of rotary positions, if the kernels can compute with them."""
    relative = attention.relative
    return relative.frequencies if type(relative) is Rotary and serves(relative.frequencies) else None


def _serves_residual(residual: nn.Module, dim: int) -> bool:
    if type(residual) is not Residual or type(residual.dropout) is not Dropout:
        return False
    norm = residual.norm
    known = type(norm) is nn.RMSNorm or (type(norm) is nn.LayerNorm and norm.bias is not None)
    return known and norm.weight is not None and norm.normalized_shape == (dim,) and norm.eps is not None


def _describe(block: TransformerBlock) -> native.BlockWeights:
    attention = block.attention
    assert block.feedforward is not None
    return native.BlockWeights(
        num_heads=attention.num_heads,
        num_kv_heads=attention.num_kv_heads,
        head_dim=attention.head_dim,
        activation=block.feedforward.activation,
        post_norm=block.attention_residual.position == "post",
        norms={name: _describe_norm(one.norm) for name, one in _find_residuals(block).items()},
        layers={name: _describe_linear(layer) for name, layer in _find_layers(block).items()},
        rotary_frequencies=_find_frequencies(attention),
    )


def _describe_linear(layer: nn.Module) -> Any:
    assert isinstance(layer, nn.Linear)
    return layer.weight, layer.bias


def _describe_norm(norm: nn.Module) -> native.NormWeights:
    assert isinstance(norm, nn.LayerNorm | nn.RMSNorm)
    assert norm.eps is not None
    return native.NormWeights(norm.weight, None if isinstance(norm, nn.RMSNorm) else norm.bias, norm.eps)
