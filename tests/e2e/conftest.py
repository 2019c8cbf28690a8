"""Fixtures of the tests that go a user's whole way."""

from small_corpora import corpora

__all__ = ["corpora"]
