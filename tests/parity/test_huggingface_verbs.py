"""Bundle models through the verbs of Seqloom, beside what `transformers` says of the same texts."""

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from parity.published import BERT_TOKENS, SENTENCE_TOKENS, publish, transformers
from seqloom.predict.model import Model
from seqloom.predict.predictor import Predictor

SIZE, SPECIAL = 40, 5
TOKENS = {"bos_token_id": 0, "pad_token_id": 1, "eos_token_id": 2}
SILENT = [0, 1]  # special tokens that are no text: generate is told not to say them, search here never does
ROLES = {"bos": "<s>", "eos": "</s>", "pad": "<pad>"}
BERT = {"cls": "[CLS]", "sep": "[SEP]", "mask": "[MASK]", "pad": "[PAD]"}
texts = st.lists(st.integers(0, SIZE - SPECIAL - 1), min_size=1, max_size=9).map(lambda ids: [f"w{n}" for n in ids])


def number(words: list[str]) -> list[int]:
    return [SPECIAL + int(word[1:]) for word in words]


def spell(ids: list[int]) -> str:
    return " ".join(f"w{id - SPECIAL}" if id >= SPECIAL else SENTENCE_TOKENS[id] for id in ids)


def open_model(model: Any, special: tuple[str, ...], unknown: str, roles: dict[str, str]) -> Model:
    found = publish(model, special, unknown, **roles)
    return Model(Predictor(found))


def make_decoder(kind: str) -> tuple[Any, Model]:
    torch.manual_seed(1)
    if kind == "gpt2":
        config = transformers.GPT2Config(vocab_size=SIZE, n_embd=12, n_layer=2, n_head=3, n_positions=40, **TOKENS)
        model = transformers.GPT2LMHeadModel(config)
    else:
        sizes = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2}
        model = transformers.LlamaForCausalLM(
            transformers.LlamaConfig(
                vocab_size=SIZE, intermediate_size=20, max_position_embeddings=40, **sizes, **TOKENS
            )
        )
    return model, open_model(model, SENTENCE_TOKENS, "<unk>", ROLES)


def make_translator(kind: str) -> tuple[Any, Model]:
    torch.manual_seed(2)
    layers = {"encoder_layers": 2, "decoder_layers": 2, "encoder_attention_heads": 2, "decoder_attention_heads": 4}
    widths = {"d_model": 16, "encoder_ffn_dim": 20, "decoder_ffn_dim": 20, "max_position_embeddings": 40}
    match kind:
        case "marian":
            config = transformers.MarianConfig(
                vocab_size=SIZE, decoder_start_token_id=1, forced_eos_token_id=None, **layers, **widths, **TOKENS
            )
            model = transformers.MarianMTModel(config)
        case "bart":
            config = transformers.BartConfig(
                vocab_size=SIZE, decoder_start_token_id=2, forced_eos_token_id=None, **layers, **widths, **TOKENS
            )
            model = transformers.BartForConditionalGeneration(config)
            model.generation_config.forced_bos_token_id = 0  # it is forced to say <s> first, and never says it again
            model.final_logits_bias[0, 0] = -100.0
        case _:
            model = transformers.T5ForConditionalGeneration(
                transformers.T5Config(
                    vocab_size=SIZE,
                    d_model=16,
                    d_kv=6,
                    d_ff=20,
                    num_layers=2,
                    num_heads=3,
                    decoder_start_token_id=1,
                    **TOKENS,
                )
            )
    return model, open_model(model, SENTENCE_TOKENS, "<unk>", ROLES)


DECODERS = {kind: make_decoder(kind) for kind in ("gpt2", "llama")}
TRANSLATORS = {kind: make_translator(kind) for kind in ("marian", "bart", "t5")}
SEARCHES = pytest.mark.parametrize("beam", [1, 3])


def ask(model: Any, ids: list[int], beam: int, length: int, silent: list[int]) -> list[int]:
    given = torch.tensor([ids])
    with torch.no_grad():
        found = model.generate(
            given,
            attention_mask=torch.ones_like(given),
            do_sample=False,
            num_beams=beam,
            length_penalty=0.0,
            suppress_tokens=silent,
            max_new_tokens=length,
            min_new_tokens=length if beam > 1 else 0,
        )
    return found[0].tolist()


