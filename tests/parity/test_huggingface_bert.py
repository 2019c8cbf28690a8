"""BERT, RoBERTa, DistilBERT and their kin as `transformers` computes them."""

from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from parity.published import (
    BERT_TOKENS,
    CLOSE,
    MIN_WIDTH,
    SENTENCE_TOKENS,
    assert_same_attention,
    publish,
    random_batch,
    transformers,
)
from seqloom.types import TokenBatch

ACTIVATIONS = ("gelu", "relu", "silu", "gelu_new", "gelu_pytorch_tanh")
LENGTHS = (7, 1, 4)
NAMES = {
    "bert": "Bert",
    "roberta": "Roberta",
    "xlm-roberta": "XLMRoberta",
    "camembert": "Camembert",
    "distilbert": "DistilBert",
    "xlm-roberta-xl": "XLMRobertaXL",
}
BERT = {"cls": "[CLS]", "sep": "[SEP]", "mask": "[MASK]", "pad": "[PAD]"}
ROBERTA = {"cls": "<s>", "sep": "</s>", "bos": "<s>", "eos": "</s>", "mask": "<mask>", "pad": "<pad>"}


@st.composite
def sizes(draw: st.DrawFn) -> dict[str, Any]:
    heads = draw(st.integers(1, 4))
    return {
        "vocab_size": draw(st.integers(8, 40)),
        "hidden_size": heads * draw(st.integers(MIN_WIDTH // heads + 1, 10)),
        "num_hidden_layers": draw(st.integers(1, 3)),
        "num_attention_heads": heads,
        "intermediate_size": draw(st.integers(1, 21)),
        "hidden_act": draw(st.sampled_from(ACTIVATIONS)),
        "layer_norm_eps": draw(st.sampled_from((1e-12, 1e-5, 1e-3))),
        "max_position_embeddings": draw(st.integers(12, 30)),
        "type_vocab_size": draw(st.integers(1, 3)),
        "tie_word_embeddings": draw(st.booleans()),
    }


def distil(options: dict[str, Any]) -> dict[str, Any]:
    return {
        "vocab_size": options["vocab_size"],
        "dim": options["hidden_size"],
        "n_layers": options["num_hidden_layers"],
        "n_heads": options["num_attention_heads"],
        "hidden_dim": options["intermediate_size"],
        "activation": options["hidden_act"] if options["hidden_act"] in ("gelu", "relu") else "gelu",
        "max_position_embeddings": options["max_position_embeddings"],
        "tie_word_embeddings": options["tie_word_embeddings"],
    }


def make(kind: str, head: str, options: dict[str, Any], **more: Any) -> Any:
    name = NAMES[kind]
    options = distil(options) if kind == "distilbert" else options
    extra = {"pad_token_id": 1} if kind not in ("bert", "distilbert") else {}
    config = getattr(transformers, name + "Config")(**options, **extra, **more)
    torch.manual_seed(0)
    return getattr(transformers, name + head)(config)


def load(model: Any, kind: str) -> Any:
    if kind not in ("bert", "distilbert"):
        return publish(model, SENTENCE_TOKENS, "<unk>", **ROBERTA)
    return publish(model, BERT_TOKENS, "[UNK]", **BERT)


def ask(model: Any, batch: TokenBatch, kind: str, **more: Any) -> Any:
    ids = batch.ids.masked_fill(~batch.mask, 1 if kind not in ("bert", "distilbert") else 0)
    return model(input_ids=ids, attention_mask=batch.mask.long(), **more)


KINDS = pytest.mark.parametrize("kind", NAMES)


@KINDS
@settings(max_examples=12)
@given(options=sizes())
@torch.no_grad()
def test_masked_language_model(kind: str, options: dict[str, Any]) -> None:
    model = make(kind, "ForMaskedLM", options)
    found = load(model, kind)
    batch = random_batch(options["vocab_size"], LENGTHS)
    theirs = ask(model, batch, kind, output_hidden_states=True, output_attentions=True)
    encoded = found.network.encode(batch, all_layers=True)
    assert len(encoded.layers) == len(theirs.hidden_states)
    for ours, expected in zip(encoded.layers, theirs.hidden_states, strict=True):
        torch.testing.assert_close(ours[batch.mask], expected[batch.mask], **CLOSE)
    logits = found.network.output(found.network(batch, batch.mask))
    torch.testing.assert_close(logits, theirs.logits[batch.mask], **CLOSE)
    assert_same_attention(found.network, {"text": batch}, {"encoder": theirs.attentions})


@settings(max_examples=10)
@given(options=sizes())
@torch.no_grad()
def test_the_parts_of_a_pair(options: dict[str, Any]) -> None:
    """Tokens after the first [SEP] are of the second part, as the tokeniser of BERT says."""
    options["type_vocab_size"] = max(options["type_vocab_size"], 2)
    model = make("bert", "Model", options)
    found = load(model, "bert")
    ids = torch.tensor([[2, 6, 7, 3, 5, 6, 3], [2, 6, 3, 5, 5, 7, 3]])
    parts = torch.tensor([[0, 0, 0, 0, 1, 1, 1], [0, 0, 0, 1, 1, 1, 1]])
    batch = TokenBatch(ids, torch.ones_like(ids, dtype=torch.bool))
    expected = model(input_ids=ids, token_type_ids=parts).last_hidden_state
    torch.testing.assert_close(found.network.encode(batch).states, expected, **CLOSE)
    assert not found.config.model.head


@KINDS
@pytest.mark.parametrize("labels", [1, 3])
@settings(max_examples=5)
@given(options=sizes())
@torch.no_grad()
def test_classifier(kind: str, labels: int, options: dict[str, Any]) -> None:
    model = make(kind, "ForSequenceClassification", options, num_labels=labels)
    model.config.id2label = {number: f"kind {number}" for number in range(labels)}
    found = load(model, kind)
    batch = random_batch(options["vocab_size"], LENGTHS)
    torch.testing.assert_close(found.network(batch), ask(model, batch, kind).logits, **CLOSE)
    assert found.labels == (("",) if labels == 1 else ("kind 0", "kind 1", "kind 2"))


@KINDS
@settings(max_examples=5)
@given(options=sizes())
@torch.no_grad()
def test_tagger(kind: str, options: dict[str, Any]) -> None:
    model = make(kind, "ForTokenClassification", options, num_labels=5)
    found = load(model, kind)
    batch = random_batch(options["vocab_size"], LENGTHS)
    ours, theirs = found.network(batch), ask(model, batch, kind).logits
    torch.testing.assert_close(ours[batch.mask], theirs[batch.mask], **CLOSE)
    assert found.labels == tuple(f"LABEL_{number}" for number in range(5))
