"""What a verb that searches asks of an engine: lines to search for, and how their answers become results.

A verb makes a plan, an engine finds the hypotheses of its lines, in whatever batches, and the plan makes the results of
them. Here the batches are those of one call; a server puts the lines of many calls together.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Generic, TypeVar

from seqloom.decode.options import Request, SearchOptions, Tokens
from seqloom.decode.record import Recorder, SearchRecord
from seqloom.predict.predictor import Predictor, batch_by_length
from seqloom.predict.results import Result
from seqloom.predict.search import spell_token
from seqloom.predict.workers import share
from seqloom.types import Hypothesis

R = TypeVar("R", bound=Result)


@dataclass(frozen=True, slots=True)
class PlannedLine:
    """A line to search for."""

    source: Sequence[int] | None
    """The ids of the source; a language model has none."""
    request: Request
    options: SearchOptions

    @property
    def size(self) -> int:
        """How many tokens it counts for in a batch."""
        return self.request.max_length if self.source is None else len(self.source)


@dataclass(frozen=True)
class Plan(Generic[R]):
    """The lines of a call, and what becomes of their hypotheses."""

    lines: Sequence[PlannedLine]
    ends: Tokens
    never: Tokens
    finish: Callable[[Sequence[Sequence[Hypothesis]]], list[R]]
    """Takes the hypotheses of each line, best first, and gives the results of the call."""

    def run(self, model: Predictor, records: list[SearchRecord] | None = None) -> list[R]:
        """Search in batches of similar length, on all cores; the record of each line is added to `records`."""
        found: list[list[Hypothesis]] = [[] for _ in self.lines]
        recorded: dict[int, SearchRecord] = {}

        def search(batch: list[int]) -> tuple[list[list[Hypothesis]], Recorder | None]:
            lines = [self.lines[index] for index in batch]
            sources = None if lines[0].source is None else [line.source or () for line in lines]
            recorder = None if records is None else Recorder(partial(spell_token, model.tokenizer.target))
            requests, ends, never = [line.request for line in lines], self.ends, self.never
            answers = model.engine.search(
                sources, requests, lines[0].options, ends=ends, never=never, recorder=recorder
            )
            return answers, recorder

        workers = model.count_workers(model.compile())
        batches = list(self._batch(workers))
        for batch, (answers, recorder) in zip(batches, share(batches, search, workers), strict=True):
            for index, hypotheses in zip(batch, answers, strict=True):
                found[index] = hypotheses
            if recorder is not None:
                recorded |= zip(batch, recorder.records, strict=True)
        if records is not None:
            records += [recorded[index] for index in range(len(self.lines))]
        return self.finish(found)

    def _batch(self, workers: int) -> Iterator[list[int]]:
        """Batches of similar length and of one minimum length, in which their other options do not differ."""
        for length in sorted({line.options.min_length for line in self.lines}):
            own = [index for index, line in enumerate(self.lines) if line.options.min_length == length]
            sizes = [range(self.lines[index].size) for index in own]
            for batch in batch_by_length(sizes, self.lines[own[0]].options.width, workers):
                yield [own[place] for place in batch]
