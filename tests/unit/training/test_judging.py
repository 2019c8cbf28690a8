"""A training can be judged by every metric that `eval` prints, and both print the same number."""

import json
from pathlib import Path

import pytest
from rich.console import Console

import seqloom
from listening import Listening
from saved_pages import read_page
from seqloom.errors import ConfigError
from seqloom.runs.run import Run
from seqloom.tasks import TranslationTask
from seqloom.training.job import train
from seqloom.training.monitor import PlainMonitor
from small_corpora import corpora, write_config

__all__ = ["corpora"]

METRICS = [
    *(("translation", name) for name in ("bleu", "chrf", "ter", "exact_match", "loss", "perplexity")),
    *(("classification", name) for name in ("accuracy", "macro_f1")),
    *(("regression", name) for name in ("pearson", "spearman")),
    *(("tagging", name) for name in ("accuracy", "span_f1")),
    *(("language-model", name) for name in ("perplexity", "bits_per_byte")),
    ("bidirectional-language-model", "bits_per_byte"),
    ("masked-language-model", "pseudo_perplexity"),
]
LOWER = ("loss", "perplexity", "bits_per_byte", "pseudo_perplexity", "ter")
ONE_WAY = ("bidirectional-language-model",)
"""`eval` reads these forwards, training in both directions."""


def run_judged(folder: Path, corpora: Path, kind: str, judge_by: str) -> Run:
    task = "classification" if kind == "regression" else kind
    extra = f'steps = 24\nvalidate_every = 8\njudge_by = "{judge_by}"\noptimizer.learning_rate = 0.01'
    path = write_config(folder, corpora, task, "recurrent", extra)
    text = path.read_text()
    if kind == "regression":
        text = text.replace(".tsv", ".numbers.tsv").replace('task = "class', 'data.labels = "numbers"\ntask = "class')
    if kind == "tagging":
        for split in ("train", "valid"):
            tagged = (corpora / f"{split}.conll").read_text().replace("DET", "B-NP").replace("NOUN", "I-NP")
            (folder / f"{split}.conll").write_text(tagged.replace("VERB", "O").replace("PUNCT", "O"))
        text = text.replace(str(corpora), str(folder))
    path.write_text(text)
    return train(path, out=folder / "run", monitor=PlainMonitor(Console(quiet=True)))


@pytest.mark.parametrize(("kind", "metric"), METRICS)
def test_the_best_checkpoint_is_the_best_by_that_metric(kind: str, metric: str, corpora: Path, tmp_path: Path) -> None:
    run = run_judged(tmp_path, corpora, kind, metric)
    log = [json.loads(line) for line in run.log.path.read_text().splitlines()]
    judged = [line["valid"][metric] for line in log if "valid" in line]
    assert len(judged) == 3
    best = min(judged) if metric in LOWER else max(judged)
    found = {one.name: one.value for one in seqloom.load(run).evaluate(samples=2).metrics}
    if metric in found and kind not in ONE_WAY:
        assert found[metric] == pytest.approx(best, rel=1e-4)


def test_a_metric_of_another_task_is_refused(corpora: Path, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match='"macro_f1" is not a metric of this task; it has loss, perplexity, bleu'):
        run_judged(tmp_path, corpora, "translation", "macro_f1")


def test_a_metric_of_some_records_says_of_which(corpora: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(TranslationTask, "max_answers", 20)
    watch = Listening()
    path = write_config(tmp_path, corpora, "translation", "recurrent", "steps = 2\nvalidate_every = 1")
    run = train(path, out=tmp_path / "run", monitor=watch)
    log = [json.loads(line) for line in run.log.path.read_text().splitlines()]
    sample = "20 of 60 records, evenly drawn"
    assert [line["sample"] for line in log if "valid" in line] == [sample, sample]
    told = [line for line in watch.heard if "validation loss" in line]
    assert all(f"(bleu, exact_match: {sample})" in line or f"(bleu: {sample})" in line for line in told)
    assert read_page(run.folder / "report.html")["/run"]["valid"]["sample"] == sample
