"""Evaluating a model: the metrics of its answers to records whose right answers are known.

The task names the metrics, and the verb that gives the answers. A task without such a verb answers batch by batch,
as in validation.
"""

import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

import torch

from seqloom.config.data import CorpusSection, DelimitedLabels, DelimitedPairs, SourceUnit
from seqloom.data.corpus import Corpus, open_corpus, open_split
from seqloom.data.encoding import encode_corpus
from seqloom.data.examples import Example
from seqloom.data.files import STDIN, Advance, read_lines
from seqloom.data.shards import Records
from seqloom.decode.options import Search
from seqloom.errors import ConfigError, DataError, RunError
from seqloom.metrics.measure import Measure, Metric
from seqloom.metrics.tokenisation import find_tokenised, refuse_mismatch
from seqloom.metrics.translation import TOKENIZED, TRANSLATION
from seqloom.predict.bulk import WINDOW_LINES
from seqloom.predict.classify import classify
from seqloom.predict.predictor import Predictor
from seqloom.predict.results import Classification
from seqloom.predict.score import score
from seqloom.predict.tag import tag
from seqloom.predict.translate import plan_splitting, translate
from seqloom.runs.run import find_base
from seqloom.runs.weights import find_run
from seqloom.tasks import ClassificationTask
from seqloom.tasks.base import Context, Details
from seqloom.types import move

Split = Literal["valid", "test"]


def open_records(predictor: Predictor, files: Sequence[Path], split: Split) -> tuple[Corpus, ...]:
    """The files that the user names, in the format of the training data, or a split of the run's own data."""
    data, folder = predictor.config.data, None if predictor.folder is None else find_run(predictor.folder)
    if files:
        try:
            named = _find_pairs(predictor, data.name_files([str(file) for file in files]))
            return (open_corpus(data, named, Path()),)
        except ValueError as error:
            raise ConfigError(f"the files to evaluate on: {error}") from None
    if folder is None or not (folder / "config.toml").exists():
        raise RunError("this model was not trained here, so it has no data of its own; name the files to evaluate on")
    base = find_base(folder)
    corpora = open_split(data, split, base)
    if not corpora:
        raise RunError(f"{folder}: its configuration has no data.{split}; name the files to evaluate on")
    for corpus in corpora:
        if STDIN in corpus.files():
            raise RunError(
                f"{folder}: its data.{split} was standard input, which is gone; name the files to evaluate on"
            )
        for fault in corpus.sides()[1]:
            raise DataError(
                f"{fault.place}: {fault.message}. It is data.{split} in {folder / 'config.toml'}, with names relative "
                f"to the folder of the configuration it was trained with ({base.absolute()}, as far as the run knows); "
                "put it there, or name the files to evaluate on"
            )
    return corpora


def _find_pairs(predictor: Predictor, corpus: CorpusSection) -> CorpusSection:
    """A table with a column called second holds pairs, if the model reads both single texts and pairs."""
    config = predictor.config
    if isinstance(config, ClassificationTask) and config.reads_pairs and isinstance(corpus, DelimitedLabels):
        file = corpus.files[0]
        header = next((line for _, line in read_lines(Path(file))), "") if file != STDIN else ""
        if corpus.columns.second is None and "second" in header.split("\t"):
            return corpus.model_copy(update={"columns": corpus.columns.model_copy(update={"second": "second"})})
    return corpus


def read_records(corpora: Sequence[Corpus]) -> list[Example]:
    """All records of some corpora."""
    try:
        records = [example for corpus in corpora for example in corpus]
    except DataError as error:
        if not isinstance(corpora[0].section, DelimitedPairs):
            raise
        advice = "one file must be a table of pairs, separated by a tab; or give two files, source and target"
        raise DataError(f"{error}; {advice}") from None
    if not records:
        raise DataError(f"{', '.join(corpora[0].files())}: there is no record here")
    return records


