"""Folders that `transformers` saved, model and tokeniser, through the verbs: from the text to the answer."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from typer.testing import CliRunner

from parity.folders import DECODERS, ENCODERS, TEXTS, TRANSLATORS, make_folder, train_pieces
from parity.published import CLOSE, transformers
from seqloom.cli.main import app
from seqloom.errors import DataError
from seqloom.hub.bundle import Bundle
from seqloom.hub.huggingface.export import plan_export, write_folder
from seqloom.predict.load import load
from seqloom.predict.model import Model
from seqloom.predict.results import Quantity
from seqloom.types import PairBatch, TokenBatch

OTHERS = ("near the river", "two dogs", "A cat.")


def pad(model: Model, rows: list[list[int]]) -> TokenBatch:
    return TokenBatch.pad(rows, model.tokenizer.roles.pad or 0)


@torch.no_grad()
def compare(theirs: Any, tokenizer: Any, ours: Model, texts: tuple[str, ...] = TEXTS) -> None:
    """The logits of texts, from the ids that each side gives them."""
    role, *_ = ours._predictor.frames
    rows = [ours._predictor.frame(role, ours.tokenizer.encode(text).ids) for text in texts]
    if ours.config.task == "language-model":
        rows = [row[:-1] for row in rows]  # the end, which the model learns and nobody writes
    assert rows == [tokenizer(text)["input_ids"] for text in texts]
    network: Any = ours.network
    for row in rows:
        batch = pad(ours, [row])
        given = {"input_ids": batch.ids, "attention_mask": batch.mask.long()}
        match ours.config.task:
            case "language-model":
                logits = network.output(network(batch))
            case "masked-language-model":
                logits = network.output(network(batch, batch.mask))[None]
            case _:
                target = pad(ours, [[*ours._predictor.frames["target"].before, 7, 9, 8]])
                given["decoder_input_ids"] = target.ids
                logits = network.output(network(PairBatch(batch, target)))
        torch.testing.assert_close(logits, theirs(**given).logits, **CLOSE)


def continue_text(theirs: Any, tokenizer: Any, ours: Model, text: str, length: int) -> str:
    """What `generate` writes, without the special tokens that no answer of Seqloom contains."""
    given, roles = tokenizer(text, return_tensors="pt"), ours.tokenizer.roles
    special = {roles.pad, roles.bos, roles.mask, roles.cls, roles.sep} - {roles.eos, None}
    beyond = range(ours.tokenizer.vocab_size, theirs.config.vocab_size)
    with torch.no_grad():
        found = theirs.generate(
            input_ids=given["input_ids"],
            attention_mask=given["attention_mask"],
            do_sample=False,
            num_beams=1,
            suppress_tokens=[*sorted(special), *beyond],
            max_new_tokens=length,
        )[0].tolist()
    if found[-1] in np.atleast_1d(theirs.generation_config.eos_token_id):
        found.pop()
    if theirs.config.is_encoder_decoder:
        return tokenizer.decode(found, skip_special_tokens=True)
    prompt = given["input_ids"][0].tolist()
    before, whole = (tokenizer.decode(ids, skip_special_tokens=True) for ids in (prompt, found))
    return whole[len(before) :]


@pytest.mark.parametrize("kind", [*ENCODERS, *DECODERS, *TRANSLATORS])
def test_logits_of_texts(kind: str, tmp_path: Path) -> None:
    theirs, tokenizer = make_folder(tmp_path, kind)
    compare(theirs, tokenizer, load(tmp_path))


@pytest.mark.parametrize("kind", DECODERS)
def test_generated_text(kind: str, tmp_path: Path) -> None:
    theirs, tokenizer = make_folder(tmp_path, kind)
    ours = load(tmp_path)
    for text in TEXTS:
        assert ours.generate(text, max_length=9).text == continue_text(theirs, tokenizer, ours, text, 9)


@pytest.mark.parametrize("kind", TRANSLATORS)
def test_translated_text(kind: str, tmp_path: Path) -> None:
    theirs, tokenizer = make_folder(tmp_path, kind)
    ours = load(tmp_path)
    for text in TEXTS:
        assert ours.translate(text, max_length=9).text == continue_text(theirs, tokenizer, ours, text, 9)


def test_a_llama_with_a_sentencepiece_model(tmp_path: Path) -> None:
    """As the first LLaMA was published: the tokeniser puts <s> before a text."""
    theirs, _ = make_folder(tmp_path, "llama", vocab_size=400, bos_token_id=1, eos_token_id=2)
    (tmp_path / "tokenizer.json").unlink()
    (tmp_path / "tokenizer.model").write_bytes(train_pieces("bpe", 310, byte_fallback=True))
    (tmp_path / "tokenizer_config.json").write_text(json.dumps({"tokenizer_class": "LlamaTokenizer"}))
    tokenizer, ours = transformers.AutoTokenizer.from_pretrained(tmp_path, add_bos_token=True), load(tmp_path)
    compare(theirs, tokenizer, ours)
    for text in TEXTS:
        assert ours.generate(text, max_length=9).text == continue_text(theirs, tokenizer, ours, text, 9)


@pytest.mark.parametrize("kind", ["t5", "mt5"])
@pytest.mark.parametrize("tied", [True, False])
def test_an_output_layer_of_its_own(kind: str, tied: bool, tmp_path: Path) -> None:
    """As in T5 1.1 and mT5, whose files have an lm_head whatever `tie_word_embeddings` says."""
    model, tokenizer = make_folder(tmp_path, kind)
    weights = load_file(tmp_path / "model.safetensors")
    weights["lm_head.weight"] = torch.randn(weights["shared.weight"].shape, generator=torch.Generator().manual_seed(0))
    save_file(weights, tmp_path / "model.safetensors", metadata={"format": "pt"})
    values = json.loads((tmp_path / "config.json").read_text()) | {"tie_word_embeddings": tied}
    values.pop("scale_decoder_outputs", None)
    (tmp_path / "config.json").write_text(json.dumps(values))
    theirs = type(model).from_pretrained(tmp_path).eval()
    assert theirs.lm_head.weight.equal(weights["lm_head.weight"])
    compare(theirs, tokenizer, load(tmp_path))


SWITCHES: dict[str, list[dict[str, Any]]] = {
    "marian": [{"share_encoder_decoder_embeddings": False}, {"scale_embedding": True}, {"tie_word_embeddings": False}],
    "bart": [{"static_position_embeddings": False}, {"tie_word_embeddings": False}, {"scale_embedding": True}],
    "mbart": [{"static_position_embeddings": False}, {"tie_word_embeddings": False}, {"scale_embedding": False}],
    "pegasus": [{"static_position_embeddings": True}, {"tie_word_embeddings": False}, {"scale_embedding": False}],
    "t5": [{"feed_forward_proj": "gated-gelu", "tie_word_embeddings": False}, {"feed_forward_proj": "gated-silu"}],
    "mt5": [{"feed_forward_proj": "relu"}, {"num_decoder_layers": 1}],
    "gpt2": [{"tie_word_embeddings": False}, {"scale_attn_by_inverse_layer_idx": True}, {"scale_attn_weights": False}],
    "gpt_neox": [{"attention_bias": False}, {"tie_word_embeddings": True}],
    "llama": [
        {"attention_bias": True, "mlp_bias": True},
        {"tie_word_embeddings": True, "head_dim": 6, "pretraining_tp": 2},
        {"rope_parameters": {"rope_type": "linear", "factor": 4.0, "rope_theta": 5e5}},
    ],
    "mistral": [{"sliding_window": 3}, {"sliding_window": None, "num_key_value_heads": 4}],
    "qwen2": [{"use_sliding_window": False, "sliding_window": 3}, {"tie_word_embeddings": True}],
    "bert": [{"tie_word_embeddings": False}, {"type_vocab_size": 1}, {"hidden_act": "gelu_new"}],
    "roberta": [{"tie_word_embeddings": False}, {"type_vocab_size": 2}, {"layer_norm_eps": 1e-3}],
    "distilbert": [{"tie_word_embeddings": False}, {"sinusoidal_pos_embds": True}, {"activation": "relu"}],
}


@pytest.mark.parametrize(("kind", "switches"), [(kind, one) for kind, many in SWITCHES.items() for one in many])
def test_switches(kind: str, switches: dict[str, Any], tmp_path: Path) -> None:
    """What changes the computation is obeyed."""
    theirs, tokenizer = make_folder(tmp_path, kind, **switches)
    compare(theirs, tokenizer, load(tmp_path))


REFUSED: dict[str, list[dict[str, Any]]] = {
    "marian": [{"normalize_before": True}, {"add_final_layer_norm": True}, {"activation_function": "quick_gelu"}],
    "bart": [{"normalize_before": True}, {"normalize_embedding": False}, {"static_position_embeddings": True}],
    "pegasus": [{"static_position_embeddings": False}],
    "t5": [{"feed_forward_proj": "gated-tanh"}],
    "gpt2": [{"add_cross_attention": True}, {"activation_function": "quick_gelu"}],
    "gpt_neox": [{"use_parallel_residual": True}],
    "llama": [{"hidden_act": "mish"}],
    "qwen2": [{"use_sliding_window": True, "sliding_window": 3, "max_window_layers": 1}],
    "bert": [{"is_decoder": True}, {"position_embedding_type": "relative_key"}, {"hidden_act": "mish"}],
}


@pytest.mark.parametrize(("kind", "switches"), [(kind, one) for kind, many in REFUSED.items() for one in many])
def test_switches_that_are_refused(kind: str, switches: dict[str, Any], tmp_path: Path) -> None:
    make_folder(tmp_path, kind, **switches)
    with pytest.raises(DataError, match=f"config.json: {next(iter(switches))}: "):
        load(tmp_path)


@pytest.mark.parametrize("kind", ENCODERS)
@torch.no_grad()
def test_pairs(kind: str, tmp_path: Path) -> None:
    """An imported classifier reads single texts and pairs, framed as its tokeniser frames them."""
    theirs, tokenizer = make_folder(tmp_path, kind, "ForSequenceClassification", num_labels=3)
    ours, run = load(tmp_path), CliRunner()
    pairs = list(zip(TEXTS, OTHERS, strict=True))

    def expect(*texts: str) -> list[float]:
        return theirs(**tokenizer(*texts, return_tensors="pt")).logits[0].softmax(-1).tolist()

    def read(found: Any) -> list[float]:
        return [found.probabilities[f"LABEL_{n}"] for n in range(3)]

    expected = [expect(*pair) for pair in pairs]
    np.testing.assert_allclose([read(one) for one in ours.classify(list(TEXTS), list(OTHERS))], expected, atol=1e-5)
    np.testing.assert_allclose([read(one) for one in ours.classify(pairs)], expected, atol=1e-5)
    np.testing.assert_allclose(read(ours.classify(*pairs[0])), expected[0], atol=1e-5)
    imported = load(ours.save(tmp_path / "run"))
    np.testing.assert_allclose([read(one) for one in imported.classify(pairs)], expected, atol=1e-5)
    np.testing.assert_allclose(read(ours.classify(TEXTS[0])), expect(TEXTS[0]), atol=1e-5)
    file = tmp_path / "pairs.txt"
    file.write_text("".join(f"{a}\t{b}\n" for a, b in pairs) + f"{TEXTS[0]}\n\n", encoding="utf-8")
    done = run.invoke(app, ["classify", str(tmp_path), str(file), "--json"])
    assert done.exit_code == 0, done.output
    found = [json.loads(line) for line in done.stdout.splitlines()]
    values = [[one["probabilities"][f"LABEL_{n}"] for n in range(3)] for one in found[:4]]
    np.testing.assert_allclose(values, [*expected, expect(TEXTS[0])], atol=1e-5)
    assert found[4]["label"] == ""
    file = tmp_path / "named.tsv"
    file.write_text("a\tb\n" + "".join(f"{a}\t{b}\n" for a, b in pairs), encoding="utf-8")
    done = run.invoke(app, ["classify", str(tmp_path), str(file), "--json", "--column", "a", "--column", "b"])
    named = [json.loads(line)["probabilities"] for line in done.stdout.splitlines()]
    np.testing.assert_allclose([[one[f"LABEL_{n}"] for n in range(3)] for one in named], expected, atol=1e-5)
    labels = [one["label"] for one in found[:3]]
    rows = [f"{a}\t{b}\t{label}\n" for (a, b), label in zip(pairs, labels, strict=True)]
    file = tmp_path / "pairs.tsv"
    file.write_text("text\tsecond\tlabel\n" + "".join(rows), encoding="utf-8")
    found = ours.evaluate(str(file))
    assert found["accuracy"].value in (1.0, 100.0), "eval reads the column called second"


@pytest.mark.parametrize("kind", ["bert", "roberta"])
@torch.no_grad()
def test_scores_of_a_cross_encoder(kind: str, tmp_path: Path) -> None:
    """A model with one output gives a number, which is its logit."""
    theirs, tokenizer = make_folder(tmp_path, kind, "ForSequenceClassification", num_labels=1)
    ours = load(tmp_path)
    for pair, found in zip(zip(TEXTS, OTHERS, strict=True), ours.classify(list(TEXTS), list(OTHERS)), strict=True):
        expected = theirs(**tokenizer(*pair, return_tensors="pt")).logits[0, 0].item()
        assert isinstance(found, Quantity)
        assert found.value == pytest.approx(expected, abs=1e-5)


@pytest.mark.parametrize("kind", ["llama", "gpt2", "bart", "t5"])
@pytest.mark.parametrize("file", ["config.json", "generation_config.json"])
def test_several_ends(kind: str, file: str, tmp_path: Path) -> None:
    """A list of end tokens, as in LLaMA 3, ends an answer at any of them."""
    theirs, tokenizer = make_folder(tmp_path, kind)
    first = load(tmp_path)
    verb = first.translate if theirs.config.is_encoder_decoder else first.generate
    token = verb(TEXTS[0], max_length=9).tokens[5]
    id = tokenizer.convert_tokens_to_ids(token)
    values = json.loads((tmp_path / file).read_text())
    ends = [theirs.generation_config.eos_token_id, id]
    (tmp_path / file).write_text(json.dumps(values | {"eos_token_id": ends}))
    if file == "config.json":
        (tmp_path / "generation_config.json").unlink()
    theirs.generation_config.eos_token_id = ends
    ours = load(load(tmp_path).save(tmp_path / "run"))
    again = ours.translate if theirs.config.is_encoder_decoder else ours.generate
    for text in TEXTS:
        assert again(text, max_length=9).text == continue_text(theirs, tokenizer, ours, text, 9)
    assert len(again(TEXTS[0], max_length=9).tokens) <= 5
    assert again(TEXTS[0], max_length=9).finished
    exported, out = Bundle(ours.config, ours.tokenizer, (), ours.network), tmp_path / "out"
    out.mkdir()
    write_folder(exported, *plan_export(exported), out)
    assert json.loads((out / "generation_config.json").read_text())["eos_token_id"] == ends
