"""How good a model is: its task's metrics, of its answers to records whose right answers are known.

Which metrics there are, the task says; which verb gives the answers, too. A task without a verb of its own is asked
batch by batch, as it is in validation.
"""

import re
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from seqloom.data.corpus import Corpus
from seqloom.data.encoding import encode_corpus
from seqloom.data.examples import Example
from seqloom.data.shards import Records
from seqloom.decode.options import Search
from seqloom.errors import ConfigError, DataError
from seqloom.metrics.measure import Measure, Metric
from seqloom.metrics.tokenisation import find_tokenised, refuse_mismatch
from seqloom.metrics.translation import TOKENIZED, TRANSLATION
from seqloom.predict.bulk import WINDOW_LINES
from seqloom.predict.classify import classify, tag
from seqloom.predict.predictor import Predictor
from seqloom.predict.results import Classification, Quantity
from seqloom.predict.score import score
from seqloom.predict.translate import translate
from seqloom.tasks.base import Context, Details
from seqloom.types import move

Advance = Callable[[int], None]
_WHITE = re.compile(r"\s")


@dataclass(frozen=True)
class Performance:
    """What was measured of a model's answers, or of somebody's outputs, before any interval is drawn."""

    measures: tuple[Measure, ...]
    details: Details = field(default_factory=Details)


@dataclass(frozen=True)
class Wanted:
    """What is asked for: which metrics (all, where none is named), and for translations how they are made."""

    metrics: tuple[str, ...] = ()
    search: Search = field(default_factory=Search)
    tokenized: bool = False
    """Whether texts are to be compared as they are, token by token."""

    def choose(self, metrics: Sequence[Metric]) -> tuple[Metric, ...]:
        """The metrics that were asked for."""
        return tuple(metric for metric in metrics if not self.metrics or metric.name in self.metrics)


def list_metrics(loaded: Predictor) -> tuple[str, ...]:
    """The metrics of a model's task."""
    return tuple(metric.name for metric in loaded.config.metrics(loaded.labels))


def measure(
    loaded: Predictor, corpora: Sequence[Corpus], examples: Sequence[Example], wanted: Wanted, advance: Advance
) -> Performance:
    """Let a model answer the examples of some corpora, and measure its answers; `advance` hears how many are done."""
    task = loaded.config
    metrics = wanted.choose(task.metrics(loaded.labels))
    match task.evaluated_by:
        case "translate":
            return _measure_translations(loaded, examples, wanted, advance)
        case "classify":
            right, given = _classify(loaded, examples, advance)
        case "tag":
            right, given = _tag(loaded, examples, advance)
        case "score":
            right, given = _score(loaded, examples, advance)
        case _:
            right, given = _answer_batches(loaded, corpora, metrics, advance)
    measures = tuple(metric.measure(right, given) for metric in metrics)
    return Performance(measures, task.break_down(right, given, loaded.labels))


def check_metrics(named: Sequence[str], known: Sequence[str]) -> None:
    """Refuse a metric that there is not."""
    for name in named:
        if name not in known:
            raise ConfigError(f"{name} is not a metric of this task; it has {', '.join(known)}")


def check_comparable(one: Predictor, other: Predictor) -> None:
    """Refuse to compare models that cannot answer the same records, or are not judged by the same metrics."""
    same = type(one.config.data) is type(other.config.data) and set(list_metrics(one)) & set(list_metrics(other))
    if not same:
        tasks = " and ".join(f"{model.config.task} ({', '.join(list_metrics(model))})" for model in (one, other))
        raise ConfigError(f"the models cannot be compared: they are for {tasks}")


def measure_outputs(outputs: Sequence[str], references: Sequence[Sequence[str]], wanted: Wanted) -> Performance:
    """The metrics of translations, whoever made them, against one list of references or several."""
    notes: tuple[str, ...] = ()
    if not wanted.tokenized:
        for texts in references:
            refuse_mismatch(outputs, texts)
        if number := find_tokenised(references[0]):
            notes = (
                f"the texts are tokenised (reference {number}): published scores are of text as it is written; "
                "--tokenized takes the tokens as they are",
            )
    metrics = wanted.choose(TOKENIZED if wanted.tokenized else TRANSLATION)
    right = list(zip(*references, strict=True))
    return Performance(tuple(metric.measure(right, outputs) for metric in metrics), Details(notes=notes))


