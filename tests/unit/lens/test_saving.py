"""A saved trace answers what the page may ask, with the numbers of the trace, and says what it leaves out."""

import base64
import gzip
import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import seqloom
from seqloom.lens import saving
from seqloom.lens.trace import Trace
from unit.serve.conftest import make_run


@pytest.fixture(scope="module")
def trace(tmp_path_factory: pytest.TempPathFactory) -> Trace:
    run = make_run(tmp_path_factory.mktemp("run") / "translation", "translation")
    return seqloom.load(run).trace("the cat sees the dog .", beam=2, max_length=6)


def unpack(page: str) -> dict[str, Any]:
    packed = re.search(r'id="seqloom-data">([^<]+)<', page)
    assert packed
    whole = gzip.decompress(base64.b64decode(packed[1]))
    length = int.from_bytes(whole[:8], "little")
    header: dict[str, Any] = json.loads(whole[8 : 8 + length])
    return header


def test_every_map_is_there_with_the_arithmetic_of_its_strongest_weight(trace: Trace) -> None:
    saved = saving.record(trace)
    for site in trace.sites:
        for norm, address in ((False, f"mixing?site={site}"), (True, f"mixing?norm=1&site={site}")):
            arrays, about = saved.tensors[f"/trace/{trace.id}/{address}"]
            np.testing.assert_array_equal(arrays["weights"], trace.mixing(site, norm=norm).numpy())
            if not norm:
                row, column = about["cell"]
                steps = saved.answers[f"/trace/{trace.id}/arithmetic?column={column}&row={row}&site={site}"]["steps"]
                weight = next(step["values"] for step in steps if step["name"] == "weight")
                assert weight == pytest.approx(float(arrays["weights"][row, column]), abs=1e-6)


def test_reasons_search_and_roles_are_there(trace: Trace) -> None:
    answers = saving.record(trace).answers
    for position in range(len(trace.predictions)):
        found = answers[f"/trace/{trace.id}/attribution?position={position}"]
        assert found["total"] == pytest.approx(found["logit"], abs=1e-4)
        for what in ("contributions", "lens"):
            assert f"/trace/{trace.id}/{what}?position={position}" in answers
    assert answers[f"/trace/{trace.id}/search"]["steps"]
    assert answers[f"/trace/{trace.id}/alignment"]["best"]
    assert {f"/trace/{trace.id}/roles?stack={stack.name}" for stack in trace.stacks} <= {*answers}


def test_what_is_left_out_is_said(trace: Trace, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = saving.record(trace).answers["/trace"]
    assert whole["notes"][0].startswith("This is a saved page. Change, Words and Runs need the model")
    assert "seqloom explore RUN" in whole["views"]["change"]
    monkeypatch.setattr(saving, "MAP_BYTES", 500)
    monkeypatch.setattr(saving, "POSITIONS", 1)
    notes = saving.record(trace, state={"site": "decoder.1.cross.1"}).answers["/trace"]["notes"]
    assert re.search(r"It holds the numbers of \d+ maps out of 24, and thumbnails of all\.", notes[1])
    assert re.search(r"It holds the reasons of the first 1 of \d predictions\.", notes[2])


def test_the_map_that_is_shown_comes_first(trace: Trace, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(saving, "MAP_BYTES", 200)
    kept = saving.record(trace, state={"site": "decoder.1.cross.1", "row": "1", "column": "2"})
    assert f"/trace/{trace.id}/mixing?site=decoder.1.cross.1" in kept.tensors
    assert f"/trace/{trace.id}/arithmetic?column=2&row=1&site=decoder.1.cross.1" in kept.answers


def test_a_trace_saves_and_shows_itself(trace: Trace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert trace.save(tmp_path / "page.html") == tmp_path / "page.html"
    header = unpack((tmp_path / "page.html").read_text(encoding="utf-8"))
    assert header["answers"]["/trace"]["id"] == trace.id
    assert trace._repr_html_().startswith("<iframe srcdoc=")
    opened: list[str] = []
    monkeypatch.setattr(saving.webbrowser, "open", lambda address: opened.append(address) or True)
    assert opened == [] and trace.show().as_uri() == opened[0]  # noqa: PT018 - in this order
    with pytest.raises(seqloom.ConfigError, match=r"cannot be written: No such file"):
        trace.save(tmp_path / "no" / "page.html")
