"""The `[batch]` table: how records become batches, and the noise of masked language models.

[batch]                             [batch]
tokens = 4096                       tokens = 8192
max_length = 128                    rows = {kind = "windows", length = 256}
"""

from typing import Annotated, Literal, Self

from pydantic import BeforeValidator, Field, Tag, model_validator

from seqloom.config.base import Positive, Section, chosen_by, from_word, one_or_many

Share = Annotated[float, Field(ge=0.0, le=1.0)]
"""A part of a whole, from none to all."""
Length = Annotated[int, Field(gt=0, lt=2**31)]
"""A number of tokens in a row."""


Role = Literal["pad", "unk", "bos", "eos", "mask", "cls", "sep"]
_Roles = Annotated[tuple[Role, ...], BeforeValidator(one_or_many, json_schema_input_type=Role | list[Role])]


class Frame(Section):
    """The special tokens around a text, by what they are for; those a tokeniser does not have are left out."""

    before: _Roles = ()
    """What stands before it."""
    after: _Roles = ()
    """What stands after it."""


class _Limited(Section):
    max_length: Length = 512
    """The most tokens a sequence may have, special tokens included."""


class RecordBatches(_Limited):
    """Batches of records of similar length."""

    tokens: Positive | None = Field(None, examples=[4096])
    """How many tokens a batch holds on average, source and target together, over all processes; unless given, 5·√N for
    the N tokens of an epoch, but 512 to 4,096."""
    pool: Positive = 256
    """How many batches are grouped by length at a time: more is less padding, fewer is more variety in a batch."""


class SampleBatches(RecordBatches):
    """Batches of records that cannot be split, for translation and classification."""

    over: Literal["drop", "cut", "refuse"] = "drop"
    """A record over `max_length` is left out, cut to fit, or stops the training. What is dropped or cut is listed."""


class SentenceBatches(RecordBatches):
    """Batches of tagged sentences."""

    over: Literal["drop", "cut", "split", "refuse"] = "split"
    """A sentence over `max_length` is left out, cut to fit, split into several rows, or stops the training."""


class LineRows(_Limited):
    """Each record is a row; rows of similar length share a batch."""

    kind: Literal["lines"] = "lines"
    """One record a row."""
    over: Literal["drop", "cut", "split", "refuse"] = "split"
    """A record over `max_length` is left out, cut to fit, split into several rows, or stops the training."""


class PackedRows(Section):
    """Several records share a row, and no token attends to another record; a longer record is split over rows."""

    kind: Literal["packed"] = "packed"
    """Records side by side."""
    length: Length = 256
    """How many tokens the model reads in a row."""


class WindowRows(Section):
    """All records are one long text, seen through windows that do not overlap and lie elsewhere in every epoch."""

    kind: Literal["windows"] = "windows"
    """Windows over a running text."""
    length: Length = 256
    """How many tokens the model reads in a window."""


Rows = Annotated[WindowRows, Tag("windows")] | Annotated[PackedRows, Tag("packed")] | Annotated[LineRows, Tag("lines")]


class TextBatches(Section):
    """Batches of plain text, for language models of every kind."""

    tokens: Positive | None = Field(None, examples=[4096])
    """How many tokens a batch holds on average, over all processes; unless given, 5·√N for the N tokens of an epoch,
    but 512 to 4,096."""
    rows: Annotated[Rows, chosen_by("kind", "windows"), from_word] = WindowRows()
    """What a row is: a window over the running text, several packed records, or one record."""


class PackedBatches(TextBatches):
    """The same, with packed records unless said otherwise: a masked language model sees whole ones."""

    rows: Annotated[Rows, chosen_by("kind", "packed"), from_word] = PackedRows()
    """What a row is: several packed records, one record, or a window over the running text."""


class LineBatches(TextBatches):
    """The same, with one record a row unless said otherwise."""

    rows: Annotated[Rows, chosen_by("kind", "lines"), from_word] = LineRows()
    """What a row is: one record, several packed records, or a window over the running text."""


class _Masking(Section):
    rate: Annotated[float, Field(gt=0.0, le=1.0)] = 0.15
    """The share of tokens to predict; without any, there would be nothing to learn."""
    mask: Share = 0.8
    """Of those, the share shown as the mask token."""
    random: Share = 0.1
    """Of those, the share shown as a random token; the rest is shown as it is."""

    @model_validator(mode="after")
    def _shares_of_one(self) -> Self:
        if self.mask + self.random > 1.0:
            raise ValueError(f"mask = {self.mask} and random = {self.random} add up to more than 1; lower one")
        return self


class TokenMasking(_Masking):
    """Tokens are chosen one by one. Devlin et al. 2019."""

    kind: Literal["tokens"] = "tokens"
    """Single tokens."""


class WordMasking(_Masking):
    """Words are chosen, with all their tokens."""

    kind: Literal["words"] = "words"
    """Whole words."""


class SpanMasking(_Masking):
    """Runs of tokens are chosen, and each is masked, replaced or kept as a whole. Joshi et al. 2020 (SpanBERT)."""

    kind: Literal["spans"] = "spans"
    """Runs of tokens."""
    mean_length: Annotated[float, Field(ge=1.0)] = 3.0
    """The mean of the geometric distribution of a run's length."""


Masking = Annotated[
    Annotated[TokenMasking, Tag("tokens")]
    | Annotated[WordMasking, Tag("words")]
    | Annotated[SpanMasking, Tag("spans")],
    chosen_by("kind", "tokens"),
    from_word,
]
