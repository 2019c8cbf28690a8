"""The record of a search beside the search itself, and its reasons beside an enumeration of what could follow."""

import json
import re
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from seqloom.decode.options import Request, SearchOptions
from seqloom.decode.record import Recorder
from seqloom.decode.search import search
from unit.decode.records import Reader, check
from unit.decode.tables import END, START, TableModel, contains

VOCAB, NEVER, OTHER_END = 7, 6, 5
METHODS = {
    "greedy": SearchOptions(),
    "beam": SearchOptions(beam=3, nbest=2),
    "wide": SearchOptions(beam=6, nbest=6, length_penalty=0.4),
    "short": SearchOptions(beam=3, length_penalty=0.0),
    "sampling": SearchOptions(sample=True, temperature=1.5, nbest=3),
    "top-k": SearchOptions(sample=True, top_k=2, nbest=2),
    "top-p": SearchOptions(sample=True, top_p=0.6),
    "min-p": SearchOptions(sample=True, min_p=0.3, top_k=4),
}
every_method = pytest.mark.parametrize("options", METHODS.values(), ids=METHODS)
tokens = st.integers(1, 4)
sequences = st.lists(st.lists(tokens, min_size=1, max_size=2).map(tuple), max_size=2).map(tuple)


def record(model: TableModel, requests: list[Request], options: SearchOptions, ends: tuple[int, ...] = (END,)):
    """The answers and the records, after the answers have been compared with those of a search without a record."""
    recorder = Recorder(lambda token: f"<{token}>")
    found = search(
        model.step, model.start(len(requests)), requests, options, ends=ends, never=(NEVER,), recorder=recorder
    )
    plain = search(model.step, model.start(len(requests)), requests, options, ends=ends, never=(NEVER,))
    assert found == plain
    assert len(recorder.records) == len(requests)
    return found, recorder.records


def check_beams(reader: Reader, model: TableModel, ends: tuple[int, ...]) -> None:
    """All that would have been followed is listed, and the numbers in the reasons are right."""
    width, beams = reader.options.beam, [None]
    for step in reader.record.steps:
        histories = [[*reader.read(one), one.token] if one else [START, *reader.request.prefix] for one in beams]
        scores = [model.score(history).tolist() for history in histories]
        allowed = [one for one in step.candidates if not (one.reason or "").startswith("banned")]
        listed = {(one.parent, one.token): one for one in step.candidates}
        ranked = []
        for beam, row in zip(beams, scores, strict=True):
            total = beam.total if beam else 0.0
            ranked += [(total + score, beam and beam.id, token) for token, score in enumerate(row)]
        ranked.sort(reverse=True)
        for key in [(parent, token) for _, parent, token in ranked if token not in ends][:width]:
            assert key in listed, "what would have been in the beam is listed"
        for parent, token in [(parent, token) for _, parent, token in ranked[:width] if token in ends]:
            assert (parent, token) in listed
        for total, parent, token in ranked:
            if (parent, token) in listed:
                assert listed[parent, token].total == pytest.approx(total)
            elif not reader.request.required and not reader.options.no_repeat_ngram:
                maybe_banned = token in (NEVER, *ends) or any(f[-1] == token for f in reader.request.forbidden)
                assert maybe_banned or all(total <= one.total for one in allowed)
        if not reader.request.required:
            others = [one for one in allowed if one.token not in ends]
            for one in allowed:
                before = re.search(r"(\d+) (?:others scored|came before)", one.reason or "")
                if before:
                    rivals = allowed if one.token in ends else others
                    assert sum(rival.total > one.total for rival in rivals) == int(before[1]) >= width
        beams = [one for one in step.candidates if one.status == "kept"]


def check_bans(reader: Reader, ends: tuple[int, ...]) -> None:
    """A reason for a ban is true."""
    request, options = reader.request, reader.options
    for step in reader.record.steps:
        for one in step.candidates:
            history = reader.read(one)
            answer = tuple(history[1 + len(request.prefix) :])
            match (one.reason or "").partition(": "):
                case ("banned", _, reason) if "no answer may contain" in reason:
                    assert one.token == NEVER
                case ("banned", _, reason) if "min_length" in reason:
                    assert one.token in ends
                    assert len(history) - 1 < options.min_length
                case ("banned", _, reason) if "avoid" in reason:
                    read = (*history[1:], one.token)
                    assert any(read[-len(unwanted) :] == unwanted for unwanted in request.forbidden)
                case ("banned", _, reason) if "before everything" in reason:
                    assert one.token in ends
                    assert not all(contains(answer, wanted) for wanted in request.required)
                case ("banned", _, reason) if "tokens left" in reason:
                    missing = [wanted for wanted in request.required if not contains(answer, wanted)]
                    left = int(re.findall(r"\d+", reason)[0])
                    assert left == request.max_length - len(history) + 1 <= sum(map(len, missing))
                case ("banned", _, reason):
                    assert "no_repeat_ngram" in reason
                    run = (*history, one.token)[-options.no_repeat_ngram :]
                    assert contains(tuple(history), run)


