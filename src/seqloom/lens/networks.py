"""The walk through each whole network: from ids to the states that its head scores, and the scores."""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, Literal

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor, nn

from seqloom.decoders.convolutional import ConvolutionalDecoder
from seqloom.decoders.recurrent import RecurrentDecoder
from seqloom.decoders.transformer import TransformerDecoder
from seqloom.encoders.convolutional import ConvolutionalEncoder
from seqloom.encoders.recurrent import RecurrentEncoder
from seqloom.encoders.transformer import TransformerEncoder
from seqloom.errors import SeqloomError
from seqloom.lens import layers
from seqloom.lens.known import check_known
from seqloom.lens.layers import States
from seqloom.lens.mixing import PoolMixer
from seqloom.lens.passes import Pass
from seqloom.lens.recurrent import OpenRecurrentDecoder, OpenRecurrentEncoder
from seqloom.lens.stacks import Layer, Memory, OpenConvolution, OpenStack, OpenTransformer, Stack, say
from seqloom.models.labelling import Classifier, Features, Tagger
from seqloom.models.language_models import BidirectionalLanguageModel, LanguageModel, MaskedLanguageModel
from seqloom.models.seq2seq import Seq2Seq
from seqloom.nn.embeddings import OutputLayer, TokenEmbedding
from seqloom.nn.feedforward import ActivationLayer
from seqloom.types import PairBatch, TokenBatch

Ids = Mapping[str, Int[Tensor, "T"]]
"""The tokens of each side."""
Direction = Literal["", "forward", "backward"]
"""Which of a network's readouts: only a bidirectional language model has two."""


_STACKS: dict[type, type[OpenStack]] = {
    TransformerEncoder: OpenTransformer,
    TransformerDecoder: OpenTransformer,
    ConvolutionalEncoder: OpenConvolution,
    ConvolutionalDecoder: OpenConvolution,
    RecurrentEncoder: OpenRecurrentEncoder,
    RecurrentDecoder: OpenRecurrentDecoder,
}


def open_stack(name: str, module: nn.Module, side: str, source: str | None = None) -> OpenStack:
    """The walk for an encoder or a decoder of exactly one of the known classes."""
    if type(module) not in _STACKS:
        raise SeqloomError(f"{name} is {type(module).__name__}, which the lens does not know; it knows our own stacks")
    return _STACKS[type(module)](name, module, side, source)


class OpenNetwork(ABC):
    """A network in the open."""

    sides: tuple[str, ...] = ("text",)
    directions: tuple[Direction, ...] = ("",)

    def __init__(self, network: Any) -> None:
        self.network = network
        self.readouts: dict[Direction, OpenStack] = {}
        """The stack whose states the head scores."""
        self.embeddings: dict[str, tuple[str, ...]] = {}
        """The sites of the embeddings of each side."""

    @property
    def like(self) -> Tensor:
        """A tensor of the network."""
        parameter: Tensor = next(self.network.parameters())
        return parameter

    @abstractmethod
    def run(self, p: Pass, ids: Ids) -> dict[Direction, States]:
        """The states after the last layer of the stack that is read, without its final norm."""

    def read(self, p: Pass, states: States, direction: Direction = "") -> Float[Tensor, "P D"]:
        """What the head scores, from the states after a layer: a row for each position, or one for the text."""
        return self.readouts[direction].finish(p, states)

    @abstractmethod
    def score(self, p: Pass, states: Float[Tensor, "P D"]) -> Float[Tensor, "P V"]:
        """Logits."""

    @abstractmethod
    def answer(self, ids: Ids) -> dict[Direction, Tensor]:
        """What the network itself gives: the states that its head scores, or their scores."""

    def compare(self, p: Pass, states: Tensor) -> Tensor:
        """What to compare with `answer`."""
        return states

    @abstractmethod
    def describe(self) -> list[Stack]:
        """Its groups of maps."""

    @property
    def has_head(self) -> bool:
        """Whether it predicts anything."""
        return getattr(self.network, "output", self) is not None


def _embed(p: Pass, site: str, embedding: TokenEmbedding, ids: Int[Tensor, "T"]) -> States:
    return p.embed(site, embedding(ids))


def _score_vocabulary(p: Pass, output: OutputLayer, states: Float[Tensor, "P D"]) -> Float[Tensor, "P V"]:
    if not p.frozen:
        return output(states)  # type: ignore[no-any-return]
    return p.add_bias(F.linear(output.narrow(states), output.weight), output.bias)


def _transform(p: Pass, modules: nn.Module, states: States) -> States:
    """Linear layers, activations and norms in a row."""
    for module in modules if isinstance(modules, nn.Sequential) else ():
        match module:
            case nn.Linear():
                states = p.linear(module, states)
            case ActivationLayer():
                states = p.activate(module, states)
            case _:
                states = p.norm(module, states)
    return states


