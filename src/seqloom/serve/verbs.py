"""The verbs of a server: from texts and options to work for the batcher.

Each option has the name and meaning that it has in Python and on the command line, and each text of a request is what a
line of a file is there: the first has number 1, which matters where answers are drawn.
"""

import json
from collections.abc import Callable, Hashable, Sequence
from functools import partial
from typing import Any
from weakref import WeakKeyDictionary

from seqloom.predict import classify, embed, fill, score, tag
from seqloom.predict.generate import plan_generation
from seqloom.predict.predictor import Predictor
from seqloom.predict.search import read_search
from seqloom.predict.translate import plan_splitting, plan_translation
from seqloom.serve.faults import RefusalError
from seqloom.serve.work import SearchWork, VerbWork, Work

Options = dict[str, Any]
Prepare = Callable[[Predictor, Sequence[Any], Options], Work]


def prepare(verb: str, model: Predictor, texts: Sequence[Any], options: Options) -> Work:
    """The work that a verb is for these texts."""
    return VERBS[verb](model, texts, dict(options))


def _translate(model: Predictor, texts: Sequence[str], options: Options) -> Work:
    align, split = options.pop("align", True), options.pop("split", None)
    splitting = plan_splitting(model, split)
    return SearchWork(model, plan_translation(model, texts, read_search(options), align=align, splitting=splitting))


def _generate(model: Predictor, texts: Sequence[str], options: Options) -> Work:
    special = options.pop("special_tokens", False)
    return SearchWork(model, plan_generation(model, texts, read_search(options), special=special))


def _classify(model: Predictor, texts: Sequence[Any], options: Options) -> Work:
    shots = [(text, label) for text, label in options["shots"]] if options.get("shots") is not None else None
    given = classify.read_shots(
        model, shots, options.get("labels") or (), options.get("template"), options.get("separator")
    )
    if given is not None:
        if any(not isinstance(text, str) for text in texts):
            raise RefusalError("pairs of texts are for a model trained on pairs, not for shots")
        return VerbWork(model, ("classify", given), texts, partial(classify.classify_by_shots, shots=given))
    paired = any(not isinstance(text, str) for text in texts)
    pairs = [(text, "") if isinstance(text, str) else tuple(text) for text in texts]
    return _checked(VerbWork(model, ("classify", paired), pairs, partial(_classify_pairs, paired=paired)))


def _classify_pairs(model: Predictor, pairs: Sequence[tuple[str, str]], *, paired: bool) -> Sequence[Any]:
    seconds = [second for _, second in pairs]
    return classify.classify(model, [first for first, _ in pairs], seconds if paired else ())


def _tag(model: Predictor, texts: Sequence[Any], options: Options) -> Work:
    legal = options.get("legal", True)
    return _checked(VerbWork(model, ("tag", legal), texts, partial(tag.tag, legal=legal)))


def _embed(model: Predictor, texts: Sequence[str], options: Options) -> Work:
    verb = embed.embed_tokens if options.pop("level", "text") == "token" else embed.embed_texts
    if verb is embed.embed_tokens and options.pop("pooling", None) is not None:
        raise RefusalError("pooling combines the vectors of tokens; leave it out with level = token")
    given = {name: value for name, value in options.items() if value is not None}
    return _checked(VerbWork(model, (verb.__name__, _freeze(given)), texts, partial(verb, **given)))


def _fill(model: Predictor, texts: Sequence[str], options: Options) -> Work:
    top = options.get("top", 5)
    return _checked(VerbWork(model, ("fill", top), texts, partial(fill.fill, top=top)))


def _score(model: Predictor, texts: Sequence[Any], options: Options) -> Work:
    paired = any(not isinstance(text, str) for text in texts)
    if paired and any(isinstance(text, str) for text in texts):
        raise RefusalError("give a target for every text, or for none")
    return _checked(VerbWork(model, ("score", paired), texts, _score_pairs if paired else score.score))


def _score_pairs(model: Predictor, pairs: Sequence[tuple[str, str]]) -> Sequence[Any]:
    return score.score(model, [source for source, _ in pairs], [target for _, target in pairs])


_possible: WeakKeyDictionary[Predictor, set[Hashable]] = WeakKeyDictionary()
"""What each model is known to be able to do: verbs with their options."""


def _checked(work: VerbWork) -> VerbWork:
    """Refuse what the model cannot do before the work waits; to find that out may be a pass of the network."""
    known = _possible.setdefault(work.predictor, set())
    if work.key not in known:
        work.verb(work.predictor, [])
        known.add(work.key)
    return work


def _freeze(options: Options) -> Hashable:
    return json.dumps(options, sort_keys=True)


VERBS: dict[str, Prepare] = {
    "translate": _translate,
    "generate": _generate,
    "classify": _classify,
    "tag": _tag,
    "embed": _embed,
    "fill": _fill,
    "score": _score,
}
