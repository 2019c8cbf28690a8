"""A page that was saved as one file: opened from disk, it shows the same numbers and asks nobody for anything."""

from pathlib import Path

from playwright.sync_api import Browser, expect

from browser.conftest import Explore
from browser.digits import assert_shows
from browser.watching import watch


def test_a_saved_page_needs_no_server(browser: Browser, explored: Explore, tmp_path: Path) -> None:
    model = explored("translation/transformer")
    with watch(browser, model.url(view="why", position=0)) as watched:
        page = watched.page
        expect(page.locator("#why-contributions .row").first).to_be_visible()
        served = page.locator("#why-contributions .value").all_inner_texts()
        text = page.locator("#field-text").input_value()
        page.locator("#export summary").click()
        with page.expect_download() as download:
            page.locator("#save-page").click()
        saved = tmp_path / "saved.html"
        download.value.save_as(saved)
    assert saved.stat().st_size < 5_000_000
    with watch(browser, saved.as_uri(), offline=True) as watched:
        page = watched.page
        expect(page.locator("#why-contributions .row").first).to_be_visible()
        assert page.locator("#why-contributions .value").all_inner_texts() == served
        trace = model.model.trace(text)
        assert_shows(
            page.locator("#why-contributions output[data-number=logit]").inner_text(), trace.contributions(0).logit
        )
        for view in ("change", "words"):
            page.locator(f"#tab-{view}").click()
            expect(page.locator(f"seq-{view}")).to_contain_text("seqloom explore")
