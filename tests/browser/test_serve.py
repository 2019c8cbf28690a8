"""The page of `seqloom serve` in a real browser, as wide as a phone: each verb, a fault, and nothing from elsewhere."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, expect

import seqloom
from browser.watching import watch
from unit.serve.served import Served, make_folders

TASKS = ("translation", "language-model", "classification", "tagging")
PHONE = {"viewport": {"width": 390, "height": 844}}


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    return make_folders(tmp_path_factory.mktemp("served"), TASKS)


@pytest.fixture(scope="module")
def address(folders: dict[str, Path]) -> Iterator[str]:
    with Served(folders) as served, served.listen() as found:
        yield found


def test_every_verb_on_a_phone(browser: Browser, address: str, folders: dict[str, Path]) -> None:
    text = "the cat sees <script>alert(1)</script>"
    models = {name: seqloom.load(folder) for name, folder in folders.items()}
    expected = {
        "translation": models["translation"].translate(text).text,
        "language-model": models["language-model"].generate(text, max_length=128).text.strip(),
        "classification": models["classification"].classify(text).label,  # type: ignore[union-attr]
        "tagging": models["tagging"].tag(text).tags[0],
    }
    with watch(browser, address, **PHONE) as watched:
        page = watched.page
        for name, wanted in expected.items():
            page.select_option("#model", name)
            page.fill("#text", text)
            page.click("#ask")
            expect(page.locator("#answer")).to_contain_text(wanted)
            expect(page.locator("#stop")).to_be_hidden()
        assert page.evaluate("document.documentElement.scrollWidth") <= 390
        assert watched.examine() == []
