"""A search that lines join and leave between steps: each line is answered as if it were alone."""

from dataclasses import dataclass, replace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from seqloom.decode.continuous import Progress, serves, start_search
from seqloom.decode.options import Request, SearchOptions
from seqloom.decode.search import search
from seqloom.types import DecodeState, Hypothesis
from unit.decode.tables import END, START, TableModel

REQUESTS = [
    Request(START, 6, seed=1),
    Request(START, 9, (2, 3), seed=2),
    Request(START, 4, (2,), seed=3, forbidden=((3,),)),
    Request(START, 7, seed=4, required=((3, 2),)),
    Request(START, 2, (2, 2), seed=5),  # nothing is left to search for
    Request(START, 12, seed=6),
    Request(START, 1, seed=7),
]
METHODS = [
    SearchOptions(),
    SearchOptions(min_length=3),
    SearchOptions(beam=3, nbest=2),
    SearchOptions(beam=2, min_length=4, repetition_penalty=1.4),
    SearchOptions(sample=True, nbest=3, top_p=0.9),
    SearchOptions(sample=True, no_repeat_ngram=2),
]


@dataclass(frozen=True)
class Read(DecodeState):
    """All that each row has read, up to the number that its line's position says; the rest is padding."""

    tokens: Tensor


class Table(TableModel):
    """The model of the tables, for lines at different positions, with room for so many tokens."""

    room = 12

    def start(self, batch_size: int) -> Read:  # type: ignore[override]
        return Read((0,) * batch_size, torch.full((batch_size, self.room), -1))

    def step(self, ids: Tensor, state: Read) -> tuple[Tensor, Read]:  # type: ignore[override]
        tokens = state.tokens.clone()
        places = [position for position in state.positions for _ in range(state.width)]
        for row, place in enumerate(places):
            assert place + ids.shape[1] <= self.room, "a line reads more than it has room for"
            tokens[row, place : place + ids.shape[1]] = ids[row]
        positions = tuple(position + ids.shape[1] for position in state.positions)
        ends = [place + ids.shape[1] for place in places]
        scores = torch.stack([self.score(row[:end]) + 3.0 for row, end in zip(tokens.tolist(), ends, strict=True)])
        return scores, replace(state, positions=positions, tokens=tokens)


def find_alone(model: Table, request: Request, options: SearchOptions) -> list[Hypothesis]:
    return search(model.step, model.start(1), [request], options, ends=(END,))[0]


def agree(ours: list[Hypothesis], theirs: list[Hypothesis]) -> None:
    assert [h.ids for h in ours] == [h.ids for h in theirs]
    assert [h.score for h in ours] == pytest.approx([h.score for h in theirs], abs=1e-9)
    assert [h.finished for h in ours] == [h.finished for h in theirs]


@given(
    st.integers(0, 10**6),
    st.sampled_from(METHODS),
    st.lists(st.tuples(st.integers(0, 5), st.sampled_from(range(len(REQUESTS)))), min_size=1, max_size=12),
)
def test_lines_that_come_and_go_are_answered_as_if_alone(seed, options, arrivals):
    """Each line comes in some steps after the one before; those of the same step come together."""
    model = Table(seed, 4)
    running = start_search(model.step, options, ends=(END,), never=())
    found: dict[int, list[Hypothesis]] = {}
    tokens: dict[int, list[int]] = {}

    def note(progress: Progress) -> None:
        found.update(progress.found)
        for token in progress.tokens:
            tokens.setdefault(token.line, []).append(token.id)

    for number, (pause, which) in enumerate(arrivals):
        for _ in range(pause):
            note(running.advance())
        running.add([number], [REQUESTS[which]], model.start(1))
    while len(found) < len(arrivals):
        note(running.advance())
    assert running.lines == []
    for number, (_, which) in enumerate(arrivals):
        alone = find_alone(model, REQUESTS[which], options)
        agree(found[number], alone)
        if not options.sample and options.beam == 1:
            prefix = len(REQUESTS[which].prefix)
            assert [one for one in tokens.get(number, []) if one != END] == [*alone[0].ids[prefix:]]


@pytest.mark.parametrize("options", METHODS)
def test_a_line_can_leave_before_its_end(options):
    model = Table(3, 4)
    running = start_search(model.step, options, ends=(END,), never=())
    running.add([0, 1, 2], [REQUESTS[5], REQUESTS[1], REQUESTS[5]], model.start(3))
    found = running.advance().found
    running.remove({0, 2})
    for _ in range(20):
        found |= running.advance().found
    assert {*found} <= {0, 1, 2}
    agree(found[1], find_alone(model, REQUESTS[1], options))
    assert running.lines == []
    running.add([7], [REQUESTS[0]], model.start(1))  # it goes on from nothing
    found = {}
    while not found:
        found |= running.advance().found
    agree(found[7], find_alone(model, REQUESTS[0], options))


def test_coverage_is_left_to_batches():
    assert serves(SearchOptions(beam=4))
    assert not serves(SearchOptions(beam=4, coverage_penalty=0.2))
