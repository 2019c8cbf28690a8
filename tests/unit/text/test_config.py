"""Which tokeniser settings are accepted, and the messages about others."""

from typing import Any

import pytest

from seqloom.config.base import Section
from seqloom.config.tokenizer import Bpe, Characters, TokenizerConfig, TokenizerFile, Unigram
from seqloom.errors import ConfigError
from seqloom.tasks.configuration import validate


class Root(Section):
    tokenizer: TokenizerConfig = Bpe()


def parse(table: Any) -> TokenizerConfig:
    root: Root = validate({"tokenizer": table}, Root, "", "configuration")
    return root.tokenizer


def test_byte_level_bpe_of_8000_in_nfc_is_the_default() -> None:
    assert Root().tokenizer == parse({}) == Bpe(kind="bpe", size=8000, normalisation="nfc", dropout=0.0)


def test_a_word_is_enough() -> None:
    assert parse("characters") == parse({"kind": "characters"}) == Characters()


def test_each_kind_has_its_own_keys() -> None:
    assert parse({"kind": "unigram", "size": 500, "lowercase": True}) == Unigram(size=500, lowercase=True)
    assert parse({"kind": "file", "path": "tok.json"}) == TokenizerFile(path="tok.json")


@pytest.mark.parametrize(
    ("table", "complaint"),
    [
        ({"kind": "bpee"}, r'tokenizer.*"bpee" is not one of.*did you mean "bpe"'),
        ({"kind": "bytes", "size": 9}, r'tokenizer\.size: belongs to kind = "bpe", but this is kind = "bytes"'),
        ({"size": 262}, r"tokenizer\.size: expected greater than or equal to 263"),
        ({"dropout": 1.0}, r"tokenizer\.dropout"),
        ({"kind": "unigram", "dropout": 0.1}, r"tokenizer\.dropout: belongs to"),
        ({"normalisation": "nfd"}, r'tokenizer\.normalisation: "nfd" is not one of'),
        ({"kind": "file"}, r"tokenizer\.path: is missing"),
    ],
)
def test_faults_are_named_by_their_key(table: Any, complaint: str) -> None:
    with pytest.raises(ConfigError, match=complaint):
        parse(table)