def _measure_translations(
    loaded: Predictor, examples: Sequence[Example], wanted: Wanted, advance: Advance
) -> Performance:
    references = _texts(examples, "target")
    outputs: list[str] = []
    for first, window in _windows(examples, advance):
        numbers = range(first + 1, first + 1 + len(window))
        found = translate(loaded, _texts(window, "source"), wanted.search, align=False, numbers=numbers)
        outputs += [one.text for one in found]
        if first == 0 and not wanted.tokenized:  # a long search need not go on if its answers cannot be compared
            refuse_mismatch(outputs, references[: len(outputs)])
    return measure_outputs(outputs, [references], wanted)


def _classify(loaded: Predictor, examples: Sequence[Example], advance: Advance) -> tuple[list[Any], list[Any]]:
    """Labels, or quantities."""
    right, given = [], []
    for _, window in _windows(examples, advance):
        seconds = _texts(window, "second") if "second" in loaded.frames else ()
        labels = _texts(window, "label")
        found = classify(loaded, _texts(window, "text"), seconds)
        for example, label, one in zip(window, labels, found, strict=True):
            if isinstance(one, Quantity) and one.value is None:
                raise DataError(f"{example.path}:{example.line}: the text is blank, so there is no answer to judge")
            right.append(label if isinstance(one, Classification) else float(label))
            given.append(one.label if isinstance(one, Classification) else one.value)
    return right, given


def _tag(loaded: Predictor, examples: Sequence[Example], advance: Advance) -> tuple[list[Any], list[Any]]:
    """The tags of each sentence."""
    given: list[tuple[str, ...]] = []
    for _, window in _windows(examples, advance):
        # A word of a corpus may hold white space, which to the verb is the end of a word.
        sentences = [" ".join(_WHITE.sub("_", word) for word in example.values["words"]) for example in window]
        given += [found.tags for found in tag(loaded, sentences)]
    return [tuple(example.values["tags"]) for example in examples], given


def _score(loaded: Predictor, examples: Sequence[Example], advance: Advance) -> tuple[list[Any], list[Any]]:
    """The tokens and bytes of each text, and its log-probability."""
    right, given = [], []
    for _, window in _windows(examples, advance):
        for found in score(loaded, _texts(window, "text")):
            right.append((sum(one is not None for one in found.token_scores), found.num_bytes))
            given.append(found.log_probability)
    if not any(tokens for tokens, _ in right):
        raise DataError(f"{examples[0].path}: no text here has a token that the model could predict")
    return right, given


@torch.inference_mode()
def _answer_batches(
    loaded: Predictor, corpora: Sequence[Corpus], metrics: Sequence[Metric], advance: Advance
) -> tuple[list[Any], list[Any]]:
    """The answers of a task that no verb gives."""
    task, network = loaded.config, loaded.compile()
    context = Context(loaded.tokenizer, loaded.labels, frozenset(metric.name for metric in metrics))
    right, given = [], []
    with tempfile.TemporaryDirectory(prefix="seqloom-eval-") as folder:
        columns = task.make_columns(loaded.tokenizer, loaded.labels)
        folders = [Path(folder) / str(number) for number in range(len(corpora))]
        for corpus, target in zip(corpora, folders, strict=True):
            encode_corpus(corpus, columns, target)
        batches = task.make_batches(Records(folders), loaded.tokenizer)
        for step in range(len(batches)):
            batch = move(batches.build(step), loaded.device)
            loss = task.compute_loss(network, batch)
            found = task.answer(network, batch, loss, context)
            right += found.wanted
            given += found.given
            advance(len(found.given))
    return right, given


def _texts(examples: Sequence[Example], role: str) -> list[str]:
    if examples and role not in examples[0].values:
        raise DataError(f"{examples[0].path}: its records have no {role} text, which the model reads")
    return [str(example.values[role]) for example in examples]


def _windows(examples: Sequence[Example], advance: Advance) -> Iterator[tuple[int, Sequence[Example]]]:
    for first in range(0, len(examples), WINDOW_LINES):
        window = examples[first : first + WINDOW_LINES]
        yield first, window
        advance(len(window))
