"""A model is what its configuration says."""

from typing import Any

import pytest
import torch
from torch import nn

from seqloom.decoders.convolutional import ConvolutionalDecoder
from seqloom.decoders.recurrent import RecurrentDecoder
from seqloom.decoders.transformer import TransformerDecoder
from seqloom.encoders.convolutional import ConvolutionalEncoder
from seqloom.encoders.recurrent import RecurrentEncoder
from seqloom.encoders.transformer import TransformerEncoder
from seqloom.errors import ShapeError
from seqloom.nn.positions import Alibi
from seqloom.tasks.bidirectional_language_model import BidirectionalLanguageModelConfig
from seqloom.tasks.classification import ClassificationModelConfig
from seqloom.tasks.language_model import LanguageModelConfig
from seqloom.tasks.masked_language_model import MaskedLanguageModelConfig
from seqloom.tasks.tagging import TaggingModelConfig
from seqloom.tasks.translation import TranslationModelConfig

VOCAB = 11
ENCODERS = {
    "transformer": TransformerEncoder,
    "recurrent": RecurrentEncoder,
    "convolutional": ConvolutionalEncoder,
}
DECODERS = {
    "transformer": TransformerDecoder,
    "recurrent": RecurrentDecoder,
    "convolutional": ConvolutionalDecoder,
}
SMALL = {"num_layers": 2, "model_dim": 8}


def build(section: type, data: dict[str, Any], num_outputs: int | None = None) -> nn.Module:
    return section.model_validate(data).build(VOCAB, num_outputs)


@pytest.mark.parametrize("family", ENCODERS)
class TestOneWordChangesTheFamily:
    def test_of_an_encoder(self, family):
        for section in (MaskedLanguageModelConfig, ClassificationModelConfig, TaggingModelConfig):
            assert type(build(section, {"encoder": {"family": family, **SMALL}}).encoder) is ENCODERS[family]

    def test_of_a_language_model(self, family):
        model = build(LanguageModelConfig, {"decoder": {"family": family, **SMALL}})
        assert type(model.decoder) is DECODERS[family]
        assert not model.decoder.has_source

    def test_of_both_directions(self, family):
        model = build(BidirectionalLanguageModelConfig, {"encoder": {"family": family, **SMALL}})
        assert type(model.forwards) is type(model.backwards) is ENCODERS[family]
        assert model.forwards.output_dim == 8

    def test_of_a_translation_model_with_its_decoder(self, family):
        model = build(TranslationModelConfig, {"encoder": {"family": family, **SMALL}})
        assert type(model.encoder) is ENCODERS[family]
        assert type(model.decoder) is DECODERS[family]
        assert model.decoder.has_source


def parameters_of(model: nn.Module) -> int:
    return sum(parameter.numel() for parameter in model.parameters())


@pytest.mark.parametrize(
    ("section", "stack"), [(LanguageModelConfig, "decoder"), (MaskedLanguageModelConfig, "encoder")]
)
def test_a_tied_output_shares_its_table(section, stack):
    tied, free = (build(section, {stack: SMALL, "tie_output": choice}) for choice in (True, False))
    assert tied.output.weight is tied.embedding.weight
    assert free.output.weight is not free.embedding.weight
    assert parameters_of(free) - parameters_of(tied) == VOCAB * 8


def test_ties_of_a_translation_model():
    models = {
        tie: build(TranslationModelConfig, {"encoder": SMALL, "tie_embeddings": tie})
        for tie in ("all", "output", "none")
    }
    shared = {
        tie: (m.source_embedding.weight is m.target_embedding.weight, m.output.weight is m.target_embedding.weight)
        for tie, m in models.items()
    }
    assert shared == {"all": (True, True), "output": (False, True), "none": (False, False)}
    assert parameters_of(models["none"]) - parameters_of(models["all"]) == 2 * VOCAB * 8


def test_tied_tables_stay_tied_when_loaded():
    model, other = (build(TranslationModelConfig, {"encoder": SMALL}) for _ in range(2))
    other.load_state_dict(model.state_dict())
    with torch.no_grad():
        other.source_embedding.weight.zero_()
    assert not other.output.weight.any()


def test_one_table_cannot_serve_two_vocabularies():
    with pytest.raises(ShapeError, match=r"tied embedding has shape \(11, 8\), but the output layer needs \(13, 8\)"):
        build(TranslationModelConfig, {"encoder": SMALL}, num_outputs=13)


@pytest.mark.parametrize("section", [ClassificationModelConfig, TaggingModelConfig])
def test_a_head_has_one_score_a_label(section):
    assert build(section, {"encoder": SMALL}, num_outputs=3).head.out_features == 3


@pytest.mark.parametrize("pooling", ["attention", "mean", "max", "first"])
def test_pooling_is_the_one_that_was_asked_for(pooling):
    assert build(ClassificationModelConfig, {"encoder": SMALL, "pooling": pooling}, 3).pool.kind == pooling


def test_embeddings_are_scaled_and_dropped_as_asked():
    model = build(LanguageModelConfig, {"decoder": SMALL, "scale_embeddings": False, "embedding_dropout": 0.25})
    assert model.embedding.factor == 1.0
    assert model.embedding.dropout.p == 0.25
    assert build(LanguageModelConfig, {"decoder": SMALL}).embedding.factor == pytest.approx(8**0.5)


def test_every_option_of_a_transformer_reaches_its_blocks():
    options = {
        **SMALL,
        "num_heads": 4,
        "num_kv_heads": 2,
        "hidden_dim": 20,
        "activation": "silu-gated",
        "norm": "rms",
        "norm_position": "post",
        "positions": "alibi",
        "window": 5,
        "normalise_qk": True,
        "dropout": 0.3,
        "attention_dropout": 0.4,
        "direction": "backward",
    }
    encoder = build(TaggingModelConfig, {"encoder": options}).encoder
    assert len(encoder.blocks) == 2
    assert isinstance(encoder.final_norm, nn.Identity)
    for block in encoder.blocks:
        attention, feedforward, residual = block.attention, block.feedforward, block.attention_residual
        assert (attention.num_heads, attention.num_kv_heads, attention.window) == (4, 2, 5)
        assert (attention.causal, attention.reverse, attention.normalise_qk) == (True, True, True)
        assert (attention.dropout, feedforward.dropout.p, residual.dropout.p) == (0.4, 0.3, 0.3)
        assert isinstance(attention.relative, Alibi)
        assert (feedforward.contract.in_features, feedforward.activation) == (20, "silu-gated")
        assert isinstance(residual.norm, nn.RMSNorm)
        assert residual.position == "post"


def test_training_drops_and_evaluation_does_not():
    model = build(TaggingModelConfig, {"encoder": {**SMALL, "dropout": 0.5, "attention_dropout": 0.5}}, 3)
    encoder, x, mask = model.encoder, torch.randn(2, 4, 8), torch.ones(2, 4, dtype=torch.bool)
    assert not torch.equal(encoder.train()(x, mask).states, encoder(x, mask).states)
    assert torch.equal(encoder.eval()(x, mask).states, encoder(x, mask).states)
