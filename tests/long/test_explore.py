"""The page of `seqloom explore` in a real browser: every family and task, and a text of 1,024 tokens."""

import runpy
from pathlib import Path

import pytest
from playwright.sync_api import Browser

from browser.conftest import Explore
from browser.explored import FAMILIES, TASKS, explore
from browser.inspection import VIEWS, Inspector
from browser.watching import watch

BENCH = runpy.run_path(str(Path(__file__).parents[2] / "bench" / "explore.py"))
LARGEST = 2_000_000  # bytes of an answer
SAVED = 5_000_000  # bytes of a file


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("task", TASKS)
def test_every_family_and_task(browser: Browser, explored: Explore, task: str, family: str) -> None:
    model = explored(f"{task}/{family}")
    with watch(browser, model.url()) as watched:
        person = Inspector(watched, model)
        person.inspect_answer()
        person.inspect_mixing()
        person.inspect_why()
        person.inspect_search()
        person.inspect_change()
        person.inspect_words()
        person.inspect_every_view()


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_a_narrow_window_in_both_themes(browser: Browser, explored: Explore, scheme: str) -> None:
    model = explored("translation/transformer")
    options = {"viewport": {"width": 400, "height": 800}, "color_scheme": scheme}
    with watch(browser, model.url(), **options) as watched:
        person = Inspector(watched, model)
        person.inspect_every_view()
        for view in VIEWS:
            person.open(view)
            width = watched.page.evaluate("document.documentElement.scrollWidth")
            assert width <= 400, f"{view} is {width} pixels wide in a window of 400"


@pytest.mark.parametrize("view", BENCH["VIEWS"])
def test_a_long_text(browser: Browser, large: Path, view: str) -> None:
    sizes: dict[str, int] = {}
    with explore(large) as model, watch(browser, "about:blank") as watched:
        watched.origin = model.origin
        watched.page.set_default_timeout(300_000)
        watched.page.on("response", lambda answer: sizes.update({answer.url: len(answer.body())}))
        watched.page.goto(model.url(view=view, text=BENCH["write_text"](BENCH["TOKENS"])))
        Inspector(watched, model)
        assert max(sizes.values()) <= LARGEST, max(sizes.items(), key=lambda one: one[1])


def test_a_saved_file_is_small(large: Path) -> None:
    assert BENCH["save_file"](large, BENCH["write_text"](BENCH["SAVED"])) <= SAVED


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made: Path = BENCH["make_model"](tmp_path_factory.mktemp("large"))
    return made
