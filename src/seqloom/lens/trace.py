"""The trace of one text: what the network computed on the way to its answer, and what would have been otherwise.

Most of it is computed when it is asked for, from the network as it was when the trace was made: do not change it in
between.
"""

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, get_args

import torch
from jaxtyping import Float, UInt8
from torch import Tensor

from seqloom.decode.record import SearchRecord
from seqloom.errors import ConfigError, RunError
from seqloom.lens.alignment import HeadAlignments, align
from seqloom.lens.arithmetic import Arithmetic, explain
from seqloom.lens.attribution import Attribution, Contributions, Method, Subject, attribute, contribute
from seqloom.lens.changes import By, Change
from seqloom.lens.comparison import Comparison, compare
from seqloom.lens.mixing import AttentionMixer, Terms
from seqloom.lens.roles import Roles, describe_roles
from seqloom.lens.saving import record, save_page, show_page
from seqloom.lens.seen import Seen
from seqloom.lens.stacks import Stack
from seqloom.lens.texts import Choice, Prediction, Side, Word, choose
from seqloom.lens.words import group_tokens, join_words
from seqloom.native.library import checksum
from seqloom.page.bundle import framed_page


@dataclass(frozen=True)
class LayerPrediction:
    """What a layer would predict."""

    layer: int
    """0 is the input of the first layer."""
    name: str
    top: tuple[Choice, ...]


