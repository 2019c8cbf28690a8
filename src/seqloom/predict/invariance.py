"""Does an answer depend on the other lines in its batch?

Each line is answered alone, and again with others: all of them, all in reverse order, in threes. Its text must be the
same, and its numbers equal to 1e-5 (relative for numbers above 1). A decoder must compute the same scores when it reads
a text token by token as when it reads the whole. The lines come from the data of the run, or from a file.
"""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, is_dataclass, replace
from pathlib import Path
from typing import TypeVar

import numpy as np
import torch
from torch import Tensor

from seqloom.data.shards import Records
from seqloom.decode.options import Search
from seqloom.errors import DataError
from seqloom.models.labelling import Classifier, Tagger
from seqloom.models.language_models import BidirectionalLanguageModel, LanguageModel, MaskedLanguageModel
from seqloom.models.seq2seq import Seq2Seq
from seqloom.predict.bulk import read_lines
from seqloom.predict.classify import classify
from seqloom.predict.embed import embed_texts
from seqloom.predict.fill import fill
from seqloom.predict.generate import generate
from seqloom.predict.predictor import Predictor
from seqloom.predict.score import find_lead, score
from seqloom.predict.tag import tag
from seqloom.predict.translate import translate
from seqloom.runs.weights import find_run
from seqloom.types import PairBatch, TokenBatch

TOLERANCE = 1e-5
STEPS_TOLERANCE = {"float32": 1e-4, "bfloat16": 0.02, "int8": 0.2}
"""For the scores of all tokens of the vocabulary, where rounding adds up over layers that do not normalise.

A text read token by token is attended to in another order than as a whole, so that sums differ in their last bits. In
bfloat16 and int8, this may round a number to its other neighbour, 1/256 away, or 1/255 of the range of its row.
"""
_NEW_TOKENS = 16
_MAX_LINES, _MAX_TOKENS = 24, 48  # of the data, and of each line
_SEARCHES = {"": Search(), ", beam of 4": Search(beam=4), ", drawn": Search(sample=True, seed=1)}

ENGLISH = (
    "The cat sat on the mat.",
    "It rained all night, and in the morning the river stood above the bridge.",
    "Why?",
    "She had never been to the sea before.",
    "Two plus two is four; three times three is nine, and so it goes on and on and on.",
    "He opened the door slowly.",
    "No one knows where the old road begins, who built it, or whether it ever led anywhere at all.",
    "Good morning!",
    "A dog barked.",
    "They bought bread, cheese, apples and a bottle of wine at the market on the corner.",
)
"""Lines of different lengths, for a run whose data are gone."""
T = TypeVar("T")
Verb = Callable[[Sequence[int], Sequence[str]], Sequence[object]]
"""Takes the numbers of some lines and their texts; returns an answer for each."""


@dataclass(frozen=True)
class Check:
    """What was checked, on how many lines, and the largest difference between numbers that should be equal."""

    part: str
    lines: int
    difference: float
    fault: str = ""


def find_lines(folder: Path, predictor: Predictor, file: Path | None = None) -> tuple[str, Sequence[str]]:
    """The source and the beginnings of lines: from a file, the run's validation or training data, or plain English."""
    if file is not None:
        lines = [line.texts[0] for block in read_lines(str(file)) for line in block if not line.fault]
        return str(file), _shorten(predictor, _spread([line for line in lines if line.strip()]))
    role = next(iter(predictor.frames))
    for split in ("valid", "train"):
        try:
            records = Records(sorted((find_run(folder) / "data").glob(f"{split}-*")))
        except DataError:  # damaged shards do not make the model wrong
            continue
        rows = [records.read(role, record)[:_MAX_TOKENS].tolist() for record in _spread(range(len(records)))]
        lines = [line for line in predictor.tokenizer.decode_batch(rows) if line.strip()]
        if lines:
            return f"the {split} data", lines
    return "plain English, because the data of the run are gone", ENGLISH


def check_invariance(predictor: Predictor, lines: Sequence[str]) -> Iterator[Check]:
    """Check everything that a model can do."""
    for part, verb in _list_verbs(predictor).items():
        yield check_neighbours(part, verb, lines)
    if isinstance(predictor.compile(), LanguageModel | Seq2Seq):
        yield check_steps(predictor, lines)


