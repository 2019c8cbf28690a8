"""Sections of which one is chosen by a word: `family = "recurrent"`, `kind = "bpe"`, `format = "tsv"`."""

from typing import Any

from pydantic import BeforeValidator, Discriminator

CHOOSERS = ("task", "family", "kind", "format")
"""The keys that choose."""


def chosen_by(field: str, default: str) -> Discriminator:
    """Choose the member of a union by `field`; a table that does not say is `default`."""

    def choose(value: Any) -> Any:
        return value.get(field, default) if isinstance(value, dict) else getattr(value, field, None)

    return Discriminator(choose)


def _make_table(value: Any) -> Any:
    return {"kind": value} if isinstance(value, str) else value


from_word = BeforeValidator(_make_table)
"""`rows = "packed"` is short for `rows = {kind = "packed"}`."""
