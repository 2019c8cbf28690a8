"""What a search promises to each line, whatever the method."""

from dataclasses import dataclass, replace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from seqloom.decode.options import Request, SearchOptions
from seqloom.decode.search import search, stream
from seqloom.errors import ConfigError
from seqloom.types import DecodeState
from unit.decode.tables import END, START, TableModel, contains

METHODS = {
    "greedy": SearchOptions(),
    "beam": SearchOptions(beam=3, nbest=2),
    "sampling": SearchOptions(sample=True, temperature=1.5, nbest=2),
    "top-p": SearchOptions(sample=True, top_p=0.8),
}
every_method = pytest.mark.parametrize("options", METHODS.values(), ids=METHODS)
tokens = st.integers(1, 5)
sequences = st.lists(st.lists(tokens, min_size=1, max_size=3).map(tuple), max_size=2).map(tuple)


@dataclass(frozen=True)
class Countdown(DecodeState):
    """A model that counts down from a number of its own, and then ends."""

    left: torch.Tensor


def count_down(ids, state):
    scores = torch.nn.functional.one_hot(state.left.clamp(min=0), 10).double() * 1000
    return scores, replace(state, positions=tuple(p + ids.shape[1] for p in state.positions), left=state.left - 1)


@every_method
def test_any_of_several_ends(options):
    model = TableModel(5, 6)
    requests = [Request(START, 12, required=((2,),)), Request(START, 12)]
    for line in search(model.step, model.start(2), requests, replace(options, min_length=2), ends=(END, 4)):
        for found in line:
            assert not {END, 4} & {*found.ids}
            assert len(found.ids) >= 2
            assert found.finished or len(found.ids) == 12


@every_method
def test_rows_end_by_themselves_and_leave_the_batch(options):
    sizes = []

    def step(ids, state):
        sizes.append(len(ids))
        return count_down(ids, state)

    state, requests = Countdown((0,) * 4, torch.tensor([3, 0, 1, 5])), [Request(9, 20)] * 4
    found = search(step, state, requests, options, ends=(END,))
    assert [best.ids for best, *_ in found] == [(3, 2, 1), (), (1,), (5, 4, 3, 2, 1)]
    assert all(best.finished for best, *_ in found)
    assert sizes[-1] < sizes[1]


@every_method
def test_lengths_are_kept(options):
    model, requests = (
        TableModel(3, 6),
        [Request(START, 4), Request(START, 9), Request(START, 0), Request(START, 3, (2, 2, 2))],
    )
    found = search(model.step, model.start(4), requests, replace(options, min_length=3), ends=(END,))
    for request, hypotheses in zip(requests, found, strict=True):
        for hypothesis in hypotheses:
            assert min(3, request.max_length) <= len(hypothesis.ids) <= request.max_length
            assert len(hypothesis.token_scores) == len(hypothesis.ids) - len(request.prefix) + hypothesis.finished
            assert END not in hypothesis.ids
        assert [h.score for h in hypotheses] == sorted((h.score for h in hypotheses), reverse=True)
    assert [[h.ids for h in line] for line in found[2:]] == [[()], [(2, 2, 2)]]


@every_method
@given(seed=st.integers(0, 100), order=st.permutations(range(5)), size=st.integers(1, 5))
def test_neighbours_do_not_matter(options, seed, order, size):
    model = TableModel(seed, 6)
    requests = [
        Request(START, 6, seed=4),
        Request(2, 9, (3,), seed=5),
        Request(START, 7, (3, 4, 5), seed=5, forbidden=((2,), (3, 4))),
        Request(START, 8, (1,), required=((2, 3), (4,))),
        Request(START, 2, (1, 1)),
    ]
    alone = [search(model.step, model.start(1), [request], options, ends=(END,))[0] for request in requests]
    for first in range(0, 5, size):
        lines = order[first : first + size]
        batch = [requests[line] for line in lines]
        together = search(model.step, model.start(len(lines)), batch, options, ends=(END,))
        assert together == [alone[line] for line in lines]