def _batch(ids: Int[Tensor, "T"]) -> TokenBatch:
    return TokenBatch(ids[None], torch.ones(1, len(ids), dtype=torch.bool, device=ids.device))


class OpenSeq2Seq(OpenNetwork):
    """An encoder and a decoder."""

    network: Seq2Seq
    sides = ("source", "target")

    def __init__(self, network: Seq2Seq) -> None:
        super().__init__(network)
        self.encoder = open_stack("encoder", network.encoder, "source")
        self.decoder = open_stack("decoder", network.decoder, "target", "source")
        self.readouts[""] = self.decoder
        self.embeddings = {"source": ("encoder.embedding",), "target": ("decoder.embedding",)}

    def encode(self, p: Pass, ids: Int[Tensor, "S"]) -> Memory:
        """What the decoder sees of the source."""
        return self.encoder.encode(p, _embed(p, "encoder.embedding", self.network.source_embedding, ids))

    def decode(self, p: Pass, ids: Int[Tensor, "T"], memory: Memory) -> States:
        """The states after the last layer of the decoder."""
        return self.decoder.run(p, _embed(p, "decoder.embedding", self.network.target_embedding, ids), memory)

    def run(self, p: Pass, ids: Ids) -> dict[Direction, States]:
        """Encode, then decode."""
        return {"": self.decode(p, ids["target"], self.encode(p, ids["source"]))}

    def score(self, p: Pass, states: Float[Tensor, "P D"]) -> Float[Tensor, "P V"]:
        """The output layer."""
        return _score_vocabulary(p, self.network.output, states)

    def answer(self, ids: Ids) -> dict[Direction, Tensor]:
        """The states of the target."""
        return {"": self.network(PairBatch(_batch(ids["source"]), _batch(ids["target"])))[0]}

    def describe(self) -> list[Stack]:
        """Encoder, decoder and the attention between them."""
        return self.encoder.describe() + self.decoder.describe()


class OpenLanguageModel(OpenNetwork):
    """A decoder without a source."""

    network: LanguageModel

    def __init__(self, network: LanguageModel) -> None:
        super().__init__(network)
        self.readouts[""] = open_stack("decoder", network.decoder, "text")
        self.embeddings = {"text": ("decoder.embedding",)}

    def run(self, p: Pass, ids: Ids) -> dict[Direction, States]:
        """Embed and decode."""
        return {"": self.readouts[""].run(p, _embed(p, "decoder.embedding", self.network.embedding, ids["text"]))}

    def score(self, p: Pass, states: Float[Tensor, "P D"]) -> Float[Tensor, "P V"]:
        """The output layer."""
        return _score_vocabulary(p, self.network.output, states)

    def answer(self, ids: Ids) -> dict[Direction, Tensor]:
        """The state at each position."""
        return {"": self.network(_batch(ids["text"]))[0]}

    def describe(self) -> list[Stack]:
        """The decoder."""
        return self.readouts[""].describe()


class OpenMaskedLanguageModel(OpenNetwork):
    """An encoder and a head that predicts hidden tokens."""

    network: MaskedLanguageModel

    def __init__(self, network: MaskedLanguageModel) -> None:
        super().__init__(network)
        self.readouts[""] = open_stack("encoder", network.encoder, "text")
        self.embeddings = {"text": ("encoder.embedding",)}

    def run(self, p: Pass, ids: Ids) -> dict[Direction, States]:
        """Embed and encode."""
        return {"": self.readouts[""].run(p, _embed(p, "encoder.embedding", self.network.embedding, ids["text"]))}

    def read(self, p: Pass, states: States, direction: Direction = "") -> Float[Tensor, "P D"]:
        """The states, transformed."""
        states = super().read(p, states)
        return states if self.network.transform is None else _transform(p, self.network.transform, states)

    def score(self, p: Pass, states: Float[Tensor, "P D"]) -> Float[Tensor, "P V"]:
        """The output layer."""
        assert self.network.output is not None
        return _score_vocabulary(p, self.network.output, states)

    def answer(self, ids: Ids) -> dict[Direction, Tensor]:
        """The state at each position, transformed if there is a head."""
        batch = _batch(ids["text"])
        if self.network.transform is None:
            return {"": self.network.encode(batch).states[0]}
        return {"": self.network(batch, batch.mask)}

    def describe(self) -> list[Stack]:
        """The encoder."""
        return self.readouts[""].describe()