@every_method
@settings(max_examples=25)
@given(
    seed=st.integers(0, 10_000),
    prefix=st.lists(tokens, max_size=2).map(tuple),
    required=sequences,
    forbidden=sequences,
    spare=st.integers(0, 5),
    min_length=st.sampled_from([0, 0, 3]),
    repeat=st.sampled_from([0, 0, 1, 2]),
    several=st.booleans(),
)
def test_a_record_tells_what_was_done(options, seed, prefix, required, forbidden, spare, min_length, repeat, several):
    forbidden = tuple(f for f in forbidden if not any(set(f) & set(r) for r in required))
    longest = len(prefix) + sum(map(len, required)) + spare
    request = Request(START, longest, prefix, seed=seed, required=required, forbidden=forbidden)
    options, ends = replace(options, min_length=min_length, no_repeat_ngram=repeat), (END, OTHER_END)[: 1 + several]
    model = TableModel(seed, VOCAB)
    [found], [written] = record(model, [request], options, ends)
    reader = check(written, found, request, options)
    check_bans(reader, ends)
    if options.beam > 1:
        check_beams(reader, model, ends)


@every_method
@settings(max_examples=4)
@given(seed=st.integers(0, 10_000))
def test_lines_are_recorded_as_if_each_were_alone(options, seed):
    model, options = TableModel(seed, VOCAB), replace(options, repetition_penalty=1.4)
    requests = [
        Request(START, 6, seed=4),
        Request(2, 9, (3,), seed=5),
        Request(START, 7, (3, 4, 2), seed=5, forbidden=((2,), (3, 4))),
        Request(START, 8, (1,), required=((2, 3), (4,))),
        Request(START, 2, (1, 1)),
    ]
    found, records = record(model, requests, options)
    for answers, written, request in zip(found, records, requests, strict=True):
        check(written, answers, request, options)
        assert written == record(model, [request], options)[1][0]
    assert records[-1].steps == []
    assert "Nothing was searched" in records[-1].note


def gather(options: SearchOptions, request: Request, seeds: int = 40, ends: tuple[int, ...] = (END,)) -> set[str]:
    """The reasons that come up, without their numbers."""
    reasons = set()
    for seed in range(seeds):
        (answers,), (written,) = record(TableModel(seed, VOCAB), [replace(request, seed=seed)], options, ends)
        reader = check(written, answers, request, options)
        reasons |= {re.sub(r"-?\d[\d.e-]*", "#", one.reason) for one in reader.by_id.values() if one.reason}
    return reasons


def test_every_fate_of_a_beam_is_told_in_words():
    assert gather(SearchOptions(beam=3, nbest=2, min_length=2), Request(START, 6)) == {
        "outside the beam of #: # others scored higher",
        "an end counts only among the # best candidates: # came before it",
        "banned: no answer may contain this token, which is special or was not seen in training",
        "banned: the end may not come before min_length = # tokens",
        "the end came, but the # best answers so far are at least as good: #",
        "an answer with the better score # took its place",
        "cut at max_length = #",
        "cut at max_length = #, but the # best answers so far are at least as good: #",
        "settled: even if all that follows had probability #, its score could not pass #, the worst of the # wanted",
        "went no further: every candidate that continues it was dropped",
    }


def test_constraints_are_told_in_words():
    request = Request(START, 5, required=((2, 3),), forbidden=((4,), (1, 1)))
    reasons = gather(SearchOptions(beam=3, no_repeat_ngram=1), request)
    assert {
        "banned: it would complete a sequence that the answer must avoid",
        "banned: the end may not come before everything that is required",
        "banned: the # tokens left up to max_length are all needed for what is required",
        "banned: it would repeat # tokens that were read before (no_repeat_ngram = #)",
        "outside the beam of #, which is filled from the candidates with each number of required tokens in turn: "
        "it has #, and # others came first",
    } <= reasons


def test_where_nothing_may_follow_the_answer_is_cut():
    request = Request(START, 5, forbidden=((1,), (2,), (3,), (4,), (5,)))
    for options in (SearchOptions(min_length=5), SearchOptions(beam=2, min_length=5)):
        (answers,), (written,) = record(TableModel(0, VOCAB), [request], options)
        reader = check(written, answers, request, options)
        assert [one.steps for one in written.hypotheses] == [()]
        assert reader.by_id
        assert all(one.reason.startswith("banned") for one in reader.by_id.values())
        found, (later,) = record(
            TableModel(0, VOCAB), [replace(request, forbidden=((1, 1),))], replace(options, no_repeat_ngram=1)
        )
        check(later, found[0], replace(request, forbidden=((1, 1),)), options)


def test_draws_are_told_in_words():
    request = Request(START, 5)
    for options, expected in {
        SearchOptions(): "greedy search follows the most probable token: # were more probable",
        SearchOptions(sample=True, nbest=2): "not drawn: its chance was #",
        SearchOptions(sample=True, top_k=2): "not among the # most probable tokens (top_k)",
        SearchOptions(sample=True, top_p=0.5): "more probable tokens already have the probability # together (top_p)",
        SearchOptions(sample=True, min_p=0.5): "less than # times as probable as the best token (min_p)",
    }.items():
        assert expected in gather(options, request)


def test_it_goes_over_the_wire():
    (answers,), (written,) = record(TableModel(1, VOCAB), [Request(START, 6, (2,))], SearchOptions(beam=2, nbest=2))
    wire = json.loads(json.dumps(written.to_json()))
    assert {*wire} == {"steps", "hypotheses", "options", "prefix", "note"}
    assert wire["options"]["beam"] == 2
    assert wire["options"]["max_length"] == 6
    assert wire["prefix"] == [2]
    step = wire["steps"][0]
    assert step["length"] == 2
    assert {"id", "parent", "token", "text", "log_probability", "total", "score", "status", "reason"} <= {
        *step["candidates"][0]
    }
    assert all(one["text"] == f"<{one['token']}>" for step in wire["steps"] for one in step["candidates"])
    assert wire["hypotheses"][0]["ids"] == [*answers[0].ids]
    assert {"score", "log_probability", "steps", "finished"} <= {*wire["hypotheses"][0]}
