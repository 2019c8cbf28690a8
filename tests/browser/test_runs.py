"""The view of runs in a real browser: Python's numbers, live, checkpoints on a slider, two runs, and as a report."""

import re
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, expect

import seqloom
from browser.digits import assert_shows
from browser.explored import Explored, explore
from browser.inspection import Inspector
from browser.watching import watch
from listening import Listening
from seqloom.runs.history import read_history
from seqloom.runs.run import TrainingRun
from seqloom.training.job import train
from small_corpora import write_config

EXTRA = "steps = 30\nvalidate_every = 10\nsnapshots = 4\noptimizer.learning_rate = 0.01"


@pytest.fixture(scope="module")
def trained(corpora: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with two runs."""
    folder = tmp_path_factory.mktemp("trained")
    for name, family in (("one", "recurrent"), ("two", "convolutional")):
        path = write_config(folder, corpora, "classification", family, EXTRA)
        train(path, out=folder / "runs" / name, monitor=Listening())
    return folder / "runs"


@pytest.fixture(scope="module")
def served(trained: Path) -> Iterator[Explored]:
    with explore(trained / "one") as served:
        yield served


def test_numbers_are_those_of_python(browser: Browser, served: Explored) -> None:
    history = read_history(served.folder)
    with watch(browser, served.url(view="runs")) as watched:
        Inspector(watched, served)
        view = watched.page.locator("seq-runs")
        assert_shows(view.locator("output[data-number=score]").inner_text(), history["score"]["value"])
        chart = view.locator("#chart-loss svg")
        curves = [curve.get_attribute("points") for curve in chart.locator("polyline").all()]
        assert [len(points.split()) for points in curves if points] == [30, 3]
        chart.focus()
        watched.page.keyboard.press("Home")
        watched.page.keyboard.press("ArrowRight")
        told = watched.page.locator("#tooltip")
        expect(told).to_contain_text("step 2")
        assert_shows(told.locator("b").first.inner_text(), history["train"]["loss"][1])
        rows = view.locator("#run-labels tbody tr")
        expect(rows).to_have_count(len(history["labels"]["rows"]))
        for row, label in zip(rows.all(), history["labels"]["rows"], strict=True):
            assert row.locator("th").inner_text() == label["label"]
            for cell, name in zip(row.locator("td.number").all(), ("f1", "precision", "recall"), strict=False):
                assert_shows(cell.inner_text(), label[name])
        chosen = [setting["key"] for setting in history["settings"] if not setting["usual"]]
        assert view.locator("#run-settings > .scroll th code").all_inner_texts() == chosen
        for use in history["use"]:
            expect(view.locator("#run-use pre", has_text=use["command"]).first).to_be_visible()
        assert not watched.examine()


def test_a_checkpoint_is_chosen_for_every_view(browser: Browser, served: Explored) -> None:
    with watch(browser, served.url(view="runs")) as watched:
        person = Inspector(watched, served)
        slider = watched.page.locator("#checkpoint")
        assert slider.get_attribute("aria-valuetext") == "the model that was opened"
        slider.focus()
        person.change_trace(lambda: watched.page.keyboard.press("Home"))
        assert "checkpoint=step-00000000" in watched.page.url
        expect(watched.page.locator("#run-moments p")).to_contain_text("shows step 0.")
        text = watched.page.locator("#field-text").input_value()
        first = seqloom.load(served.folder / "snapshots" / "step-00000000").trace(text)
        shown = person.open("answer").locator("#output .token small").first.inner_text()
        assert_shows(shown, first.predictions[0].probability)
        assert first.predictions[0].probability != person.trace().predictions[0].probability
        watched.page.reload()
        person.wait()
        assert person.open("answer").locator("#output .token small").first.inner_text() == shown


def test_two_runs_are_seen_side_by_side(browser: Browser, served: Explored, trained: Path) -> None:
    other = read_history(trained / "two")
    with watch(browser, served.url(view="runs")) as watched:
        person = Inspector(watched, served)
        watched.page.locator("#runs-with").select_option("two")
        person.wait()
        scores = watched.page.locator(".run-score output")
        expect(scores).to_have_count(2)
        assert_shows(scores.nth(1).inner_text(), other["score"]["value"])
        expect(watched.page.locator("#chart-loss polyline")).to_have_count(4)
        expect(watched.page.locator("#chart-loss polyline.dashed")).to_have_count(2)
        differing = watched.page.locator("#run-settings table").first.locator("tbody tr")
        expect(differing.filter(has_text="model.encoder.family")).to_contain_text('"convolutional"')


def test_a_training_is_followed_live(browser: Browser, trained: Path, tmp_path: Path) -> None:
    shutil.copytree(trained / "one", tmp_path / "run")
    run = TrainingRun(tmp_path / "run")
    with run.lock(), explore(run.folder) as served, watch(browser, served.url(view="runs")) as watched:
        Inspector(watched, served)
        view = watched.page.locator("seq-runs")
        expect(view.locator(".run-state")).to_contain_text("in training")
        for step in range(31, 41):
            run.log.add(step=step, loss=0.5, norm=1.0, rate=1.0, count=10)
        run.log.add(step=40, valid={"loss": 0.001, "accuracy": 1.0, "macro_f1": 1.0}, samples=[])
        with run.log.path.open("ab") as file:
            file.write(b"damaged\n")
        expect(view.locator("#chart-loss polyline").first).to_have_attribute("points", _many(40))
        expect(view.locator(".run-score")).to_contain_text("at step 40")
        expect(view).to_contain_text("1 line of log.jsonl cannot be read and is left out.")


def _many(points: int) -> re.Pattern[str]:
    """So many pairs of coordinates."""
    return re.compile(rf"^(\S+ ){{{points - 1}}}\S+$")


def test_a_report_opens_from_disk(browser: Browser, trained: Path) -> None:
    path = trained / "one" / "report.html"
    assert path.stat().st_size < 1_000_000
    with watch(browser, path.as_uri(), offline=True) as watched:
        view = watched.page.locator("seq-runs")
        assert_shows(
            view.locator("output[data-number=score]").inner_text(), read_history(path.parent)["score"]["value"]
        )
        expect(view.locator("#chart-loss polyline")).to_have_count(2)
        expect(view.locator("#run-samples tbody tr")).to_have_count(3)
