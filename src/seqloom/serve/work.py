"""What a request asks of the batcher: lines, each of which can be computed beside those of other requests."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, fields
from typing import Any

from seqloom.decode.continuous import serves
from seqloom.decode.greedy import Token
from seqloom.decode.options import SearchOptions, Tokens
from seqloom.predict.plan import Plan, PlannedLine
from seqloom.predict.predictor import Predictor
from seqloom.predict.results import Result
from seqloom.predict.search import NetworkEngine
from seqloom.types import Hypothesis

Verb = Callable[[Predictor, list[Any]], Sequence[Result]]
"""A function of a module, with its options bound, so that it can be sent to another process."""
_CLASS = 128
"""Lines of up to 128 tokens are searched together, longer ones with those of up to 512, and so on by fours."""


@dataclass(frozen=True)
class SearchKind:
    """Lines that are searched for with these options."""

    options: SearchOptions
    ends: Tokens
    never: Tokens
    is_continuous: bool
    """Whether lines can join and leave between steps: in our own search, with the options that it names."""


@dataclass(frozen=True)
class VerbKind:
    """Items that a verb takes in one call."""

    verb: Verb


Kind = SearchKind | VerbKind
"""How lines are computed. It can be sent to another process, and so can what it computes from, and what it finds."""


class Work(ABC):
    """The work of one request."""

    def __init__(self, predictor: Predictor) -> None:
        self.predictor = predictor

    @property
    @abstractmethod
    def sizes(self) -> list[int]:
        """How many tokens, or characters, each line counts for in a batch."""

    @abstractmethod
    def find_key(self, index: int) -> Hashable:
        """Lines with equal keys can be computed together."""

    @abstractmethod
    def get_kind(self, index: int) -> Kind:
        """What the lines with the key of this one have in common."""

    @abstractmethod
    def get_item(self, index: int) -> Any:
        """What a line is computed from."""

    @abstractmethod
    def finish(self, found: list[Any]) -> list[Result]:
        """The results of the request from what was found for its lines."""


class SearchWork(Work):
    """Lines that an engine searches for."""

    def __init__(self, predictor: Predictor, plan: Plan[Any]) -> None:
        super().__init__(predictor)
        self.plan = plan

    @property
    def sizes(self) -> list[int]:
        """The tokens of each line, once for each hypothesis that is followed."""
        return [line.size * line.options.width for line in self.plan.lines]

    @property
    def lines(self) -> Sequence[PlannedLine]:
        """The lines of the plan."""
        return self.plan.lines

    def find_key(self, index: int) -> Hashable:
        """The same model, options and class of lengths."""
        line = self.plan.lines[index]
        options = tuple(getattr(line.options, field.name) for field in fields(SearchOptions))
        return ("search", id(self.predictor), options, self.plan.ends, self.plan.never, find_class(line))

    def get_kind(self, index: int) -> SearchKind:
        """Its options; those of each text alone, such as its seed, are in its request."""
        options = self.plan.lines[index].options
        common = SearchOptions(**{field.name: getattr(options, field.name) for field in fields(SearchOptions)})
        own = type(self.predictor.engine) is NetworkEngine
        return SearchKind(common, self.plan.ends, self.plan.never, own and serves(options))

    def get_item(self, index: int) -> PlannedLine:
        """The line of the plan."""
        return self.plan.lines[index]

    def finish(self, found: list[list[Hypothesis]]) -> list[Result]:
        """The results of the plan."""
        return self.plan.finish(found)


def find_class(line: PlannedLine) -> int:
    """The number of a line's class of lengths."""
    longest, number = max(line.request.max_length, 2 * len(line.source or ())), 0
    while longest > _CLASS * 4**number:
        number += 1
    return number


class VerbWork(Work):
    """Items that a verb takes in one call: texts, pairs of texts, or lists of words."""

    def __init__(
        self,
        predictor: Predictor,
        key: Hashable,
        items: Sequence[Any],
        verb: Verb,
    ) -> None:
        """`key` names the verb and its options."""
        super().__init__(predictor)
        self.items, self.verb, self.key = items, verb, key

    @property
    def sizes(self) -> list[int]:
        """The characters of each item, or its ids."""
        return [len(item) if isinstance(item, str) else sum(map(_measure, item)) for item in self.items]

    def find_key(self, index: int) -> Hashable:
        """The same model, verb and options."""
        return ("verb", id(self.predictor), self.key)

    def get_kind(self, index: int) -> VerbKind:
        """The verb with its options."""
        return VerbKind(self.verb)

    def get_item(self, index: int) -> Any:
        """The item."""
        return self.items[index]

    def finish(self, found: list[Result]) -> list[Result]:
        """Each item has its result."""
        return found


def _measure(part: Any) -> int:
    return len(part) if isinstance(part, str) else 1


@dataclass(eq=False)
class Job:
    """A request that the batcher works on."""

    number: int
    client: str
    work: Work
    loop: asyncio.AbstractEventLoop
    done: asyncio.Future[list[Result]]
    hear: Callable[[Token], None] | None = None
    """Is told of each new token, on the loop."""
    found: list[Any] = ()  # type: ignore[assignment]
    left: int = 0
    cancelled: bool = False

    def tell(self, token: Token) -> None:
        """Say that a token was found."""
        if self.hear is not None and not self.cancelled:
            self.loop.call_soon_threadsafe(self.hear, token)

    def succeed(self, results: list[Result]) -> None:
        """Give the results to the one who waits."""
        self.loop.call_soon_threadsafe(self._set, results, None)

    def fail(self, error: BaseException) -> None:
        """Tell the one who waits what went wrong."""
        self.cancelled = True
        self.loop.call_soon_threadsafe(self._set, None, error)

    def _set(self, results: list[Result] | None, error: BaseException | None) -> None:
        if self.done.done():
            return
        if error is not None:
            self.done.set_exception(error)
        else:
            self.done.set_result(results or [])


@dataclass(eq=False, slots=True)
class Line:
    """One line of a job."""

    job: Job
    index: int
    size: int
    told: int = 0
    """How many of its tokens were told of."""
    again: int = 0
    """How many tokens are not told again, because the line was begun anew."""
    lost: int = 0
    """How many workers ended while they computed it."""

    def tell(self, token: Token) -> None:
        """Say a token once, also if the line was begun again."""
        if self.again:
            self.again -= 1
            return
        self.told += 1
        self.job.tell(token._replace(line=self.index))
