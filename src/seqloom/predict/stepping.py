"""Steps of compiled models: from the new tokens of each line to the scores of the next in one call (native/decoder.c).

It serves encoder-decoders and language models whose decoder is a stack that the kernels step through, with an ordinary
embedding and output layer, and with positions that are rotary, sinusoidal, learned or none. A step that records
attention weights, or that goes beyond the last position, is computed as before.
"""

from dataclasses import dataclass, field, fields, replace
from typing import Any

from jaxtyping import Float, Int
from torch import Tensor, nn

from seqloom.decoders.transformer import TransformerDecoder, TransformerState
from seqloom.models.language_models import LanguageModel
from seqloom.models.seq2seq import Seq2Seq
from seqloom.native.block import NormWeights, PackedLinear, PackedStack
from seqloom.native.decoder import PackedDecoder, Prepared
from seqloom.nn.embeddings import TokenEmbedding
from seqloom.nn.positions import InputPositions, LearnedPositions, SinusoidalPositions
from seqloom.types import DecodeState


@dataclass(frozen=True)
class CompiledState(TransformerState):
    """The places of its caches, found out once."""

    prepared: Prepared | None = field(default=None, kw_only=True)

    @classmethod
    def of(cls, state: TransformerState) -> "CompiledState":
        """The same state."""
        return cls(**{one.name: getattr(state, one.name) for one in fields(state)})


class CompiledSeq2Seq(Seq2Seq):
    """Takes a step in one call."""

    packed: PackedDecoder

    def step(self, ids: Int[Tensor, "R T"], state: DecodeState) -> tuple[Float[Tensor, "R V"], DecodeState]:
        """The same as `Seq2Seq.step`."""
        return _step(self.packed, ids, state) or super().step(ids, state)


class CompiledLanguageModel(LanguageModel):
    """Takes a step in one call."""

    packed: PackedDecoder

    def step(self, ids: Int[Tensor, "R T"], state: DecodeState) -> tuple[Float[Tensor, "R V"], DecodeState]:
        """The same as `LanguageModel.step`."""
        return _step(self.packed, ids, state) or super().step(ids, state)


def _step(packed: PackedDecoder, ids: Tensor, state: DecodeState) -> tuple[Tensor, DecodeState] | None:
    if type(state) is not CompiledState or state.attention is not None or not ids.numel():
        return None
    source = state.source
    sources, bias = (None, None) if source is None else (source.layers, source.bias)
    made_of = (state.cache.layers, sources, bias, state.table.vectors)
    prepared = state.prepared
    if prepared is None or not prepared.is_of(made_of):
        prepared = packed.prepare(*made_of)
    positions = tuple([position + ids.shape[1] for position in state.positions])
    if max(positions) > prepared.longest:
        return None
    scores = packed.step(ids, prepared, state.positions, state.cache.slots)
    return scores, replace(state, positions=positions, prepared=prepared)


def pack_steps(model: nn.Module) -> None:
    """Change a model whose parts are packed so that it takes a step in one call, if this serves it."""
    if type(model) is not Seq2Seq and type(model) is not LanguageModel:
        return
    embedding = model.target_embedding if isinstance(model, Seq2Seq) else model.embedding
    decoder, output = model.decoder, model.output.__dict__.get("packed")
    stack = decoder.__dict__.get("packed")
    if (
        type(stack) is PackedStack
        and type(output) is PackedLinear
        and model.output.narrowing is None
        and _serves_embedding(embedding)
        and isinstance(decoder, TransformerDecoder)
        and _serves_positions(decoder.positions)
        and _serves_norm(decoder.input_norm)
        and _serves_norm(decoder.final_norm)
    ):
        norms = describe_norm(decoder.input_norm), describe_norm(decoder.final_norm)
        packed = PackedDecoder(embedding.weight, embedding.factor, norms[0], stack, norms[1], output)
        model.__dict__["packed"] = packed
        model.__class__ = CompiledSeq2Seq if isinstance(model, Seq2Seq) else CompiledLanguageModel


def _serves_embedding(embedding: nn.Module) -> bool:
    if type(embedding) is not TokenEmbedding:
        return False
    dropout: nn.Module = embedding.dropout
    return (
        embedding.project is None
        and embedding.segments is None
        and embedding.word_dropout == 0.0
        and type(dropout) is nn.Identity
    )


def _serves_positions(positions: nn.Module | None) -> bool:
    """Those of the input; rotary ones are the blocks'."""
    if positions is None:
        return True
    known = type(positions) is InputPositions and positions.project is None
    return known and type(positions.positions) in (SinusoidalPositions, LearnedPositions)


def _serves_norm(norm: nn.Module) -> bool:
    if type(norm) is nn.Identity:
        return True
    known = type(norm) is nn.RMSNorm or (type(norm) is nn.LayerNorm and norm.bias is not None)
    return known and norm.weight is not None and norm.eps is not None


def describe_norm(norm: Any) -> NormWeights | None:
    """The weights of a norm that the kernels know; none of nn.Identity."""
    if type(norm) is nn.Identity:
        return None
    return NormWeights(norm.weight, None if isinstance(norm, nn.RMSNorm) else norm.bias, norm.eps)
