"""The graphs of a model: one that reads texts, or one that reads a source and one that takes steps."""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from seqloom.encoders.base import Encoder
from seqloom.errors import RunError
from seqloom.hub.onnx.stacks import PaddedEncoder, Shape, SteppedDecoder, Tensors, step_by_step
from seqloom.models.labelling import Classifier, Tagger
from seqloom.models.language_models import BidirectionalLanguageModel, LanguageModel, MaskedLanguageModel
from seqloom.models.seq2seq import Seq2Seq
from seqloom.nn.attention import Pool, attention_weights
from seqloom.nn.embeddings import OutputLayer, TokenEmbedding
from seqloom.types import Encoded

TEXT: Shape = ("batch", "length")
SOURCE: Shape = ("batch", "source")


@dataclass(frozen=True)
class Graph:
    """A module to be traced, and the names of its inputs and outputs."""

    name: str
    module: nn.Module
    inputs: dict[str, Shape]
    outputs: tuple[str, ...]

    def make_inputs(self, sizes: dict[str, Any]) -> tuple[Any, ...]:
        """Example inputs of some sizes, as the module takes them: ids, a mask, and lists of tensors."""
        dtypes = {"ids": torch.long, "mask": torch.bool}
        inputs = {}
        for name, shape in self.inputs.items():
            make = torch.ones if name in dtypes else torch.zeros
            inputs[name] = make([sizes.get(str(side), side) for side in shape], dtype=dtypes.get(name))
        return self._arrange(inputs)

    def name_dims(self) -> tuple[Any, ...]:
        """The names of the dimensions of any size, in the same form."""
        names = {side for shape in self.inputs.values() for side in shape if isinstance(side, str)}
        dims = {side: torch.export.Dim(side) for side in names}
        return self._arrange(
            {n: {k: dims[s] for k, s in enumerate(shape) if isinstance(s, str)} for n, shape in self.inputs.items()}
        )

    def _arrange(self, values: dict[str, Any]) -> tuple[Any, ...]:
        """Values by input as arguments; the values of a source are one list, the values of the past another."""
        kinds = ("source.", "past.") if any("." in name for name in values) else ()
        single = [value for name, value in values.items() if "." not in name]
        return (*single, *([value for name, value in values.items() if name.startswith(kind)] for kind in kinds))


def list_graphs(network: nn.Module) -> list[Graph]:
    """The graphs of a model."""
    match network:
        case Seq2Seq():
            decoder = step_by_step(network.decoder)
            reads = [f"source.{name}" for name in decoder.source]
            starts = [f"past.{name}" for name in decoder.past] if hasattr(network.decoder, "bridge") else []
            reader = _Source(network.source_embedding, network.encoder, decoder)
            step = _TargetStep(network.target_embedding, decoder, network.output)
            shapes = _prefix("source.", decoder.source) | _prefix("past.", decoder.past)
            inputs = {"ids": TEXT, "mask": SOURCE, **shapes}
            return [
                Graph("encoder", reader, {"ids": SOURCE, "mask": SOURCE}, (*reads, *starts)),
                Graph("decoder", step, inputs, ("scores", *(f"present.{name}" for name in decoder.past))),
            ]
        case LanguageModel():
            decoder = step_by_step(network.decoder)
            inputs = {"ids": TEXT, **_prefix("past.", decoder.past)}
            plain = _Step(network.embedding, decoder, network.output)
            return [Graph("model", plain, inputs, ("scores", *(f"present.{name}" for name in decoder.past)))]
        case MaskedLanguageModel() | BidirectionalLanguageModel() | Classifier() | Tagger():
            output = "states" if isinstance(network, BidirectionalLanguageModel) else "scores"
            if isinstance(network, MaskedLanguageModel) and network.transform is None:
                output = "states"
            return [Graph("model", _Reader(network), {"ids": TEXT, "mask": TEXT}, (output,))]
        case _:
            raise RunError(f"there is no ONNX graph for a model of the class {type(network).__name__}")


def _prefix(prefix: str, shapes: dict[str, Shape]) -> dict[str, Shape]:
    return {prefix + name: shape for name, shape in shapes.items()}


class _Reader(nn.Module):
    """Ids to scores, or to states where there is no head."""

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.network = network
        encoders = [module for module in network.children() if isinstance(module, Encoder)]
        self.encoders = nn.ModuleList(PaddedEncoder(encoder) for encoder in encoders)

    def forward(self, ids: Tensor, mask: Tensor) -> Tensor:
        network: Any = self.network
        x = _embed(network.embedding, ids)
        states = torch.cat([encoder(x, mask) for encoder in self.encoders], dim=-1)
        match network:
            case MaskedLanguageModel() if network.transform is not None and network.output is not None:
                return _score(network.output, network.transform(states))
            case Classifier():
                scores: Tensor = network.head(network.transform(_pool(network.pool, states, mask)))
                return scores
            case Tagger():
                tags: Tensor = network.head(states)
                return tags
            case _:
                return states


class _Source(nn.Module):
    """Reads a source for a decoder."""

    def __init__(self, embedding: TokenEmbedding, encoder: Encoder, decoder: SteppedDecoder) -> None:
        super().__init__()
        self.embedding, self.encoder, self.decoder = embedding, PaddedEncoder(encoder), decoder

    def forward(self, ids: Tensor, mask: Tensor) -> tuple[Tensor, ...]:
        states = self.encoder(_embed(self.embedding, ids), mask)
        summary = self.encoder.encoder.summarise(states, mask)
        keys, past = self.decoder.read(Encoded(states, mask, summary))
        return (*keys, *past)


class _Step(nn.Module):
    """New tokens to scores for the next tokens."""

    def __init__(self, embedding: TokenEmbedding, decoder: SteppedDecoder, output: OutputLayer) -> None:
        super().__init__()
        self.embedding, self.decoder, self.output = embedding, decoder, output

    def forward(self, ids: Tensor, source: Tensors, past: Tensors) -> tuple[Tensor, ...]:
        states, state = self.decoder(_embed(self.embedding, ids), None, source, past)
        return (_score(self.output, states), *state)


class _TargetStep(_Step):
    """New tokens to scores for the next tokens, given a source."""

    def forward(self, ids: Tensor, mask: Tensor, source: Tensors, past: Tensors) -> tuple[Tensor, ...]:  # type: ignore[override]
        states, state = self.decoder(_embed(self.embedding, ids), mask, source, past)
        return (_score(self.output, states), *state)


def _pool(pool: Pool, states: Tensor, mask: Tensor) -> Tensor:
    if pool.query is None:
        pooled: Tensor = pool(states, mask)
        return pooled
    query = pool.query.expand(states.shape[0], 1, -1)
    return (attention_weights(query, states, mask.unsqueeze(1), score=pool.score) @ states).squeeze(1)


def _score(output: OutputLayer, states: Tensor) -> Tensor:
    return nn.functional.linear(states, output.weight, output.bias)


def _embed(embedding: TokenEmbedding, ids: Tensor) -> Tensor:
    """The vector of each id; a graph does not check that there is one."""
    vectors = nn.functional.embedding(ids, embedding.weight) * embedding.factor
    return vectors if embedding.segments is None else vectors + embedding.segments(ids)
