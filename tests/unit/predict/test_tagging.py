"""Names in a text: legal tags, spans with their places, words given one by one, and training judged by spans."""

import json
import random
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path

import pytest
import torch
from rich.console import Console
from typer.testing import CliRunner

import seqloom
from seqloom.cli.main import app
from seqloom.errors import DataError
from seqloom.predict.model import Model
from seqloom.runs.run import Run
from seqloom.training.job import train
from seqloom.training.monitor import PlainMonitor
from small_corpora import write_config

FIRST, LAST, PLACES = ("Ada", "Alan", "Grace", "Kurt"), ("Byron", "Turing", "Hopper"), ("London", "Paris", "Rome")
FILLERS = ("lived", "in", "and", "saw", "the", "sea", "then", "went", "to", "a", "house")


def make_sentence(rng: random.Random, scheme: str) -> list[tuple[str, str]]:
    """Mostly words that are no names, so that answering O everywhere is right nine times in ten."""
    sentence = [(rng.choice(FILLERS), "O") for _ in range(rng.randint(8, 14))]
    names = [(rng.choice(FIRST), "B-PER"), (rng.choice(LAST), "I-PER")] if rng.random() < 0.5 else []
    names = names or [(rng.choice(PLACES), "B-LOC")]
    at = rng.randrange(len(sentence))
    sentence[at:at] = [(word, tag.replace("B-", "I-") if scheme == "iob1" else tag) for word, tag in names]
    if scheme == "iob1" and rng.random() < 0.3:
        sentence += [("Rome", "I-LOC"), ("Paris", "B-LOC")]
    return sentence


def write_names(folder: Path, scheme: str, extra: str) -> Path:
    for split, count in (("train", 300), ("valid", 40)):
        rng = random.Random(split)
        rows = ("\n".join(f"{word} {tag}" for word, tag in make_sentence(rng, scheme)) for _ in range(count))
        (folder / f"{split}.conll").write_text("\n\n".join(rows) + "\n")
    return write_config(folder, folder, "tagging", "recurrent", extra)


def train_names(folder: Path, scheme: str = "bio", steps: int = 60) -> Run:
    path = write_names(folder, scheme, f"steps = {steps}\noptimizer.learning_rate = 0.01\nvalidate_every = 20")
    return train(path, out=folder / "run", monitor=PlainMonitor(Console(quiet=True)))


@pytest.fixture(scope="module")
def names(tmp_path_factory: pytest.TempPathFactory) -> Run:
    return train_names(tmp_path_factory.mktemp("names"))


def count_orphans(tags: Sequence[str]) -> int:
    return sum(one.startswith("I-") and before[2:] != one[2:] for before, one in pairwise(["O", *tags]))


def test_spans_have_a_label_a_text_and_a_place_in_the_text(names: Run) -> None:
    text = "then  Ada Byron went to Rome"
    found = seqloom.load(names).tag(text)
    assert found.tags == ("O", "B-PER", "I-PER", "O", "O", "B-LOC")
    assert [(one.label, one.text) for one in found.spans] == [("PER", "Ada Byron"), ("LOC", "Rome")]
    assert all(text[one.start : one.end] == one.text for one in found.spans)


def test_every_answer_is_legal_whatever_the_weights_are(names: Run) -> None:
    model = seqloom.load(names)
    rng = random.Random(1)
    texts = [" ".join(word for word, _ in make_sentence(rng, "bio")) for _ in range(30)]
    broken = 0
    for seed in range(5):
        torch.manual_seed(seed)
        with torch.no_grad():
            for weights in model.network.parameters():
                weights.normal_(std=0.5)
        assert sum(count_orphans(found.tags) for found in model.tag(texts)) == 0
        broken += sum(count_orphans(found.tags) for found in model.tag(texts, legal=False))
    assert broken > 0


def test_training_is_judged_by_spans_and_eval_agrees_with_it(names: Run) -> None:
    log = [json.loads(line)["valid"] for line in names.log.path.read_text().splitlines() if '"valid"' in line]
    measured = seqloom.load(names).evaluate(samples=2)
    assert measured["span_f1"].value == pytest.approx(max(one["span_f1"] for one in log))
    assert measured["span_f1"].value > 0.9


def test_iob1_is_learned_and_answered_as_it_is_written(tmp_path: Path) -> None:
    model = seqloom.load(train_names(tmp_path, "iob1"))
    assert model.tag("then Ada Byron went to Rome").tags == ("O", "I-PER", "I-PER", "O", "O", "I-LOC")
    assert model.evaluate(samples=2)["span_f1"].value > 0.9
    model.save(tmp_path / "copy")
    assert seqloom.load(tmp_path / "copy").tag("Rome").tags == ("I-LOC",)


def test_a_list_of_words_is_tagged_as_the_text_is(names: Run) -> None:
    model = seqloom.load(names)
    text = "then Ada Byron went to Rome"
    assert model.tag([text.split()]) == model.tag([text])
    assert model.tag([text.split(), "Rome", [], ("Ada",)])[2:] == model.tag(["", "Ada"])
    found = model.tag([["New Rome", "Paris"]])[0]
    assert found.words == ("New Rome", "Paris")
    assert found.offsets == ((0, 8), (9, 14))


def test_a_long_list_of_words_is_read_in_pieces_and_keeps_every_word(names: Run) -> None:
    model = seqloom.load(names)
    words = ["lived", "Ada", "Byron", "in", "Rome"] * 20
    found = model.tag([words])[0]
    assert found.pieces > 1
    assert list(found.words) == words
    assert count_orphans(found.tags) == 0


@pytest.mark.parametrize("wrong", [[["a", 3]], [3], [None], [b"a"], [{"a": 1}]])
def test_what_is_neither_text_nor_words_is_refused(names: Run, wrong: list[object]) -> None:
    model: Model = seqloom.load(names)
    with pytest.raises(DataError, match="text 1"):
        model.tag(wrong)  # type: ignore[arg-type]


def test_the_command_prints_spans_and_takes_words(names: Run, tmp_path: Path) -> None:
    texts = tmp_path / "texts"
    texts.write_text("Ada Byron went to Rome\nthen the sea\n")
    printed = CliRunner().invoke(app, ["tag", str(names.folder), str(texts)])
    assert printed.stdout == "B-PER I-PER O O B-LOC\tPER 0-9 Ada Byron; LOC 18-22 Rome\nO O O\n"
    texts.write_text('["Ada", "Byron"]\n{"words": ["Rome"]}\n\nnot JSON\n')
    printed = CliRunner().invoke(app, ["tag", str(names.folder), str(texts), "--words", "--json"])
    rows = [json.loads(line) for line in printed.stdout.splitlines()]
    assert rows[0]["spans"] == [{"label": "PER", "text": "Ada Byron", "start": 0, "end": 9}]
    assert [row.get("tags") for row in rows] == [["B-PER", "I-PER"], ["B-LOC"], [], None]
    assert "JSON list of words" in rows[3]["message"]
    assert printed.exit_code == 1
