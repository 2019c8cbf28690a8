"""Continuations as completion clients want them: token by token, several for a prompt, cut at a stop text."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import Literal

from seqloom.decode.greedy import Token
from seqloom.predict.generate import GrowingText
from seqloom.predict.results import Result
from seqloom.serve.models import Served
from seqloom.serve.service import Ask, Service
from seqloom.serve.work import SearchWork

Reason = Literal["stop", "length"]


@dataclass
class Choice:
    """One continuation of a prompt."""

    line: int
    sample: int
    growing: GrowingText
    stops: Sequence[str] = ()
    text: str = ""
    """What was given out so far."""
    ids: list[int] = field(default_factory=list)
    scores: list[float] = field(default_factory=list)
    pieces: list[str] = field(default_factory=list)
    """The text that each token adds."""
    reason: Reason | None = None
    _held: str = ""

    def add(self, token: Token, *, ends: bool) -> str:
        """The part that is certain with one more token: never the beginning of a stop text."""
        if ends:
            self.reason = "stop"
            return self.end()
        part = self.growing.add(token.id)
        self.ids.append(token.id)
        self.scores.append(token.score)
        self.pieces.append(part)
        return self._give(part)

    def end(self) -> str:
        """What is left at the end."""
        given = self._give(self.growing.end())
        rest, self._held = self._held, ""
        self.text += rest
        self.reason = self.reason or "length"
        return given + rest

    def _give(self, part: str) -> str:
        self._held += part
        places = [place for stop in self.stops if (place := self._held.find(stop)) >= 0]
        if places:
            given, self._held, self.reason = self._held[: min(places)], "", "stop"
        else:
            kept = max((_overlap(self._held, stop) for stop in self.stops), default=0)
            cut = len(self._held) - kept
            given, self._held = self._held[:cut], self._held[cut:]
        self.text += given
        return given


def _overlap(text: str, stop: str) -> int:
    """How many characters at the end of a text may be the beginning of a stop text."""
    return next((size for size in range(min(len(text), len(stop) - 1), 0, -1) if text.endswith(stop[:size])), 0)


@dataclass(frozen=True)
class Part:
    """What a step added to a choice; the last part of each has its reason."""

    choice: Choice
    text: str
    done: bool = False


class Continuation:
    """All choices of a request: `nbest` samples of each text, in the order in which they are drawn."""

    def __init__(self, service: Service, model: Served, work: SearchWork, stops: Sequence[str]) -> None:
        self.name, self.predictor, self.work = model.name, model.predictor, work
        self._service = service
        self._samples = work.lines[0].options.nbest if work.lines else 0
        self.choices = [
            Choice(number, sample, GrowingText(model.predictor, line.request), stops)
            for number, line in enumerate(work.lines)
            for sample in range(self._samples)
        ]

    def count_prompt(self) -> int:
        """The tokens of all prompts."""
        return sum(1 + len(line.request.prefix) for line in self.work.lines)

    def count_found(self) -> int:
        """The tokens of all choices."""
        return sum(len(choice.ids) for choice in self.choices)

    def begin(self) -> AsyncIterator[Part]:
        """Begin to search; the parts of all choices as they are found."""
        return self._read(self._service.stream(self.work))

    async def _read(self, found: AsyncGenerator[Token | list[Result]]) -> AsyncIterator[Part]:
        ends = self.work.plan.ends
        async with aclosing(found):
            async for one in found:
                if not isinstance(one, Token):
                    break
                await asyncio.sleep(0)  # many tokens may be there already, and other requests want the loop as well
                choice = self.choices[one.line * self._samples + one.sample]
                if choice.reason is not None:
                    continue
                text = choice.add(one, ends=one.id in ends)
                if text or choice.reason is not None:
                    yield Part(choice, text, done=choice.reason is not None)
                if all(choice.reason for choice in self.choices):
                    return
            for choice in self.choices:
                if choice.reason is None:
                    yield Part(choice, choice.end(), done=True)


async def continue_texts(service: Service, ask: Ask, stops: Sequence[str] = ()) -> Continuation:
    """Prepare to continue texts."""
    service.limits.check_texts(stops)
    model, work = await service.prepare_search(ask)
    return Continuation(service, model, work, stops)
