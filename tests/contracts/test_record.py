"""A search with a record finds what it finds without one, and the record says how: every decoder, every engine."""

from dataclasses import replace
from typing import Any

import pytest
import torch

import seqloom
from contracts.answers import TEXTS
from contracts.random_models import build, find_folder
from contracts.test_search import METHODS, PENALISED, REQUESTS, attending, every_third_at_once, make_whole
from parity.trained import make_tokenizer
from seqloom.decode.options import SearchOptions
from seqloom.decode.record import Recorder, SearchRecord
from seqloom.errors import ConfigError
from seqloom.hub.bundle import Bundle
from seqloom.native import library
from seqloom.predict.generate import generate
from seqloom.predict.predictor import Predictor
from seqloom.predict.search import read_search, spell_token
from seqloom.predict.translate import translate
from unit.decode.records import check

pytestmark = pytest.mark.usefixtures("as_users_run")
MODELS = (
    *(f"{task}/{family}" for task in ("translation", "language-model") for family in ("transformer", "recurrent")),
    "translation/convolutional",
    *("marian", "t5", "gpt2"),
)
HOW: dict[str, dict[str, Any]] = {
    "greedy": {"max_length": 6},
    "beam": {"beam": 4, "nbest": 3, "max_length": 8},
    "everything": {
        "beam": 3,
        "nbest": 2,
        "max_length": 9,
        "min_length": 3,
        "prefix": "w2",
        "constraints": ["w4 w5"],
        "avoid": ["w1", "w6 w7"],
        "length_penalty": 0.5,
        "repetition_penalty": 1.2,
        "no_repeat_ngram": 2,
    },
    "sampling": {"sample": True, "nbest": 2, "top_p": 0.8, "temperature": 1.3, "seed": 3, "max_length": 6},
}


@every_third_at_once
@torch.no_grad()
def test_every_decoder_is_recorded(options, source):
    whole, lines = make_whole(options, source), [2, 0, 3, 1]
    for method in (METHODS[2], PENALISED[3]):
        recorder = Recorder()
        found = whole.find(lines, method, recorder)
        assert found == whole.find(lines, method)
        for line, answers, record in zip(lines, found, recorder.records, strict=True):
            check(record, answers, REQUESTS[line], method)


@pytest.mark.long
@pytest.mark.parametrize("options", attending.values(), ids=attending)
@torch.no_grad()
def test_coverage_is_in_the_score(options):
    """The score of a candidate has the coverage of what was read before it."""
    whole, lines = make_whole(options, source=True), [0, 1, 2, 3]
    method = SearchOptions(beam=3, nbest=3, coverage_penalty=0.3)
    recorder = Recorder()
    found = whole.find(lines, method, recorder)
    assert found == whole.find(lines, method)
    for line, answers, record in zip(lines, found, recorder.records, strict=True):
        reader = check(record, answers, REQUESTS[line], method)
        assert [reader.by_id[one.steps[-1]].score for one in record.hypotheses] == [one.score for one in answers]
        plain = [replace(one, score=one.total / len(reader.trace(one))) for one in reader.by_id.values()]
        assert all(one.score <= flat.score for one, flat in zip(reader.by_id.values(), plain, strict=True))


def ask(model: seqloom.Model, how: dict[str, Any], records: list[SearchRecord] | None) -> list[Any]:
    if model.config.task == "translation":
        return translate(model._predictor, TEXTS, read_search(how), align=False, records=records)
    return generate(model._predictor, TEXTS, read_search(how), records=records)


@pytest.mark.parametrize(("engine", "kernels"), [("compiled", True), ("compiled", False), ("open", True)])
@pytest.mark.parametrize("name", MODELS)
def test_loaded_models_are_recorded_as_they_answer(
    name: str, engine: Any, kernels: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not kernels:
        monkeypatch.setattr(library._State, "found", None)
        monkeypatch.setenv("SEQLOOM_KERNELS", "none")
    model = seqloom.load(find_folder(name), engine=engine)
    spell = model.tokenizer.target.token
    for how in HOW.values():
        records: list[SearchRecord] = []
        found = ask(model, how, records)
        assert found == ask(model, how, None), "a record changes nothing"
        if model.config.task == "translation":
            assert found == model.translate(TEXTS, align=False, **how)
        for answer, record in zip(found, records, strict=True):
            answers = [answer, *answer.alternatives]
            by_id = {one.id: one for step in record.steps for one in step.candidates}
            for one, expected in zip(record.hypotheses, answers, strict=True):
                path = [by_id[id] for id in one.steps]
                given = len(record.prefix)
                assert one.score == expected.score
                assert one.finished == expected.finished
                assert tuple(step.log_probability for step in path) == expected.token_scores
                assert tuple(map(spell, one.ids))[-len(expected.tokens) or len(one.ids) :] == expected.tokens
                texts = [spell_token(model.tokenizer.target, id) for id in one.ids[given:]]
                assert [step.text for step in path[: len(one.ids) - given]] == texts
            assert all(one.reason for one in by_id.values() if one.status in ("dropped", "replaced"))


def test_rows_beyond_the_vocabulary_are_named_by_their_number() -> None:
    """An output layer may have more rows than the tokeniser has tokens; no answer may contain them."""
    config, labels, network = build("language-model/transformer")
    row, tokenizer = len(network.output.weight), make_tokenizer()
    config = config.model_copy(update={"model": config.model.model_copy(update={"vocab_size": row + 1})})
    network = config.build(tokenizer, labels)
    with torch.no_grad():
        network.output.bias[row] = 9.0
    model = seqloom.Model(Predictor(Bundle(config, tokenizer, labels, network.eval())))
    for how in (HOW["beam"], HOW["greedy"]):
        records: list[SearchRecord] = []
        ask(model, how, records)
        (found,) = (one for one in records[0].steps[0].candidates if one.token == row)
        assert (found.text, found.status) == (f"[{row}]", "dropped")
        assert "no answer may contain this token" in (found.reason or "")


def test_ctranslate2_refuses_to_be_recorded() -> None:
    pytest.importorskip("ctranslate2")
    model = seqloom.load(find_folder("marian"), engine="ctranslate2")
    with pytest.raises(ConfigError, match="does not say what its search kept and dropped; leave `engine` out"):
        ask(model, HOW["beam"], [])
