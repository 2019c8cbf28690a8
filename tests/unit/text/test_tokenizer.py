"""What every tokeniser promises, over all kinds."""

import json
import pickle
from pathlib import Path

import pytest
import tokenizers
from hypothesis import given
from hypothesis import strategies as st

from seqloom.errors import DataError
from seqloom.text import Tokenizer
from seqloom.text.roles import ROLES, SPECIAL_TOKENS


def test_special_tokens_stand_in_fixed_places(tokenizer: Tokenizer) -> None:
    for id, (role, name) in enumerate(zip(ROLES, SPECIAL_TOKENS, strict=True)):
        assert getattr(tokenizer.roles, role) == tokenizer.id(name) == id
        assert tokenizer.token(id) == name
    assert tokenizer.roles.pad == 0


def test_names_and_ids_are_inverse(tokenizer: Tokenizer) -> None:
    names = [tokenizer.token(id) for id in range(tokenizer.vocab_size)]
    assert [tokenizer.id(name) for name in names] == list(range(tokenizer.vocab_size))
    assert tokenizer.id("no such token \0") is None


def test_tokens_are_the_names_of_the_ids(tokenizer: Tokenizer, texts: list[str]) -> None:
    encoding = tokenizer.encode(texts[0] + " Ђ")
    assert encoding.tokens == [tokenizer.token(id) for id in encoding.ids]
    assert len(encoding.offsets) == len(encoding.ids)


def test_many_texts_are_encoded_as_one_by_one(tokenizer: Tokenizer, texts: list[str]) -> None:
    texts = [*texts, "", " ", "[MASK]"]
    assert tokenizer.encode_batch(texts) == [tokenizer.encode(text).ids for text in texts]
    assert tokenizer.decode_batch(tokenizer.encode_batch(texts)) == [
        tokenizer.decode(tokenizer.encode(text).ids) for text in texts
    ]


def test_hugging_face_reads_the_file_and_gives_the_same_ids(
    tokenizer: Tokenizer, texts: list[str], tmp_path: Path
) -> None:
    tokenizer.save(tmp_path / "tokenizer.json")
    peer = tokenizers.Tokenizer.from_file(str(tmp_path / "tokenizer.json"))
    assert [encoding.ids for encoding in peer.encode_batch(texts)] == tokenizer.encode_batch(texts)
    assert [peer.decode(peer.encode(text).ids) for text in texts] == tokenizer.decode_batch(
        tokenizer.encode_batch(texts)
    )
    assert peer.encode("a [MASK]").ids == tokenizer.encode("a [MASK]", special=True).ids


def test_saving_and_loading_changes_nothing(tokenizer: Tokenizer, texts: list[str], tmp_path: Path) -> None:
    tokenizer.save(tmp_path / "one.json")
    again = Tokenizer.load(tmp_path / "one.json")
    again.save(tmp_path / "two.json")
    assert (tmp_path / "one.json").read_bytes() == (tmp_path / "two.json").read_bytes()
    assert again.fingerprint == tokenizer.fingerprint
    assert again.roles == tokenizer.roles
    assert again.vocab_size == tokenizer.vocab_size
    assert again.encode_batch(texts) == tokenizer.encode_batch(texts)


def test_the_fingerprint_tells_tokenisers_apart_but_not_layouts(trained: dict[str, Tokenizer], tmp_path: Path) -> None:
    assert len({tokenizer.fingerprint for tokenizer in trained.values()}) == len(trained)
    trained["bpe"].save(tmp_path / "pretty.json")
    (tmp_path / "dense.json").write_text(json.dumps(json.loads((tmp_path / "pretty.json").read_text())))
    assert Tokenizer.load(tmp_path / "dense.json").fingerprint == trained["bpe"].fingerprint


def test_workers_can_be_sent_one(tokenizer: Tokenizer, texts: list[str]) -> None:
    assert pickle.loads(pickle.dumps(tokenizer)).encode_batch(texts) == tokenizer.encode_batch(texts)


@pytest.mark.parametrize("name", [*SPECIAL_TOKENS, "[mask]"])
def test_names_of_special_tokens_in_a_text_are_text(name: str, tokenizer: Tokenizer) -> None:
    special = set(range(len(SPECIAL_TOKENS))) - {tokenizer.roles.unk}
    for text in (name, f"hello {name}", f"{name}{name}", f"x{name}y", f" {name} "):
        assert special.isdisjoint(tokenizer.encode(text).ids)
        assert special.isdisjoint(tokenizer.encode_batch([text])[0])
        assert special.isdisjoint(tokenizer.encode_words([text, text])[0])


