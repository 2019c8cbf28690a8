"""Evaluating from Python: what comes back, and what data a model takes."""

from pathlib import Path

import pytest

import seqloom
from seqloom.errors import ConfigError, DataError, RunError
from small_runs import Runs


def test_a_scorecard_has_its_metrics_by_name(runs: Runs, corpora: Path) -> None:
    done: list[int] = []
    card = seqloom.load(runs("classification")).evaluate(samples=50, advance=done.append)
    assert (card.task, card.records, sum(done)) == ("classification", 60, 60)
    assert [metric.name for metric in card.metrics] == ["accuracy", "macro_f1"]
    accuracy = card["accuracy"]
    assert 0 <= accuracy.low <= accuracy.value <= accuracy.high <= 1
    right = sum(row.get(label, 0) for label, row in card.confusions.items())
    assert accuracy.value == pytest.approx(right / 60)
    assert {row.label: row.wanted for row in card.labels} == {
        label: sum(row.values()) for label, row in card.confusions.items()
    }
    assert "comparisons" not in card.as_plain()
    values = f"accuracy {accuracy.value:.4g}, macro_f1 {card['macro_f1'].value:.4g}"
    assert repr(card) == f"<seqloom.Scorecard classification, 60 records: {values}>"
    with pytest.raises(KeyError, match="bleu"):
        card["bleu"]


def test_metrics_are_those_of_the_answers_given(runs: Runs, corpora: Path) -> None:
    model = seqloom.load(runs("regression"))
    lines = [line.split("\t") for line in (corpora / "valid.numbers.tsv").read_text().splitlines()[1:]]
    found = [model.classify(text).value for text, _ in lines]  # type: ignore[union-attr]
    stats = pytest.importorskip("scipy.stats")
    wanted = [float(number) for _, number in lines]
    card = model.evaluate(samples=20)
    assert card["pearson"].value == pytest.approx(stats.pearsonr(wanted, found).statistic, abs=1e-5)
    ranked = model.evaluate(metrics=["spearman"], samples=20)
    assert [metric.name for metric in ranked.metrics] == ["spearman"]


def test_translations_are_measured_by_sentences_or_lines(runs: Runs, tmp_path: Path) -> None:
    model = seqloom.load(runs("translation"))
    sources = ["the cat sees the dog . a mouse likes the horse .", "the goat finds the bird ."] * 3
    (tmp_path / "source").write_text("\n".join(sources) + "\n")
    (tmp_path / "target").write_text("\n".join(one.text for one in model.translate(sources, split="sentence")) + "\n")
    asked = (tmp_path / "source", tmp_path / "target")
    by_sentence = model.evaluate(*asked, source_unit="sentence", metrics=["exact_match"], samples=20)
    assert by_sentence["exact_match"].value == 1.0
    same = [
        a.text == b.text
        for a, b in zip(*(model.translate(sources, split=u) for u in ("line", "sentence")), strict=True)
    ]
    by_line = model.evaluate(*asked, source_unit="line", metrics=["exact_match"], samples=20)
    assert by_line["exact_match"].value == pytest.approx(sum(same) / len(same))
    assert sum(same) < len(same)
    with pytest.raises(ConfigError, match="source_unit: only translation models search; leave it out"):
        seqloom.load(runs("tagging")).evaluate(source_unit="line")
    with pytest.raises(ConfigError, match="source_unit: "):
        model.evaluate(source_unit="word")  # type: ignore[arg-type]


def test_a_model_that_was_not_trained_here_has_no_data_of_its_own(runs: Runs, corpora: Path) -> None:
    model = seqloom.load(runs("tagging"))
    model._predictor.folder = None
    with pytest.raises(RunError, match="no data of its own; name the files to evaluate on"):
        model.evaluate()
    assert model.evaluate(corpora / "valid.conll", samples=20)["accuracy"].value > 0.9


def test_several_files_are_read_one_after_the_other(runs: Runs, corpora: Path) -> None:
    card = seqloom.load(runs("tagging")).evaluate(corpora / "valid.conll", corpora / "train.conll", samples=20)
    assert card.records == 460
    assert card.files == (str(corpora / "valid.conll"), str(corpora / "train.conll"))


def test_what_cannot_be_answered_is_told_with_its_place(runs: Runs, tmp_path: Path) -> None:
    blank = tmp_path / "blank.tsv"
    blank.write_text("text\tlabel\nthe cat\t0.5\n  \t1\n")
    with pytest.raises(DataError, match=r"blank\.tsv:3: the text is blank"):
        seqloom.load(runs("regression")).evaluate(blank)
    with pytest.raises(ConfigError, match="beam: only translation models search"):
        seqloom.load(runs("regression")).evaluate(blank, beam=2)
