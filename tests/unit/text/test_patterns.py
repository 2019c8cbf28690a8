"""Which regular expressions a tokeniser may bring along."""

import contextlib
import json
import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from seqloom.errors import DataError
from seqloom.text.patterns import check_patterns

PUBLISHED = {
    "gpt2": r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+",
    "llama3": r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+",
    "o200k": r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+"
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)?|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+",
    "spaces": r" {2,}",
    "thousands": r"\d{1,3}(?=(?:\d{3})+\b)",
    "lazy": r"a+?|b++",
}
CATASTROPHIC = [
    r"(a+)+$",
    r"(a|a)*b",
    r"(?:a?){40}a{40}",
    r"\s*\s*\s*x",
    r"(?:(?:a{1,9}){1,9}){1,9}b",
    r"a{1,100}{1,100}b",
    r"a{1,50}+b",
    r"a{1,50}?+b",
    r"(a)\1+(a+)b",
    r"(?<n>a|b\g<n>c)*",
    "(?x)a# [\n(a+)+]",
    r"\c[(a+)+]",
    r"[]](a+)+[]]",
    r"x|y|(\w+\s?)+z",
    r"(.*)(.*)(.*)[^a]",
    "a?" * 30 + "a" * 30,
    "(a|a)" * 30 + "b",
    r"a{1,60}a{1,60}a{1,60}a{1,60}a{1,60}a{1,60}b",
]


def spec(pattern: str) -> dict[str, object]:
    split = {"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Isolated", "invert": False}
    return {"pre_tokenizer": {"type": "Sequence", "pretokenizers": [split]}}


@pytest.mark.parametrize("name", PUBLISHED)
def test_those_in_wide_use_are_taken(name: str) -> None:
    check_patterns(spec(PUBLISHED[name]), "tokenizer.json")


@pytest.mark.parametrize("number", range(len(CATASTROPHIC)))
def test_those_that_never_end_are_refused(number: int) -> None:
    with pytest.raises(DataError, match=r"tokenizer\.json: the regular expression .* is refused because"):
        check_patterns(spec(CATASTROPHIC[number]), "tokenizer.json")


@given(st.text(alphabet=r"a()|*+?{},1[]\ps^", max_size=30))
def test_any_pattern_is_judged(pattern: str) -> None:
    with contextlib.suppress(DataError):
        check_patterns(spec(pattern), "tokenizer.json")


def test_what_is_taken_ends() -> None:
    """Patterns made of the pieces of attacks, as far as they are taken, on texts made to hurt: in proportion."""
    code = """
import itertools, sys
from tokenizers import Regex, pre_tokenizers
from seqloom.errors import DataError
from seqloom.text.patterns import check_patterns
taken = 0
parts = ["a+", "a*", "(?:a+)", "(?:a|b)", "(a?)", "a{1,64}", "+", "*", "{2}", "?", "|", "(?=a*)", "b", "$", "[ab]*"]
for size in (1, 2, 3, 4):
    for pieces in itertools.product(parts, repeat=size):
        pattern = "".join(pieces) + "c"
        try:
            check_patterns({"pre_tokenizer": {"pattern": {"Regex": pattern}}}, "x")
            split = pre_tokenizers.Split(Regex(pattern), "isolated")
        except DataError:
            continue
        except Exception:  # not a pattern at all
            continue
        taken += 1
        if taken % 20 == 0:
            split.pre_tokenize_str("a" * 300 + "b" * 300)
print(taken)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=True)
    assert int(done.stdout) > 100


def test_a_file_with_such_a_pattern_is_refused(tmp_path) -> None:
    from seqloom.text import Tokenizer

    whole = {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [],
        "normalizer": {"type": "Replace", "pattern": {"Regex": "(a+)+$"}, "content": ""},
        "pre_tokenizer": None,
        "post_processor": None,
        "decoder": None,
        "model": {"type": "WordLevel", "vocab": {"a": 0}, "unk_token": "a"},
    }
    (tmp_path / "tokenizer.json").write_text(json.dumps(whole))
    with pytest.raises(DataError, match="could run forever"):
        Tokenizer.load(tmp_path / "tokenizer.json")
