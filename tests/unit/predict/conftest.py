"""Trained models to use."""

from small_corpora import corpora
from small_runs import runs

__all__ = ["corpora", "runs"]
