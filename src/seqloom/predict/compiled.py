"""The compiled copy of a network: it makes answers fast and, in float32, never changes them.

In a copy, the weights of Transformer blocks, linear layers and the output layer are packed in the order in which the
kernels read them. Kernels serve exactly the classes and options named here. All other modules compute as before.

In bfloat16 or int8, the linear layers of Transformer blocks and the output layer have weights of that precision, and
their inputs are rounded to it row by row. Everything else stays in float32: embeddings, norms, activations, attention,
the residual stream, and heads for labels. A row of float32 may differ in its last bit where torch computes it among
other rows; rounding to eight bits would make that a visible difference. So these precisions are for networks in which
kernels compute all that comes before such a layer, and for no others.
"""

from typing import Any

import numpy as np
import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from seqloom.decoders.base import Decoder
from seqloom.decoders.transformer import TransformerDecoder, TransformerState
from seqloom.encoders.base import Encoder
from seqloom.encoders.transformer import TransformerEncoder
from seqloom.native import block as native
from seqloom.native.library import serves
from seqloom.native.structures import ACTIVATIONS
from seqloom.nn.attention import Pool
from seqloom.nn.cache import LayerCache, LayerSource
from seqloom.nn.dropout import Dropout
from seqloom.nn.embeddings import OutputLayer, TokenEmbedding
from seqloom.nn.feedforward import FeedForward
from seqloom.nn.multihead import CrossAttention, SelfAttention
from seqloom.nn.packing import Packing, Pairing
from seqloom.nn.positions import Rotary
from seqloom.nn.transformer import Residual, TransformerBlock
from seqloom.predict.stepping import CompiledState, describe_norm, pack_steps
from seqloom.types import DecodeState, Encoded

_WIDEST = 512  # beyond this width a product is limited by memory bandwidth, and packing gains nothing


def pack_weights(clone: nn.Module, precision: str = "float32") -> nn.Module:
    """Change a copy of a network so that kernels compute what they can."""
    for block in [module for module in clone.modules() if _serves_block(module, precision)]:
        assert isinstance(block, TransformerBlock)
        _pack_block(block, precision)
    for module in clone.modules():
        if type(module) is TransformerDecoder and all(map(_serves_step, module.blocks)):
            packed_blocks = [block.__dict__["packed"] for block in module.blocks]
            if len({packed.shape for packed in packed_blocks}) == 1:
                module.__dict__["packed"] = native.PackedStack(packed_blocks)
                module.__class__ = CompiledDecoder
        if type(module) is OutputLayer and (precision != "float32" or _serves_product(module)):
            _pack_output(module, precision)
        elif type(module) is nn.Linear and ("packed" in module.__dict__ or _serves_product(module)):
            _pack_linear(module)
        elif type(module) is Pool and precision != "float32":
            compile_pool(module)
    _remove_dropout(clone)
    pack_steps(clone)
    return clone


def _pack_block(block: TransformerBlock, precision: str) -> None:
    packed = native.PackedBlock(_describe(block, precision))
    block.__class__ = CompiledBlock
    block.__dict__["packed"] = packed
    for name, layer in packed.layers.items():
        _find_layers(block)[name].__dict__["packed"] = layer
    if precision == "float32":
        return
    block.attention.__class__ = CompiledAttention
    if block.cross is not None:
        memory = block.cross.memory_projection
        memory.__dict__["packed"] = native.PackedLinear(memory.weight, memory.bias, precision)
        block.cross.__class__ = CompiledCrossAttention


def _pack_linear(module: nn.Linear) -> None:
    if "packed" not in module.__dict__:
        module.__dict__["packed"] = native.PackedLinear(module.weight, module.bias)
    module.__class__ = CompiledLinear
    module._parameters["weight"] = _forget(module.weight)


def _pack_output(module: OutputLayer, precision: str) -> None:
    module.__dict__["packed"] = native.PackedLinear(module.weight, module.bias, precision)
    if module.narrowing is not None:
        module.__dict__["narrowed"] = native.PackedLinear(module.narrowing.weight.t(), None)
    module.__class__ = CompiledOutput
    module._parameters["weight"] = _forget(module.weight)


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
    narrowed: native.PackedLinear

    def forward(self, states: Float[Tensor, "*N D"]) -> Float[Tensor, "*N V"]:
        """Logits."""
        return self.packed(states if self.narrowing is None else self.narrowed(states))


class CompiledAttention(SelfAttention):
    """Self-attention that the kernel computes at any length: in the same order, whatever the other sequences."""

    def _has_kernel(self, heads: Tensor, packing: Packing) -> bool:
        return serves(heads)


class CompiledCrossAttention(CrossAttention):
    """The same for attention to a source."""

    def _has_kernel(self, queries: Tensor, memories: Tensor, pairing: Pairing) -> bool:
        return serves(queries, memories)


