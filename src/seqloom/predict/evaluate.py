"""How good a model is on records with known answers: the metrics its task is known by.

translation         BLEU, chrF, TER and exact match of what search finds
classification      accuracy, macro-F1; of numbers, Pearson's and Spearman's correlation
tagging             accuracy a word and, where tags are spans, span-F1
language models     perplexity a token and bits a byte, each line by itself; masked: pseudo-perplexity
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import assert_never

import numpy as np

from seqloom.config.tasks import (
    BidirectionalLanguageModelTask,
    ClassificationTask,
    LanguageModelTask,
    MaskedLanguageModelTask,
    TaggingTask,
    TranslationTask,
)
from seqloom.data.examples import Example
from seqloom.errors import ConfigError, DataError
from seqloom.metrics.classification import (
    LabelScore,
    count_confusions,
    measure_accuracy,
    measure_macro_f1,
    score_labels,
)
from seqloom.metrics.correlation import measure_pearson, measure_spearman
from seqloom.metrics.likelihood import measure_bits_per_byte, measure_perplexity
from seqloom.metrics.measure import Measure, measure_share
from seqloom.metrics.spans import holds_spans, measure_span_f1, score_spans
from seqloom.metrics.tokenisation import find_tokenised, refuse_mismatch
from seqloom.metrics.translation import measure_exact_match, measure_translation
from seqloom.predict.classify import classify
from seqloom.predict.lines import WINDOW_LINES
from seqloom.predict.loaded import Loaded
from seqloom.predict.results import Classification, Quantity
from seqloom.predict.score import score
from seqloom.predict.searching import Search
from seqloom.predict.tag import tag
from seqloom.predict.translate import translate

Advance = Callable[[int], None]


@dataclass(frozen=True)
class Performance:
    """What was measured of a model's answers, or of somebody's outputs, before any interval is drawn."""

    measures: tuple[Measure, ...]
    labels: tuple[LabelScore, ...] = ()
    """Each label, or each kind of span, by itself."""
    confusions: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    """For each label that was wanted, how often each was given."""
    notes: tuple[str, ...] = ()
    """What a reader of the numbers should know."""


@dataclass(frozen=True)
class Wanted:
    """What is asked for: which metrics (all, where none is named), and for translations how they are made."""

    metrics: tuple[str, ...] = ()
    search: Search = field(default_factory=Search)
    tokenized: bool = False
    """Whether texts are to be compared as they are, token by token."""

    def wants(self, name: str) -> bool:
        """Whether a metric was asked for."""
        return not self.metrics or name in self.metrics


def list_metrics(loaded: Loaded) -> tuple[str, ...]:
    """The metrics of a model's task."""
    match loaded.config:
        case TranslationTask():
            return TRANSLATION
        case ClassificationTask(data=data):
            return ("pearson", "spearman") if data.labels == "numbers" else ("accuracy", "macro_f1")
        case TaggingTask():
            return ("accuracy", "span_f1") if holds_spans(loaded.labels) else ("accuracy",)
        case MaskedLanguageModelTask():
            return ("pseudo_perplexity",)
        case LanguageModelTask() | BidirectionalLanguageModelTask():
            return ("perplexity", "bits_per_byte")
        case _:
            assert_never(loaded.config)


TRANSLATION = ("bleu", "chrf", "ter", "exact_match")


def measure(loaded: Loaded, examples: Sequence[Example], wanted: Wanted, advance: Advance) -> Performance:
    """Let a model answer the examples, and measure its answers; `advance` is told of examples as they are done."""
    match loaded.config:
        case TranslationTask():
            return _measure_translation(loaded, examples, wanted, advance)
        case ClassificationTask(data=data):
            find = _measure_quantities if data.labels == "numbers" else _measure_labels
            return find(loaded, examples, wanted, advance)
        case TaggingTask():
            return _measure_tags(loaded, examples, wanted, advance)
        case LanguageModelTask() | BidirectionalLanguageModelTask() | MaskedLanguageModelTask():
            return _measure_likelihood(loaded, examples, wanted, advance)
        case _:
            assert_never(loaded.config)


def check_metrics(named: Sequence[str], known: Sequence[str]) -> None:
    """Refuse a metric that there is not."""
    for name in named:
        if name not in known:
            raise ConfigError(f"{name} is no metric here; there is {', '.join(known)}")


def check_comparable(one: Loaded, other: Loaded) -> None:
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
    measures = [
        measure_translation(name, outputs, references, tokenized=wanted.tokenized)
        for name in ("bleu", "chrf", "ter")
        if wanted.wants(name)
    ]
    if wanted.wants("exact_match"):
        measures.append(measure_exact_match(outputs, references))
    return Performance(tuple(measures), notes=notes)


