"""Classification of texts, or pairs of texts.

A language model can classify from examples in its prompt: labelled texts, then a text whose label is missing.
P(label | text) ∝ P(label | prompt). No weight changes. Brown et al. 2020, §2.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import zip_longest

import torch

from seqloom.errors import ConfigError, DataError
from seqloom.models.labelling import Classifier
from seqloom.models.language_models import LanguageModel
from seqloom.predict.bulk import read_lines
from seqloom.predict.predictor import Piece, Predictor, group_pieces, require_numbers
from seqloom.predict.results import Classification, Quantity
from seqloom.predict.score import find_lead, score_tokens
from seqloom.tasks import ClassificationTask
from seqloom.tasks.base import find_tokens
from seqloom.types import TokenBatch


@torch.inference_mode()
def classify(model: Predictor, texts: Sequence[str], seconds: Sequence[str] = ()) -> list[Classification | Quantity]:
    """The label or number of each text; for a text in several pieces, the mean over its tokens."""
    network, config = model.compile(), model.config
    if not isinstance(network, Classifier) or not isinstance(config, ClassificationTask):
        model.refuse("classify")
    pieces, rows = _build_rows(model, texts, seconds)
    scores = torch.empty(len(rows), network.head.out_features)
    for indices, found in model.compute(network, rows, lambda batch: require_numbers(network(batch).float())):
        scores[indices] = found
    quantity = config.data.labels == "numbers"
    values = scores if quantity else scores.softmax(1)
    answers: list[Classification | Quantity] = []
    for own in group_pieces(pieces, len(texts)):
        weights = torch.tensor([float(len(rows[index])) for index in own])
        mean = torch.einsum("p,pc->c", weights / weights.sum(), values[own]) if own else None
        if quantity:
            answers.append(Quantity(None if mean is None else float(mean[0]), pieces=max(1, len(own))))
        else:
            answers.append(Classification("") if mean is None else _choose_label(model.labels, mean.tolist(), len(own)))
    return answers


def _choose_label(labels: Sequence[str], probabilities: Sequence[float], pieces: int = 1) -> Classification:
    """The most probable label; of several, the first."""
    by_name = dict(zip(labels, probabilities, strict=True))
    best = max(by_name, key=lambda label: by_name[label])
    return Classification(best, by_name[best], by_name, pieces=pieces)


def count_columns(model: Predictor) -> tuple[int, int]:
    """The fewest and the most texts that the model reads at once: 1 and 1, 2 and 2, or 1 and 2."""
    paired, config = "second" in model.frames, model.config
    return 1 + paired, 1 + (paired or (isinstance(config, ClassificationTask) and config.reads_pairs))


Pair = tuple[str, str]


def pair(texts: Sequence[str | Pair], second: str | Sequence[str] | None) -> tuple[list[str], list[str]]:
    """First texts and second ones, wherever those stand."""
    firsts, seconds = _split_pairs(texts)
    if second is None:
        return firsts, seconds
    if seconds:
        raise ConfigError("second: the texts are pairs already; give either pairs or second")
    return firsts, [second] if isinstance(second, str) else list(second)


def _split_pairs(texts: Sequence[str | Pair]) -> tuple[list[str], list[str]]:
    """The first texts and the second ones, which are empty where there is a single text; none if all are single."""
    pairs: list[Pair] = []
    for number, text in enumerate(texts, start=1):
        match text:
            case str():
                pairs.append((text, ""))
            case (str(first), str(second)):
                pairs.append((first, second))
            case _:
                raise DataError(f"text {number} of {len(texts)} is neither a text nor a pair of texts")
    seconds = [second for _, second in pairs]
    return [first for first, _ in pairs], seconds if any(not isinstance(text, str) for text in texts) else []


def _build_rows(model: Predictor, texts: Sequence[str], seconds: Sequence[str]) -> tuple[list[Piece], list[list[int]]]:
    fewest, most = count_columns(model)
    if seconds and most == 1:
        raise DataError("this model was trained on single texts, not on pairs; leave the second text out")
    if fewest == 2 and not seconds and texts:
        raise DataError("this model was trained on pairs of texts; give it two texts, separated by a tab in a file")
    if seconds and len(seconds) != len(texts):
        raise DataError(f"there are {len(texts)} texts, but {len(seconds)} second texts; a pair has one of each")
    if fewest == 1:
        alone = [text if not second.strip() else "" for text, second in zip_longest(texts, seconds, fillvalue="")]
        pieces, rows = model.read(alone, "text")
    else:
        pieces, rows = [], []
    for owner, (text, second) in enumerate(zip(texts, seconds, strict=False)):
        if second.strip() or (text.strip() and fewest == 2):
            rows.append(_join_pair(model, text, second))
            pieces.append(Piece(owner, text, 0, ""))
    return pieces, rows


def _join_pair(model: Predictor, text: str, second: str) -> list[int]:
    """The ids of two texts, each with its special tokens."""
    assert isinstance(model.config, ClassificationTask)
    after = find_tokens(model.config.second_frame, model.tokenizer)
    ids, others = model.tokenizer.encode_batch([text, second])
    row = [*model.frame("text", ids), *after.before, *others, *after.after]
    if len(row) > (model.positions("encoder") or len(row)):
        raise DataError(
            f"the pair {text[:20]!r}, {second[:20]!r} has {len(row)} tokens, but the model has only "
            f"{model.positions('encoder')} positions; shorten one of the texts"
        )
    return row


@dataclass(frozen=True)
class Shots:
    """Labelled examples, and how a prompt is written from them."""

    examples: tuple[tuple[str, str], ...] = ()
    """(text, label)."""
    labels: tuple[str, ...] = ()
    """The labels to choose from; if empty, those of the examples."""
    template: str = "{text} {label}"
    separator: str = " "

    def __post_init__(self) -> None:
        if self.template.count("{text}") != 1 or self.template.count("{label}") != 1:
            raise ConfigError(f"template = {self.template!r} must hold {{text}} and {{label}} once each")
        if self.template.index("{text}") > self.template.index("{label}"):
            raise ConfigError(f"template = {self.template!r}: the label must come after the text")
        if len(self.answers) < 2:
            raise ConfigError("labels: give at least two to choose from, or shots with two labels")

    @property
    def answers(self) -> tuple[str, ...]:
        """The labels to choose from."""
        return self.labels or tuple(sorted({label for _, label in self.examples}))

    def write(self, text: str, label: str) -> tuple[str, str]:
        """The prompt without the label, and with it."""
        shown = [self.template.replace("{text}", t).replace("{label}", a) for t, a in self.examples]
        question = self.template.partition("{label}")[0].replace("{text}", text)
        return tuple(self.separator.join([*shown, last]) for last in (question, question + label))  # type: ignore[return-value]


def read_shots(
    model: Predictor,
    shots: Sequence[tuple[str, str]] | None,
    labels: Sequence[str],
    template: str | None,
    separator: str | None,
) -> Shots | None:
    """What a user says about examples; None where nothing is said."""
    given = {name: value for name, value in (("template", template), ("separator", separator)) if value is not None}
    named = [*(["shots"] if shots is not None else []), *(["labels"] if labels else []), *given]
    if named and not isinstance(model.peek(), LanguageModel):
        known = f"; its labels are {', '.join(model.labels)}" if any(model.labels) else ""
        task = f"this model was trained for {model.config.task}{known}"
        raise ConfigError(f"{', '.join(named)}: only for a language model, but {task}")
    if shots is None and not labels:
        if given:
            raise ConfigError(f"{', '.join(given)}: how examples are written; give some with shots")
        return None
    return Shots(tuple(shots or ()), tuple(labels), **given)


@torch.inference_mode()
def classify_by_shots(model: Predictor, texts: Sequence[str], shots: Shots) -> list[Classification]:
    """The label that a language model finds most probable after each text."""
    network = model.compile()
    if not isinstance(network, LanguageModel):
        model.refuse("classify by examples")
    lead, answers = find_lead(model), shots.answers
    rows, starts = [], []
    asked = [index for index, text in enumerate(texts) if text.strip()]
    for index in asked:
        for label in answers:
            prompt, whole = shots.write(texts[index], label)
            before, ids = model.tokenizer.encode_batch([prompt.rstrip(), whole])
            shared = next((n for n, pair in enumerate(zip(before, ids, strict=False)) if len({*pair}) > 1), len(before))
            rows.append([*lead, *ids])
            starts.append(max(1, len(lead) + min(shared, len(ids) - 1)))
            if len(rows[-1]) > model.longest:
                raise DataError(
                    f"the examples and the text have {len(rows[-1])} tokens, but the model reads {model.longest}; "
                    "give fewer or shorter examples"
                )
    values = torch.empty(len(rows))
    for indices, tokens in model.batch(rows):
        real = tokens.mask[:, 1:]
        states = network(TokenBatch(tokens.ids[:, :-1], real))
        first = torch.tensor([starts[row] for row in indices], device=real.device).unsqueeze(1)
        wanted = real & (torch.arange(1, tokens.ids.shape[1], device=real.device) >= first)
        known = score_tokens(network.output, states[wanted], tokens.ids[:, 1:][wanted])
        values[indices] = require_numbers(torch.stack([part.sum() for part in known.split(wanted.sum(1).tolist())]))
    shares = values.view(len(asked), len(answers)).softmax(1).tolist()
    found = {index: _choose_label(answers, share) for index, share in zip(asked, shares, strict=True)}
    return [found.get(index, Classification("")) for index in range(len(texts))]


def read_examples(path: str) -> tuple[tuple[str, str], ...]:
    """Labelled examples from a file: a text, a tab and a label on each line; blank lines are skipped."""
    examples = []
    lines = (line for block in read_lines(path) for line in block)
    for number, line in enumerate(lines, start=1):
        if line.fault:
            raise DataError(f"{path}:{number}: {line.fault}")
        if not line.texts[0].strip():
            continue
        text, tab, label = line.texts[0].rpartition("\t")
        if not tab or not text.strip() or not label.strip():
            raise DataError(f"{path}:{number}: expected a text, a tab and a label")
        examples.append((text, label))
    return tuple(examples)
