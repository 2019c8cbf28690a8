"""The trace of one text: what the network computed on the way to its answer, and what would have been otherwise.

A trace keeps the states after each layer and the input of each sublayer that mixes positions. Everything else is
computed when it is asked for, from the network as it was when the trace was made: do not change it in between.
"""

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from typing import Any, get_args

import torch
from jaxtyping import Float, UInt8
from torch import Tensor

from seqloom.config.faults import suggest
from seqloom.errors import ConfigError
from seqloom.lens.arithmetic import Arithmetic, explain
from seqloom.lens.attribution import Attribution, Contributions, Method, Subject, attribute, contribute
from seqloom.lens.changes import By, Change
from seqloom.lens.comparison import Comparison, compare
from seqloom.lens.known import check_rounding
from seqloom.lens.mixing import AttentionMixer, Mixer, Terms
from seqloom.lens.networks import OpenNetwork
from seqloom.lens.passes import Edit, Pass
from seqloom.lens.stacks import Stack
from seqloom.lens.texts import Choice, Prediction, Question, Reading, Side, Word, choose
from seqloom.native.library import checksum

_LOGITS = 1 << 23  # computed at a time


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
        open: OpenNetwork,
        reading: Reading,
        edits: Sequence[Edit] = (),
        changes: Sequence[Change] = (),
        base: "Trace | None" = None,
    ) -> None:
        """`edits` are what `changes` do inside the network; `base` is the trace of the same text without them."""
        self._open, self._reading, self._edits = open, reading, tuple(edits)
        self.changes = tuple(changes)
        """What was changed, one after the other."""
        self._base = base or self
        with torch.no_grad():
            self._pass = self._run(Pass(open.like, edits, watch=True))
            if not edits:
                self._check()

    def _run(self, p: Pass) -> Pass:
        """Run a pass over the text; its final states are in `p.finals`, by direction."""
        last = self._open.run(p, self._reading.ids)
        p.finals = {direction: self._open.read(p, states, direction) for direction, states in last.items()}
        return p

    def _check(self) -> None:
        expected = self._open.answer(self._reading.ids)
        for direction, states in self._pass.finals.items():
            found = self._open.compare(Pass(self._open.like), states)
            check_rounding(found, expected[direction], f"the {direction} states".replace("  ", " "))

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

    @cached_property
    def stacks(self) -> tuple[Stack, ...]:
        """The groups of maps."""
        return tuple(self._open.describe())

    @cached_property
    def sites(self) -> tuple[str, ...]:
        """Every site with a map."""
        return tuple(site for stack in self.stacks for layer in stack.layers for site in layer.sites)

    @cached_property
    def predictions(self) -> tuple[Prediction, ...]:
        """What the network predicts, place by place; `lens`, `contributions` and `attribute` count these from 0.

        A token of the text is predicted from what the network reads before it; what follows the last one is what the
        network finds most probable.
        """
        return tuple(self._predict())

    @torch.no_grad()
    def _predict(self) -> Iterator[Prediction]:
        reading = self._reading
        for question, logits in self._score(reading.questions):
            top = choose(logits, reading, 5)
            id = top[0].id if question.id is None else question.id
            if reading.quantity:
                yield Prediction(question.at, question.of, 0, top[0].text, None, top, question.direction)
                continue
            probability = float(logits.float().log_softmax(-1)[id].exp())
            label, place = reading.name(id), (question.at, question.of)
            yield Prediction(*place, id, label, probability, top, question.direction)

    def _score(self, questions: Sequence[Question]) -> Iterator[tuple[Question, Float[Tensor, "V"]]]:
        """The logits of each question, a few at a time."""
        p, count = Pass(self._open.like, self._edits), 1
        while questions:
            states = torch.stack([self._pass.finals[one.direction][one.row] for one in questions[:count]])
            logits = self._open.score(p, states)
            yield from zip(questions[:count], logits, strict=True)
            questions, count = questions[count:], max(1, _LOGITS // logits.shape[1])

    @torch.no_grad()
    def mixing(self, site: str, head: int | None = None, *, norm: bool = False) -> Float[Tensor, "T S"]:
        """How much of each position enters each other: the raw number or, with `norm`, the length of what it adds.

        `t.mixing("encoder.2", head=5)` is `t.mixing("encoder.2.head.5")`.
        """
        mixer, index = self._find(site if head is None else f"{site}.head.{head}")
        return (mixer.norms() if norm else mixer.weights())[index]

    @torch.no_grad()
    def terms(self, site: str, rows: Sequence[int]) -> Terms:
        """The vectors that each position adds at some rows, and what depends on no position: their sum is the output.

        Of a head, that is its part of the sublayer's output; `encoder.2.attention` and `decoder.0.cross` are the
        whole sublayers.
        """
        for mixer in self._pass.mixers.values():
            group = mixer.sites[0].rpartition(".")[0]
            if isinstance(mixer, AttentionMixer) and site in (group, f"{group.removesuffix('.head')}.attention"):
                return mixer.sum_terms(rows)
        found, index = self._find(site)
        return found.terms(index, rows)

    @torch.no_grad()
    def grid(self, stack: str, size: int = 96) -> UInt8[Tensor, "M t s"]:
        """Thumbnails of all maps of a stack, in the order of its sites: round(255·√w), the maximum of each cell."""
        found = self.find_stack(stack)
        mixers = [self._pass.mixers[site] for layer in found.layers for site in layer.sites if self._begins(site)]
        return torch.cat([mixer.grid(size) for mixer in mixers])

    def _begins(self, site: str) -> bool:
        return site in self._pass.mixers

    def find_stack(self, name: str) -> Stack:
        """A stack by its name."""
        for stack in self.stacks:
            if stack.name == name:
                return stack
        raise ConfigError(f"there is no stack {name!r}; there are {', '.join(stack.name for stack in self.stacks)}")

    def _find(self, site: str) -> tuple[Mixer, int]:
        for mixer in self._pass.mixers.values():
            if site in mixer.sites:
                return mixer, mixer.sites.index(site)
        under = [known for known in self.sites if known.startswith(f"{site}.")]
        if len(under) == 1:
            return self._find(under[0])
        some = under or self.sites
        more = ", …" if len(some) > 8 else ""
        raise ConfigError(f"{site!r} has no map of its own; those that have: {', '.join(some[:8])}{more}")

    @torch.no_grad()
    def arithmetic(self, site: str, row: int, column: int) -> Arithmetic:
        """How one number of a map comes about, step by step, with the model's own numbers."""
        mixer, index = self._find(site)
        stack = next(stack for stack in self.stacks for layer in stack.layers if mixer.sites[index] in layer.sites)
        return explain(mixer, index, row, column, [token.text for token in self.side(stack.keys).tokens])

    @torch.no_grad()
    def lens(self, position: int, top: int = 5) -> list[LayerPrediction]:
        """What each layer would predict, if it were the last: the model's own head on the states after it.

        The final norm is fresh at each layer (the logit lens, nostalgebraist 2020).
        """
        question = self._question(position)
        found = []
        for number, (site, states) in enumerate(self._pass.layers[self._open.readouts[question.direction].name]):
            p = Pass(self._open.like, self._edits)
            p.context = self._pass.context
            read = self._open.read(p, states, question.direction)[question.row]
            logits = self._open.score(p, read[None])[0]
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

    def side(self, name: str) -> Side:
        """A side by its name."""
        for side in self.sides:
            if side.name == name:
                return side
        raise ConfigError(f"there is no side {name!r}; there is {' and '.join(side.name for side in self.sides)}")

    def _question(self, position: int) -> Question:
        questions = self._reading.questions
        if not questions:
            raise ConfigError("nothing is predicted in this text, so there is nothing to explain")
        if not -len(questions) <= position < len(questions):
            raise ConfigError(f"position: there are {len(questions)} predictions, so there is no {position}")
        return questions[position]

    def _subject(self, position: int, token: int | str | None, against: int | str | None) -> Subject:
        question = self._question(position)
        chosen = self.predictions[position].id if token is None else self._resolve(token)
        other = None if against is None else self._resolve(against)
        return Subject(self._open, self._reading.ids, self._edits, question, chosen, other)

    def _resolve(self, token: int | str) -> int:
        return self._reading.find(token) if isinstance(token, str) else int(token)

    @torch.no_grad()
    def value(self, site: str) -> Float[Tensor, "T *D"]:
        """What a site gives at each position, after edits: a head's own output, a sublayer's, a layer's."""
        found: dict[str, Tensor] = {}
        self._check_site(site)

        def listen(name: str, value: Tensor) -> None:
            if name == site:
                found[site] = value

        self._run(Pass(self._open.like, self._edits, listen=listen))
        return found[site]

    def _check_site(self, site: str) -> None:
        if site not in self._pass.sites:
            raise ConfigError(f"{site!r} is not a site of this trace{suggest(site, self._pass.sites)}")

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

    def find_edits(self, change: Change) -> list[Edit]:
        """What a change does inside the network."""
        if change.kind == "mask":
            word = self.find_word(change.side, change.index)
            return [Edit(site, positions=word.tokens) for site in self._open.embeddings[change.side]]
        self._check_site(change.site)
        match change.kind:
            case "ablate":
                mean = self._base.value(change.site).mean(0) if change.by == "mean" else None
                return [Edit(change.site, constant=mean)]
            case "scale":
                return [Edit(change.site, factor=change.factor)]
            case _:
                assert change.value is not None
                own, value = self.value(change.site), change.value
                if change.positions is None and own.shape != value.shape:
                    raise ConfigError(
                        f"{change.site} has {len(own)} positions here and {len(value)} in the other trace; "
                        "say which positions to patch"
                    )
                return [Edit(change.site, constant=value, positions=change.positions)]

    def find_word(self, side: str, index: int) -> Word:
        """A word of a side."""
        words = self.side(side).words
        if not 0 <= index < len(words):
            raise ConfigError(f"index: the {side} has {len(words)} words, counted from 0, so there is no {index}")
        return words[index]

    def compare(self, other: "Trace", top: int = 20) -> Comparison:
        """What is different from another trace of the same text: answers, probabilities, and where values moved."""
        return compare(self, other, top)

    @cached_property
    def id(self) -> str:
        """A name made from the weights and the request: the same request has the same one."""
        network = self._open.network
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
        return {"mixing": True, "lens": predicts, "contributions": predicts, "attribution": predicts}