def test_special_tokens_are_taken_for_such_when_asked(tokenizer: Tokenizer) -> None:
    ids = tokenizer.encode("[CLS]the[SEP]", special=True).ids
    assert ids == [tokenizer.roles.cls, *tokenizer.encode("the").ids, tokenizer.roles.sep]
    assert tokenizer.encode_batch(["[CLS]the[SEP]"], special=True) == [ids]
    assert tokenizer.encode("[CLS]the[SEP]", special=True).offsets[-1] == (8, 13)


@pytest.mark.parametrize("kind", ["words", "bpe", "wordpiece", "unigram"])
def test_a_typed_mask_stands_where_a_word_would(kind: str, trained: dict[str, Tokenizer]) -> None:
    tokenizer = trained[kind]
    ids, first = tokenizer.encode_words(["the", "dog", "sells"])
    assert tokenizer.encode("the [MASK] sells", special=True).ids == [
        *ids[: first[1]],
        tokenizer.roles.mask,
        *ids[first[2] :],
    ]


def test_decoding_leaves_special_tokens_out_unless_asked(tokenizer: Tokenizer) -> None:
    ids = tokenizer.encode("the dog").ids
    framed = [tokenizer.roles.bos, *ids, tokenizer.roles.eos, tokenizer.roles.pad]
    assert tokenizer.decode(framed) == tokenizer.decode(ids) == "the dog"
    assert "[EOS]" in tokenizer.decode(framed, special=True)


def test_what_is_unknown_shows_when_decoded(trained: dict[str, Tokenizer]) -> None:
    for kind in ("words", "wordpiece"):
        assert trained[kind].decode(trained[kind].encode("the Ђ dog").ids) == "the [UNK] dog"


@given(words=st.lists(st.text(min_size=1), max_size=8))
def test_words_keep_their_boundaries(words: list[str], trained: dict[str, Tokenizer]) -> None:
    for tokenizer in trained.values():
        ids, first = tokenizer.encode_words(words)
        assert len(first) == len(words)
        assert first == sorted(set(first))
        assert all(0 <= index < len(ids) for index in first)


def test_words_are_spelled_as_in_running_text(tokenizer: Tokenizer) -> None:
    words = ["the", "dog", "sells", "sea", "shells"]
    ids, first = tokenizer.encode_words(words)
    assert ids == tokenizer.encode(" ".join(words)).ids
    offsets = tokenizer.encode(" ".join(words)).offsets
    text = " ".join(words)
    starts = [text[: offsets[index][1]].split()[-1] for index in first]
    assert all(word.startswith(start) for word, start in zip(words, starts, strict=True))


def test_a_word_of_which_nothing_is_left_is_unknown(trained: dict[str, Tokenizer]) -> None:
    ids, first = trained["words"].encode_words(["dog", " ", "dog"])
    assert [ids[index] for index in first] == [trained["words"].id("dog"), 1, trained["words"].id("dog")]


def test_no_words_are_no_ids(tokenizer: Tokenizer) -> None:
    assert tokenizer.encode_words([]) == ([], [])


@pytest.mark.parametrize("text", ["a\ud800", "a\ud800\udc00b"])
def test_half_a_surrogate_pair_is_refused_with_its_place(text: str, tokenizer: Tokenizer) -> None:
    with pytest.raises(DataError, match=r"U\+D800.*at character 2"):
        tokenizer.encode(text)
    with pytest.raises(DataError, match=r"text 3 of 3.*U\+D800.*at character 2"):
        tokenizer.encode_batch(["fine", "fine too", text])
    with pytest.raises(DataError, match=r"text 1 of 2.*at character 2"):
        tokenizer.encode_words([text, "fine"])


@pytest.mark.parametrize(
    ("texts", "complaint"), [("one text", "a list of texts"), ([b"bytes"], "is bytes"), ([1], "int")]
)
def test_what_is_no_list_of_texts_is_refused(texts: object, complaint: str, tokenizer: Tokenizer) -> None:
    with pytest.raises(DataError, match=complaint):
        tokenizer.encode_batch(texts)  # type: ignore[arg-type]


@pytest.mark.parametrize("id", [-1, 10_000_000])
def test_an_id_that_does_not_exist_is_refused(id: int, tokenizer: Tokenizer) -> None:
    with pytest.raises(DataError, match=f"no token {id}"):
        tokenizer.decode([5, id])
    with pytest.raises(DataError, match=f"no token {id}"):
        tokenizer.token(id)
