"""Special tokens around texts, as the files of a folder say; what would silently be left out is refused."""

import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import tokenizers
from tokenizers.processors import TemplateProcessing

from seqloom.errors import DataError
from seqloom.hub.huggingface.settings import Settings
from seqloom.hub.huggingface.tokenizer import find_frame, find_frames, read_tokenizer, refuse_languages
from seqloom.hub.load import load_published
from seqloom.predict.load import load

WORDS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "a", "b", "c", "d", "##e", "f", "g"]
CORPUS = [f"the {animal} sat on the {place}" for animal in ("cat", "dog") for place in ("mat", "rug")] * 20


def write_tokenizer(folder: Path, single: str | None, pair: str = "$A $B") -> None:
    made = tokenizers.Tokenizer(tokenizers.models.WordLevel({word: id for id, word in enumerate(WORDS)}, "[UNK]"))
    made.pre_tokenizer = tokenizers.pre_tokenizers.WhitespaceSplit()
    made.add_special_tokens(WORDS[:5])
    if single is not None:
        known = [(word, id) for id, word in enumerate(WORDS)]
        made.post_processor = TemplateProcessing(single=single, pair=pair, special_tokens=known)
    made.save(str(folder / "tokenizer.json"))


def test_the_frames_of_a_post_processor(tmp_path: Path) -> None:
    write_tokenizer(tmp_path, "[CLS] $A [SEP]", "[CLS] $A [SEP] [SEP] $B:1 [SEP]:1")
    frames = find_frames(tmp_path, read_tokenizer(tmp_path, Settings(tmp_path, {})))
    assert frames is not None
    assert frames.text == {"before": ["cls"], "after": ["sep"]}
    assert frames.second == {"before": ["sep"], "after": ["sep"]}
    assert frames.parts == "other"


def test_a_post_processor_that_adds_nothing_is_obeyed(bert: Callable[..., Path]) -> None:
    folder = bert()
    write_tokenizer(folder, "$A")
    assert load(folder)._predictor.frame("text", [5, 6]) == [5, 6]
    write_tokenizer(folder, None)
    assert load(folder)._predictor.frame("text", [5, 6]) == [2, 5, 6, 3]


def test_a_token_around_texts_that_has_no_role_is_refused(bert: Callable[..., Path]) -> None:
    folder = bert()
    write_tokenizer(folder, "g $A [SEP]")
    with pytest.raises(DataError, match=r"tokenizer\.json: puts g beside each text"):
        load_published(folder)


@pytest.mark.parametrize("config", [{}, {"add_bos_token": True}, {"add_bos_token": False}], ids=str)
def test_a_sentencepiece_model_of_llama_begins_with_bos(tmp_path: Path, config: dict[str, Any]) -> None:
    sentencepiece = pytest.importorskip("sentencepiece")
    written = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(CORPUS), model_writer=written, vocab_size=25, model_type="bpe", minloglevel=2
    )
    (tmp_path / "tokenizer.model").write_bytes(written.getvalue())
    if config:
        (tmp_path / "tokenizer_config.json").write_text(json.dumps(config))
    settings = Settings(tmp_path, {"model_type": "llama"})
    frame = find_frame(tmp_path, read_tokenizer(tmp_path, settings))
    assert frame == {"before": ["bos"] if config.get("add_bos_token", True) else [], "after": ["eos"]}


@pytest.mark.parametrize("kind", ["xlm-roberta", "camembert", "mbart", "pegasus"])
def test_ids_that_are_not_those_of_the_sentencepiece_model(tmp_path: Path, kind: str) -> None:
    (tmp_path / "sentencepiece.bpe.model").write_bytes(b"")
    with pytest.raises(DataError, match=rf"no tokenizer\.json, and the ids of {kind} are not those"):
        read_tokenizer(tmp_path, Settings(tmp_path, {"model_type": kind}))


@pytest.mark.parametrize("config", [{"src_lang": "en_XX"}, {"tokenizer_class": "MBart50TokenizerFast"}], ids=str)
def test_languages_are_refused(tmp_path: Path, config: dict[str, str]) -> None:
    refuse_languages(tmp_path)
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(config))
    with pytest.raises(DataError, match=f"tokenizer_config.json: {next(iter(config))}: .* languages"):
        refuse_languages(tmp_path)


def write_sentence_encoder(folder: Path, **config: Any) -> Path:
    steps = [("Transformer", ""), ("Pooling", "1_Pooling")]
    listed = [{"idx": n, "path": path, "type": f"x.{kind}"} for n, (kind, path) in enumerate(steps)]
    (folder / "modules.json").write_text(json.dumps(listed))
    (folder / "1_Pooling").mkdir()
    (folder / "1_Pooling" / "config.json").write_text(json.dumps({"pooling_mode_mean_tokens": True}))
    (folder / "sentence_bert_config.json").write_text(json.dumps(config))
    return folder


def test_the_longest_text_of_a_sentence_encoder(bert: Callable[..., Path]) -> None:
    model = load(write_sentence_encoder(bert(), max_seq_length=6, do_lower_case=True))
    assert model._predictor.longest == 6
    assert model.config.model.encoder.positions.table == 16


def test_what_a_sentence_encoder_does_to_texts_first_is_refused(bert: Callable[..., Path]) -> None:
    folder = write_sentence_encoder(bert(), do_lower_case=True)
    (folder / "tokenizer_config.json").write_text(json.dumps({"do_lower_case": False}))
    with pytest.raises(DataError, match="do_lower_case"):
        load_published(folder)
    (folder / "sentence_bert_config.json").unlink()
    (folder / "config_sentence_transformers.json").write_text(json.dumps({"default_prompt_name": "query"}))
    with pytest.raises(DataError, match="default_prompt_name"):
        load_published(folder)


def test_an_mt5_of_which_versions_disagree_is_refused(bert: Callable[..., Path]) -> None:
    old = {"model_type": "mt5", "architectures": ["MT5ForConditionalGeneration"], "tie_word_embeddings": True}
    sizes = {"num_layers": 1, "d_model": 4, "num_heads": 1, "d_kv": 4, "d_ff": 4}
    with pytest.raises(DataError, match="tie_word_embeddings: transformers 4 divides"):
        load_published(bert(**old, **sizes, transformers_version="4.30.0"))