def read_parallel_texts(paths: Sequence[Path]) -> list[list[str]]:
    """The lines of each of several files, which must have the same number of lines; an unreadable line is an error."""
    texts = [[line for _, line in read_lines(path)] for path in paths]
    for path, lines in zip(paths, texts, strict=True):
        if len(lines) != len(texts[0]):
            raise DataError(f"{paths[0]} has {len(texts[0]):,} lines, but {path} has {len(lines):,}")
    return texts


@dataclass(frozen=True)
class Performance:
    """The metrics of a model's answers, or of outputs from elsewhere, without intervals."""

    measures: tuple[Measure, ...]
    details: Details = field(default_factory=Details)

    def note(self, sentence: str) -> "Performance":
        """The same with one more note."""
        return replace(self, details=replace(self.details, notes=(*self.details.notes, sentence)))


@dataclass(frozen=True)
class Wanted:
    """Which metrics to compute (all, if none is named) and, for translation, how to search."""

    metrics: tuple[str, ...] = ()
    search: Search = field(default_factory=Search)
    tokenized: bool = False
    """Whether texts are compared as they are, token by token."""
    source_unit: SourceUnit | None = None
    """What is translated by itself: a sentence or a line; by default, what the model's configuration says."""

    def choose(self, metrics: Sequence[Metric]) -> tuple[Metric, ...]:
        """The wanted metrics among these."""
        return tuple(metric for metric in metrics if not self.metrics or metric.name in self.metrics)


def list_metrics(predictor: Predictor) -> tuple[str, ...]:
    """The metrics of a model's task."""
    return tuple(metric.name for metric in predictor.config.metrics(predictor.labels))


def measure(
    predictor: Predictor, corpora: Sequence[Corpus], examples: Sequence[Example], wanted: Wanted, advance: Advance
) -> Performance:
    """Answer the examples of some corpora and measure the answers; `advance` is called with the number done."""
    found = _measure(predictor, corpora, examples, wanted, advance)
    return found if predictor.precision == "float32" else found.note(f"computed in {predictor.precision}")


def _measure(
    predictor: Predictor, corpora: Sequence[Corpus], examples: Sequence[Example], wanted: Wanted, advance: Advance
) -> Performance:
    task = predictor.config
    metrics = wanted.choose(task.metrics(predictor.labels))
    if task.evaluated_by == "translate":
        return _measure_translations(predictor, examples, wanted, advance)
    if task.evaluated_by is None:
        right, given = _answer_batches(predictor, corpora, metrics, advance)
    else:
        verb, right, given = _VERBS[task.evaluated_by], [], []
        for _, window in _windows(examples, advance):
            for expected, answer in verb(predictor, window):
                right.append(expected)
                given.append(answer)
        if task.evaluated_by == "score" and not any(tokens for tokens, _ in right):
            raise DataError(f"{examples[0].path}: no text has a token that the model can predict")
    measures = tuple(metric.measure(right, given) for metric in metrics)
    return Performance(measures, task.break_down(right, given, predictor.labels))


def check_metrics(named: Sequence[str], known: Sequence[str]) -> None:
    """Refuse the name of an unknown metric."""
    for name in named:
        if name not in known:
            raise ConfigError(f"{name} is not a metric of this task; it has {', '.join(known)}")


def check_comparable(one: Predictor, other: Predictor) -> None:
    """Refuse to compare models that cannot read the same records, or have no metric in common."""
    same = type(one.config.data) is type(other.config.data) and set(list_metrics(one)) & set(list_metrics(other))
    if not same:
        tasks = " and ".join(f"{model.config.task} ({', '.join(list_metrics(model))})" for model in (one, other))
        raise ConfigError(f"the models cannot be compared: they are for {tasks}")


def measure_outputs(outputs: Sequence[str], references: Sequence[Sequence[str]], wanted: Wanted) -> Performance:
    """The metrics of translations from any system, against one or more lists of references."""
    notes: tuple[str, ...] = ()
    if not wanted.tokenized:
        for texts in references:
            refuse_mismatch(outputs, texts)
        if number := find_tokenised(references[0]):
            notes = (
                f"the texts are tokenised (reference {number}): published scores are computed on plain text; "
                "`tokenized` compares the tokens as they are",
            )
    metrics = wanted.choose(TOKENIZED if wanted.tokenized else TRANSLATION)
    right = list(zip(*references, strict=True))
    return Performance(tuple(metric.measure(right, outputs) for metric in metrics), Details(notes=notes))


