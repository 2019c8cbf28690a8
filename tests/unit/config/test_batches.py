import pytest
from pydantic import TypeAdapter, ValidationError

from seqloom.config.batches import (
    LineRows,
    Masking,
    PackedRows,
    SampleBatches,
    SpanMasking,
    TextBatches,
    WindowRows,
    WordMasking,
)


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ({}, WindowRows()),
        ({"rows": "packed"}, PackedRows()),
        ({"rows": {"kind": "lines", "over": "cut"}}, LineRows(over="cut")),
        ({"rows": {"length": 64}}, WindowRows(length=64)),
    ],
)
def test_rows_are_chosen_by_a_word_or_a_table(written, meant):
    assert TextBatches.model_validate(written).rows == meant


@pytest.mark.parametrize(("written", "meant"), [("words", WordMasking()), ({"kind": "spans"}, SpanMasking())])
def test_masking_is_chosen_by_a_word_or_a_table(written, meant):
    assert TypeAdapter(Masking).validate_python(written) == meant


@pytest.mark.parametrize(
    "written",
    [{"tokens": 0}, {"tokens": 4096.0}, {"over": "split"}, {"max_length": -1}, {"rows": "packed"}],
)
def test_what_makes_no_sense_for_samples_is_refused(written):
    with pytest.raises(ValidationError):
        SampleBatches.model_validate(written)


def test_shares_of_masking_cannot_exceed_the_whole():
    with pytest.raises(ValidationError, match=r"mask = 0\.8 and random = 0\.3 add up to more than 1"):
        TypeAdapter(Masking).validate_python({"random": 0.3})
