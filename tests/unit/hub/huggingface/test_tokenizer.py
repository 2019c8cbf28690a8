"""Tokenisers of folders that have no tokenizer.json, beside the libraries that they were made for."""

import io
import json
from pathlib import Path

import pytest
import tokenizers

from seqloom.errors import DataError
from seqloom.hub.huggingface.settings import Settings
from seqloom.hub.huggingface.tokenizer import find_frame, read_tokenizer

TEXTS = ["The cat sat on the mat.", "unbelievably naïve cafés, 42 of them!", "", "  two  spaces ", "日本 ok"]
CORPUS = [
    f"{a} {b} sat on the {c}, {d} times."
    for a in ("the", "a")
    for b in ("cat", "dog")
    for c in ("mat", "rug", "unbelievable house")
    for d in range(30)
]
EMPTY = Settings(Path("config.json"), {})


def test_wordpiece_of_a_vocabulary(tmp_path: Path) -> None:
    trained = tokenizers.BertWordPieceTokenizer()
    trained.train_from_iterator(CORPUS, vocab_size=120, show_progress=False)
    trained.save_model(str(tmp_path))
    ours = read_tokenizer(tmp_path, EMPTY)
    for text in TEXTS:
        assert ours.encode(text).ids == trained.encode(text, add_special_tokens=False).ids
    assert ours.decode(ours.encode("the cat sat").ids) == "the cat sat"
    assert (ours.roles.cls, ours.roles.sep) == (trained.token_to_id("[CLS]"), trained.token_to_id("[SEP]"))


@pytest.mark.parametrize("lower", [True, False])
def test_capitals_as_the_folder_says(tmp_path: Path, lower: bool) -> None:
    (tmp_path / "vocab.txt").write_text("[UNK]\ncat\nCat\n")
    (tmp_path / "tokenizer_config.json").write_text(json.dumps({"do_lower_case": lower}))
    assert read_tokenizer(tmp_path, EMPTY).encode("Cat").tokens == ["cat" if lower else "Cat"]


def test_bytes_of_a_vocabulary_and_merges(tmp_path: Path) -> None:
    trained = tokenizers.ByteLevelBPETokenizer()
    trained.train_from_iterator(CORPUS, vocab_size=300, special_tokens=["<|endoftext|>"], show_progress=False)
    trained.save_model(str(tmp_path))
    ours = read_tokenizer(tmp_path, EMPTY)
    for text in TEXTS:
        assert ours.encode(text).ids == trained.encode(text).ids
        assert ours.decode(ours.encode(text).ids) == text
    assert ours.roles.eos == trained.token_to_id("<|endoftext|>")


def test_pieces_and_numbers_of_marian(tmp_path: Path) -> None:
    """As transformers defines it: pieces by SentencePiece, each looked up in vocab.json."""
    sentencepiece = pytest.importorskip("sentencepiece")
    sides = {"source": CORPUS, "target": [line[::-1].replace("t", "ß") for line in CORPUS]}
    models = {}
    for side, lines in sides.items():
        written = io.BytesIO()
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=iter(lines), model_writer=written, vocab_size=60, minloglevel=2
        )
        (tmp_path / f"{side}.spm").write_bytes(written.getvalue())
        models[side] = sentencepiece.SentencePieceProcessor(model_proto=written.getvalue())
    pieces = sorted({m.id_to_piece(i) for m in models.values() for i in range(3, m.vocab_size())})
    vocab = {name: number for number, name in enumerate(["</s>", "<unk>", *pieces, ">>deu<<", "<pad>"])}
    (tmp_path / "vocab.json").write_text(json.dumps(vocab))
    ours = read_tokenizer(tmp_path, Settings(Path("config.json"), {"pad_token_id": vocab["<pad>"], "eos_token_id": 0}))
    for text in ["the cat sat on the rug, 7 times.", "a dog", "", "unbelievable ☃"]:
        expected = [vocab.get(piece, vocab["<unk>"]) for piece in models["source"].encode(text, out_type=str)]
        assert ours.encode(text).ids == expected
    reply = sides["target"][5]
    assert ours.decode([vocab[piece] for piece in models["target"].encode(reply, out_type=str)]) == reply
    assert ours.encode(">>deu<< a dog").ids[0] == vocab[">>deu<<"]
    assert (ours.roles.eos, ours.roles.pad, ours.roles.unk) == (0, vocab["<pad>"], 1)


