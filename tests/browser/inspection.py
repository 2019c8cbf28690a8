"""A person at the page: opens views, reads the numbers, and compares each with what Python has."""

from collections.abc import Callable, Sequence

from playwright.sync_api import Locator, Page, expect

from browser.digits import assert_shows
from browser.explored import Explored
from browser.watching import Watched
from seqloom.lens.attribution import Method
from seqloom.lens.trace import Trace
from seqloom.predict.contexts import find_contexts

METHODS: tuple[Method, ...] = ("conserved", "gradient", "integrated", "occlusion")
VIEWS = ("answer", "mixing", "why", "search", "change", "words", "runs")


class Inspector:
    """Looks at one model."""

    def __init__(self, watched: Watched, explored: Explored) -> None:
        self.page: Page = watched.page
        self.watched, self.explored = watched, explored
        self.wait()

    def wait(self) -> None:
        """Until the trace is there and the view has drawn it."""
        self.page.wait_for_selector("seq-app[data-state=ready]:not([aria-busy])", state="attached")
        self.page.wait_for_selector("main > :last-child:not([aria-busy])", state="attached")

    def open(self, view: str) -> Locator:
        """Click on a tab; the element of its view."""
        self.page.locator(f"#tab-{view}").click()
        self.wait()
        return self.page.locator(f"seq-{view}")

    def trace(self) -> Trace:
        """What Python says about the text that the page shows."""
        texts = [area.input_value() for area in self.page.locator("#request textarea").all()]
        return self.explored.model.trace(*[text for text in texts if text])

    def change_trace(self, act: Callable[[], None]) -> None:
        """Do something that makes another trace, and wait for it."""
        before = self.page.locator("seq-app").get_attribute("data-trace")
        act()
        self.page.wait_for_selector(f'seq-app[data-state=ready]:not([data-trace="{before}"])', state="attached")
        self.wait()

    # ---- view by view ----

    def inspect_every_view(self, *, examine: bool = True) -> None:
        """Each shows something, or says in a sentence why there is nothing; axe finds nothing serious."""
        for view in VIEWS:
            element = self.open(view)
            expect(element.locator(".fault")).to_have_count(0)
            shown = element.inner_text().strip()
            assert shown, view
            if element.locator("> .empty").count():
                assert shown.endswith("."), shown
            found = self.watched.examine() if examine else []
            assert not found, f"{view}: " + "\n".join(found)

    def inspect_answer(self) -> None:
        """The probability of each prediction."""
        trace = self.trace()
        shown = self.open("answer").locator("#output .token small:last-child").all_inner_texts()
        assert len(shown) == len(trace.predictions)
        for text, prediction in zip(shown, trace.predictions, strict=True):
            assert prediction.probability is not None
            assert_shows(text, prediction.probability)

    def inspect_mixing(self) -> None:
        """The weight of the cell that is chosen, in the first map of each stack."""
        trace = self.trace()
        for stack in trace.stacks:
            site = stack.layers[0].sites[0]
            weights = trace.mixing(site)
            row, column = len(weights) - 1, 0
            self.go(view="mixing", stack=stack.name, site=site, row=row, column=column)
            expect(self.page.locator("#map-name")).to_be_visible()
            assert_shows(self.page.locator("#weight output").inner_text(), float(weights[row, column]))

    def inspect_why(self, methods: Sequence[Method] = METHODS) -> None:
        """Contributions, attribution and the lens of a prediction, number by number."""
        trace = self.trace()
        position = min(1, len(trace.predictions) - 1)
        self.go(view="why", position=position, **{"why.detail": "components"})
        parts = self.page.locator("#why-contributions")
        found = trace.contributions(position)
        expect(parts.locator(".row")).to_have_count(len(found.items) + 1)
        for item in found.to_json()["items"]:
            shown = parts.locator(f'[data-site="{item["site"]}"] .value').text_content()
            assert shown is not None
            assert_shows(shown, item["value"])
        for name in ("total", "logit"):
            assert_shows(parts.locator(f"output[data-number={name}]").inner_text(), getattr(found, name))
        self._inspect_attribution(trace, position, methods)
        rows = self.page.locator("#why-layers tbody tr")
        layers = trace.lens(position)
        expect(rows).to_have_count(len(layers))
        for row, layer in zip(reversed(rows.all()), layers, strict=True):
            assert row.get_attribute("data-layer") == layer.name
            for shown, one in zip(row.locator("td small").all_inner_texts(), layer.top, strict=False):
                assert_shows(shown, one.probability)

    def _inspect_attribution(self, trace: Trace, position: int, methods: Sequence[Method]) -> None:
        input = self.page.locator("#why-attribution")
        for method in methods:
            input.locator("#why-method").select_option(method)
            self.wait()
            found = trace.attribute(position, method=method)
            expect(input.locator("output[data-number=gap]")).to_be_visible()
            for side, values in found.sides.items():
                shown = input.locator(f'[data-side="{side}"] small').all_inner_texts()
                assert len(shown) == len(values)
                for text, value in zip(shown, values, strict=True):
                    assert_shows(text, float(value))
            assert_shows(input.locator("output[data-number=logit]").inner_text(), found.logit)

    def inspect_search(self) -> None:
        """The score and the log-probability of the best answer; every candidate that was dropped has a reason."""
        trace, element = self.trace(), self.open("search")
        if isinstance(trace.views.get("search", True), str) or element.locator("> .empty").count():
            return
        record = trace.search
        best = record.hypotheses[0]
        assert_shows(element.locator("output[data-number=score]").inner_text(), best.score)
        assert_shows(element.locator("output[data-number=log-probability]").inner_text(), best.log_probability)
        boxes = element.locator("[data-candidate]")
        assert boxes.count() == sum(len(step.candidates) for step in record.steps[:40])
        element.locator("[data-candidate]").first.click()
        self.wait()
        for row in element.locator("#search-step tbody tr.dropped td:last-child").all_inner_texts():
            assert row.startswith("dropped: "), row

    def inspect_change(self) -> None:
        """A part is switched off: what is shown changes, to what Python has; a reload keeps it, undo takes it back."""
        trace, element = self.trace(), self.open("change")
        part = element.locator("#change-parts button.part").first
        site = part.get_attribute("data-site")
        assert site is not None
        self.change_trace(part.click)
        compared = trace.ablate(site).compare(trace).to_json()
        self._inspect_compared(element, compared["predictions"])
        changed = [one for one in compared["predictions"] if abs(one["after"] - one["before"]) > 1e-3]
        assert changed, f"{site} changes nothing, so nothing is tested"
        self.page.reload()
        self.wait()
        self._inspect_compared(element, compared["predictions"])
        self.change_trace(element.locator("#undo").click)
        expect(element.locator("#changes")).to_have_count(0)

    def _inspect_compared(self, element: Locator, predictions: list[dict[str, float]]) -> None:
        rows = element.locator("#change-effect tbody tr")
        expect(rows).to_have_count(len(predictions))
        for row, prediction in zip(rows.all(), predictions, strict=True):
            for name in ("before", "after"):
                assert_shows(row.locator(f"[data-number={name}]").inner_text(), prediction[name])

    def inspect_words(self) -> None:
        """The nearest words of an occurrence, in the last layer."""
        element = self.open("words")
        expect(element.locator("svg.plane")).to_be_visible()
        word = element.locator("#words-word").input_value()
        texts = [line for line in element.locator("#words-texts").input_value().split("\n") if line]
        found = find_contexts(self.explored.model._predictor, word, texts)
        assert element.locator("[data-occurrence] circle").count() == len(found.occurrences)
        last = found.layers[-1]
        shown = element.locator('.near[data-near="others"] td.number').all_inner_texts()
        assert len(shown) == len(last.neighbours[0])
        for text, near in zip(shown, last.neighbours[0], strict=True):
            assert_shows(text, near.cosine)

    def go(self, **state: str | int) -> None:
        """Open an address."""
        self.page.goto(self.explored.url(**state))
        self.wait()