def _measure_translation(loaded: Loaded, examples: Sequence[Example], wanted: Wanted, advance: Advance) -> Performance:
    references = _texts(examples, "target")
    outputs: list[str] = []
    for first, window in _windows(examples, advance):
        numbers = range(first + 1, first + 1 + len(window))
        found = translate(loaded, _texts(window, "source"), wanted.search, align=False, numbers=numbers)
        outputs += [one.text for one in found]
        if first == 0 and not wanted.tokenized:  # a long search need not go on if its answers cannot be compared
            refuse_mismatch(outputs, references[: len(outputs)])
    return measure_outputs(outputs, [references], wanted)


def _measure_labels(loaded: Loaded, examples: Sequence[Example], wanted: Wanted, advance: Advance) -> Performance:
    given = [found.label for found in _classify(loaded, examples, advance) if isinstance(found, Classification)]
    labels = _texts(examples, "label")
    measures = (measure_accuracy(labels, given), measure_macro_f1(labels, given))
    return Performance(
        _choose(measures, wanted),
        score_labels(labels, given),
        count_confusions(labels, given),
        _note_unknown(labels, loaded.labels),
    )


def _measure_quantities(loaded: Loaded, examples: Sequence[Example], wanted: Wanted, advance: Advance) -> Performance:
    given = []
    for example, found in zip(examples, _classify(loaded, examples, advance), strict=True):
        if not isinstance(found, Quantity) or found.value is None:
            raise DataError(f"{example.path}:{example.line}: the text is blank, so there is no answer to judge")
        given.append(found.value)
    numbers = [float(text) for text in _texts(examples, "label")]
    return Performance(_choose((measure_pearson(numbers, given), measure_spearman(numbers, given)), wanted))


def _classify(loaded: Loaded, examples: Sequence[Example], advance: Advance) -> Iterator[Classification | Quantity]:
    for _, window in _windows(examples, advance):
        pairs = "second" in loaded.frames
        yield from classify(loaded, _texts(window, "text"), _texts(window, "second") if pairs else ())


def _measure_tags(loaded: Loaded, examples: Sequence[Example], wanted: Wanted, advance: Advance) -> Performance:
    tags = [tuple(example.values["tags"]) for example in examples]
    given: list[tuple[str, ...]] = []
    for _, window in _windows(examples, advance):
        # A word of a corpus may hold white space, which to the verb is the end of a word.
        sentences = [" ".join(_WHITE.sub("_", word) for word in example.values["words"]) for example in window]
        given += [found.tags for found in tag(loaded, sentences)]
    right = [sum(map(str.__eq__, one, other)) for one, other in zip(tags, given, strict=True)]
    flat, answers = [[name for row in rows for name in row] for rows in (tags, given)]
    measures = [measure_share("accuracy", np.array(right), np.array([len(row) for row in tags]))]
    spans = holds_spans(loaded.labels)
    if spans:
        measures.append(measure_span_f1(tags, given))
    return Performance(
        _choose(measures, wanted),
        score_spans(tags, given) if spans else score_labels(flat, answers),
        count_confusions(flat, answers),
        _note_unknown(flat, loaded.labels),
    )


_WHITE = re.compile(r"\s")


def _measure_likelihood(loaded: Loaded, examples: Sequence[Example], wanted: Wanted, advance: Advance) -> Performance:
    totals, tokens, sizes = [], [], []
    for _, window in _windows(examples, advance):
        for found in score(loaded, _texts(window, "text")):
            totals.append(found.log_probability)
            tokens.append(sum(one is not None for one in found.token_scores))
            sizes.append(found.num_bytes)
    if not any(tokens):
        raise DataError(f"{examples[0].path}: no text here has a token that the model could predict")
    masked = isinstance(loaded.config, MaskedLanguageModelTask)
    measures = [measure_perplexity("pseudo_perplexity" if masked else "perplexity", totals, tokens)]
    if not masked:
        measures.append(measure_bits_per_byte(totals, sizes))
    return Performance(_choose(measures, wanted))


def _choose(measures: Sequence[Measure], wanted: Wanted) -> tuple[Measure, ...]:
    return tuple(one for one in measures if wanted.wants(one.name))


def _note_unknown(wanted: Sequence[str], known: Sequence[str]) -> tuple[str, ...]:
    unknown = sorted({*wanted} - {*known})
    return (f"the model knows no label {', '.join(unknown)}: it cannot be right there",) if unknown else ()


def _texts(examples: Sequence[Example], role: str) -> list[str]:
    if examples and role not in examples[0].values:
        raise DataError(f"{examples[0].path}: its records have no {role} text, which the model reads")
    return [str(example.values[role]) for example in examples]


def _windows(examples: Sequence[Example], advance: Advance) -> Iterator[tuple[int, Sequence[Example]]]:
    for first in range(0, len(examples), WINDOW_LINES):
        window = examples[first : first + WINDOW_LINES]
        yield first, window
        advance(len(window))
