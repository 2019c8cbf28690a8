"""Fixtures of the long tests in a browser."""

from browser.conftest import browser, explored
from small_corpora import corpora

__all__ = ["browser", "corpora", "explored"]
