"""The page in a real browser, for a model with attention and one without; `tests/long` has every family and task."""

import pytest
from playwright.sync_api import Browser, expect

from browser.conftest import Explore
from browser.explored import HOSTILE
from browser.inspection import Inspector
from browser.watching import watch

NAMES = ("translation/transformer", "tagging/convolutional")


@pytest.mark.parametrize("name", NAMES)
def test_numbers_on_the_page_are_those_of_python(browser: Browser, explored: Explore, name: str) -> None:
    model = explored(name)
    with watch(browser, model.url()) as watched:
        person = Inspector(watched, model)
        person.inspect_answer()
        person.inspect_why(["conserved", "integrated"])
        person.inspect_change()
        person.inspect_every_view(examine=name == NAMES[0])


def test_a_token_is_never_markup(browser: Browser, explored: Explore) -> None:
    model = explored("translation/transformer/hostile")
    with watch(browser, model.url(text=f"the {HOSTILE} sees the {HOSTILE} .", **{"words.word": HOSTILE})) as watched:
        person = Inspector(watched, model)
        expect(watched.page.locator("#tokens-source .piece", has_text=HOSTILE)).to_have_count(2)
        person.inspect_every_view(examine=False)
        expect(watched.page.locator("body")).to_contain_text(HOSTILE)
        assert watched.page.evaluate("document.querySelectorAll('seq-app script').length") == 0
