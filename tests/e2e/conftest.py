"""Fixtures of the tests that go a user's whole way."""

from small_corpora import corpora
from small_runs import runs

__all__ = ["corpora", "runs"]
