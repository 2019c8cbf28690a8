"""Text to ids by parts that were met before: always the ids that the `tokenizers` library gives to whole texts."""

import json
import os
import random
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tokenizers
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tokenizers import AddedToken, models, normalizers, pre_tokenizers

from seqloom.config.tokenizer import Bpe, Bytes, Characters, TokenizerConfig, Unigram, WordPiece, Words
from seqloom.errors import DataError
from seqloom.native.words import find_library
from seqloom.text import Tokenizer
from seqloom.text.cuts import DIGIT, LETTER, NO_CUT, PUNCTUATION, classify, find_splitting
from seqloom.text.parts import PartEncoder
from shared_data import corpus as find_corpus

Train = Callable[..., Tokenizer]

pytestmark = pytest.mark.skipif(find_library() is None, reason="the table of words was not built")

OPTIONS: dict[str, TokenizerConfig] = {
    "bpe": Bpe(size=600),
    "bpe, nfkc, lower": Bpe(size=600, normalisation="nfkc", lowercase=True),
    "bpe, none": Bpe(size=600, normalisation="none"),
    "wordpiece": WordPiece(size=600),
    "wordpiece, nfkc, lower": WordPiece(size=600, normalisation="nfkc", lowercase=True),
    "unigram": Unigram(size=600),
    "unigram, lower": Unigram(size=600, lowercase=True),
    "unigram, nfkc": Unigram(size=600, normalisation="nfkc"),
    "words": Words(),
    "words, lower": Words(lowercase=True),
    "words, keep": Words(punctuation="keep", normalisation="none"),
    "characters": Characters(),
    "characters, nfkc, lower": Characters(normalisation="nfkc", lowercase=True),
    "bytes": Bytes(),
    "bytes, lower": Bytes(lowercase=True),
}
TRICKY = [
    "", " ", "  a  b ", "\ta b\n c ", "a\u00a0b \u3000 c", "don't l’été 'quoted' 4.5-6", "x" * 300 + " " + "," * 300,
    "a<\u0338b = \u0338c", "e\u0301, \u0301x", "Σίσυφος ΟΔΟΣ Σ", "İstanbul ISPARTA", "▁a ▁ b▁ c", "<0x41> a<0x 0x",
    "[MASK] </s>[CLS]the [SEP]", "\uac00\u11a8 \u1100\u1161", "12 ab12cd ١٢٣ x²", "a_b __init__ c", "日本語。テスト",
    "😀 😀👍🏽 a", "\u0e33\u0e33 ก", "a\u200db \u200d c", "\0a \0 b", "Ⓐb Ⓑ", "a…b … c", "؝x \u2e52y",
]  # fmt: skip
BLOCKS = [
    (0x20, 0x7F), (0x20, 0x7F), (0x80, 0x250), (0x300, 0x370), (0x370, 0x600), (0x600, 0x700), (0x900, 0xE00),
    (0x1100, 0x1200), (0x2000, 0x2C00), (0x3000, 0x3200), (0xAC00, 0xAD00), (1, 0xD800), (0x1F300, 0x1F700),
]  # fmt: skip


def ask_library(whole: Any, texts: Sequence[str]) -> list[list[int]]:
    return [encoding.ids for encoding in whole.encode_batch_fast(list(texts), add_special_tokens=False)]


def open_parts(spec: dict[str, Any], **options: int) -> tuple[Any, PartEncoder]:
    """The library's tokeniser of whole texts, and ours of parts."""
    splitting = find_splitting(spec)
    assert splitting is not None
    whole = tokenizers.Tokenizer.from_str(json.dumps(spec))
    return whole, PartEncoder(whole, spec, splitting, whole.get_vocab_size(), **options)


def read(parts: PartEncoder, texts: Sequence[str]) -> list[list[int]]:
    ids, offsets = parts.encode(texts)
    return [ids[start:end].tolist() for start, end in pairwise(offsets.tolist())]


def check(whole: Any, parts: PartEncoder, texts: Sequence[str]) -> None:
    """What is new and what was met before have the library's ids."""
    wanted = ask_library(whole, texts)
    for _ in range(2):
        for text, found, expected in zip(texts, read(parts, texts), wanted, strict=True):
            assert found == expected, repr(text)


@pytest.fixture(scope="module")
def opened(train: Train, texts: list[str]) -> dict[str, tuple[Any, PartEncoder]]:
    return {name: open_parts(json.loads(train(config, texts)._hidden)) for name, config in OPTIONS.items()}


