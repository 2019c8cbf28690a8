"""Bidirectional language models, and their states as features of other models: ELMo (Peters et al. 2018).

L = − Σ_t log P(x_{t+1} | x_≤t) − Σ_t log P(x_{t−1} | x_≥t)
"""

from typing import ClassVar, Literal, Self

import torch
from pydantic import model_validator
from torch import Tensor, nn

from seqloom.config.base import Section
from seqloom.config.batches import Frame, LineBatches
from seqloom.models.labelling import Features as FeaturesModule
from seqloom.models.language_models import BidirectionalLanguageModel
from seqloom.models.stacks import build_encoder
from seqloom.nn.embeddings import OutputLayer
from seqloom.nn.packing import pick
from seqloom.tasks.base import Loss
from seqloom.tasks.language_model import Targets, TextTask, drop_last, find_followed, find_targets, predict_tokens
from seqloom.tasks.model import EncoderModel, SegmentedModel
from seqloom.types import TokenBatch


class BidirectionalLanguageModelConfig(EncoderModel):
    """A forward and a backward language model, trained together, as in ELMo."""

    tie_output: bool = False
    """Share the table of input embeddings with the output layer."""
    head: bool = True
    """Whether there is a head that predicts; a model without one only embeds."""

    @model_validator(mode="after")
    def _direction_is_given(self) -> Self:
        if self.encoder.direction != "both":
            raise ValueError(
                "a bidirectional language model builds one encoder of each direction itself; "
                f'remove encoder.direction = "{self.encoder.direction}"'
            )
        return self

    def build(self, vocab_size: int, num_outputs: int | None = None) -> BidirectionalLanguageModel:
        """Two encoders of one direction each."""
        rows = self.count_rows(vocab_size)
        ways = [build_encoder(self.encoder.model_copy(update={"direction": way})) for way in ("forward", "backward")]
        embedding = self.build_embedding(rows, ways[0].input_dim)
        output = OutputLayer(ways[0].output_dim, rows, embedding if self.tie_output else None)
        return BidirectionalLanguageModel(embedding, ways[0], ways[1], output if self.head else None)


class Features(Section):
    """The states of a bidirectional language model beside the embeddings of another model: ELMo."""

    model: BidirectionalLanguageModelConfig
    """The language model, as it was trained."""
    frozen: bool = True
    """Whether it stays as it is; only how its layers are mixed is then learned."""


class FeaturedModel(SegmentedModel):
    """A model that may read more than its own embeddings."""

    features: Features | None = None
    """What `init` brings when it is the run of a bidirectional language model; absent: nothing."""

    def build_features(self, rows: int, dim: int) -> FeaturesModule | None:
        """The language model whose states are read, if there is one."""
        if self.features is None:
            return None
        model, frozen = self.features.model, self.features.frozen
        reader = model.model_copy(update={"head": False}).build(rows)
        return FeaturesModule(reader, model.encoder.num_layers, dim, frozen=frozen, dropout=self.embedding_dropout)


class BidirectionalLanguageModelTask(TextTask):
    """Read text in both directions: ELMo's features."""

    task: Literal["bidirectional-language-model"] = "bidirectional-language-model"
    frame: Frame = Frame(before=("bos",), after=("eos",))
    """The special tokens around each text."""
    batch: LineBatches = LineBatches()
    """How text becomes batches."""
    model: BidirectionalLanguageModelConfig = BidirectionalLanguageModelConfig()
    """What is trained."""

    verbs: ClassVar = ("embed", "score")

    def compute_loss(self, network: nn.Module, batch: TokenBatch, *, smoothing: float = 0.0) -> Loss:
        """The cross-entropy of each token, given those before it, and given those after it."""
        assert isinstance(network, BidirectionalLanguageModel)
        ahead, behind = network(batch)
        real = find_followed(batch.known)
        later, earlier = find_targets(batch, real, 1), find_targets(batch.derive(drop_last), real)
        states = torch.cat([pick(ahead[:, :-1], later.places), pick(behind[:, 1:], earlier.places)])
        host = None if later.host is None or earlier.host is None else torch.cat([later.host, earlier.host])
        both = Targets(later.places, torch.cat([later.ids, earlier.ids]), host)
        return predict_tokens(network.output, states, both, smoothing)

    def find_predicted(self, batch: TokenBatch) -> list[Tensor]:
        """Those that are predicted forwards and those that are predicted backwards."""
        rows = zip(batch.ids[:, :-1], find_followed(batch), strict=True)
        return [*super().find_predicted(batch), *(ids[real] for ids, real in rows)]
