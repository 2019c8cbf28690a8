"""Traces of small models with random weights, of every task and family."""

from functools import cache
from typing import Any

import seqloom
from contracts.random_models import NAMES, find_folder
from contracts.test_truth_seen import ask

SOME = (
    *("language-model/transformer", "language-model/recurrent", "language-model/convolutional", "gpt2", "llama"),
    *("translation/transformer", "translation/recurrent", "translation/convolutional", "translation/post-norm", "t5"),
    *("classification/transformer", "classification/recurrent", "tagging/convolutional", "regression/transformer"),
    *("masked-language-model/transformer", "bert", "bidirectional-language-model/recurrent"),
)
"""One of each kind."""
__all__ = ["NAMES", "SOME", "load", "trace"]


@cache
def load(name: str, double: bool = False) -> Any:
    """A model, in float64 if that is asked for."""
    model = seqloom.load(find_folder(name))
    if double:
        model.network.double()
    return model


@cache
def trace(name: str, double: bool = False) -> Any:
    """A trace of one of its texts."""
    return ask(name, load(name, double))
