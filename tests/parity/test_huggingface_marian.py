"""Marian folders with a SentencePiece model for each side, beside transformers' tokeniser and model."""

import io
import json
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch

import seqloom
from parity.published import randomise, transformers
from seqloom.errors import ConfigError, DataError
from seqloom.hub.huggingface.files import read_json
from seqloom.predict.export import export
from seqloom.text import Tokenizer

sentencepiece = pytest.importorskip("sentencepiece", reason="the oracle; pip install sentencepiece")
_NOUNS = {"house": "Haus", "street": "Straße", "mouse": "Maus", "river": "Fluß", "weather": "Wetter"}
_VERBS = {"sees": "sieht", "hears": "hört", "seeks": "sucht", "finds": "findet"}
PAIRS = [
    (
        f"the {one} {does} the {other}, {times} times.",
        f"das {_NOUNS[one]} {_VERBS[does]} das {_NOUNS[other]}, {times} Mal.",
    )
    for one in _NOUNS
    for does in _VERBS
    for other in _NOUNS
    for times in range(3)
]
SOURCES, TARGETS = (list(side) for side in zip(*PAIRS, strict=True))
ODD = ["", "  two  spaces ", "Straße", "die Maus hört zu", "the Mäuse ☃ ok", "日本", "unbelievable"]
KINDS = pytest.mark.parametrize("separate", [False, True], ids=["one vocabulary", "two vocabularies"])


@cache
def _train_pieces(side: str) -> bytes:
    written = io.BytesIO()
    lines = iter({"source": SOURCES, "target": TARGETS}[side])
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=lines, model_writer=written, vocab_size=70, hard_vocab_limit=False, minloglevel=2
    )
    return written.getvalue()


def publish(folder: Path, separate: bool) -> tuple[Any, Any]:
    """Write a folder as published ones are; returns transformers' tokeniser and model of it."""
    folder.mkdir()
    pieces = {}
    for side in ("source", "target"):
        (folder / f"{side}.spm").write_bytes(_train_pieces(side))
        model = sentencepiece.SentencePieceProcessor(model_proto=_train_pieces(side))
        pieces[side] = {model.id_to_piece(id) for id in range(3, model.vocab_size())}
    if not separate:
        pieces = {"source": pieces["source"] | pieces["target"]}
    vocabularies = {side: ["</s>", "<unk>", *sorted(own), "<pad>"] for side, own in pieces.items()}
    if separate:  # the padding is one number for both sides
        for names in vocabularies.values():
            names.insert(2, names.pop())
    for name, side in {"vocab": "source", "target_vocab": "target"}.items():
        if side in vocabularies:
            numbered = {piece: id for id, piece in enumerate(vocabularies[side])}
            (folder / f"{name}.json").write_text(json.dumps(numbered))
    settings = {"separate_vocabs": separate, "tokenizer_class": "MarianTokenizer", "model_max_length": 64}
    (folder / "tokenizer_config.json").write_text(json.dumps(settings))
    pad = vocabularies["source"].index("<pad>")
    config = transformers.MarianConfig(
        vocab_size=len(vocabularies["source"]),
        decoder_vocab_size=len(vocabularies["target" if separate else "source"]),
        share_encoder_decoder_embeddings=not separate,
        pad_token_id=pad,
        eos_token_id=0,
        decoder_start_token_id=pad,
        forced_eos_token_id=None,
        d_model=16,
        max_position_embeddings=64,
        **dict.fromkeys(("encoder_layers", "decoder_layers", "encoder_attention_heads", "decoder_attention_heads"), 2),
        **dict.fromkeys(("encoder_ffn_dim", "decoder_ffn_dim"), 20),
    )
    torch.manual_seed(2)
    model = transformers.MarianMTModel(config)
    randomise(model)
    model.save_pretrained(folder)
    return transformers.MarianTokenizer.from_pretrained(folder), model


@KINDS
def test_the_ids_of_sources_and_of_targets(tmp_path: Path, separate: bool) -> None:
    theirs, _ = publish(tmp_path / "marian", separate)
    ours = seqloom.load(tmp_path / "marian").tokenizer
    assert ours.target is not ours
    assert ours.shares_ids is not separate
    for text in (*SOURCES, *TARGETS, *ODD):
        assert ours.encode(text).ids == theirs(text)["input_ids"][:-1]
        assert ours.target.encode(text).ids == theirs(text_target=text)["input_ids"][:-1]
    for text in TARGETS[:20]:
        ids = ours.target.encode(text).ids
        assert ours.target.decode(ids) == theirs.decode(ids) == text
    again = Tokenizer.load(tmp_path / "marian")
    assert again.target.encode(TARGETS[0]).ids == ours.target.encode(TARGETS[0]).ids


@KINDS
def test_scores_and_translations(tmp_path: Path, separate: bool) -> None:
    tokenizer, model = publish(tmp_path / "marian", separate)
    ours = seqloom.load(tmp_path / "marian")
    batch = tokenizer(SOURCES[:8], text_target=TARGETS[:8], return_tensors="pt", padding=True)
    labels = batch["labels"]
    with torch.no_grad():
        logits = model(**batch).logits.log_softmax(-1)
        answers = model.generate(
            batch["input_ids"],
            attention_mask=batch["attention_mask"],
            do_sample=False,
            num_beams=1,
            max_new_tokens=12,
            suppress_tokens=[model.config.pad_token_id],
        )
    real = torch.arange(labels.shape[1]) <= (labels == 0).int().argmax(1, keepdim=True)
    wanted = (logits.gather(2, labels.clamp_min(0).unsqueeze(2)).squeeze(2) * real).sum(1)
    found = ours.score(SOURCES[:8], TARGETS[:8])
    assert [one.log_probability for one in found] == pytest.approx(wanted.tolist(), abs=2e-4)
    texts = tokenizer.batch_decode(answers, skip_special_tokens=True)
    assert [one.text.strip() for one in ours.translate(SOURCES[:8], max_length=12)] == texts


