"""A lane: one thread that computes groups, a step of each in turn, with lines of the piles that wait.

A long search does not hold up a short one. Between steps, lines that are done leave, those of clients who left are
dropped, and new ones come in, in turn from all clients (`fairness.py`). At most eight groups are in work in a lane; if
more wait, one that had its turn takes no new lines, ends, and waits again. Several lanes share the lines of a pile
evenly.

If a step fails, each of its lines is computed once more by itself, so that only the one at fault fails. If a worker
ends, what it had in work is computed by its successor: lines that it computed at that moment by themselves, since one
of them may be why. A line that was in work when two workers ended fails.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Hashable
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import count
from typing import TYPE_CHECKING

from seqloom.serve.computer import Computer, WorkerLostError
from seqloom.serve.faults import LostError
from seqloom.serve.groups import Given, find_room
from seqloom.serve.work import Line

if TYPE_CHECKING:
    from seqloom.serve.batcher import Batcher, Pile

ACTIVE = 8
"""Groups that are in work in a lane at the same time."""
TURN = 64
"""Steps for which a group takes new lines while others wait for their turn."""


@dataclass(eq=False)
class Batch:
    """The lines of a pile that a lane has in work, and the group that computes them."""

    pile: Pile
    group: int | None = None
    """Its number, once there is one."""
    lines: dict[int, Line] = field(default_factory=dict)
    new: list[Given] = field(default_factory=list)
    """Lines that the group does not know of yet."""
    steps: int = 0
    """How many steps it has taken since its turn began."""

    def fits(self, line: Line) -> bool:
        """Whether there is room for one more line, if all were as long as the longest."""
        size, most = find_room(self.pile.kind)
        if not self.lines:
            return True
        if most is not None and len(self.lines) >= most:
            return False
        longest = max(line.size, *(one.size for one in self.lines.values()))
        return (len(self.lines) + 1) * longest <= size


class Lane:
    """One thread of the batcher."""

    def __init__(self, batcher: Batcher, computer: Computer, lanes: int) -> None:
        self._batcher, self._computer, self._lanes = batcher, computer, lanes
        self._active: dict[Hashable, Batch] = {}
        self._numbers = count()

    def run(self) -> None:
        """Compute until the batcher ends."""
        batcher = self._batcher
        while True:
            with batcher.ready:
                while not self._active and not batcher.waiting and not batcher.ending:
                    batcher.ready.wait()
                if not self._active and not batcher.waiting:
                    return
                self._choose_active()
                turns = list(self._active.items())
            for key, batch in turns:
                if self._active.get(key) is batch:
                    self._take_turn(key, batch)

    def _choose_active(self) -> None:
        """Let groups come into work: first those whose next client has the fewest lines there."""
        if len(self._active) == ACTIVE:
            return
        lines = Counter(line.job.client for batch in self._active.values() for line in batch.lines.values())
        waiting = [(key, pile) for key, pile in self._batcher.piles.items() if pile.lines and key not in self._active]
        waiting.sort(key=lambda one: lines[one[1].lines.peek().job.client])
        for key, pile in waiting[: ACTIVE - len(self._active)]:
            self._active[key] = Batch(pile)

    def _take_turn(self, key: Hashable, batch: Batch) -> None:
        with self._batcher.ready:
            gone = self._drop(batch)
            others = len(self._active) == ACTIVE and any(
                pile.lines for other, pile in self._batcher.piles.items() if other not in self._active
            )
            if not (batch.steps >= TURN and others):
                self._admit(batch)
            working = [*batch.lines.values()]
        if working:
            started, steps = time.perf_counter(), 1
            try:
                steps = self._step(batch, gone)
            except WorkerLostError as error:
                self._lose(batch, error)
                return
            except Exception as error:
                self._divide(key, batch, error)
            seconds, size = time.perf_counter() - started, sum(line.size for line in working)
            self._batcher.observe(len(working), size, seconds, steps)
        with self._batcher.ready:
            if not batch.lines and self._active.get(key) is batch:
                self._end(key, batch)

    def _drop(self, batch: Batch) -> set[int]:
        """Drop the lines that nobody waits for; the numbers of those that the group knows of."""
        gone = {number for number, line in batch.lines.items() if line.job.cancelled}
        if gone:
            batch.lines = {number: line for number, line in batch.lines.items() if number not in gone}
            batch.new = [one for one in batch.new if one.number not in gone]
            batch.pile.working -= len(gone)
        return gone

    def _admit(self, batch: Batch) -> None:
        """Take lines into work while there is room, but no more than this lane's share."""
        pile = batch.pile
        while pile.lines:
            line = pile.lines.peek()
            if line.job.cancelled:
                pile.lines.take()
                continue
            share = -(-(pile.working + len(pile.lines)) // self._lanes)
            if len(batch.lines) >= share or not batch.fits(line):
                return
            pile.lines.take()
            pile.working += 1
            number = next(self._numbers)
            batch.lines[number] = line
            batch.new.append(Given(number, line.job.work.get_item(line.index), line.job.hear is not None))

    def _step(self, batch: Batch, gone: set[int]) -> int:
        """Take steps; how many these were."""
        if batch.group is None:
            batch.group = self._computer.open(batch.pile.predictor, batch.pile.kind)
        new, batch.new = batch.new, []
        found = self._computer.step(batch.group, new, gone)
        batch.steps += found.steps
        for token in found.tokens:
            if (line := batch.lines.get(token.line)) is not None:
                line.tell(token)
        for number, one in found.lines.items():
            if (line := batch.lines.pop(number, None)) is not None:
                with self._batcher.ready:
                    batch.pile.working -= 1
                self._batcher.finish(line, one)
        return found.steps

    def _end(self, key: Hashable, batch: Batch) -> None:
        """Put away a group without lines."""
        del self._active[key]
        if batch.group is not None:
            with suppress(WorkerLostError):  # which will be met again at once, and seen to
                self._computer.close(batch.group)
        self._batcher.put_away(key)

    def _divide(self, key: Hashable, batch: Batch, error: Exception) -> None:
        """Compute each line of a step that failed by itself; a line that was by itself has failed."""
        with self._batcher.ready:
            together, lines = len(batch.lines) > 1, self._take_back(batch)
            self._end(key, batch)
            if together:
                for line in lines:
                    self._batcher.put_alone(line)
                return
        for line in lines:
            self._batcher.fail(line.job, error)

    def _take_back(self, batch: Batch) -> list[Line]:
        """The lines of a batch, without those that nobody waits for, no longer in work."""
        lines = [line for line in batch.lines.values() if not line.job.cancelled]
        batch.pile.working -= len(batch.lines)
        batch.lines, batch.new = {}, []
        for line in lines:
            line.again = line.told
        return lines

    def _lose(self, suspect: Batch, error: WorkerLostError) -> None:
        """Go on after the end of a worker, with a new one."""
        failed = []
        with self._batcher.ready:
            for key, batch in [*self._active.items()]:
                lines, guilty = self._take_back(batch), error.computing and batch is suspect
                del self._active[key]
                for line in lines:
                    line.lost += guilty
                    if line.lost > 1:
                        failed.append(line)
                    elif guilty:
                        self._batcher.put_alone(line)
                    else:
                        self._batcher.put_back(line)
                self._batcher.put_away(key)
            self._batcher.ready.notify_all()
        for line in failed:
            self._batcher.fail(line.job, LostError("two workers ended while they computed this text; leave it out"))
        self._batcher.note_loss(error)
        self._computer.restart()
