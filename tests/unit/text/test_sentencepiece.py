"""SentencePiece models, beside the `sentencepiece` package itself, on real text and on text made to differ."""

import contextlib
import io
import unicodedata
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from seqloom.errors import DataError
from seqloom.text import BpeDropout, Roles, Tokenizer
from seqloom.text.sentencepiece import convert_model
from seqloom.text.training import read_lines
from shared_data import corpus

sentencepiece = pytest.importorskip("sentencepiece")

VARIANTS: dict[str, dict[str, Any]] = {
    "unigram": {"model_type": "unigram"},
    "unigram, bytes": {"model_type": "unigram", "byte_fallback": True},
    "unigram, folded": {"model_type": "unigram", "normalization_rule_name": "nmt_nfkc_cf"},
    "unigram, symbols": {
        "model_type": "unigram",
        "user_defined_symbols": ["<sep>", "foo"],
        "control_symbols": ["<ctl>"],
        "byte_fallback": True,
        "pad_id": 3,
    },
    "bpe": {"model_type": "bpe"},
    "bpe, bytes": {"model_type": "bpe", "byte_fallback": True, "normalization_rule_name": "nfkc"},
    "bpe, as is": {
        "model_type": "bpe",
        "byte_fallback": True,
        "normalization_rule_name": "identity",
        "remove_extra_whitespaces": False,
        "add_dummy_prefix": False,
    },
    "bpe, symbols": {"model_type": "bpe", "user_defined_symbols": ["<sep>", "foo", "▁▁"], "byte_fallback": True},
    "bpe, across spaces": {"model_type": "bpe", "split_by_whitespace": False, "allow_whitespace_only_pieces": True},
}
TRICKY = [
    "",
    " ",
    "   two   spaces   ",
    "\ttab\t",
    "ｶﾞｷﾞ ﾊﾟ half-width",
    unicodedata.normalize("NFD", "Việt Nam, được, 한국어, café"),
    "Ⅷ ２０２６ ﬁne ～ … ™ ½",
    "İstanbul'da IĞDIR",
    "zero\u200bwidth\u00a0no-break\u3000wide",
    "a<sep>b foo <sep><sep> foobar barefoot",
    "<s>not</s> <unk> <ctl> <pad> special",
    "<0x41> <0xE2><0x96>",
    "▁ ▁x x▁",
    "日本語 🤗 עברית",
    "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa",
]


def learn(options: dict[str, Any]) -> bytes:
    lines = list(read_lines(corpus("tatoeba/eng-deu.tsv.gz")))[::60]
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=(side for line in lines for side in line.split("\t")[:2]),
        model_writer=model,
        vocab_size=1000,
        minloglevel=2,
        num_threads=1,
        hard_vocab_limit=False,
        **options,
    )
    return model.getvalue()


@pytest.fixture(scope="module", params=list(VARIANTS))
def variant(request: pytest.FixtureRequest) -> tuple[str, bytes]:
    return request.param, learn(VARIANTS[request.param])


Pair = tuple[Tokenizer, Any]


@pytest.fixture(scope="module")
def pair(variant: tuple[str, bytes], tmp_path_factory: pytest.TempPathFactory) -> Pair:
    path: Path = tmp_path_factory.mktemp("model") / "spiece.model"
    path.write_bytes(variant[1])
    return Tokenizer.load(path), sentencepiece.SentencePieceProcessor(model_proto=variant[1])


def compare(pair: Pair, texts: list[str]) -> None:
    ours, theirs = pair
    expected = theirs.encode(texts)
    for text, ids, peer_ids in zip(texts, ours.encode_batch(texts), expected, strict=True):
        assert ids == peer_ids, (text, [ours.token(id) for id in ids], theirs.id_to_piece(peer_ids))
    known = [ids for ids in expected if theirs.unk_id() not in ids]
    assert ours.decode_batch(known) == theirs.decode(known)


def test_real_text_gets_the_same_ids_and_comes_back_the_same(pair: Pair) -> None:
    lines = list(read_lines(corpus("tatoeba/eng-deu.tsv.gz")))[7::60]
    compare(pair, [side for line in lines for side in line.split("\t")[:2]])


def test_tricky_text_gets_the_same_ids(pair: Pair) -> None:
    ours, theirs = pair
    for text in TRICKY:
        ids, expected = ours.encode(text).ids, theirs.encode(text)
        assert ids == expected, (text, [ours.token(id) for id in ids], theirs.id_to_piece(expected))


@given(text=st.text(st.characters(max_codepoint=0x2FF, exclude_categories=["Cs"]) | st.sampled_from(" ▁東🤗")))
def test_any_latin_text_gets_the_same_ids(text: str, pair: Pair) -> None:
    ours, theirs = pair
    assert ours.encode(text).ids == theirs.encode(text)


def test_every_piece_keeps_its_id(pair: Pair) -> None:
    ours, theirs = pair
    assert [ours.token(id) for id in range(ours.vocab_size)] == [
        theirs.id_to_piece(id) for id in range(theirs.get_piece_size())
    ]


def test_roles_and_safety(variant: tuple[str, bytes], pair: Pair) -> None:
    ours, _ = pair
    assert ours.roles == Roles(unk=0, bos=1, eos=2, pad=3 if variant[0] == "unigram, symbols" else None)
    special = {ours.roles.bos, ours.roles.eos, ours.id("<ctl>")}
    for text in ("<s>", "</s>", "<ctl>", "a <s> b</s>"):
        assert special.isdisjoint(ours.encode(text).ids)
    assert ours.encode("a</s>", special=True).ids[-1] == ours.roles.eos


def test_it_saves_as_a_tokenizer_json(pair: Pair, tmp_path: Path) -> None:
    ours, _ = pair
    ours.save(tmp_path / "tokenizer.json")
    again = Tokenizer.load(tmp_path)
    assert again.fingerprint == ours.fingerprint
    assert again.encode_batch(TRICKY) == ours.encode_batch(TRICKY)


def test_bpe_models_take_dropout() -> None:
    ours = Tokenizer(convert_model(learn(VARIANTS["bpe, bytes"]), "bpe.model"))
    text = "Guten Morgen, 東京!"
    assert BpeDropout(ours, 0.0).encode(text, seed=1) == ours.encode(text).ids
    assert ours.decode(BpeDropout(ours, 0.5).encode(text, seed=1)) == text


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ({"model_type": "word"}, "of type word; only unigram and bpe"),
        ({"model_type": "char"}, "of type char; only unigram and bpe"),
        ({"model_type": "unigram", "treat_whitespace_as_suffix": True}, "spaces as a ▁ before words"),
    ],
)
def test_models_that_cannot_be_read_are_refused(options: dict[str, Any], complaint: str) -> None:
    with pytest.raises(DataError, match=rf"my\.model: .*{complaint}"):
        convert_model(learn(options), "my.model")


def test_damaged_models_are_refused(variant: tuple[str, bytes]) -> None:
    model = variant[1]
    wrong = [b"", b"\x00" * 100, b'{"version": "1.0"}', *(model[:cut] for cut in range(1, 6000, 97))]
    for data in wrong:
        with pytest.raises(DataError, match=r"my\.model: this is not a SentencePiece model"):
            convert_model(data, "my.model")


@given(data=st.binary(max_size=200))
def test_any_bytes_are_read_or_refused(data: bytes) -> None:
    with contextlib.suppress(DataError):
        Tokenizer(convert_model(data, "my.model"))
