"""Everything a model says to a few texts, number by number, and whether two of such answers are the same."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import is_dataclass
from typing import Any

import numpy as np

TEXTS = ["w1 w2 w3 w4 w5", "w6 w7", "w8 w9 w1 w1 w2 w10 w11"]
TARGETS = ["w3 w2", "w5 w4 w4 w1 w2", "w7"]
LENGTH = 5
"""Of what is searched for, in tokens."""
CLOSE = 1e-5
Answers = dict[str, Any]


def ask(model: Any) -> Answers:
    """What every verb of the model's task says, as single values by where they stand."""
    verbs = [*_ask_task(model), *_ask_vectors(model)]
    return {path: value for verb, answer in verbs for path, value in _flatten(verb, answer)}


def list_values(answer: Any) -> Answers:
    """A single answer in the same form."""
    return dict(_flatten("", answer))


def _ask_task(model: Any) -> Iterator[tuple[str, Any]]:
    match model.config.task:
        case "translation":
            greedy = model.translate(TEXTS, max_length=LENGTH)
            yield "translate", greedy
            yield "rescore", model.score(TEXTS, [answer.text for answer in greedy])
            yield "translate by beam", model.translate(TEXTS, beam=4, nbest=2, max_length=LENGTH)
            yield "score", model.score(TEXTS, TARGETS)
        case "language-model":
            greedy = model.generate(TEXTS, max_length=LENGTH)
            yield "generate", greedy
            yield "rescore", model.score([f"{text} {found.text}" for text, found in zip(TEXTS, greedy, strict=True)])
            yield "generate by beam", model.generate(TEXTS, beam=4, nbest=2, max_length=LENGTH)
            yield "stream", "".join(model.stream(TEXTS[0], max_length=LENGTH))
            yield "score", model.score(TEXTS)
        case "masked-language-model":
            yield "fill", model.fill(["w1 [MASK] w3", "w4 w5 [MASK] [MASK]"], top=3)
            yield "score", model.score(TEXTS)
        case "bidirectional-language-model":
            yield "score", model.score(TEXTS)
        case "classification":
            yield "classify", model.classify(TEXTS)
        case "tagging":
            yield "tag", model.tag(TEXTS)


def _ask_vectors(model: Any) -> Iterator[tuple[str, Any]]:
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


def compare_search(model: Any, answers: Answers, tolerance: float = 5 * CLOSE) -> str:
    """Where greedy search finds another probability than `score` gives to what it found: the two must agree."""
    verb, given = {"translation": ("translate", 0), "language-model": ("generate", 1)}.get(model.config.task, ("", 0))
    for number, text in enumerate(TEXTS if verb else []):
        path, judged = f"{verb}[{number}]", f"rescore[{number}]"
        tokens = _list(answers, f"{path}.tokens")
        before = len(text.split()) * given
        reread = _list(answers, f"{judged}.tokens")[before : before + len(tokens)]
        if reread != tokens:
            continue  # the text of what was found is that of other tokens, too
        ours = np.atleast_1d(answers.get(f"{path}.token_scores", np.zeros(0)))
        theirs = _list(answers, f"{judged}.token_scores")[before : before + len(ours)]
        if len(ours) and not np.allclose(ours, np.array(theirs, np.float64), rtol=tolerance, atol=tolerance):
            return f"{path}: searched {ours.round(4).tolist()}, scored {[round(float(score), 4) for score in theirs]}"
    return ""


def _list(answers: Answers, path: str) -> Sequence[Any]:
    whole = answers.get(path)
    if whole is not None:
        return list(np.atleast_1d(whole))
    found = []
    while (value := answers.get(f"{path}[{len(found)}]", math.nan)) is None or not _is_missing(value):
        found.append(value)
    return found


def _is_missing(value: Any) -> bool:
    return isinstance(value, float) and math.isnan(value)
