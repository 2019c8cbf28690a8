"""Beam search beside the enumeration of every answer there is."""

import math
from dataclasses import dataclass, replace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from seqloom.decode.beam import BeamSearch, search_beams
from seqloom.decode.options import Request, SearchOptions
from seqloom.decode.search import search
from seqloom.errors import ShapeError
from seqloom.types import DecodeState, Hypothesis
from unit.decode.tables import END, START, TableModel

VOCAB, LONGEST = 3, 5
EVERYTHING = VOCAB**LONGEST
seeds = st.integers(0, 10_000)
penalties = st.sampled_from([-0.5, 0.0, 0.6, 1.0, 2.0])
sequences = st.lists(st.lists(st.integers(1, 2), min_size=1, max_size=2).map(tuple), max_size=2).map(tuple)
prefixes = st.lists(st.integers(1, 2), max_size=1).map(tuple)


def agree(ours: list[Hypothesis], expected: list[Hypothesis]) -> None:
    assert [h.ids for h in ours] == [h.ids for h in expected]
    assert [h.finished for h in ours] == [h.finished for h in expected]
    for mine, theirs in zip(ours, expected, strict=True):
        assert mine.score == pytest.approx(theirs.score)
        assert mine.token_scores == pytest.approx(theirs.token_scores)


@given(seeds, penalties, prefixes, st.integers(1, LONGEST), st.integers(0, 4), st.integers(1, 10))
def test_a_beam_wide_enough_finds_the_best_of_all(seed, alpha, prefix, longest, min_length, nbest):
    model, request = TableModel(seed, VOCAB), Request(START, max(longest, len(prefix) + 1), prefix)
    options = SearchOptions(beam=EVERYTHING, nbest=nbest, length_penalty=alpha, min_length=min_length)
    (found,) = search(model.step, model.start(1), [request], options, ends=(END,))
    agree(found, model.enumerate(request, alpha=alpha, min_length=min_length)[:nbest])


@given(seeds, penalties, st.integers(1, 4), st.integers(0, 3), st.integers(1, 10))
def test_it_finds_the_best_of_all_where_several_tokens_end_an_answer(seed, alpha, longest, min_length, nbest):
    model, request, ends = TableModel(seed, 4), Request(START, longest), (END, 3)
    options = SearchOptions(beam=4**4, nbest=nbest, length_penalty=alpha, min_length=min_length)
    (found,) = search(model.step, model.start(1), [request], options, ends=ends)
    agree(found, model.enumerate(request, alpha=alpha, min_length=min_length, ends=ends)[:nbest])


@given(seeds, penalties, prefixes, sequences, sequences)
def test_it_finds_the_best_that_constraints_allow(seed, alpha, prefix, required, forbidden):
    """Room is kept as if what is required did not overlap."""
    required = required[:1] if len(required) > 1 and set(required[0]) & set(required[1]) else required
    forbidden = tuple(f for f in forbidden if not any(set(f) & set(r) for r in required))
    model, request = TableModel(seed, VOCAB), Request(START, LONGEST, prefix, required=required, forbidden=forbidden)
    expected = model.enumerate(request, alpha=alpha)
    options = SearchOptions(beam=EVERYTHING, nbest=2, length_penalty=alpha)
    (found,) = search(model.step, model.start(1), [request], options, ends=(END,))
    agree(found, expected[:2])


@given(seeds, st.integers(2, 4), penalties)
def test_stopping_early_loses_nothing(seed, beam, alpha):
    requests = [Request(START, longest) for longest in (3, 8, 12)]
    options, model = SearchOptions(beam=beam, nbest=2, length_penalty=alpha), TableModel(seed, 4)
    stopped = search(model.step, model.start(3), requests, options, ends=(END,))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("seqloom.decode.beam.BeamSearch._is_settled", lambda *_: False)
        assert search(model.step, model.start(3), requests, options, ends=(END,)) == stopped


def test_it_does_stop_early():
    steps = 0

    def step(ids, state):
        nonlocal steps
        steps += 1
        return torch.tensor([[9.0, 0.0, 0.0]]).repeat(len(ids), 1), replace(state, positions=(state.position + 1,))

    search(step, TableModel(0, 3).start(1), [Request(START, 1000)], SearchOptions(beam=2), ends=(END,))
    assert steps < 10


@given(seeds, st.integers(1, 8))
def test_one_beam_is_greedy_search(seed, longest):
    """Without a length penalty: with it, a beam may pass an end that greedy search takes."""
    model, requests = TableModel(seed, 4), [Request(START, longest)]
    options = SearchOptions(length_penalty=0.0)
    greedy = search(model.step, model.start(1), requests, options, ends=(END,))
    agree(search_beams(model.step, model.start(1), BeamSearch(requests, options, ends=(END,), never=()))[0], greedy[0])
    assert greedy[0][0].ids == follow_the_best(model, longest)


def follow_the_best(model: TableModel, longest: int) -> tuple[int, ...]:
    history = [START]
    while len(history) <= longest and (token := int(model.score(history).argmax())) != END:
        history.append(token)
    return tuple(history[1:])


@dataclass(frozen=True)
class Looking(DecodeState):
    tokens: torch.Tensor


def look(ids, state):
    """Token t looks at source token t alone; all tokens are equally probable, and the end never comes."""
    attention = torch.nn.functional.one_hot(ids[:, -1], 3).double()
    scores = torch.tensor([[-50.0, 0.0, 0.0]]).repeat(len(ids), 1).double()
    return scores, replace(state, positions=(state.position + 1,), attention=attention)


def test_coverage_favours_what_has_seen_all_of_the_source():
    """The source has two tokens, 1 and 2; a third, 0, is padding, which counts as seen."""
    state = Looking((0,), torch.zeros(1, 1), attention=torch.tensor([[1.0, 0.0, 0.0]]).double())
    options = SearchOptions(beam=8, nbest=8, coverage_penalty=0.5, length_penalty=0.0)
    (found,) = search(look, state, [Request(1, 3)], options, ends=(END,))
    assert {h.ids[:2] for h in found[:6]} == {(1, 2), (2, 1), (2, 2)}
    assert found[0].score == pytest.approx(3 * math.log(0.5))  # full coverage costs nothing
    unseen = 0.5 * math.log(torch.finfo(torch.float64).tiny)
    assert found[-1].score == pytest.approx(3 * math.log(0.5) + unseen)


def test_coverage_needs_attention():
    model = TableModel(0, 3)
    with pytest.raises(ShapeError, match="attention=True"):
        search(model.step, model.start(1), [Request(1, 3)], SearchOptions(beam=2, coverage_penalty=0.1), ends=(END,))