@pytest.mark.parametrize("vocab", [{}, {"a": 0}, {"<unk>": 5}, {"<unk>": "0"}, {"<unk>": [1]}], ids=range(5))
def test_a_vocabulary_of_marian_that_is_none(tmp_path: Path, vocab: object) -> None:
    sentencepiece = pytest.importorskip("sentencepiece")
    written = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(CORPUS), model_writer=written, vocab_size=60, minloglevel=2
    )
    (tmp_path / "source.spm").write_bytes(written.getvalue())
    (tmp_path / "vocab.json").write_text(json.dumps(vocab))
    with pytest.raises(DataError, match=r"vocab\.json: is not a list of tokens"):
        read_tokenizer(tmp_path, EMPTY)


def test_a_folder_without_one(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="has no tokeniser: "):
        read_tokenizer(tmp_path, EMPTY)


@pytest.mark.parametrize("begins", [True, False])
def test_a_language_model_starts_as_its_tokeniser_does(tmp_path: Path, begins: bool) -> None:
    made = tokenizers.Tokenizer(tokenizers.models.WordLevel({"<s>": 0, "</s>": 1, "a": 2, "<unk>": 3}, "<unk>"))
    made.add_special_tokens(["<s>", "</s>"])
    if begins:
        made.post_processor = tokenizers.processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", 0)])
    made.save(str(tmp_path / "tokenizer.json"))
    frame = find_frame(tmp_path, read_tokenizer(tmp_path, EMPTY))
    assert frame == {"before": ["bos"] if begins else [], "after": ["eos"]}


@pytest.mark.parametrize(
    ("option", "text", "tokens"),
    [
        ({"do_lower_case": False}, "Cat é", ["Cat", "é"]),
        ({"do_lower_case": True}, "Cat é", ["cat", "e"]),
        ({"strip_accents": False}, "Cat é", ["cat", "é"]),
        ({"tokenize_chinese_chars": False}, "日本", ["日本"]),
    ],
    ids=str,
)
@pytest.mark.parametrize("built", [True, False])
def test_options_of_a_tokeniser_like_bert(
    tmp_path: Path, option: dict[str, object], text: str, tokens: list[str], built: bool
) -> None:
    """They have the last word, as in transformers, whatever tokenizer.json says."""
    words = ["[UNK]", "[CLS]", "[SEP]", "cat", "Cat", "e", "é", "日", "本", "日本"]
    (tmp_path / "vocab.txt").write_text("\n".join(words) + "\n", encoding="utf-8")
    if not built:
        tokenizers.BertWordPieceTokenizer({word: id for id, word in enumerate(words)}).save(
            str(tmp_path / "tokenizer.json")
        )
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(option))
    assert read_tokenizer(tmp_path, EMPTY).encode(text).tokens == tokens
    if not built:  # a class that has no such options
        general = {**option, "tokenizer_class": "PreTrainedTokenizerFast"}
        (tmp_path / "tokenizer_config.json").write_text(json.dumps(general))
        assert read_tokenizer(tmp_path, EMPTY).encode("Cat é").tokens == ["cat", "e"]


@pytest.mark.parametrize("prefix", [True, False])
@pytest.mark.parametrize("built", [True, False])
def test_a_space_before_the_first_word(tmp_path: Path, prefix: bool, built: bool) -> None:
    trained = tokenizers.ByteLevelBPETokenizer()
    trained.train_from_iterator(CORPUS, vocab_size=300, special_tokens=["<mask>"], show_progress=False)
    if built:
        trained.save_model(str(tmp_path))
    else:
        trained.save(str(tmp_path / "tokenizer.json"))
    (tmp_path / "tokenizer_config.json").write_text(json.dumps({"add_prefix_space": prefix}))
    ours = read_tokenizer(tmp_path, EMPTY)
    assert ours.encode("the cat").ids == trained.encode(" the cat" if prefix else "the cat").ids
    if built:
        assert "Ġ" not in ours.encode("the <mask>", special=True).tokens, "the mask takes the space before it"


def test_tokens_that_were_added_later(tmp_path: Path) -> None:
    (tmp_path / "vocab.txt").write_text("[UNK]\ncat\n")
    (tmp_path / "added_tokens.json").write_text(json.dumps({"<url>": 3, "<user>": 2}))
    ours = read_tokenizer(tmp_path, EMPTY)
    assert ours.encode("cat <user> <url>").ids == [1, 2, 3]
    assert ours.vocab_size == 4
    (tmp_path / "added_tokens.json").write_text(json.dumps({"<url>": 7}))
    with pytest.raises(DataError, match="'<url>' was added as token 7, but the next free id is 2"):
        read_tokenizer(tmp_path, EMPTY)
    (tmp_path / "added_tokens.json").unlink()
    listed = {"2": {"content": "<mask>", "lstrip": True, "special": True}, "0": {"content": "[UNK]"}}
    (tmp_path / "tokenizer_config.json").write_text(json.dumps({"added_tokens_decoder": listed}))
    assert read_tokenizer(tmp_path, EMPTY).encode("cat <mask>", special=True).ids == [1, 2]
