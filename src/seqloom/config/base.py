"""The base of every configuration section: frozen, strict, each default written once, each field documented once.

The docstring under a field is its documentation everywhere: in the JSON schema, in `seqloom new` and in error messages.
"""

from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, ConfigDict, Discriminator, Field


class Section(BaseModel):
    """One table of the configuration file."""

    model_config = ConfigDict(
        frozen=True, extra="forbid", strict=True, use_attribute_docstrings=True, allow_inf_nan=False
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