class Trace:
    """One text, seen from inside; `Model.trace` makes it."""

    def __init__(
        self,
        seen: Seen,
        changes: Sequence[Change] = (),
        base: "Trace | None" = None,
        search: SearchRecord | None = None,
    ) -> None:
        """`base` is the trace of the same text without changes of values; `search` says how the answer was found."""
        self._seen, self._reading, self._search = seen, seen.reading, search
        self.changes = tuple(changes)
        """What was changed, one after the other."""
        self._base = base or self

    def __repr__(self) -> str:
        sizes = ", ".join(f"{len(side.tokens)} {side.name} tokens" for side in self.sides)
        return f"<seqloom.Trace {self.task}: {sizes}, {len(self.sites)} maps>"

    @property
    def task(self) -> str:
        """What the model was trained for."""
        return self._reading.task

    @property
    def sides(self) -> tuple[Side, ...]:
        """The sequences that the network read, with their tokens."""
        return self._reading.sides

    @property
    def answer(self) -> Any:
        """What the model's verb gave; None if it has none for a single text."""
        return self._reading.answer

    @property
    def notes(self) -> tuple[str, ...]:
        """What a reader should know."""
        return self._reading.notes

    @property
    def stacks(self) -> tuple[Stack, ...]:
        """The groups of maps, each with its layers and their sites."""
        return self._seen.stacks

    @property
    def sites(self) -> tuple[str, ...]:
        """Every site with a map: a head, a direction of a recurrent layer, a kernel, a pooling."""
        return self._seen.sites

    @property
    def predictions(self) -> tuple[Prediction, ...]:
        """What the network predicts, place by place; `lens`, `contributions` and `attribute` count these from 0.

        A token of the text is predicted from what the network reads before it; what follows the last one is what the
        network finds most probable.
        """
        return self._seen.predictions

    def side(self, name: str) -> Side:
        """A side by its name: `source` and `target`, or `text`."""
        return self._seen.find_side(name)

    def find_stack(self, name: str) -> Stack:
        """A stack by its name."""
        return self._seen.find_stack(name)

    def words(self, side: str) -> tuple[Word, ...]:
        """The words and the special tokens of a side, each with its tokens."""
        return group_tokens(self.side(side))

    def value(self, site: str) -> Float[Tensor, "T *D"]:
        """What a site gives at each position: a head, before W_o; a sublayer, before it is added; a layer, the sum."""
        return self._seen.get_value(site)

    @torch.no_grad()
    def mixing(
        self, site: str, head: int | None = None, *, norm: bool = False, words: bool = False
    ) -> Float[Tensor, "T S"]:
        """How much of each position enters each other: the raw number or, with `norm`, the length of what it adds.

        `t.mixing("encoder.2", head=5)` is `t.mixing("encoder.2.head.5")`. With `words`, rows and columns are those of
        `t.words`: the sum over the columns of a word, the mean over its rows.
        """
        mixer, index, stack = self._seen.find_mixer(site if head is None else f"{site}.head.{head}")
        found = (mixer.norms() if norm else mixer.weights())[index]
        return join_words(found, self.side(stack.queries), self.side(stack.keys)) if words else found

    @torch.no_grad()
    def terms(self, site: str, rows: Sequence[int]) -> Terms:
        """The vectors that each position adds at some rows, and what depends on no position: their sum is the output.

        Of a head, that is its part of the sublayer's output; `encoder.2.attention` and `decoder.0.cross` are the
        whole sublayers.
        """
        for mixer in self._seen.passed.mixers.values():
            group = mixer.sites[0].rpartition(".")[0]
            if isinstance(mixer, AttentionMixer) and site in (group, f"{group.removesuffix('.head')}.attention"):
                return mixer.sum_terms(rows)
        found, index, _ = self._seen.find_mixer(site)
        return found.terms(index, rows)

    @torch.no_grad()
    def grid(self, stack: str, size: int = 96) -> UInt8[Tensor, "M t s"]:
        """Thumbnails of all maps of a stack, in the order of its sites: round(255·√w), the maximum of each cell."""
        return torch.cat([mixer.grid(size) for mixer in self._seen.list_mixers(self.find_stack(stack))])

    @torch.no_grad()
    def arithmetic(self, site: str, row: int, column: int) -> Arithmetic:
        """How one number of a map comes about, step by step, with the model's own numbers."""
        mixer, index, stack = self._seen.find_mixer(site)
        return explain(mixer, index, row, column, [token.text for token in self.side(stack.keys).tokens])

    @torch.no_grad()
    def lens(self, position: int, top: int = 5) -> list[LayerPrediction]:
        """What each layer would predict, if it were the last: the model's own head on the states after it.

        The final norm is fresh at each layer (the logit lens, nostalgebraist 2020).
        """
        seen, question = self._seen, self._seen.find_question(position)
        found = []
        for number, (site, states) in enumerate(seen.passed.layers[seen.open.readouts[question.direction].name]):
            p = seen.make_pass()
            p.context = seen.passed.context
            read = seen.open.read(p, states, question.direction)[question.row]
            logits = seen.open.score(p, read[None])[0]
            found.append(LayerPrediction(number, site, choose(logits, self._reading, top)))
        return found

    def contributions(
        self, position: int, token: int | str | None = None, against: int | str | None = None
    ) -> Contributions:
        """A logit as a sum over heads, feed-forward networks and so on, or how much larger it is than another's."""
        return contribute(self._subject(position, token, against))

    def attribute(
        self,
        position: int,
        token: int | str | None = None,
        method: Method = "conserved",
        against: int | str | None = None,
    ) -> Attribution:
        """The same as a sum over the tokens that were read."""
        if method not in get_args(Method):
            raise ConfigError(f"method: {method!r} is not known; choose {', '.join(get_args(Method))}")
        return attribute(self._subject(position, token, against), method)

    def _subject(self, position: int, token: int | str | None, against: int | str | None) -> Subject:
        seen, question = self._seen, self._seen.find_question(position)
        chosen = self.predictions[position].id if token is None else self._resolve(token)
        other = None if against is None else self._resolve(against)
        return Subject(seen.open, self._reading.ids, seen.edits, question, chosen, other)

    def _resolve(self, token: int | str) -> int:
        return self._reading.find(token) if isinstance(token, str) else int(token)

    def roles(self, stack: str | None = None) -> Roles:
        """What each head, memory or kernel does on this text, of one stack or of all."""
        return Roles(tuple(describe_roles(self._seen, self.stacks if stack is None else [self.find_stack(stack)])))

    def alignment(self) -> HeadAlignments:
        """Which head attends to the source tokens that matter most to the predictions."""
        return align(self._seen)

    def ablate(self, site: str, by: By = "zero") -> "Trace":
        """The trace in which a site gives 0 or, by "mean", its mean over the positions of the unchanged trace."""
        return self.change(Change.from_json({"kind": "ablate", "site": site, "by": by}))

    def scale(self, site: str, factor: float) -> "Trace":
        """The trace in which what a site gives is multiplied by a factor."""
        return self.change(Change.from_json({"kind": "scale", "site": site, "factor": factor}))

    def mask(self, side: str, index: int) -> "Trace":
        """The trace in which the embeddings of a word are 0; its positions stay."""
        return self.change(Change.from_json({"kind": "mask", "side": side, "index": index}))

    def swap(self, side: str, index: int, text: str) -> "Trace":
        """The trace of the text with another word in place of one; with no text, the word is left out."""
        return self.change(Change.from_json({"kind": "swap", "side": side, "index": index, "text": text}))

    def patch(self, site: str, other: "Trace", positions: Sequence[int] | None = None) -> "Trace":
        """The trace in which a site gives what it gave in another trace, at all positions or at some."""
        chosen = None if positions is None else tuple(positions)
        return self.change(Change("patch", site, origin=other.id, positions=chosen, value=other.value(site)))

    def change(self, change: Change | Mapping[str, Any], others: "Mapping[str, Trace] | None" = None) -> "Trace":
        """The trace under one more change, also as JSON; `others` are traces that a patch may come from, by id."""
        change = change if isinstance(change, Change) else Change.from_json(change)
        if change.kind == "patch" and change.value is None:
            origin = (others or {}).get(change.origin)
            if origin is None:
                raise ConfigError(f"from: there is no trace {change.origin!r} to take a value from")
            change = replace(change, value=origin.value(change.site))
        again = self._reading.again
        assert again is not None
        made: Trace = again(self, change)
        return made

    def compare(self, other: "Trace", top: int = 20) -> Comparison:
        """What is different from another trace of the same text: answers, probabilities, and where values moved."""
        swapped = {change.side for change in (*self.changes, *other.changes) if change.kind == "swap"}
        return compare(self._seen, other._seen, swapped, top)

    @property
    def search(self) -> SearchRecord:
        """How the answer was found: what the search kept and dropped, and why."""
        if self._search is None:
            raise RunError("no answer was searched for this text, so there is nothing to tell")
        return self._search

    @property
    def nbytes(self) -> int:
        """The memory that the trace holds, besides the network."""
        return self._seen.nbytes

    @cached_property
    def id(self) -> str:
        """A name made from the weights and the request: the same request has the same one."""
        network = self._seen.open.network
        weights = checksum([*network.parameters(), *network.buffers()])
        asked = json.dumps(self._reading.request, sort_keys=True, ensure_ascii=False)
        return hashlib.sha256(f"{weights} {asked}".encode()).hexdigest()[:16]

    def to_json(self) -> dict[str, Any]:
        """What the trace is about, as JSON can express it; maps and vectors are asked for one by one."""
        return {
            "id": self.id,
            "request": dict(self._reading.request),
            "task": self.task,
            "sides": [side.to_json() for side in self.sides],
            "answer": self._reading.said,
            "predictions": [prediction.to_json() for prediction in self.predictions],
            "stacks": [asdict(stack) for stack in self.stacks],
            "changes": [change.to_json() for change in self.changes],
            "notes": list(self.notes),
            "views": self.views,
        }

    @property
    def views(self) -> dict[str, bool | str]:
        """What can be seen: true, or a sentence that says why not."""
        predicts: bool | str = True if self._reading.questions else "Nothing is predicted in this text."
        searched = True if self._search is not None else "No answer was searched for this text."
        aligned = any(stack.name == "cross" for stack in self.stacks) or "The model has no attention to a source."
        why = {"lens": predicts, "contributions": predicts, "attribution": predicts}
        return {"mixing": True, **why, "search": searched, "alignment": aligned}

    def save(self, file: str | Path) -> Path:
        """Write what can be seen of the trace into one HTML file, which any browser opens without the model."""
        return save_page(self, Path(file))

    def show(self) -> Path:
        """Open the trace in the browser; returns the temporary file that it is in. A notebook shows it by itself."""
        return show_page(self)

    def _repr_html_(self) -> str:
        return framed_page(record(self))