@pytest.fixture(scope="module")
def random_texts() -> list[str]:
    """From all scripts, and dense in what decides where words end."""
    chance = random.Random(5)
    often = "  \t\n'’.,<=>()[]\u0301\u0338\u00a0▁aΣ1"
    return [
        "".join(
            chance.choice(often) if chance.random() < 0.4 else chr(chance.randrange(*chance.choice(BLOCKS)))
            for _ in range(chance.randrange(24))
        )
        for _ in range(2500)
    ]


@pytest.mark.parametrize("name", OPTIONS)
def test_the_library_s_ids_on_random_texts(
    name: str, opened: dict[str, tuple[Any, PartEncoder]], random_texts: list[str], texts: list[str]
) -> None:
    check(*opened[name], [*TRICKY, *texts, *random_texts])


@settings(max_examples=25)
@given(st.lists(st.text(), max_size=4))
@example(["a b", "", "a b"])
def test_the_library_s_ids_on_any_text(opened: dict[str, tuple[Any, PartEncoder]], texts: list[str]) -> None:
    texts = [text.encode("utf-8", "ignore").decode() for text in texts]
    for whole, parts in opened.values():
        check(whole, parts, texts)


@pytest.mark.parametrize("name", ["bpe", "wordpiece, nfkc, lower", "words", "unigram, lower"])
def test_every_character_beside_a_cut(name: str, opened: dict[str, tuple[Any, PartEncoder]]) -> None:
    """The library agrees on the class of each of them, in the Unicode version that it has."""
    classes = classify()
    assert np.bincount(classes)[LETTER] > 40_000
    texts = [
        f"{one}{c} {c}b{c},{c}{one} {c}{c}\u0301"
        for kind, one in ((LETTER, "a"), (DIGIT, "1"), (PUNCTUATION, ","))
        for c in map(chr, np.flatnonzero(classes == kind).tolist())
        if kind != LETTER or ord(c) < 0x3400 or ord(c) % 16 == 0  # of thousands of ideographs and syllables, some
    ]
    check(*opened[name], texts)


def test_no_cut_beside_what_joins_or_changes() -> None:
    assert not classify()[[ord(c) for c in "'’Σ\u0301\u1161\u11a8\u00a0\t\n…²\ufb01"]].any(), NO_CUT


BERT = normalizers.BertNormalizer


def build_foreign() -> Iterator[tuple[str, tokenizers.Tokenizer]]:
    """Tokenisers as others make them."""
    vocab = {
        token: id for id, token in enumerate(["[UNK]", "the", "cat", "##s", "c", "##a", "##t", "é", "e", ",", "中"])
    }
    for lowercase in (True, False):
        for strip in (None, True, False):
            bert = tokenizers.Tokenizer(models.WordPiece(vocab, unk_token="[UNK]"))
            bert.normalizer = BERT(lowercase=lowercase, strip_accents=strip)
            bert.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
            yield f"bert, {lowercase}, {strip}", bert
    letters = {token: id for id, token in enumerate([*sorted(pre_tokenizers.ByteLevel.alphabet()), "Ġt", "he", "Ġthe"])}
    gpt = tokenizers.Tokenizer(models.BPE(letters, [("Ġ", "t"), ("h", "e"), ("Ġt", "he")]))
    gpt.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    yield "gpt-2", gpt


FOREIGN = dict(build_foreign())


@pytest.mark.parametrize("name", FOREIGN)
def test_tokenisers_of_others(name: str, random_texts: list[str], texts: list[str]) -> None:
    check(*open_parts(json.loads(FOREIGN[name].to_str())), [*TRICKY, *texts, *random_texts])


@pytest.mark.parametrize("corpus", ["multi30k/train.de.gz", "tatoeba/eng-deu.tsv.gz", "enwik8/enwik8.first10MB.xz"])
@pytest.mark.parametrize("config", [Bpe(size=2000), WordPiece(size=2000), Unigram(size=2000)], ids=lambda c: c.kind)
def test_the_library_s_ids_on_real_text(corpus: str, config: TokenizerConfig, train: Train) -> None:
    import gzip
    import lzma

    with (lzma.open if corpus.endswith("xz") else gzip.open)(find_corpus(corpus)) as file:
        lines = [line.decode().rstrip("\n") for _, line in zip(range(3000), file, strict=False)]
    check(*open_parts(json.loads(train(config, lines[:1000])._hidden)), lines)


