"""A search that lines join and leave between its steps (continuous batching; Yu et al. 2022, §3.1, "Orca").

A batch that is searched as a whole ends with its longest answer: short lines wait, and new ones wait outside. Here
each line has its own position, so one that comes in reads its prefix by itself and then takes part in the steps of the
others. What is chosen is decided by the same `GreedySearch` and `BeamSearch` as in a batch, line by line, so that a
line has the answer that it would have alone.

Penalties on coverage need the attention of every step of a line, which is not kept here; such lines are searched as a
batch.
"""

from abc import ABC, abstractmethod
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from seqloom.decode.beam import BeamSearch
from seqloom.decode.greedy import GreedySearch, Step, Token, count_read, find_active, finish
from seqloom.decode.options import Request, SearchOptions, Tokens
from seqloom.devices import send
from seqloom.types import DecodeState, Hypothesis


def serves(options: SearchOptions) -> bool:
    """Whether lines with these options can be searched continuously."""
    return options.coverage_penalty == 0


@dataclass
class Progress:
    """What one step found."""

    tokens: list[Token] = field(default_factory=list)
    """The new tokens, with the ends; `line` is the number of a line. A beam search has none before its end."""
    found: dict[int, list[Hypothesis]] = field(default_factory=dict)
    """The hypotheses of the lines that are done, best first, by the number of each line."""


