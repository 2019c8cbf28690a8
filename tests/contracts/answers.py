"""Everything a model says to a few texts, number by number, and whether two of such answers are the same."""

from collections.abc import Iterator, Sequence
from dataclasses import is_dataclass
from itertools import islice
from typing import Any

import numpy as np

TEXTS = ["w1 w2 w3 w4 w5", "w6 w7", "w8 w9 w1 w1 w2 w10 w11"]
TARGETS = ["w3 w2", "w5 w4 w4 w1 w2", "w7"]
LENGTH = 4
"""Of what is searched for, in tokens."""
CLOSE = 1e-5
Answers = dict[str, Any]


def ask(model: Any) -> Answers:
    """What every verb of the model's task says, as single values by where they stand."""
    verbs = [*_search(model), *_read(model), *_embed(model)]
    return {path: value for verb, answer in verbs for path, value in _flatten(verb, answer)}


def ask_again(model: Any) -> Answers:
    """A part of the same: greedy search, and what is read off whole texts."""
    verbs = [*islice(_search(model), 1), *_read(model)]
    return {path: value for verb, answer in verbs for path, value in _flatten(verb, answer)}


def list_values(answer: Any) -> Answers:
    """A single answer in the same form."""
    return dict(_flatten("", answer))


def _search(model: Any) -> Iterator[tuple[str, Any]]:
    match model.config.task:
        case "translation":
            yield "translate", model.translate(TEXTS, max_length=LENGTH)
            yield "translate by beam", model.translate(TEXTS, beam=4, nbest=2, max_length=LENGTH, align=False)
        case "language-model":
            yield "generate", model.generate(TEXTS, max_length=LENGTH)
            yield "generate by beam", model.generate(TEXTS, beam=4, nbest=2, max_length=LENGTH)
            yield "stream", "".join(model.stream(TEXTS[0], max_length=3))


def _read(model: Any) -> Iterator[tuple[str, Any]]:
    match model.config.task:
        case "translation":
            yield "score", model.score(TEXTS, TARGETS)
        case "classification":
            yield "classify", model.classify(TEXTS)
        case "tagging":
            yield "tag", model.tag(TEXTS)
        case "masked-language-model":
            yield "score", model.score(TEXTS)
            yield "fill", model.fill(["w1 [MASK] w3", "w4 w5 [MASK] [MASK]"], top=3)
        case _ if "score" in model.config.verbs:
            yield "score", model.score(TEXTS)


def _embed(model: Any) -> Iterator[tuple[str, Any]]:
    yield "embed", model.embed(TEXTS)
    yield "embed tokens", model.embed(TEXTS, level="token")
    yield "embed mix", model.embed(TEXTS, layer="mix")
    if getattr(getattr(model.network, "pool", None), "kind", "") == "attention":
        yield "embed pooled", model.embed(TEXTS, pooling="attention")


def _flatten(path: str, value: Any) -> Iterator[tuple[str, Any]]:
    if is_dataclass(value):
        value = vars(value)
    match value:
        case dict():
            for key, item in value.items():
                yield from _flatten(f"{path}.{key}", item)
        case list() | tuple() if any(not isinstance(item, float) for item in value):
            for number, item in enumerate(value):
                yield from _flatten(f"{path}[{number}]", item)
        case list() | tuple() | np.ndarray():
            yield path, np.asarray(value, np.float64)
        case float():
            yield path, np.asarray(value)
        case _:
            yield path, value


def compare(found: Answers, expected: Answers, tolerance: float = CLOSE) -> str:
    """Where the first difference is; nothing where there is none."""
    for path, wanted in expected.items():
        if path not in found:
            return f"{path} is missing"
        if difference := _compare_value(found[path], wanted, tolerance):
            return f"{path}: {difference}"
    more = found.keys() - expected.keys()
    return f"{min(more)} should not be there" if more else ""


def _compare_value(found: Any, expected: Any, tolerance: float) -> str:
    if not isinstance(expected, np.ndarray) or not isinstance(found, np.ndarray) or found.shape != expected.shape:
        return "" if type(found) is type(expected) and _equal(found, expected) else f"{found!r} is not {expected!r}"
    if not (np.isfinite(found).all() and np.isfinite(expected).all()):
        return "not all are numbers"
    apart = np.abs(found - expected) - tolerance * np.abs(expected).clip(min=1.0)
    return "" if (apart <= 0).all() else f"off by {float(np.abs(found - expected).max()):.2e}"


def _equal(found: Any, expected: Any) -> bool:
    return not isinstance(found, np.ndarray) and bool(found == expected)


def compare_part(found: Answers, expected: Answers, tolerance: float = CLOSE) -> str:
    """The same for what `ask_again` found."""
    verbs = {path.partition("[")[0] for path in found}
    return compare(found, {p: v for p, v in expected.items() if p.partition("[")[0] in verbs}, tolerance)


def compare_search(model: Any, tolerance: float = 5 * CLOSE) -> str:
    """Where greedy search finds another probability than `score` gives to what it found: the two must agree."""
    match model.config.task:
        case "translation":
            found, before = model.translate(TEXTS, max_length=LENGTH, align=False), 0
            scores = model.score(TEXTS, [answer.text for answer in found])
        case "language-model":
            found, before = model.generate(TEXTS, max_length=LENGTH), 1
            scores = model.score([f"{text} {answer.text}" for text, answer in zip(TEXTS, found, strict=True)])
        case _:
            return ""
    for text, answer, score in zip(TEXTS, found, scores, strict=True):
        first = before * len(text.split())
        if score.tokens[first : first + len(answer.tokens)] != answer.tokens:
            continue  # the text of what was found is that of other tokens, too
        judged = score.token_scores[first : first + len(answer.token_scores)]
        if not np.allclose(answer.token_scores, judged, rtol=tolerance, atol=tolerance):
            return f"{answer.text!r}: searched {_round(answer.token_scores)}, scored {_round(judged)}"
    return ""


def _round(values: Sequence[float]) -> list[float]:
    return [round(value, 4) for value in values]
