"""Repetition: penalised and banned as Hugging Face's processors do, alike in every method and whatever the batch."""

import math
from dataclasses import replace

import pytest
import torch
from transformers import NoRepeatNGramLogitsProcessor, RepetitionPenaltyLogitsProcessor

from seqloom.decode.beam import BeamSearch, search_beams
from seqloom.decode.options import Request, SearchOptions
from seqloom.decode.search import search, stream
from seqloom.errors import ConfigError
from unit.decode.tables import END, START, TableModel

OPTIONS = {
    "penalty": SearchOptions(repetition_penalty=1.8),
    "reward": SearchOptions(repetition_penalty=0.6),
    "no token twice": SearchOptions(no_repeat_ngram=1),
    "no pair twice": SearchOptions(no_repeat_ngram=2),
    "both": SearchOptions(repetition_penalty=1.3, no_repeat_ngram=3),
}
every = pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS)
REQUESTS = [Request(START, 9, prefix, seed=n) for n, prefix in enumerate([(), (2, 3), (2, 2, 2), (4, 5, 4, 5)])]
VOCAB = 8


def choose_as_they_do(model: TableModel, request: Request, options: SearchOptions) -> tuple[int, ...]:
    """Greedy search with Hugging Face's processors on the logits."""
    read = [request.start, *request.prefix]
    while len(read) <= request.max_length:
        scores, _ = model.step(torch.tensor([read]), model.start(1))
        given = torch.tensor([read])
        if options.repetition_penalty != 1.0:
            scores = RepetitionPenaltyLogitsProcessor(options.repetition_penalty)(given, scores)
        if options.no_repeat_ngram:
            scores = NoRepeatNGramLogitsProcessor(options.no_repeat_ngram)(given, scores)
        if (best := int(scores.argmax())) == END:
            break
        read.append(best)
    return tuple(read[1:])


@every
def test_greedy_search_finds_what_hugging_face_finds(options: SearchOptions) -> None:
    changed = 0
    for seed in range(20):
        model = TableModel(seed, VOCAB)
        found = search(model.step, model.start(4), REQUESTS, options, ends=(END,))
        assert [best.ids for best, *_ in found] == [choose_as_they_do(model, one, options) for one in REQUESTS]
        changed += found != search(model.step, model.start(4), REQUESTS, SearchOptions(), ends=(END,))
    assert changed


@every
@pytest.mark.parametrize("how", [{}, {"beam": 3, "nbest": 2}, {"sample": True, "nbest": 2}], ids=str)
def test_a_line_answers_as_if_it_were_alone(options: SearchOptions, how: dict[str, int]) -> None:
    options = replace(options, **how)
    for seed in range(6):
        model = TableModel(seed, VOCAB)
        together = search(model.step, model.start(4), REQUESTS, options, ends=(END,))
        alone = [search(model.step, model.start(1), [one], options, ends=(END,))[0] for one in REQUESTS]
        assert together == alone


@every
def test_one_beam_is_greedy_search(options: SearchOptions) -> None:
    model, options = TableModel(5, VOCAB), replace(options, length_penalty=0.0)
    greedy = search(model.step, model.start(4), REQUESTS, options, ends=(END,))
    beams = search_beams(model.step, model.start(4), BeamSearch(REQUESTS, options, ends=(END,), never=()))
    assert [best.ids for best, *_ in beams] == [best.ids for best, *_ in greedy]
    assert [best.score for best, *_ in beams] == pytest.approx([best.score for best, *_ in greedy])
    streamed = list(stream(model.step, model.start(1), REQUESTS[1], options, ends=(END,)))
    assert tuple(streamed) == greedy[1][0].ids[2:]


@pytest.mark.parametrize("how", [{}, {"beam": 4, "nbest": 3}, {"sample": True, "nbest": 3}], ids=str)
@pytest.mark.parametrize("size", [1, 2, 3])
def test_no_sequence_of_n_tokens_occurs_twice(size: int, how: dict[str, int]) -> None:
    for seed in range(10):
        model, request = TableModel(seed, 5), Request(START, 12, (2, 3), seed=seed)
        for one in search(
            model.step, model.start(1), [request], SearchOptions(no_repeat_ngram=size, **how), ends=(END,)
        )[0]:
            read = (START, *one.ids)
            runs = [read[at : at + size] for at in range(len(read) - size + 1)]
            assert len({*runs}) == len(runs)


def test_log_probabilities_are_those_of_the_penalised_distribution() -> None:
    model, request = TableModel(3, VOCAB), Request(START, 1)
    logits, _ = model.step(torch.tensor([[START]]), model.start(1))
    expected = RepetitionPenaltyLogitsProcessor(2.0)(torch.tensor([[START]]), logits).log_softmax(-1).max()
    best = search(model.step, model.start(1), [request], SearchOptions(repetition_penalty=2.0), ends=(END,))[0][0]
    assert best.token_scores[0] == pytest.approx(float(expected))


def test_what_must_be_contained_may_repeat() -> None:
    model, request = TableModel(1, VOCAB), Request(START, 8, (2, 3), required=((2, 3),))
    for how in ({}, {"beam": 3}):
        best = search(model.step, model.start(1), [request], SearchOptions(no_repeat_ngram=2, **how), ends=(END,))[0][0]
        assert any(best.ids[at : at + 2] == (2, 3) for at in range(2, len(best.ids)))


@pytest.mark.parametrize("how", [{}, {"beam": 3, "nbest": 2}, {"sample": True}], ids=str)
def test_without_an_end_the_length_ends_an_answer(how: dict[str, int]) -> None:
    model = TableModel(2, VOCAB)
    found = search(model.step, model.start(4), REQUESTS, SearchOptions(min_length=2, **how), ends=())
    assert all(len(one.ids) == 9 and not one.finished and math.isfinite(one.score) for own in found for one in own)


@pytest.mark.parametrize(
    ("wrong", "fault"), [({"repetition_penalty": 0.0}, "above 0"), ({"no_repeat_ngram": -1}, "neg")]
)
def test_what_makes_no_sense_is_refused(wrong: dict[str, float], fault: str) -> None:
    with pytest.raises(ConfigError, match=fault):
        SearchOptions(**wrong)  # type: ignore[arg-type]
