"""Groups of lines that are computed together, one step at a time.

A group has the lines of one model with the same options. Those that wait are taken in turn from all clients; those that
are in work are a batch that changes between steps (a search of ours), or one that is computed as a whole (other
engines, and verbs that do not search).
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from itertools import count
from typing import Any

from seqloom.decode.continuous import ContinuousSearch, start_search
from seqloom.decode.greedy import Token
from seqloom.models.language_models import LanguageModel
from seqloom.models.seq2seq import Seq2Seq
from seqloom.predict.plan import PlannedLine
from seqloom.predict.predictor import Predictor
from seqloom.serve.fairness import FairQueue
from seqloom.serve.work import Line, SearchWork, VerbWork

BATCH_TOKENS = 4096
"""Tokens of a batch, counted once for each hypothesis: as many as the command line takes."""
RUNNING_TOKENS, RUNNING_ROWS = 16_384, 256
"""The same for a search that lines join and leave, which are seldom all at their longest; and its rows at most."""
BATCH_CHARACTERS = 16_384
"""Characters of a batch of a verb that does not search."""
TURN = 64
"""Steps for which a group takes new lines while others wait for their turn."""

Finish = Callable[[Line, Any], None]


class Group(ABC):
    """Lines with the same key."""

    def __init__(self, room: int) -> None:
        self.waiting: FairQueue[Line] = FairQueue()
        self.steps = 0
        """How many steps it has taken since its turn began."""
        self._room = room

    @property
    @abstractmethod
    def working(self) -> list[Line]:
        """The lines in work."""

    @abstractmethod
    def admit(self, line: Line) -> bool:
        """Take a line into work; False if there is no room now."""

    @abstractmethod
    def step(self, finish: Finish) -> None:
        """One step; `finish` is told of each line that is done, with what was found."""

    def _fits(self, line: Line) -> bool:
        """Whether there is room for one more line, if all were as long as the longest."""
        sizes = [one.size for one in self.working]
        return not sizes or (len(sizes) + 1) * max(*sizes, line.size) <= self._room


class BatchGroup(Group):
    """A batch that is computed as a whole: lines come in between batches."""

    def __init__(self, room: int) -> None:
        super().__init__(room)
        self._lines: list[Line] = []

    @property
    def working(self) -> list[Line]:
        """The lines in work."""
        return self._lines

    def admit(self, line: Line) -> bool:
        """Take a line into the next batch."""
        if not self._fits(line):
            return False
        self._lines.append(line)
        return True

    def step(self, finish: Finish) -> None:
        """Compute the batch."""
        lines = [line for line in self._lines if not line.job.cancelled]
        found = self._compute(lines) if lines else []
        self._lines = []
        for line, one in zip(lines, found, strict=True):
            finish(line, one)

    @abstractmethod
    def _compute(self, lines: Sequence[Line]) -> Sequence[Any]:
        """What is found for each line."""


class VerbGroup(BatchGroup):
    """Items of a verb that does not search."""

    def __init__(self) -> None:
        super().__init__(BATCH_CHARACTERS)

    def _compute(self, lines: Sequence[Line]) -> Sequence[Any]:
        works = [line.job.work for line in lines]
        assert isinstance(works[0], VerbWork)
        return works[0].apply([work.items[line.index] for work, line in zip(works, lines, strict=True)])  # type: ignore[attr-defined]


def _get_planned(line: Line) -> PlannedLine:
    assert isinstance(line.job.work, SearchWork)
    return line.job.work.lines[line.index]


class EngineGroup(BatchGroup):
    """Lines that an engine searches for as a batch: CTranslate2, or options that need the whole batch."""

    def __init__(self) -> None:
        super().__init__(BATCH_TOKENS)

    def _compute(self, lines: Sequence[Line]) -> Sequence[Any]:
        work, planned = lines[0].job.work, [_get_planned(line) for line in lines]
        assert isinstance(work, SearchWork)
        sources = None if planned[0].source is None else [one.source or () for one in planned]
        requests, plan = [one.request for one in planned], work.plan
        return work.predictor.engine.search(sources, requests, planned[0].options, ends=plan.ends, never=plan.never)


class ContinuousGroup(Group):
    """A search of ours, which lines join and leave between steps.

    To join is to copy the state of all lines, so new lines wait until they are an eighth as many as those in work, or
    for a few steps.
    """

    _PATIENCE = 4

    def __init__(self, work: SearchWork, options: Any) -> None:
        super().__init__(RUNNING_TOKENS)
        self._most = max(1, RUNNING_ROWS // options.width)
        self._predictor: Predictor = work.predictor
        network = work.predictor.compile()
        assert isinstance(network, LanguageModel | Seq2Seq)
        self._network = network
        self._search: ContinuousSearch = start_search(network.step, options, ends=work.plan.ends, never=work.plan.never)
        self._lines: dict[int, Line] = {}
        self._new: list[Line] = []
        self._since = 0  # steps for which the first new line has waited
        self._numbers = count()

    @property
    def working(self) -> list[Line]:
        """The lines in work."""
        return [*self._lines.values(), *self._new]

    def admit(self, line: Line) -> bool:
        """Take a line into the search, at this step or one of the next."""
        if len(self._lines) + len(self._new) >= self._most or not self._fits(line):
            return False
        self._new.append(line)
        return True

    def step(self, finish: Finish) -> None:
        """One token of every line."""
        left = {number for number, line in self._lines.items() if line.job.cancelled}
        if left:
            self._search.remove(left)
            self._lines = {number: line for number, line in self._lines.items() if number not in left}
        self._new = [line for line in self._new if not line.job.cancelled]
        self._since += 1
        if self._new and (len(self._new) * 8 >= len(self._lines) or self._since > self._PATIENCE):
            self._join()
        progress = self._search.advance()
        for token in progress.tokens:
            if (line := self._lines.get(token.line)) is not None:
                _tell(line, token)
        for number, hypotheses in progress.found.items():
            if (line := self._lines.pop(number, None)) is not None:
                finish(line, hypotheses)

    def _join(self) -> None:
        new, self._new, self._since = self._new, [], 0
        planned = [_get_planned(line) for line in new]
        requests, numbers = [one.request for one in planned], [next(self._numbers) for _ in new]
        self._lines |= zip(numbers, new, strict=True)
        capacity = max(1, *(request.max_length for request in requests))
        if isinstance(self._network, Seq2Seq):
            memory = self._network.encode(self._predictor.pad([one.source or () for one in planned]))
            state = self._network.start(memory, capacity)
        else:
            state = self._network.start(len(new), capacity)
        self._search.add(numbers, requests, state)


def _tell(line: Line, token: Token) -> None:
    """Say a token once, also if its line was begun again."""
    if line.job.hear is None:
        return
    if line.again:
        line.again -= 1
        return
    line.told += 1
    line.job.tell(token._replace(line=line.index))


def make_group(line: Line) -> Group:
    """The group for a line and those with its key."""
    work = line.job.work
    if isinstance(work, VerbWork):
        return VerbGroup()
    assert isinstance(work, SearchWork)
    return ContinuousGroup(work, work.lines[line.index].options) if work.is_continuous else EngineGroup()
