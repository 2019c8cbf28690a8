"""Tokenisers of others: which special token plays which role, and what of their settings is left out."""

import json
from pathlib import Path

import pytest
import tokenizers
from tokenizers import AddedToken, decoders, models, normalizers, pre_tokenizers, processors

from seqloom.errors import DataError
from seqloom.text import Roles, Tokenizer

Peer = tokenizers.Tokenizer
SENTENCE = "Hello world, hello [MASK] <mask> </s> <|endoftext|>"


def make_bert() -> Peer:
    words = [
        "[PAD]",
        "[UNK]",
        "[CLS]",
        "[SEP]",
        "[MASK]",
        *["hello", "world", ",", "[", "]", "mask", "<", ">", "/", "|", "s", "##s", "end", "##of", "text"],
    ]
    peer = Peer(models.WordPiece({word: id for id, word in enumerate(dict.fromkeys(words))}, unk_token="[UNK]"))
    peer.normalizer = normalizers.BertNormalizer(lowercase=True)
    peer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    peer.decoder = decoders.WordPiece()
    peer.add_special_tokens(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"])
    peer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", pair="[CLS] $A [SEP] $B [SEP]", special_tokens=[("[CLS]", 2), ("[SEP]", 3)]
    )
    peer.enable_truncation(3)
    peer.enable_padding(length=16)
    return peer


def make_gpt2() -> Peer:
    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    peer = Peer(models.BPE({letter: id for id, letter in enumerate([*letters, "he", "ll"])}, [("h", "e"), ("l", "l")]))
    peer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    peer.decoder = decoders.ByteLevel()
    peer.post_processor = processors.ByteLevel(trim_offsets=True)
    peer.add_special_tokens(["<|endoftext|>"])
    return peer


def make_roberta() -> Peer:
    letters = ["<s>", "<pad>", "</s>", "<unk>", *sorted(pre_tokenizers.ByteLevel.alphabet())]
    peer = Peer(models.BPE({letter: id for id, letter in enumerate(letters)}, []))
    peer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    peer.decoder = decoders.ByteLevel()
    peer.add_special_tokens(["<s>", "<pad>", "</s>", "<unk>", AddedToken("<mask>", lstrip=True)])
    peer.post_processor = processors.RobertaProcessing(("</s>", 2), ("<s>", 0))
    return peer


def make_t5() -> Peer:
    """Special tokens stand in a Unigram's vocabulary, where plain text would find them."""
    pieces = ["<pad>", "</s>", "<unk>", "▁", *"Helowrd,<>/s|[]MASKmaskentoftx", "▁hello"]
    peer = Peer(models.Unigram([(piece, 0.0 if id < 3 else -2.0) for id, piece in enumerate(dict.fromkeys(pieces))], 2))
    peer.pre_tokenizer = pre_tokenizers.Metaspace()
    peer.decoder = decoders.Metaspace()
    peer.add_special_tokens(["<pad>", "</s>", "<unk>"])
    peer.add_tokens([AddedToken("<extra>", special=False)])
    peer.add_special_tokens(["<late>"])
    peer.add_tokens([AddedToken("<later>", special=False)])
    return peer


def make_words() -> Peer:
    peer = Peer(models.WordLevel({"<unk>": 0, "</s>": 1, "Hello": 2, "[MASK]": 3}, unk_token="<unk>"))
    peer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    peer.add_special_tokens(["</s>", "[MASK]"])
    return peer


PEERS = {"bert": make_bert, "gpt2": make_gpt2, "roberta": make_roberta, "t5": make_t5, "words": make_words}


@pytest.fixture(params=list(PEERS))
def peer(request: pytest.FixtureRequest) -> Peer:
    made: Peer = PEERS[request.param]()
    return made


def bring_in(peer: Peer, folder: Path) -> Tokenizer:
    peer.save(str(folder / "tokenizer.json"))
    return Tokenizer.load(folder / "tokenizer.json")


@pytest.mark.parametrize(
    ("name", "roles"),
    [
        ("bert", Roles(pad=0, unk=1, cls=2, sep=3, mask=4)),
        ("gpt2", Roles(bos=258, eos=258)),
        ("roberta", Roles(bos=0, pad=1, eos=2, unk=3, mask=260)),
        ("t5", Roles(pad=0, eos=1, unk=2)),
        ("words", Roles(unk=0, eos=1, mask=3)),
    ],
)
def test_roles_are_known_by_the_usual_names(name: str, roles: Roles, tmp_path: Path) -> None:
    assert bring_in(PEERS[name](), tmp_path).roles == roles


