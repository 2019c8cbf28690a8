"""Does an answer depend on what it was computed with?

Each line is asked alone, and again among the others: all of them, in the opposite order, in threes. Its text must be
the same, and its numbers equal but for 1e-5 (of a number above 1, that share of it). A decoder that reads a text token
by token must find what it finds when it reads the whole.
"""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, is_dataclass, replace

import numpy as np
import torch
from torch import Tensor

from seqloom.decode.options import Search
from seqloom.models.bilm import BidirectionalLanguageModel
from seqloom.models.classifier import Classifier
from seqloom.models.language_model import LanguageModel
from seqloom.models.masked_lm import MaskedLanguageModel
from seqloom.models.seq2seq import Seq2Seq
from seqloom.models.tagger import Tagger
from seqloom.predict.classify import classify
from seqloom.predict.embed import embed_texts
from seqloom.predict.fill import fill
from seqloom.predict.generate import generate
from seqloom.predict.loaded import Loaded
from seqloom.predict.score import find_lead, score
from seqloom.predict.tag import tag
from seqloom.predict.translate import translate
from seqloom.types import PairBatch, TokenBatch

TOLERANCE = 1e-5
STEPS_TOLERANCE = 1e-4
"""For the scores of all tokens of the vocabulary, where rounding adds up over layers that do not normalise."""
_NEW_TOKENS = 16
_SEARCHES = {"": Search(), ", beam of 4": Search(beam=4), ", drawn": Search(sample=True, seed=1)}

Ask = Callable[[Sequence[int], Sequence[str]], Sequence[object]]
"""The numbers of some lines and their texts; an answer for each."""


@dataclass(frozen=True)
class Check:
    """What was tried, on how many lines, and the largest difference between two numbers that should be equal."""

    part: str
    lines: int
    difference: float
    fault: str = ""


def check_invariance(loaded: Loaded, lines: Sequence[str]) -> Iterator[Check]:
    """Try all that a model can do."""
    for part, ask in _list_verbs(loaded).items():
        yield check_neighbours(part, ask, lines)
    if isinstance(loaded.compile(), LanguageModel | Seq2Seq):
        yield check_steps(loaded, lines)


def check_neighbours(part: str, ask: Ask, lines: Sequence[str]) -> Check:
    """Compare what each line is answered alone with what it is answered among others."""
    everyone = list(range(len(lines)))
    threes = [everyone[start :: -(-len(lines) // 3)] for start in range(-(-len(lines) // 3))]
    alone = [ask([index + 1], [lines[index]])[0] for index in everyone]
    worst = 0.0
    for company, groups in (("all", [everyone]), ("the opposite order", [everyone[::-1]]), ("threes", threes)):
        for group in groups:
            answers = ask([index + 1 for index in group], [lines[index] for index in group])
            for index, answer in zip(group, answers, strict=True):
                difference = compare(alone[index], answer)
                worst = max(worst, difference) if math.isfinite(difference) else worst
                if not difference <= TOLERANCE:
                    fault = f"line {index + 1} ({lines[index]!r}) is answered otherwise among {company} than alone"
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
def check_steps(loaded: Loaded, lines: Sequence[str]) -> Check:
    """Compare the scores of every next token, read token by token, with those of the whole text."""
    network, worst = loaded.compile(), 0.0
    spelled = loaded.tokenizer.encode_batch(lines)
    for number, (line, ids) in enumerate(zip(lines, spelled, strict=True), 1):
        match network:
            case Seq2Seq():
                source = loaded.pad([loaded.frame("source", ids)])
                target = loaded.pad([loaded.frame("target", ids)[:-1][: loaded.longest]])
                whole = network(PairBatch(source, target))
                state = network.start(network.encode(source), target.ids.shape[1])
            case LanguageModel():
                target = loaded.pad([[*find_lead(loaded), *ids][: loaded.longest]])
                whole = network(TokenBatch(target.ids, target.mask))
                state = network.start(1, target.ids.shape[1])
            case _:
                loaded.refuse("be read token by token")
        steps: list[Tensor] = []
        for place in range(target.ids.shape[1]):
            scores, state = network.step(target.ids[:, place : place + 1], state)
            steps.append(scores)
        expected = network.output(whole[0]).log_softmax(-1).numpy()
        difference = compare(expected, torch.cat(steps).log_softmax(-1).numpy())
        worst = max(worst, difference) if math.isfinite(difference) else worst
        if not difference <= STEPS_TOLERANCE:
            fault = f"line {number} ({line!r}) is read otherwise token by token than as a whole"
            return Check("steps", len(lines), worst, fault)
    return Check("steps", len(lines), worst)


def _list_verbs(loaded: Loaded) -> Mapping[str, Ask]:
    """What a model can do, as functions of numbered lines."""
    verbs: dict[str, Ask] = {"embed": lambda _, texts: embed_texts(loaded, texts)}
    network = loaded.compile()
    match network:
        case Seq2Seq():
            for name, search in _SEARCHES.items():
                verbs[f"translate{name}"] = _bind_translate(loaded, search)
            verbs["score"] = lambda _, texts: score(loaded, texts, texts)
        case LanguageModel():
            for name, search in _SEARCHES.items():
                verbs[f"generate{name}"] = _bind_generate(loaded, search)
            verbs["score"] = lambda _, texts: score(loaded, texts)
        case MaskedLanguageModel() if network.output is not None:
            verbs["fill"] = lambda _, texts: fill(loaded, [_hide(loaded, text) for text in texts], top=1)
            verbs["score"] = lambda _, texts: score(loaded, texts)
        case BidirectionalLanguageModel() if network.output is not None:
            verbs["score"] = lambda _, texts: score(loaded, texts)
        case Classifier() if "second" in loaded.frames:
            verbs["classify"] = lambda _, texts: classify(loaded, texts, texts)
        case Classifier():
            verbs["classify"] = lambda _, texts: classify(loaded, texts)
        case Tagger():
            verbs["tag"] = lambda _, texts: tag(loaded, texts)
    return verbs


def _bind_translate(loaded: Loaded, search: Search) -> Ask:
    return lambda numbers, texts: translate(loaded, texts, search, align=False, numbers=numbers)


def _bind_generate(loaded: Loaded, search: Search) -> Ask:
    wanted = replace(search, max_length=_NEW_TOKENS)
    return lambda numbers, texts: generate(loaded, texts, wanted, numbers=numbers)


def _hide(loaded: Loaded, text: str) -> str:
    """A mask in the place of the word in the middle."""
    words, mask = text.split(" "), loaded.tokenizer.roles.mask
    words[len(words) // 2] = "" if mask is None else loaded.tokenizer.token(mask)
    return " ".join(words)
