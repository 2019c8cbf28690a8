"""Groups of lines that are computed together, one step at a time: lines of one model with the same options.

The lines in work are a batch that changes between steps (a search of ours), or one that is computed as a whole (other
engines, and verbs that do not search). A group knows lines by number; whose they are, and which come next, is not its
business (`lanes.py`), so that it can be in another process (`workers.py`).
"""

from abc import ABC, abstractmethod
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from seqloom.decode.continuous import start_search
from seqloom.decode.greedy import Token
from seqloom.models.language_models import LanguageModel
from seqloom.models.seq2seq import Seq2Seq
from seqloom.predict.plan import PlannedLine
from seqloom.predict.predictor import Predictor
from seqloom.serve.work import Kind, SearchKind, VerbKind

BATCH_TOKENS = 4096
"""Tokens of a batch, counted once for each hypothesis: as many as the command line takes."""
RUNNING_TOKENS, RUNNING_ROWS = 16_384, 256
"""The same for a search that lines join and leave, which are seldom all at their longest; and its rows at most."""
BATCH_CHARACTERS = 16_384
"""Characters of a batch of a verb that does not search."""


class Given(NamedTuple):
    """A line that comes into a group."""

    number: int
    item: Any
    is_heard: bool
    """Whether somebody listens to its tokens."""


@dataclass
class Found:
    """What steps of a group found."""

    steps: int = 1
    tokens: list[Token] = field(default_factory=list)
    """The new tokens of lines that somebody listens to; `line` is the number of a line."""
    lines: dict[int, Any] = field(default_factory=dict)
    """What was found for the lines that are done, by their numbers."""

    def add(self, other: "Found") -> None:
        """Add what later steps found."""
        self.steps += other.steps
        self.tokens += other.tokens
        self.lines |= other.lines


class Room(NamedTuple):
    """How much a group takes at once."""

    size: int
    """The tokens or characters of all its lines, if all were as long as the longest."""
    lines: int | None = None


def find_room(kind: Kind) -> Room:
    """The room of a group for lines of this kind."""
    match kind:
        case VerbKind():
            return Room(BATCH_CHARACTERS)
        case SearchKind(is_continuous=True):
            return Room(RUNNING_TOKENS, max(1, RUNNING_ROWS // kind.options.width))
        case SearchKind():
            return Room(BATCH_TOKENS)


class Group(ABC):
    """Lines that are computed together."""

    @abstractmethod
    def add(self, lines: Sequence[Given]) -> None:
        """Let lines come in."""

    @abstractmethod
    def remove(self, numbers: Collection[int]) -> None:
        """Let lines leave that nobody waits for."""

    @abstractmethod
    def step(self) -> Found:
        """One step."""


class BatchGroup(Group):
    """A batch that is computed as a whole: lines come in between batches."""

    def __init__(self, predictor: Predictor, kind: Kind) -> None:
        self._predictor, self._kind = predictor, kind
        self._items: dict[int, Any] = {}

    def add(self, lines: Sequence[Given]) -> None:
        """Let lines come into the next batch."""
        self._items |= {line.number: line.item for line in lines}

    def remove(self, numbers: Collection[int]) -> None:
        """Let lines leave that nobody waits for."""
        self._items = {number: item for number, item in self._items.items() if number not in numbers}

    def step(self) -> Found:
        """Compute the batch."""
        items, self._items = self._items, {}
        found = self._compute([*items.values()]) if items else ()
        return Found(lines=dict(zip(items, found, strict=True)))

    def _compute(self, items: list[Any]) -> Sequence[Any]:
        match self._kind:
            case VerbKind(verb):
                return verb(self._predictor, items)
            case SearchKind(options, ends, never):  # CTranslate2, or options that need the whole batch
                sources = None if items[0].source is None else [one.source or () for one in items]
                requests = [one.request for one in items]
                return self._predictor.engine.search(sources, requests, options, ends=ends, never=never)


class ContinuousGroup(Group):
    """A search of ours, which lines join and leave between steps.

    To join is to copy the state of all lines, so new lines wait until they are an eighth as many as those in work, or
    for a few steps.
    """

    _PATIENCE = 4

    def __init__(self, predictor: Predictor, kind: SearchKind) -> None:
        self._predictor = predictor
        network = predictor.compile()
        assert isinstance(network, LanguageModel | Seq2Seq)
        self._network = network
        self._search = start_search(network.step, kind.options, ends=kind.ends, never=kind.never)
        self._lines: set[int] = set()
        self._heard: set[int] = set()
        self._new: list[Given] = []
        self._since = 0  # steps for which the first new line has waited

    def add(self, lines: Sequence[Given]) -> None:
        """Let lines come in, at this step or one of the next."""
        self._new += lines

    def remove(self, numbers: Collection[int]) -> None:
        """Let lines leave that nobody waits for."""
        if left := self._lines & {*numbers}:
            self._search.remove(left)
            self._lines -= left
        self._heard -= {*numbers}
        self._new = [line for line in self._new if line.number not in numbers]

    def step(self) -> Found:
        """One token of every line."""
        self._since += 1
        if self._new and (len(self._new) * 8 >= len(self._lines) or self._since > self._PATIENCE):
            self._join()
        progress = self._search.advance()
        found = {number: answers for number, answers in progress.found.items() if number in self._lines}
        tokens = [token for token in progress.tokens if token.line in self._heard]
        self._lines -= found.keys()
        self._heard -= found.keys()
        return Found(tokens=tokens, lines=found)

    def _join(self) -> None:
        new, self._new, self._since = self._new, [], 0
        planned: list[PlannedLine] = [line.item for line in new]
        requests, numbers = [one.request for one in planned], [line.number for line in new]
        self._lines |= {*numbers}
        self._heard |= {line.number for line in new if line.is_heard}
        capacity = max(1, *(request.max_length for request in requests))
        if isinstance(self._network, Seq2Seq):
            memory = self._network.encode(self._predictor.pad([one.source or () for one in planned]))
            state = self._network.start(memory, capacity)
        else:
            state = self._network.start(len(new), capacity)
        self._search.add(numbers, requests, state)


def make_group(predictor: Predictor, kind: Kind) -> Group:
    """The group for lines of this kind."""
    if isinstance(kind, SearchKind) and kind.is_continuous:
        return ContinuousGroup(predictor, kind)
    return BatchGroup(predictor, kind)