def test_text_without_special_tokens_gets_the_peers_ids(peer: Peer, tmp_path: Path) -> None:
    tokenizer = bring_in(peer, tmp_path)
    peer.no_truncation()
    peer.no_padding()
    text = "Hello world, hello"
    assert tokenizer.encode(text).ids == peer.encode(text, add_special_tokens=False).ids
    assert tokenizer.encode(SENTENCE, special=True).ids == peer.encode(SENTENCE, add_special_tokens=False).ids
    ids = tokenizer.encode(text).ids
    assert tokenizer.decode(ids) == peer.decode(ids)


def test_special_tokens_in_a_text_stay_text(peer: Peer, tmp_path: Path) -> None:
    tokenizer = bring_in(peer, tmp_path)
    special = {id for id, token in peer.get_added_tokens_decoder().items() if token.special} - {tokenizer.roles.unk}
    for name in [token.content for token in peer.get_added_tokens_decoder().values() if token.special]:
        for text in (name, f"Hello {name}", f"Hello {name} Hello"):
            assert special.isdisjoint(tokenizer.encode(text).ids), (text, tokenizer.encode(text).tokens)


def test_tokens_that_were_added_but_are_not_special_keep_their_ids(tmp_path: Path) -> None:
    peer = make_t5()
    tokenizer = bring_in(peer, tmp_path)
    for name in ("<extra>", "<later>"):
        assert peer.token_to_id(name) in tokenizer.encode(f"hello{name}").ids


def test_offsets_hold_the_space_before_a_word_whatever_the_file_trims(tmp_path: Path) -> None:
    assert bring_in(make_gpt2(), tmp_path).encode(" he").offsets == [(0, 1), (1, 3)]


def test_saving_keeps_the_peers_framing(tmp_path: Path) -> None:
    bring_in(make_bert(), tmp_path).save(tmp_path / "again.json")
    assert Peer.from_file(str(tmp_path / "again.json")).encode("hello").tokens[:3] == ["[CLS]", "hello", "[SEP]"]


@pytest.mark.parametrize("framed", [False, True])
def test_roles_that_only_the_folder_tells_survive_saving(framed: bool, tmp_path: Path) -> None:
    peer = make_words()
    peer.add_special_tokens(["<|im_start|>", "<|im_end|>"])
    if framed:
        peer.post_processor = processors.TemplateProcessing(single="$A </s>", special_tokens=[("</s>", 1)])
    peer.save(str(tmp_path / "tokenizer.json"))
    roles = {"eos_token": {"content": "<|im_end|>"}, "pad_token": "</s>", "bos_token": None, "unk_token": "<unk>"}
    (tmp_path / "tokenizer_config.json").write_text(json.dumps({**roles, "mask_token": "<absent>"}))
    tokenizer = Tokenizer.load(tmp_path)
    assert tokenizer.roles == Roles(eos=5, pad=1, unk=0)
    tokenizer.save(tmp_path / "alone.json")
    again = Tokenizer.load(tmp_path / "alone.json")
    assert again.roles == tokenizer.roles
    assert again.fingerprint == tokenizer.fingerprint
    assert Peer.from_file(str(tmp_path / "alone.json")).encode("Hello").tokens == ["Hello", "</s>"][: 1 + framed]


def test_a_folder_that_says_nothing_new_changes_nothing(tmp_path: Path) -> None:
    make_bert().save(str(tmp_path / "tokenizer.json"))
    plain = Tokenizer.load(tmp_path / "tokenizer.json").fingerprint
    roles = {f"{role}_token": f"[{role.upper()}]" for role in ("pad", "unk", "cls", "sep", "mask")}
    (tmp_path / "special_tokens_map.json").write_text(json.dumps(roles))
    assert Tokenizer.load(tmp_path).fingerprint == plain


def test_words_follow_a_space_even_if_the_peer_adds_one(tmp_path: Path) -> None:
    tokenizer = bring_in(make_t5(), tmp_path)
    assert tokenizer.encode_words(["hello", "hello"])[0] == tokenizer.encode("hello hello").ids


@pytest.mark.parametrize("content", [b"", b"{}", b"not json", b'{"version": "1.0"}', b"\xff\xfe"])
def test_what_is_no_tokeniser_is_refused(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "tokenizer.json").write_bytes(content)
    with pytest.raises(DataError, match=r"tokenizer\.json: the tokenizers library cannot read this"):
        Tokenizer.load(tmp_path / "tokenizer.json")


def test_what_is_not_there_is_said(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"no\.json: there is no such file"):
        Tokenizer.load(tmp_path / "no.json")
    with pytest.raises(DataError, match=r"neither a tokenizer\.json nor"):
        Tokenizer.load(tmp_path)
    make_bert().save(str(tmp_path / "tokenizer.json"))
    (tmp_path / "tokenizer_config.json").write_text("{")
    with pytest.raises(DataError, match=r"tokenizer_config\.json: not JSON"):
        Tokenizer.load(tmp_path)


def test_an_empty_word_without_an_unknown_token_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="word 2 of the sentence"):
        bring_in(make_gpt2(), tmp_path).encode_words(["he", ""])