@KINDS
def test_forced_prefixes_and_constraints_are_spelled_as_targets(tmp_path: Path, separate: bool) -> None:
    theirs, _ = publish(tmp_path / "marian", separate)
    ours = seqloom.load(tmp_path / "marian")
    ids = theirs(text_target="das Haus")["input_ids"][:-1]
    spelled = [theirs.decoder[id] for id in ids]
    (found,) = ours.translate(SOURCES[:1], prefix="das Haus", max_length=12)
    assert list(found.tokens[: len(ids)]) == spelled
    (found,) = ours.translate(SOURCES[:1], constraints=["Straße"], beam=2, max_length=20)
    assert "Straße" in found.text
    (piece,) = ours.tokenizer.target.encode("Haus").ids
    with torch.no_grad():
        ours.network.get_parameter("output.bias")[piece] += 50.0
    assert "Haus" in ours.translate(SOURCES[0], max_length=4).text
    assert "Haus" not in ours.translate(SOURCES[0], max_length=4, avoid=["Haus"]).text


@KINDS
def test_a_fine_tuned_model_goes_on_from_where_it_was(tmp_path: Path, separate: bool) -> None:
    """With a learning rate of almost 0, it scores as before: the same tokens, frames and tables."""
    publish(tmp_path / "marian", separate)
    imported = seqloom.load(tmp_path / "marian")
    imported.save(tmp_path / "imported")
    for side, lines in {"source": SOURCES, "target": TARGETS}.items():
        (tmp_path / f"train.{side}").write_text("\n".join(lines[:40]) + "\n")
    config = tmp_path / "tuned.toml"
    config.write_text(
        'task = "translation"\ninit = "imported"\n[data.train]\nsource = "train.source"\ntarget = "train.target"\n'
        "[data.valid]\nsource = 'train.source'\ntarget = 'train.target'\n[train]\nsteps = 2\nvalidate_every = 1\n"
        "optimizer.learning_rate = 1e-12\n"
    )
    run = seqloom.train(config, out=tmp_path / "tuned")
    tuned = seqloom.load(run)
    assert tuned.tokenizer.target.fingerprint == imported.tokenizer.target.fingerprint
    before, after = (model.score(SOURCES[:4], TARGETS[:4]) for model in (imported, tuned))
    for one, other in zip(before, after, strict=True):
        assert one.tokens == other.tokens
        assert one.log_probability == pytest.approx(other.log_probability, abs=1e-4)


def test_the_tokenisers_of_a_folder_in_a_run_of_our_own(tmp_path: Path) -> None:
    """One vocabulary, so the sides share embeddings; there is no token to start with, so one must be named."""
    publish(tmp_path / "marian", separate=False)
    for side, lines in {"source": SOURCES, "target": TARGETS}.items():
        (tmp_path / f"train.{side}").write_text("\n".join(lines[:40]) + "\n")
    config = tmp_path / "own.toml"
    config.write_text(
        'task = "translation"\nsize = "tiny"\ntokenizer = {kind = "file", path = "marian"}\ntrain.steps = 2\n'
        'data.train = {source = "train.source", target = "train.target"}\n'
    )
    with pytest.raises(ConfigError, match=r"target_frame\.before: .* no start; it has pad, unk, eos"):
        seqloom.train(config, out=tmp_path / "none")
    run = seqloom.train(config, {"target_frame": {"before": ["pad"], "after": ["eos"]}}, out=tmp_path / "own")
    model = seqloom.load(run)
    known = Tokenizer.load(tmp_path / "marian")
    assert model.score(SOURCES[:1], TARGETS[:1])[0].tokens == (*known.target.encode(TARGETS[0]).tokens, "</s>")
    assert "target_embedding.weight" not in dict(model.network.named_parameters())


@KINDS
@pytest.mark.parametrize("to", ["huggingface", "ctranslate2", pytest.param("onnx", marks=pytest.mark.long)])
def test_export(tmp_path: Path, separate: bool, to: Any) -> None:
    publish(tmp_path / "marian", separate)
    ours = seqloom.load(tmp_path / "marian")
    ours.save(tmp_path / "run")
    folder = export(tmp_path / "run", to, tmp_path / "out").folder
    if to == "huggingface":
        assert read_json(folder / "config.json")["model_type"] == "marian"
        again = seqloom.load(folder)
        assert again.score(SOURCES[:3], TARGETS[:3]) == ours.score(SOURCES[:3], TARGETS[:3])
        target = transformers.AutoTokenizer.from_pretrained(folder / "target")
        assert target(TARGETS[0])["input_ids"] == [*ours.tokenizer.target.encode(TARGETS[0]).ids, 0]
    else:
        assert Tokenizer.load(folder / "tokenizer.json").target.fingerprint == ours.tokenizer.target.fingerprint
    if to == "ctranslate2":
        fast = seqloom.load(tmp_path / "run", engine="ctranslate2")
        asked = SOURCES[:4]
        assert [x.text for x in fast.translate(asked)] == [x.text for x in ours.translate(asked)]


def test_a_table_for_both_sides_needs_one_vocabulary(tmp_path: Path) -> None:
    publish(tmp_path / "marian", separate=True)
    path = tmp_path / "marian" / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"share_encoder_decoder_embeddings": True}))
    with pytest.raises(DataError, match="share_encoder_decoder_embeddings: is true, but the tokenisers"):
        seqloom.load(tmp_path / "marian")
