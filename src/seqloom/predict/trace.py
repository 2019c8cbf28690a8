"""From a text to its trace, and from a trace to another one: of another text, or under changes."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import nn

from seqloom.decode.record import SearchRecord
from seqloom.decoders.recurrent import RecurrentDecoder
from seqloom.errors import ConfigError
from seqloom.lens.changed import change_network
from seqloom.lens.changes import Change, find_edits
from seqloom.lens.networks import open_network
from seqloom.lens.passes import Edit
from seqloom.lens.seen import Seen
from seqloom.lens.texts import Reading
from seqloom.lens.trace import Trace
from seqloom.models.labelling import Classifier, Tagger
from seqloom.predict.predictor import Predictor
from seqloom.predict.reading import Asked, name_labels, name_tokens, read
from seqloom.predict.results import as_plain

_ROUNDING = 1e-5  # of scores


@dataclass(frozen=True)
class _Plan:
    """What was asked for at first, what is read now, and what was changed."""

    request: Mapping[str, Any]
    asked: Asked
    changes: tuple[Change, ...] = ()
    edits: tuple[Edit, ...] = ()
    base: Trace | None = None


def trace(model: Predictor, asked: Asked) -> Trace:
    """The trace of a text."""
    return _trace(model, _Plan(asked.to_json(model.config.task), asked))


def _trace(model: Predictor, plan: _Plan) -> Trace:
    model.compile()  # refuses a network in training
    network = model.peek()
    opened = open_network(network)
    answering = model.with_network(change_network(opened, plan.edits)) if plan.edits else model
    found = read(answering, network, plan.asked)
    ids = {side.name: torch.tensor([token.id for token in side.tokens], device=model.device) for side in found.sides}
    name, find = name_labels(model) if isinstance(network, Classifier | Tagger) else name_tokens(model)
    changes = {"changes": [change.to_json() for change in plan.changes]} if plan.changes else {}
    reading = Reading(
        model.config.task,
        found.sides,
        ids,
        found.questions,
        name,
        find,
        {**plan.request, **changes},
        quantity=isinstance(network, Classifier) and model.labels == ("",),
        again=lambda old, change: _change(model, plan, old, change),
        answer=found.answer,
        said=as_plain(found.answer),
        notes=(*found.notes, *_note_ties(found.search), *_note_bridge(network, plan.edits)),
    )
    return Trace(Seen(opened, reading, plan.edits), plan.changes, plan.base, found.search)


def _note_ties(record: SearchRecord | None) -> list[str]:
    """Where rounding decided: a compiled search and one in the open may then find different answers."""
    notes = []
    for number, step in enumerate([] if record is None else record.steps, start=1):
        followed = [one.score for one in step.candidates if one.status in ("kept", "finished")]
        others = [one.score for one in step.candidates if one.status == "dropped"]
        if any(0 <= score - other < _ROUNDING for score in followed for other in others):
            notes.append(
                f"At step {number} of the search, a candidate was kept and another dropped whose scores are the same "
                "up to rounding; another engine might keep the other."
            )
    return notes[:1]


def _note_bridge(network: nn.Module, edits: Sequence[Edit]) -> list[str]:
    decoder = getattr(network, "decoder", None)
    copies = isinstance(decoder, RecurrentDecoder) and decoder.has_source and not hasattr(decoder, "bridge")
    if not copies or not any(edit.site.endswith((".forward", ".backward")) for edit in edits):
        return []
    return ["The last state that the decoder takes over from the encoder is not changed, only what layers give out."]


def _change(model: Predictor, plan: _Plan, old: Trace, change: Change) -> Trace:
    """A trace under one more change."""
    if change.kind == "swap":
        return _swap(model, plan, old, change)
    edits = (*plan.edits, *find_edits(change, old._seen, old._base._seen))
    asked = _keep_answer(plan.asked, old, change) if change.kind == "mask" else plan.asked
    base = plan.base or old
    return _trace(model, replace(plan, asked=asked, changes=(*plan.changes, change), edits=edits, base=base))


def _swap(model: Predictor, plan: _Plan, old: Trace, change: Change) -> Trace:
    """The trace of another text, then all changes of values as before."""
    word, asked = old._seen.find_word(change.side, change.index), _keep_answer(plan.asked, old, change)
    start, end = word.start, word.end
    if change.side == "target" or (asked.second is not None and start > len(asked.text)):
        assert asked.second is not None
        shift = 0 if change.side == "target" else len(asked.text) + 1
        asked = replace(asked, second=_replace_word(asked.second, start - shift, end - shift, change.text))
    else:
        asked = replace(asked, text=_replace_word(asked.text, start, end, change.text))
    swaps = tuple(one for one in plan.changes if one.kind == "swap")
    found = _trace(model, _Plan(plan.request, replace(asked, ids=None), (*swaps, change)))
    for other in plan.changes:
        if other.kind == "mask" and len(found.side(other.side).words) != len(old.side(other.side).words):
            raise ConfigError(
                "the swap changes the number of words, so a masked word cannot be found; mask it afterwards"
            )
        found = found if other.kind == "swap" else found.change(other)
    return found


def _replace_word(text: str, start: int, end: int, new: str) -> str:
    if new.strip():
        return text[:start] + new + text[end:]
    return (text[:start].rstrip() + " " + text[end:].lstrip()).strip()


def _keep_answer(asked: Asked, old: Trace, change: Change) -> Asked:
    """Where a change is inside an answer, that answer is read, and no other is searched for."""
    side = old.side(change.side)
    inside = change.side == "target" or (
        asked.search and old._seen.find_word(change.side, change.index).end > len(asked.text)
    )
    if not inside:
        return asked
    ids = tuple(token.id for token in side.tokens if not token.special)
    if change.side == "target":
        return replace(asked, second=side.text, search={}, ids=ids)
    return replace(asked, text=side.text, search={}, ids=ids)
