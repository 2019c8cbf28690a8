"""BLEU, chrF and TER are sacreBLEU's own, to the last digit, with its signatures."""

import json
import random
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sacrebleu.metrics.bleu import BLEU
from sacrebleu.metrics.chrf import CHRF
from sacrebleu.metrics.ter import TER

from seqloom.metrics.translation import measure_exact_match, measure_translation

PEERS = {"bleu": BLEU, "chrf": CHRF, "ter": TER}
WORDS = ("the", "cat", "sat", "on", "a", "mat,", "dog.", "über")
texts = st.lists(st.sampled_from(WORDS), max_size=8).map(" ".join)
pairs = st.lists(st.tuples(texts, texts), min_size=1, max_size=12)
names = st.sampled_from(("bleu", "chrf", "ter"))


def split(rows: list[tuple[str, str]]) -> tuple[list[str], list[str]]:
    return [one for one, _ in rows], [other for _, other in rows]


@given(pairs, names)
def test_the_score_is_that_of_sacrebleu(rows: list[tuple[str, str]], name: str) -> None:
    outputs, references = split(rows)
    expected = PEERS[name]().corpus_score(outputs, [references]).score
    assert measure_translation(name, [(text,) for text in references], outputs).value == pytest.approx(
        expected, abs=1e-9
    )


@given(pairs, names, st.randoms(use_true_random=False))
def test_the_order_of_sentences_does_not_matter(rows: list[tuple[str, str]], name: str, rng: random.Random) -> None:
    shuffled = rng.sample(rows, len(rows))
    values = [
        measure_translation(name, [(text,) for text in two], one).value for one, two in map(split, (rows, shuffled))
    ]
    assert values[0] == pytest.approx(values[1], abs=1e-9)
    assert 0 <= values[0] <= (float("inf") if name == "ter" else 100 + 1e-9)


@given(st.lists(st.lists(st.sampled_from(WORDS), min_size=4, max_size=8).map(" ".join), min_size=1, max_size=6))
def test_a_perfect_translation_has_the_best_score(references: list[str]) -> None:
    scores = {name: measure_translation(name, [(text,) for text in references], references).value for name in PEERS}
    assert scores == {"bleu": pytest.approx(100), "chrf": pytest.approx(100), "ter": 0}
    assert measure_exact_match([(text,) for text in references], references).value == 1


@pytest.mark.parametrize("tokenized", [False, True], ids=["written", "tokenized"])
def test_the_command_line_of_sacrebleu_prints_the_same(tmp_path: Path, tokenized: bool) -> None:
    outputs = ["The cat sat, on a mat.", "A dog .", "it isn't so", "nothing in common"]
    references = [["The cat sat on the mat.", "A dog.", "it is not so", "all different"], ["A cat sat, on a mat."] * 4]
    for name, lines in (("out", outputs), ("ref0", references[0]), ("ref1", references[1])):
        (tmp_path / name).write_text("".join(line + "\n" for line in lines), encoding="utf-8")
    command = [sys.executable, "-m", "sacrebleu", "ref0", "ref1", "-i", "out", "-m", "bleu", "chrf", "ter", "-w", "6"]
    more = ["--tokenize", "none", "--force"] if tokenized else []
    done = subprocess.run([*command, *more], capture_output=True, check=True, cwd=tmp_path)
    for printed in json.loads(done.stdout):
        name = {"BLEU": "bleu", "chrF2": "chrf", "TER": "ter"}[printed["name"]]
        found = measure_translation(name, list(zip(*references, strict=True)), outputs, tokenized=tokenized)  # type: ignore[arg-type]
        assert found.value == pytest.approx(printed["score"], abs=1e-6)
        assert found.signature == printed["signature"]
        assert ("tok:none" in found.signature) == (tokenized and name == "bleu")


def test_an_output_matches_any_of_its_references() -> None:
    found = measure_exact_match([("a b", "z"), ("x", "c"), ("y", "D")], ["a b ", "c", "d"])
    assert found.value == pytest.approx(2 / 3)
