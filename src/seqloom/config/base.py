"""The base of every configuration section: frozen, strict, each default written once, each field documented once.

The docstring under a field is its documentation everywhere: in the JSON schema, in `seqloom new` and in error messages.
"""

import re
from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Discriminator, Field


class Section(BaseModel):
    """One table of the configuration file."""

    model_config = ConfigDict(
        defer_build=True,  # most commands read few of the sections
        frozen=True,
        extra="forbid",
        strict=True,
        use_attribute_docstrings=True,
        allow_inf_nan=False,
        validate_default=True,  # a default may not fit the keys that are given, and a run writes defaults down
    )


def one_or_many(value: Any) -> Any:
    """Make a single string a list of one."""
    if isinstance(value, str):
        return (value,)
    return tuple(value) if isinstance(value, list) else value


Names = Annotated[tuple[str, ...], BeforeValidator(one_or_many, json_schema_input_type=str | list[str])]
"""One string or a list of them."""

Positive = Annotated[int, Field(gt=0)]
NonNegative = Annotated[int, Field(ge=0)]
Rate = Annotated[float, Field(ge=0.0, lt=1.0)]
"""A probability of dropping something: 0 is never, 1 would be always and is refused."""

# RFC 5646, section 2.1: language, script, region, variants, extensions, private use.
_TAG = re.compile(
    r"[a-z]{2,3}(-[a-z]{3}){0,3}(-[a-z]{4})?(-([a-z]{2}|\d{3}))?(-([a-z\d]{5,8}|\d[a-z\d]{3}))*"
    r"(-[a-wy-z\d](-[a-z\d]{2,8})+)*(-x(-[a-z\d]{1,8})+)?",
    re.IGNORECASE | re.ASCII,
)


def check_language(tag: str) -> str:
    """Refuse what is not a language tag."""
    if not _TAG.fullmatch(tag):
        raise ValueError(f'"{tag[:40]}" is not a BCP 47 language tag, such as de, pt-BR or zh-Hant')
    return tag


LanguageTag = Annotated[str, AfterValidator(check_language)]
"""A language, as BCP 47 names it."""

CHOOSERS = ("task", "family", "kind", "format")
"""The keys that choose one of several sections: `family = "recurrent"`, `kind = "bpe"`, `format = "tsv"`."""


def chosen_by(field: str, default: str) -> Discriminator:
    """Choose the member of a union by `field`, or `default` where a table does not have the field."""

    def choose(value: Any) -> Any:
        return value.get(field, default) if isinstance(value, dict) else getattr(value, field, None)

    return Discriminator(choose)


def as_kind(value: Any) -> Any:
    """A table for a word that stands for it."""
    return {"kind": value} if isinstance(value, str) else value


from_word = BeforeValidator(as_kind)
"""`rows = "packed"` is short for `rows = {kind = "packed"}`."""
