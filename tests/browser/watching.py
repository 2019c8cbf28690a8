"""A page of a real browser that is watched: no error in its console, no request that leaves its origin."""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from urllib.parse import urlsplit

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, BrowserContext, ConsoleMessage, Dialog, Page, Request, sync_playwright

_OWN = ("data", "blob", "about")
"""Addresses that are no requests to anybody."""
PATIENCE = 60_000
"""Milliseconds until something that must appear counts as missing; a loaded machine is slow."""


@contextmanager
def open_browser() -> Iterator[Browser]:
    """Debian's Chromium; a test that needs it is skipped where it is not installed."""
    path = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if path is None:
        pytest.skip("no Chromium on this machine; `apt-get install chromium` brings it")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=["--no-sandbox"])
        yield browser
        browser.close()


@dataclass
class Watched:
    """A page, and what must not happen on it."""

    page: Page
    origin: str
    faults: list[str] = field(default_factory=list)
    """Errors in the console, errors nobody caught, requests to other origins, dialogs."""

    def __post_init__(self) -> None:
        self.page.set_default_timeout(PATIENCE)
        self.page.on("console", self._hear)
        self.page.on("pageerror", lambda error: self.faults.append(f"uncaught: {error}"))
        self.page.on("request", self._follow)
        self.page.on("dialog", self._dismiss)

    def _hear(self, message: ConsoleMessage) -> None:
        if message.type in ("error", "warning"):
            self.faults.append(f"console {message.type}: {message.text}")

    def _follow(self, request: Request) -> None:
        parts = urlsplit(request.url)
        if parts.scheme not in _OWN and f"{parts.scheme}://{parts.netloc}" != self.origin:
            self.faults.append(f"request to {request.url}")

    def _dismiss(self, dialog: Dialog) -> None:
        self.faults.append(f"dialog: {dialog.message}")
        dialog.dismiss()

    def examine(self) -> list[str]:
        """What axe-core finds serious or critical, one line each."""
        found = Axe().run(self.page).response["violations"]
        return [
            f"{rule['id']}: {rule['help']}: {node['html'][:160]}"
            for rule in found
            if rule["impact"] in ("serious", "critical")
            for node in rule["nodes"][:3]
        ]


@contextmanager
def watch(browser: Browser, url: str, **options: object) -> Iterator[Watched]:
    """A page of its own; at the end, nothing must have gone wrong on it."""
    context: BrowserContext = browser.new_context(**{"viewport": {"width": 1280, "height": 900}, **options})  # type: ignore[arg-type]
    try:
        parts = urlsplit(url)
        watched = Watched(context.new_page(), f"{parts.scheme}://{parts.netloc}")
        watched.page.goto(url)
        yield watched
        assert not watched.faults, "\n".join(watched.faults)
    finally:
        context.close()