def test_many_texts_at_once_through_the_tokeniser(
    trained: dict[str, Tokenizer], texts: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where there is much text, `encode_batch` and `encode_end_to_end` look parts up, and give the same."""
    monkeypatch.setattr("seqloom.text.tokenizer._WORTH_A_TABLE", 1000)
    many = [*texts, *TRICKY]
    for tokenizer in trained.values():
        wanted = ask_library(tokenizer.plain, many)
        assert tokenizer.encode_batch(many) == wanted
        assert "_encode_by_parts" in vars(tokenizer)
        ids, offsets = tokenizer.encode_end_to_end(many)
        assert (ids.dtype, ids.tolist()) == (np.uint16, [id for row in wanted for id in row])
        assert np.diff(offsets).tolist() == [len(row) for row in wanted]
        assert (
            tokenizer.encode_batch(many, special=True)[len(texts) + 13]
            == tokenizer.encode(TRICKY[13], special=True).ids
        )
        with pytest.raises(DataError, match="text 2 of 3 has half of a surrogate pair"):
            tokenizer.encode_batch(["a" * 5000, "b\ud800", "c"])
        assert tokenizer.encode_batch(many) == wanted


def test_a_full_table_is_emptied(train: Train, texts: list[str], random_texts: list[str]) -> None:
    whole, parts = open_parts(json.loads(train(Bpe(size=600), texts)._hidden), most_bytes=1 << 15)
    for start in range(0, len(random_texts), 200):
        check(whole, parts, random_texts[start : start + 200])
        assert sum(table.nbytes for table in parts._tables) <= 1 << 15


def test_several_threads_at_once(opened: dict[str, tuple[Any, PartEncoder]], random_texts: list[str]) -> None:
    whole, parts = opened["bpe"]
    calls = [random_texts[start : start + 100] for start in range(0, len(random_texts), 100)]
    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(lambda call: read(parts, call), calls)) == [ask_library(whole, call) for call in calls]


def test_what_is_not_known_is_not_cut(trained: dict[str, Tokenizer]) -> None:
    """Opt in: whatever could look across words is left to the library."""
    spec = json.loads(trained["bpe"]._hidden)
    assert find_splitting(spec) is not None
    named = tokenizers.Tokenizer.from_str(json.dumps(spec))
    named.add_tokens([AddedToken("two words")])
    others = [
        json.loads(named.to_str()),
        {**spec, "model": {**spec["model"], "dropout": 0.1}},
        {**spec, "pre_tokenizer": None},
        {**spec, "normalizer": {"type": "StripAccents"}},
        {**spec, "normalizer": json.loads(trained["unigram"]._hidden)["normalizer"]},
        {
            **spec,
            "pre_tokenizer": {"type": "Split", "pattern": {"Regex": "a b"}, "behavior": "Isolated", "invert": False},
        },
    ]
    assert [find_splitting(other) for other in others] == [None] * len(others)


@pytest.mark.parametrize(
    "option",
    [
        {"fuse_unk": True},
        {"ignore_merges": True},
        {"continuing_subword_prefix": "##"},
        {"end_of_word_suffix": "</w>"},
        {"type": None},
    ],
    ids=lambda option: next(iter(option)),
)
@pytest.mark.parametrize("name", ["characters", "bytes"])
def test_an_alphabet_is_cut_only_if_symbols_stand_alone(
    name: str, option: dict[str, Any], trained: dict[str, Tokenizer]
) -> None:
    """An option may give a symbol an id that depends on what is beside it; an old file does not name its model."""
    spec = json.loads(trained[name]._hidden)
    assert find_splitting(spec) is not None
    model = {key: value for key, value in {**spec["model"], **option}.items() if key != "type" or value}
    tokenizers.Tokenizer.from_str(json.dumps({**spec, "model": model}))  # there are such files
    assert find_splitting({**spec, "model": model}) is None


def test_without_the_table_ids_are_the_same(trained: dict[str, Tokenizer], texts: list[str], tmp_path: Path) -> None:
    trained["bpe"].save(tmp_path / "tok.json")
    (tmp_path / "lines").write_text("\n".join(texts), encoding="utf-8")
    words = [sys.executable, "-m", "seqloom", "tokenizer", "encode", "tok.json", "lines"]
    none = {**os.environ, "SEQLOOM_KERNELS": "none"}
    found = subprocess.run(words, cwd=tmp_path, env=none, capture_output=True, check=True, text=True).stdout
    rows = [[int(id) for id in line.split()] for line in found.splitlines()]
    assert rows == ask_library(trained["bpe"].plain, texts)