def _measure_translations(
    predictor: Predictor, examples: Sequence[Example], wanted: Wanted, advance: Advance
) -> Performance:
    references, splitting = _texts(examples, "target"), plan_splitting(predictor, wanted.source_unit)
    outputs: list[str] = []
    for first, window in _windows(examples, advance):
        texts, numbers = _texts(window, "source"), range(first + 1, first + 1 + len(window))
        found = translate(predictor, texts, wanted.search, align=False, numbers=numbers, splitting=splitting)
        outputs += [one.text for one in found]
        if first == 0 and not wanted.tokenized:  # stop a long search early if its answers cannot be compared
            refuse_mismatch(outputs, references[: len(outputs)])
    return measure_outputs(outputs, [references], wanted)


def _classify(predictor: Predictor, window: Sequence[Example]) -> Iterator[tuple[Any, Any]]:
    """The right and the predicted label or number of each text."""
    seconds = _texts(window, "second") if "second" in window[0].values else ()
    labels = _texts(window, "label")
    found = classify(predictor, _texts(window, "text"), seconds)
    for example, label, one in zip(window, labels, found, strict=True):
        if isinstance(one, Classification):
            yield label, one.label
        elif one.value is None:
            raise DataError(f"{example.path}:{example.line}: the text is blank, so the model predicts no number")
        else:
            yield float(label), one.value


def _tag(predictor: Predictor, window: Sequence[Example]) -> Iterator[tuple[Any, Any]]:
    """The right and the predicted tags of each sentence."""
    for example, found in zip(window, tag(predictor, [example.values["words"] for example in window]), strict=True):
        yield tuple(example.values["tags"]), found.tags


def _score(predictor: Predictor, window: Sequence[Example]) -> Iterator[tuple[Any, Any]]:
    """The number of tokens and bytes of each text, and its log-probability."""
    for found in score(predictor, _texts(window, "text")):
        yield (sum(one is not None for one in found.token_scores), found.num_bytes), found.log_probability


_VERBS = {"classify": _classify, "tag": _tag, "score": _score}


@torch.inference_mode()
def _answer_batches(
    predictor: Predictor, corpora: Sequence[Corpus], metrics: Sequence[Metric], advance: Advance
) -> tuple[list[Any], list[Any]]:
    """The right answers and those of a task that has no verb."""
    task, network = predictor.config, predictor.compile()
    context = Context(
        predictor.tokenizer, predictor.labels, frozenset(metric.name for metric in metrics), predictor.seen
    )
    right, given = [], []
    with tempfile.TemporaryDirectory(prefix="seqloom-eval-") as folder:
        columns = task.make_columns(predictor.tokenizer, predictor.labels)
        folders = [Path(folder) / str(number) for number in range(len(corpora))]
        for corpus, target in zip(corpora, folders, strict=True):
            encode_corpus(corpus, columns, target)
        batches = task.make_batches(Records(folders), predictor.tokenizer)
        for step in range(len(batches)):
            batch = move(batches.build(step), predictor.device)
            loss = task.compute_loss(network, batch)
            found = task.answer(network, batch, loss, context)
            right += found.wanted
            given += found.given
            advance(len(found.given))
    return right, given


def _texts(examples: Sequence[Example], role: str) -> list[str]:
    if examples and role not in examples[0].values:
        raise DataError(f"{examples[0].path}: its records have no {role}, which the model needs")
    return [str(example.values[role]) for example in examples]


def _windows(examples: Sequence[Example], advance: Advance) -> Iterator[tuple[int, Sequence[Example]]]:
    for first in range(0, len(examples), WINDOW_LINES):
        window = examples[first : first + WINDOW_LINES]
        yield first, window
        advance(len(window))
