"""Sections of which one is chosen by a word: `family = "recurrent"`, `kind = "bpe"`, `format = "tsv"`."""

from typing import Any

from pydantic import Discriminator

CHOOSERS = ("task", "family", "kind", "format")
"""The keys that choose."""


def chosen_by(field: str, default: str) -> Discriminator:
    """Choose the member of a union by `field`; a table that does not say is `default`."""

    def choose(value: Any) -> Any:
        return value.get(field, default) if isinstance(value, dict) else getattr(value, field, None)

    return Discriminator(choose)
