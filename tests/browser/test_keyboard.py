"""The page without a pointer: every view is reached, and used, by keys alone."""

from playwright.sync_api import Browser, Page, expect

from browser.conftest import Explore
from browser.inspection import VIEWS, Inspector
from browser.watching import watch

MOST = 60  # presses of Tab until something has the focus


def reach(page: Page, selector: str, key: str = "Tab") -> None:
    """Press a key until the focus is on an element; it must be seen where the focus is."""
    for _ in range(MOST):
        page.keyboard.press(key)
        if page.evaluate("selector => document.activeElement.matches(selector)", selector):
            shown = page.evaluate(
                "() => { const e = document.activeElement, b = e.getBoundingClientRect();"
                " return b.width > 0 && b.height > 0 && e.matches(':focus-visible'); }"
            )
            assert shown, selector
            return
    raise AssertionError(f"{MOST} presses of {key} do not reach {selector}")


def test_keys_are_enough(browser: Browser, explored: Explore) -> None:
    model = explored("translation/transformer")
    with watch(browser, model.url()) as watched:
        page, person = watched.page, Inspector(watched, model)
        reach(page, "[role=tab]")
        for view in VIEWS[1:]:
            page.keyboard.press("ArrowRight")
            page.keyboard.press("Enter")
            person.wait()
            expect(page.locator(f"#tab-{view}")).to_have_attribute("aria-selected", "true")
            expect(page.locator(f"#tab-{view}")).to_be_focused()
        for _ in VIEWS[1:3]:
            page.keyboard.press("ArrowLeft")
        page.keyboard.press("Enter")  # Change
        person.wait()
        reach(page, "#change-parts button.part")
        page.keyboard.press("ArrowRight")
        site = page.evaluate("document.activeElement.dataset.site")
        person.change_trace(lambda: page.keyboard.press("Enter"))
        expect(page.locator("#changes")).to_contain_text(site)
        expect(page.locator(f'#change-parts [data-site="{site}"]')).to_be_focused()
        reach(page, "#undo")
        person.change_trace(lambda: page.keyboard.press("Enter"))
        expect(page.locator("#changes")).to_have_count(0)