class CompiledPool(Pool):
    """Summarises each row by itself, without its padding: in the same order, whatever the other rows."""

    def forward(self, states: Float[Tensor, "B T D"], mask: Bool[Tensor, "B T"]) -> Float[Tensor, "B D"]:
        """The same as `Pool.forward`."""
        if self.kind in ("first", "max") or not mask.numel():
            return super().forward(states, mask)  # which adds nothing up
        return torch.stack([self._pool_row(row[kept]) for row, kept in zip(states, mask, strict=True)])

    def _pool_row(self, row: Float[Tensor, "T D"]) -> Float[Tensor, "D"]:
        if self.kind == "mean" and len(row):  # torch adds in an order that depends on its threads
            return torch.from_numpy(np.add.reduce(row.numpy(), axis=0) / np.float32(len(row)))
        return super().forward(row.unsqueeze(0), row.new_ones(1, len(row), dtype=torch.bool))[0]


def compile_pool(pool: Pool) -> Pool:
    """The same pool, for a copy in bfloat16 or int8."""
    if type(pool) is Pool:
        pool.__class__ = CompiledPool
    return pool


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
        if not isinstance(tokens, Packing):
            return super().forward(x, tokens, memory, pairing)
        if self.cross is None or self.cross_residual is None:
            return self.packed.finish(x, self.attention.attend(self.attention_residual.enter(x), tokens))
        x = self.attention_residual(x, lambda h: self.attention(h, tokens))
        assert memory is not None
        return self.packed.finish(x, self.cross.attend(self.cross_residual.enter(x), memory, pairing))


class CompiledDecoder(TransformerDecoder):
    """Takes a step in one call."""

    packed: native.PackedStack

    def _start(self, memory: Encoded | None, batch_size: int, capacity: int) -> TransformerState:
        return CompiledState.of(super()._start(memory, batch_size, capacity))

    def _advance(
        self, x: Float[Tensor, "R T D"], state: DecodeState, record: list[Tensor] | None
    ) -> tuple[Float[Tensor, "R T E"], TransformerState]:
        assert isinstance(state, TransformerState)
        cache, source = state.cache, state.source
        if max(state.positions, default=0) + x.shape[1] > cache.layers[0].shape[2]:
            return super()._advance(x, state, record)  # which refuses
        new = cache.extend(state.positions, x.shape[1])
        if self.positions is not None:
            x = self.positions.encode_step(x, new, state.table)
        sources, bias, weights = None, None, None
        if source is not None:
            sources, bias = source.layers, source.bias
            if record is not None:
                weights = x.new_empty(*x.shape[:2], sources[0][0].shape[2])
                record.append(weights.flatten(0, 1))
        x = self.packed.step(self.input_norm(x), cache.layers, new.read_int32, new.slots, sources, bias, weights)
        return self.final_norm(x), state


def is_served(module: nn.Module) -> bool:
    """Whether a kernel can compute what a module does in float32."""
    return _serves_product(module) or _serves_block(module)


def find_obstacle(network: nn.Module) -> str | None:
    """What keeps a network from computing in bfloat16 or int8, as a clause; None for nothing."""
    stacks = [(name, module) for name, module in network.named_modules() if isinstance(module, Encoder | Decoder)]
    for name, stack in stacks:
        if not isinstance(stack, TransformerEncoder | TransformerDecoder):
            return f"its {name} is no Transformer"
        for block in stack.blocks:
            if not _serves_block(block, "int8"):
                return f"its {name} has a block that the kernels do not compute"
            if block.attention.window is not None:
                return f"its {name} attends within a window"
            if not _has_known_positions(block.attention):
                return f"its {name} has positions that act on the scores of attention"
    return None if stacks else "it has no Transformer"


def _serves_product(module: nn.Module) -> bool:
    return type(module) in (nn.Linear, OutputLayer) and min(module.weight.shape) <= _WIDEST  # type: ignore[arg-type]


def _serves_block(module: nn.Module, precision: str = "float32") -> bool:
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
        and (attention.out_projection.out_features <= _WIDEST or precision != "float32")
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
    return attention.causal and not attention.reverse and attention.window is None and _has_known_positions(attention)


def _has_known_positions(attention: SelfAttention) -> bool:
    return attention.relative is None or _find_frequencies(attention) is not None


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


def _describe(block: TransformerBlock, precision: str) -> native.BlockWeights:
    attention = block.attention
    assert block.feedforward is not None
    return native.BlockWeights(
        num_heads=attention.num_heads,
        num_kv_heads=attention.num_kv_heads,
        head_dim=attention.head_dim,
        activation=block.feedforward.activation,
        post_norm=block.attention_residual.position == "post",
        norms={name: norm for name, one in _find_residuals(block).items() if (norm := describe_norm(one.norm))},
        layers={name: _describe_linear(layer) for name, layer in _find_layers(block).items()},
        rotary_frequencies=_find_frequencies(attention),
        normalise_qk=attention.normalise_qk,
        precision=precision,
    )


def _describe_linear(layer: nn.Module) -> Any:
    assert isinstance(layer, nn.Linear)
    return layer.weight, layer.bias