@every_method
@given(
    seed=st.integers(0, 1000),
    prefix=st.lists(tokens, max_size=3).map(tuple),
    required=sequences,
    forbidden=sequences,
    spare=st.integers(0, 4),
)
def test_constraints_are_met(options, seed, prefix, required, forbidden, spare):
    forbidden = tuple(f for f in forbidden if not any(set(f) & set(r) for r in required))
    longest = len(prefix) + sum(map(len, required)) + spare
    model, request = TableModel(seed, 6), Request(START, longest, prefix, required=required, forbidden=forbidden)
    for hypothesis in search(model.step, model.start(1), [request], options, ends=(END,))[0]:
        ids, given_tokens = hypothesis.ids, len(prefix)
        assert ids[:given_tokens] == prefix
        assert all(contains(ids[given_tokens:], wanted) for wanted in required)
        ends = range(given_tokens + 1, len(ids) + 1)
        assert not any(ids[:end][-len(f) :] == f for f in forbidden for end in ends)


def test_where_nothing_is_allowed_the_answer_is_cut():
    request = Request(START, 5, forbidden=((1,), (2,)))
    for options in (SearchOptions(min_length=5), SearchOptions(beam=2, min_length=5)):
        model = TableModel(0, 3)
        ((found,),) = search(model.step, model.start(1), [request], options, ends=(END,))
        assert found.ids == ()
        assert not found.finished


@pytest.mark.parametrize("options", [METHODS["greedy"], METHODS["top-p"]], ids=["greedy", "top-p"])
def test_streaming_gives_the_same_tokens_one_by_one(options):
    steps = 0
    model, request = TableModel(5, 6), Request(START, 30, (2, 3), seed=9)

    def step(ids, state):
        nonlocal steps
        steps += 1
        return model.step(ids, state)

    streamed = []
    for number, token in enumerate(stream(step, model.start(1), request, options, ends=(END,)), 1):
        assert steps == number  # as soon as it is known
        streamed.append(token)
    ((found,),) = search(model.step, model.start(1), [request], options, ends=(END,))
    assert (2, 3, *streamed) == found.ids


def test_only_sampling_draws_random_numbers(monkeypatch):
    def refuse(seed):
        raise AssertionError("a random number was drawn")

    monkeypatch.setattr("seqloom.decode.greedy.random.Random", refuse)
    model, requests = TableModel(5, 6), [Request(START, 9, seed=3)]
    for options in (METHODS["greedy"], METHODS["beam"]):
        search(model.step, model.start(1), requests, options, ends=(END,))
    with pytest.raises(AssertionError, match="was drawn"):
        search(model.step, model.start(1), requests, METHODS["top-p"], ends=(END,))


def test_a_beam_cannot_be_streamed():
    with pytest.raises(ConfigError, match="beam = 1"):
        next(stream(count_down, Countdown((0,), torch.tensor([3])), Request(9, 5), SearchOptions(beam=2), ends=(END,)))


@pytest.mark.parametrize(
    ("make", "fault"),
    [
        (lambda: SearchOptions(beam=0), "beam: must be at least 1, not 0"),
        (lambda: SearchOptions(beam=2, nbest=3), "beam of 3"),
        (lambda: SearchOptions(beam=2, sample=True), "exclude each other"),
        (lambda: SearchOptions(coverage_penalty=-1), "coverage_penalty"),
        (lambda: SearchOptions(sample=True, temperature=0.0), "temperature"),
        (lambda: SearchOptions(sample=True, top_p=1.5), "top_p"),
        (lambda: SearchOptions(sample=True, top_k=0), "top_k"),
        (lambda: Request(1, 3, (1, 2, 3, 4)), "prefix has 4"),
        (lambda: Request(1, 3, required=((1, 2), (3, 4))), "have 4 tokens"),
        (lambda: Request(1, 9, required=((1, 2, 3),), forbidden=((2, 3),)), "no answer can meet both"),
        (lambda: Request(1, 9, required=((),)), "empty"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_what_cannot_be_is_refused(make, fault):
    with pytest.raises(ConfigError, match=fault):
        make()