@pytest.mark.parametrize("kind", DECODERS)
@SEARCHES
@settings(max_examples=25)
@given(words=texts)
def test_generate(kind: str, beam: int, words: list[str]) -> None:
    model, ours = DECODERS[kind]
    answer = ask(model, number(words), beam, 8, SILENT)[len(words) :]
    found = ours.generate(" ".join(words), beam=beam, max_length=8, length_penalty=0.0, min_length=8 * (beam > 1))
    assert " ".join(found.tokens) == spell([id for id in answer if id not in (1, 2)])


@pytest.mark.parametrize("kind", TRANSLATORS)
@SEARCHES
@settings(max_examples=25)
@given(words=texts)
def test_translate(kind: str, beam: int, words: list[str]) -> None:
    model, ours = TRANSLATORS[kind]
    lead = [0] if kind == "bart" else []  # <s>, before the source and, after the start, before the target
    silent = [id for id in SILENT if id not in lead]
    answer = ask(model, [*lead, *number(words), 2], beam, 8 + len(lead), silent)[1:]
    length = 8 + len(lead)
    found = ours.translate(
        " ".join(words), beam=beam, max_length=length, length_penalty=0.0, min_length=length * (beam > 1)
    )
    assert list(found.tokens) == spell([id for id in answer if id not in (1, 2)]).split()


@pytest.mark.parametrize("kind", DECODERS)
@settings(max_examples=25)
@given(words=texts)
@torch.no_grad()
def test_score(kind: str, words: list[str]) -> None:
    model, ours = DECODERS[kind]
    ids = torch.tensor([[*number(words), 2]])
    expected = model(ids).logits[0].log_softmax(-1)[:-1].gather(1, ids[0, 1:, None])[:, 0]
    found = ours.score(" ".join(words)).token_scores
    assert found[0] is None
    np.testing.assert_allclose(found[1:], expected, rtol=0, atol=1e-5)


@torch.no_grad()
def test_fill() -> None:
    config = transformers.BertConfig(
        vocab_size=SIZE, hidden_size=12, num_hidden_layers=2, num_attention_heads=3, intermediate_size=20
    )
    model = transformers.BertForMaskedLM(config)
    ours = open_model(model, BERT_TOKENS, "[UNK]", BERT)
    chances = model(torch.tensor([[2, 7, 4, 9, 3]])).logits[0, 2].softmax(-1)
    for candidate in ours.fill("w2 [MASK] w4").masks[0].candidates:
        id = ours.tokenizer.id(candidate.token)
        assert id is not None
        assert candidate.probability == pytest.approx(float(chances[id]), abs=1e-5)


@torch.no_grad()
def test_classify() -> None:
    config = transformers.BertConfig(
        vocab_size=SIZE, hidden_size=12, num_hidden_layers=2, num_attention_heads=3, intermediate_size=20, num_labels=3
    )
    model = transformers.BertForSequenceClassification(config)
    ours = open_model(model, BERT_TOKENS, "[UNK]", BERT)
    expected = model(torch.tensor([[2, 7, 9, 3]])).logits[0].softmax(-1)
    found = ours.classify("w2 w4").probabilities
    assert found is not None
    np.testing.assert_allclose([found[f"LABEL_{n}"] for n in range(3)], expected, rtol=0, atol=1e-5)


@torch.no_grad()
def test_tag() -> None:
    config = transformers.BertConfig(
        vocab_size=SIZE, hidden_size=12, num_hidden_layers=2, num_attention_heads=3, intermediate_size=20, num_labels=3
    )
    model = transformers.BertForTokenClassification(config)
    ours = open_model(model, BERT_TOKENS, "[UNK]", BERT)
    expected = model(torch.tensor([[2, 7, 9, 3]])).logits[0, 1:-1].softmax(-1)
    found = ours.tag("w2 w4")
    assert found.tags == tuple(f"LABEL_{best}" for best in expected.argmax(-1).tolist())
    np.testing.assert_allclose(found.probabilities, expected.amax(-1), rtol=0, atol=1e-5)
