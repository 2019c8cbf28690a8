"""What authors prefer in a search is said."""

import warnings
from pathlib import Path
from typing import Any

import pytest

from seqloom.errors import Notice
from seqloom.hub.huggingface.generation import report_preferences
from seqloom.hub.huggingface.settings import Settings


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"num_beams": 4, "length_penalty": 2.0}, "beam = 4, length_penalty = 2.0, and Seqloom only if you say so"),
        ({"do_sample": True, "temperature": 0.6, "top_p": 0.9}, "sample = true, temperature = 0.6, top_p = 0.9"),
        ({"no_repeat_ngram_size": 3}, "Seqloom has no no_repeat_ngram_size, so its answers may differ"),
        ({"bad_words_ids": [[7], [8, 9]]}, "Seqloom has no bad_words_ids"),
    ],
    ids=str,
)
def test_preferences_are_said(values: dict[str, Any], said: str) -> None:
    with pytest.warns(Notice, match=said):
        report_preferences(Settings(Path("folder/config.json"), values), (0, 1), 20)


@pytest.mark.parametrize(
    "values",
    [
        {},
        {"num_beams": 1, "do_sample": False, "temperature": 1.0, "repetition_penalty": 1.0},
        {"length_penalty": 2.0, "temperature": 0.6, "top_k": 50},
        {"bad_words_ids": [[1]], "suppress_tokens": [0, 1, 20, 21]},
    ],
    ids=str,
)
def test_those_without_an_effect_are_not(values: dict[str, Any]) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        report_preferences(Settings(Path("folder/config.json"), values), (0, 1), 20)
