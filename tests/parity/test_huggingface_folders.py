"""Folders that `transformers` saved, model and tokeniser, through the verbs: from the text to the answer."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from typer.testing import CliRunner

from parity.folders import DECODERS, ENCODERS, TEXTS, TRANSLATORS, make_folder
from parity.published import CLOSE
from seqloom.cli.main import app
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
    file = tmp_path / "pairs.tsv"
    file.write_text("".join(f"{a}\t{b}\n" for a, b in pairs) + f"{TEXTS[0]}\n\n", encoding="utf-8")
    done = run.invoke(app, ["classify", str(tmp_path), str(file), "--json"])
    assert done.exit_code == 0, done.output
    found = [json.loads(line) for line in done.stdout.splitlines()]
    values = [[one["probabilities"][f"LABEL_{n}"] for n in range(3)] for one in found[:4]]
    np.testing.assert_allclose(values, [*expected, expect(TEXTS[0])], atol=1e-5)
    assert found[4]["label"] == ""


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