class ContinuousSearch(ABC):
    """A search without an end: lines with the same options come in and leave."""

    def __init__(self, step: Step, options: SearchOptions, *, ends: Tokens, never: Tokens) -> None:
        self._step, self._options, self._ends, self._never = step, options, ends, never
        self._state: DecodeState | None = None
        self._scores = torch.empty(0)
        """The scores of the next token of each row."""
        self._room = 0
        """How many tokens of a line the state has room for, at least."""
        self._done: dict[int, list[Hypothesis]] = {}
        """Lines that had nothing to search for, until the next step."""

    @property
    @abstractmethod
    def lines(self) -> list[int]:
        """The numbers of the lines that are searched, in the order of the state."""

    @torch.inference_mode()
    def add(self, numbers: Sequence[int], requests: Sequence[Request], state: DecodeState) -> None:
        """Let lines come in; `state`, at its start, has a row for each, and room for its `max_length`."""
        by_length: dict[int, list[int]] = {}
        self._room = max(0 if self._state is None else self._room, *(request.max_length for request in requests))
        for place, (number, request) in enumerate(zip(numbers, requests, strict=True)):
            if len(request.prefix) < request.max_length:
                by_length.setdefault(len(request.prefix), []).append(place)
            else:
                self._done[number] = [Hypothesis(request.prefix, 0.0, (), False)]
        for places in by_length.values():
            rows = [[requests[place].start, *requests[place].prefix] for place in places]
            own = state
            if len(places) < len(requests):
                own = state.select(torch.tensor(places))
            scores, own = self._step(send(torch.tensor(rows), state.device), own)
            self._join(*self._begin(scores, own))
            for place in places:
                self._enter(numbers[place], requests[place])

    def _begin(self, scores: Tensor, state: DecodeState) -> tuple[Tensor, DecodeState]:
        """What lines begin with after their prefixes."""
        return scores, state

    @abstractmethod
    def _enter(self, number: int, request: Request) -> None:
        """Note a line that has come in."""

    def _join(self, scores: Tensor, state: DecodeState) -> None:
        if self._state is None:
            self._scores, self._state = scores, state
            return
        width = max(self._state.width, state.width)  # lines with fewer beams get copies, for which nothing is proposed
        both = [
            own.repeat_interleave(width // before.width, 0)
            for own, before in ((self._scores, self._state), (scores, state))
        ]
        self._scores, self._state = torch.cat(both), self._state.join(state)

    @torch.inference_mode()
    def advance(self) -> Progress:
        """One more token of every line."""
        progress = Progress(found=self._done)
        self._done = {}
        if self._state is not None:
            self._advance(self._state, progress)
        return progress

    @abstractmethod
    def _advance(self, state: DecodeState, progress: Progress) -> None:
        """Choose the next tokens, let lines that are done leave, and read the tokens."""

    def _find_active(self, done: Sequence[bool], state: DecodeState) -> list[int] | None:
        """The places of the lines that are not done, if it is time to remove the others: there may be no more room."""
        full = any(is_done and read >= self._room for is_done, read in zip(done, state.positions, strict=True))
        return [line for line, is_done in enumerate(done) if not is_done] if full else find_active(done)

    @abstractmethod
    def remove(self, numbers: Collection[int]) -> None:
        """Let lines leave that nobody waits for."""


class ContinuousGreedySearch(ContinuousSearch):
    """Greedy search, or sampling: a line has one row, or one for each sample."""

    def __init__(self, step: Step, options: SearchOptions, *, ends: Tokens, never: Tokens) -> None:
        super().__init__(step, options, ends=ends, never=never)
        self._search = GreedySearch([], options, ends=ends, never=never)
        self._paths: dict[int, list[list[Token]]] = {}

    @property
    def lines(self) -> list[int]:
        """The numbers of the lines that are searched."""
        return [row.line for row in self._search.rows[:: self._search.samples]]

    def _begin(self, scores: Tensor, state: DecodeState) -> tuple[Tensor, DecodeState]:
        samples = self._search.samples
        if samples == 1:
            return scores, state
        origins = torch.zeros(len(state.positions), samples, dtype=torch.long, device=scores.device)
        return scores.repeat_interleave(samples, 0), state.branch(origins)

    def _enter(self, number: int, request: Request) -> None:
        self._search.add(number, request)
        self._paths[number] = [[] for _ in range(self._search.samples)]

    def _advance(self, state: DecodeState, progress: Progress) -> None:
        search, samples = self._search, self._search.samples
        progress.tokens, chosen = search.advance(self._scores, count_read(state, samples))
        for token in progress.tokens:
            self._paths[token.line][token.sample].append(token)
        done = []
        for at in range(0, len(search.rows), samples):
            rows = search.rows[at : at + samples]
            done.append(all(row.done for row in rows))
            if done[-1] and rows[0].line in self._paths:
                paths, alpha = self._paths.pop(rows[0].line), self._options.length_penalty
                found = [finish(row.request, path, alpha, self._ends) for row, path in zip(rows, paths, strict=True)]
                progress.found[rows[0].line] = sorted(found, key=lambda one: one.score, reverse=True)
        if (active := self._find_active(done, state)) is not None:
            if not active:
                search.rows, self._state = [], None
                return
            kept = [line * samples + sample for line in active for sample in range(samples)]
            search.rows = [search.rows[index] for index in kept]
            chosen = chosen.index_select(0, send(torch.tensor(kept), chosen.device))
            state = state.select(torch.tensor(active))
        self._scores, self._state = self._step(chosen.unsqueeze(1), state)

    def remove(self, numbers: Collection[int]) -> None:
        """Let lines leave that nobody waits for: at the next step, as those that are done."""
        for row in self._search.rows:
            row.done |= row.line in numbers
        for number in numbers:
            self._paths.pop(number, None)


class ContinuousBeamSearch(ContinuousSearch):
    """Beam search: a line has W beams."""

    def __init__(self, step: Step, options: SearchOptions, *, ends: Tokens, never: Tokens) -> None:
        super().__init__(step, options, ends=ends, never=never)
        self._search = BeamSearch([], options, ends=ends, never=never)

    @property
    def lines(self) -> list[int]:
        """The numbers of the lines that are searched."""
        return [line.number for line in self._search.lines]

    def _enter(self, number: int, request: Request) -> None:
        self._search.add(number, request)

    def _advance(self, state: DecodeState, progress: Progress) -> None:
        search, width = self._search, self._options.beam
        origins, tokens = search.advance(self._scores, count_read(state), None)
        progress.found |= search.found
        search.found = {}
        active = self._find_active([line.done for line in search.lines], state)
        if active is not None:
            if not active:
                search.lines, self._state = [], None
                return
            state = state.select(torch.tensor(active))
            search.lines = [search.lines[line] for line in active]
            origins, tokens = [origins[line] for line in active], [tokens[line] for line in active]
        if state.width < width or any(row != list(range(width)) for row in origins):
            state = state.branch(send(torch.tensor(origins), self._scores.device))
        read = send(torch.tensor(tokens).view(-1, 1), self._scores.device)
        self._scores, self._state = self._step(read, state)

    def remove(self, numbers: Collection[int]) -> None:
        """Let lines leave that nobody waits for: at the next step, as those that are done."""
        for line in self._search.lines:
            line.done |= line.number in numbers


def start_search(step: Step, options: SearchOptions, *, ends: Tokens, never: Tokens) -> ContinuousSearch:
    """A search for lines with these options; `serves` says which."""
    kind = ContinuousBeamSearch if options.beam > 1 else ContinuousGreedySearch
    return kind(step, options, ends=ends, never=never)