class OpenBidirectional(OpenNetwork):
    """Two encoders, one in each direction."""

    network: BidirectionalLanguageModel
    directions = ("forward", "backward")

    def __init__(self, network: BidirectionalLanguageModel) -> None:
        super().__init__(network)
        self.readouts = {
            "forward": open_stack("forwards", network.forwards, "text"),
            "backward": open_stack("backwards", network.backwards, "text"),
        }
        self.embeddings = {"text": ("embedding",)}

    def run(self, p: Pass, ids: Ids) -> dict[Direction, States]:
        """Embed, and encode in both directions."""
        x = _embed(p, "embedding", self.network.embedding, ids["text"])
        return {direction: stack.run(p, x) for direction, stack in self.readouts.items()}

    def score(self, p: Pass, states: Float[Tensor, "P D"]) -> Float[Tensor, "P V"]:
        """The output layer."""
        assert self.network.output is not None
        return _score_vocabulary(p, self.network.output, states)

    def answer(self, ids: Ids) -> dict[Direction, Tensor]:
        """The states of both directions."""
        forwards, backwards = self.network(_batch(ids["text"]))
        return {"forward": forwards[0], "backward": backwards[0]}

    def describe(self) -> list[Stack]:
        """Both encoders."""
        return [stack for open in self.readouts.values() for stack in open.describe()]


class _OpenLabeller(OpenNetwork):
    """An encoder over embeddings, with the features of a language model if there is one."""

    network: Classifier | Tagger

    def __init__(self, network: Classifier | Tagger) -> None:
        super().__init__(network)
        self.encoder = open_stack("encoder", network.encoder, "text")
        self.readouts[""], self.features = self.encoder, network.features
        self.embeddings = {"text": ("encoder.embedding",)}
        self.reader: list[OpenStack] = []
        if self.features is not None:
            reader = self.features.reader
            self.reader = [open_stack("forwards", reader.forwards, "text")]
            self.reader += [open_stack("backwards", reader.backwards, "text")]
            self.embeddings = {"text": ("encoder.embedding", "features.embedding")}

    def run(self, p: Pass, ids: Ids) -> dict[Direction, States]:
        """Embed, join with the features, and encode."""
        x = _embed(p, "encoder.embedding", self.network.embedding, ids["text"])
        if self.features is not None:
            x = p.linear(self.features.join, torch.cat([x, self._mix(p, self.features, ids["text"])], dim=-1))
        return {"": self.encoder.run(p, x)}

    def _mix(self, p: Pass, features: Features, ids: Int[Tensor, "T"]) -> States:
        """γ Σ_l softmax(w)_l h_l, over the layers of both directions."""
        x = _embed(p, "features.embedding", features.reader.embedding, ids)
        mixed = [self._list_layers(p, stack, stack.run(p, p.enter(x))) for stack in self.reader]
        layers_of_both = tuple(torch.cat(pair, dim=-1) for pair in zip(*mixed, strict=True))
        return p.component("features.mix", features.mix(layers_of_both))

    def _list_layers(self, p: Pass, stack: OpenStack, last: States) -> list[States]:
        inner = [states for _, states in p.layers[stack.name]]
        return [*inner[:-1], stack.finish(p, last)]

    def describe(self) -> list[Stack]:
        """The readers of the features, if there are any, and the encoder."""
        return [stack for open in (*self.reader, self.encoder) for stack in open.describe()]

    def score(self, p: Pass, states: Float[Tensor, "P D"]) -> Float[Tensor, "P V"]:
        """The score of each label."""
        return p.linear(self.network.head, states)

    def compare(self, p: Pass, states: Tensor) -> Tensor:
        """The scores."""
        return self.score(p, states)


class OpenTagger(_OpenLabeller):
    """A label for each token."""

    network: Tagger

    def answer(self, ids: Ids) -> dict[Direction, Tensor]:
        """The scores at each token."""
        return {"": self.network(_batch(ids["text"]))[0]}


class OpenClassifier(_OpenLabeller):
    """A label for the text."""

    network: Classifier

    def read(self, p: Pass, states: States, direction: Direction = "") -> Float[Tensor, "1 D"]:
        """The pooled states, transformed."""
        states = super().read(p, states)
        pool = self.network.pool
        p.watch(PoolMixer(["pool"], pool, states))
        pooled = p.note("pool", (layers.weigh_pool(p, pool, states) * states).sum(0, keepdim=True))
        return _transform(p, self.network.transform, pooled)

    def answer(self, ids: Ids) -> dict[Direction, Tensor]:
        """The score of each label."""
        return {"": self.network(_batch(ids["text"]))}

    def describe(self) -> list[Stack]:
        """The encoder and the pooling."""
        pool = Stack("pool", "pool", self.network.pool.kind, "text", "text", (Layer("pool", ("pool",)),), *say("pool"))
        return [*super().describe(), pool]


_NETWORKS: dict[type, type[OpenNetwork]] = {
    Seq2Seq: OpenSeq2Seq,
    LanguageModel: OpenLanguageModel,
    MaskedLanguageModel: OpenMaskedLanguageModel,
    BidirectionalLanguageModel: OpenBidirectional,
    Tagger: OpenTagger,
    Classifier: OpenClassifier,
}


def open_network(network: nn.Module) -> OpenNetwork:
    """The walk for a network of exactly one of the known classes, made of known parts."""
    if type(network) not in _NETWORKS:
        raise SeqloomError(f"the lens does not know networks of the class {type(network).__name__}")
    check_known(network)
    return _NETWORKS[type(network)](network)
