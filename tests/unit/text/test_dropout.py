"""BPE dropout: BPE at rate 0, the library's own distribution at others, and a pure function of text and seed."""

import json
from collections import Counter
from pathlib import Path

import pytest
import tokenizers
from hypothesis import given
from hypothesis import strategies as st

from seqloom.errors import ConfigError, DataError
from seqloom.text import BpeDropout, Tokenizer


@given(text=st.text())
def test_without_dropout_it_is_bpe(text: str, trained: dict[str, Tokenizer]) -> None:
    assert BpeDropout(trained["bpe"], 0.0).encode(text, seed=1) == trained["bpe"].encode(text).ids


def test_with_nearly_all_dropped_it_is_bytes(trained: dict[str, Tokenizer]) -> None:
    text = "She sells sea shells."
    assert len(BpeDropout(trained["bpe"], 0.999999).encode(text, seed=1)) == len(text)


@given(text=st.text(), seed=st.integers(0, 2**63))
def test_any_cut_spells_the_same_text(text: str, seed: int, trained: dict[str, Tokenizer]) -> None:
    tokenizer = trained["bpe"]
    assert tokenizer.decode(BpeDropout(tokenizer, 0.3).encode(text, seed)) == tokenizer.decode(
        tokenizer.encode(text).ids
    )


def test_a_seed_gives_the_same_cut_whatever_came_before(trained: dict[str, Tokenizer], texts: list[str]) -> None:
    one, other = BpeDropout(trained["bpe"], 0.2), BpeDropout(trained["bpe"], 0.2)
    first = {seed: one.encode(texts[0], seed) for seed in range(50)}
    for text in texts:
        other.encode(text, 7)
    assert {seed: other.encode(texts[0], seed) for seed in reversed(range(50))} == first
    assert len({tuple(ids) for ids in first.values()}) > 40


def test_the_cuts_are_distributed_as_the_librarys(trained: dict[str, Tokenizer], tmp_path: Path) -> None:
    trained["bpe"].save(tmp_path / "tok.json")
    spec = json.loads((tmp_path / "tok.json").read_text(encoding="utf-8"))
    spec["model"]["dropout"] = 0.3
    peer = tokenizers.Tokenizer.from_str(json.dumps(spec))
    # Many different words of the same shape: each keeps 64 cuts of its own, so one word would show only those.
    draws, word = 20_000, " shells"
    dropout = BpeDropout(trained["bpe"], 0.3)
    atoms = tuple(trained["bpe"].id(letter) for letter in "Ġshells")
    ours = Counter(tuple(dropout._draw_cut(atoms, draw)) for draw in range(draws))  # type: ignore[arg-type]
    theirs = Counter(tuple(peer.encode(word, add_special_tokens=False).ids) for _ in range(draws))
    assert len(ours) > 5
    for cut in ours | theirs:
        assert ours[cut] / draws == pytest.approx(theirs[cut] / draws, abs=0.02)


def test_special_tokens_in_the_text_stay_text(trained: dict[str, Tokenizer]) -> None:
    assert trained["bpe"].roles.mask not in BpeDropout(trained["bpe"], 0.1).encode("a [MASK]", seed=1)


@pytest.mark.parametrize("kind", ["words", "wordpiece", "unigram"])
def test_other_models_are_refused(kind: str, trained: dict[str, Tokenizer]) -> None:
    with pytest.raises(ConfigError, match=r"tokenizer\.dropout needs a BPE tokeniser"):
        BpeDropout(trained[kind], 0.1)


def test_half_a_surrogate_pair_is_refused(trained: dict[str, Tokenizer]) -> None:
    with pytest.raises(DataError, match="at character 1"):
        BpeDropout(trained["bpe"], 0.1).encode("\ud800", seed=1)
