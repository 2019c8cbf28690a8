"""What a user may ask of a search: declared once, and answered like a configuration where it is wrong."""

import inspect
from typing import Any, get_args, get_type_hints

import numpy as np
import pytest

from seqloom.cli.search import generate, translate
from seqloom.decode.options import Search
from seqloom.errors import ConfigError
from seqloom.predict.search import SearchKeywords, read_search


@pytest.mark.parametrize(
    ("keywords", "fault"),
    [
        ({"beams": 4}, r'^beams: is not a known option; did you mean "beam"\?; known: beam, nbest, .*allow_unseen$'),
        ({"anything": 4}, r"^anything: is not a known option; known: beam, "),
        ({"beam": "four"}, r'^beam: expected a whole number, not "four"$'),
        ({"beam": True}, r"^beam: expected a whole number, not True$"),
        ({"beam": 2.5}, r"^beam: expected a whole number, not 2.5$"),
        ({"beam": 0}, r"^beam: must be at least 1, not 0$"),
        ({"sample": "yes"}, r'^sample: expected true or false, not "yes"$'),
        ({"constraints": "a cat"}, r'^constraints: expected a list of strings, not "a cat"$'),
        ({"avoid": [7]}, r"^avoid: expected a string, not 7$"),
        ({"sample": True, "top_p": 1.5}, r"^top_p: must be above 0 and at most 1, not 1.5$"),
        ({"top_p": 0.5}, r"^top_p: only for sampling; set `sample`, too"),
    ],
    ids=str,
)
def test_a_wrong_option_is_named(keywords: dict[str, Any], fault: str) -> None:
    with pytest.raises(ConfigError, match=fault):
        read_search(keywords)


def test_right_options_are_taken() -> None:
    given = {"beam": np.int64(3), "length_penalty": 1, "max_length": None, "constraints": ["a", "b"], "avoid": ("c",)}
    found = read_search(given)
    assert (found.beam, found.length_penalty, found.max_length) == (3, 1, None)
    assert (found.constraints, found.avoid) == (["a", "b"], ("c",))
    assert read_search({}) == Search()


def test_options_are_the_same_everywhere() -> None:
    """As keywords, as fields with a help text, and on the command line."""
    declared = get_type_hints(Search)
    assert get_type_hints(SearchKeywords) == declared
    assert all(get_args(kind)[1].endswith(".") for kind in get_type_hints(Search, include_extras=True).values())
    assert declared.keys() <= inspect.signature(translate).parameters.keys()
    assert declared.keys() - inspect.signature(generate).parameters.keys() == {"coverage_penalty"}