def check_neighbours(part: str, verb: Verb, lines: Sequence[str]) -> Check:
    """Compare the answer to each line alone with its answer among others."""
    everyone = list(range(len(lines)))
    threes = [everyone[start :: -(-len(lines) // 3)] for start in range(-(-len(lines) // 3))]
    alone = [verb([index + 1], [lines[index]])[0] for index in everyone]
    worst = 0.0
    for company, groups in (("all", [everyone]), ("all in reverse order", [everyone[::-1]]), ("threes", threes)):
        for group in groups:
            answers = verb([index + 1 for index in group], [lines[index] for index in group])
            for index, answer in zip(group, answers, strict=True):
                difference = compare(alone[index], answer)
                worst = max(worst, difference) if math.isfinite(difference) else worst
                if not difference <= TOLERANCE:
                    fault = f"line {index + 1} ({lines[index]!r}) has a different answer among {company} than alone"
                    return Check(part, len(lines), worst, fault)
    return Check(part, len(lines), worst)


def compare(one: object, other: object) -> float:
    """The largest difference between the numbers of two answers; infinite where anything else differs."""
    match one, other:
        case (float() | np.ndarray(), float() | np.ndarray()):
            a, b = np.asarray(one, np.float64), np.asarray(other, np.float64)
            if a.shape != b.shape:
                return math.inf
            unequal = a != b
            shares = np.abs(a[unequal] - b[unequal]) / np.maximum(1.0, np.abs(a[unequal]))
            return float(np.nan_to_num(shares, nan=math.inf).max(initial=0.0))
        case (tuple(), tuple()) if len(one) == len(other):
            return max((compare(a, b) for a, b in zip(one, other, strict=True)), default=0.0)
        case (dict(), dict()) if one.keys() == other.keys():
            return max((compare(one[key], other[key]) for key in one), default=0.0)
        case _ if is_dataclass(one) and type(one) is type(other):
            return compare(vars(one), vars(other))
        case _:
            return 0.0 if one == other else math.inf


@torch.inference_mode()
def check_steps(predictor: Predictor, lines: Sequence[str]) -> Check:
    """Compare the scores of each next token when a text is read token by token with those of the whole text."""
    network, worst, tolerance = predictor.compile(), 0.0, STEPS_TOLERANCE[predictor.precision]
    spelled = predictor.tokenizer.encode_batch(lines)
    for number, (line, ids) in enumerate(zip(lines, spelled, strict=True), 1):
        match network:
            case Seq2Seq():
                source = predictor.pad([predictor.frame("source", ids)])
                written = predictor.tokenizer.target.encode(line).ids
                target = predictor.pad([predictor.frame("target", written)[:-1][: predictor.longest]], "target")
                whole = network(PairBatch(source, target))
                state = network.start(network.encode(source), target.ids.shape[1])
            case LanguageModel():
                target = predictor.pad([[*find_lead(predictor), *ids][: predictor.longest]])
                whole = network(TokenBatch(target.ids, target.mask))
                state = network.start(1, target.ids.shape[1])
            case _:
                predictor.refuse("be read token by token")
        steps: list[Tensor] = []
        for place in range(target.ids.shape[1]):
            scores, state = network.step(target.ids[:, place : place + 1], state)
            steps.append(scores)
        expected = network.output(whole[0]).log_softmax(-1).numpy()
        difference = compare(expected, torch.cat(steps).log_softmax(-1).numpy())
        worst = max(worst, difference) if math.isfinite(difference) else worst
        if not difference <= tolerance:
            fault = f"line {number} ({line!r}) has different scores token by token than as a whole"
            return Check("steps", len(lines), worst, fault)
    return Check("steps", len(lines), worst)


def _list_verbs(predictor: Predictor) -> Mapping[str, Verb]:
    """Everything that a model can do, as functions of numbered lines."""
    verbs: dict[str, Verb] = {"embed": lambda _, texts: embed_texts(predictor, texts)}
    network = predictor.compile()
    match network:
        case Seq2Seq():
            for name, search in _SEARCHES.items():
                verbs[f"translate{name}"] = _bind_translate(predictor, search)
            verbs["score"] = lambda _, texts: score(predictor, texts, texts)
        case LanguageModel():
            for name, search in _SEARCHES.items():
                verbs[f"generate{name}"] = _bind_generate(predictor, search)
            verbs["score"] = lambda _, texts: score(predictor, texts)
        case MaskedLanguageModel() if network.output is not None:
            verbs["fill"] = lambda _, texts: fill(predictor, [_mask_middle(predictor, text) for text in texts], top=1)
            verbs["score"] = lambda _, texts: score(predictor, texts)
        case BidirectionalLanguageModel() if network.output is not None:
            verbs["score"] = lambda _, texts: score(predictor, texts)
        case Classifier() if "second" in predictor.frames:
            verbs["classify"] = lambda _, texts: classify(predictor, texts, texts)
        case Classifier():
            verbs["classify"] = lambda _, texts: classify(predictor, texts)
        case Tagger():
            verbs["tag"] = lambda _, texts: tag(predictor, texts)
    return verbs


def _bind_translate(predictor: Predictor, search: Search) -> Verb:
    return lambda numbers, texts: translate(predictor, texts, search, align=False, numbers=numbers)


def _bind_generate(predictor: Predictor, search: Search) -> Verb:
    wanted = replace(search, max_length=_NEW_TOKENS)
    return lambda numbers, texts: generate(predictor, texts, wanted, numbers=numbers)


def _mask_middle(predictor: Predictor, text: str) -> str:
    """The text with a mask in place of its middle word."""
    words, mask = text.split(" "), predictor.tokenizer.roles.mask
    words[len(words) // 2] = "" if mask is None else predictor.tokenizer.token(mask)
    return " ".join(words)


def _spread(items: Sequence[T]) -> list[T]:
    """At most 24 of the items, evenly spread."""
    places = np.linspace(0, len(items) - 1, min(_MAX_LINES, len(items))).astype(int)
    return [items[place] for place in np.unique(places)]


def _shorten(predictor: Predictor, lines: Sequence[str]) -> list[str]:
    offsets = [predictor.tokenizer.encode(line).offsets[:_MAX_TOKENS] for line in lines]
    return [line[: own[-1][1]] for line, own in zip(lines, offsets, strict=True) if own]
