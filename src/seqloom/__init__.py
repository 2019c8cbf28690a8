"""Seqloom: from plain text to your own sequence model.

    run = seqloom.train("de-en.toml", {"train.minutes": 10})
    mt = seqloom.load("runs/de-en")
    mt.translate(["Guten Morgen"], beam=5)

Importing this package is cheap: torch is imported by the parts that compute, when they are asked for.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from seqloom.errors import ConfigError, DataError, RunError, SeqloomError, ShapeError
    from seqloom.lens.trace import Trace
    from seqloom.predict.load import assemble, load
    from seqloom.predict.model import Model
    from seqloom.predict.results import (
        Candidate,
        Classification,
        Filling,
        Generation,
        Mask,
        Quantity,
        Result,
        Score,
        TaggedSpan,
        Tagging,
        TokenVectors,
        Translation,
    )
    from seqloom.predict.scorecard import Scorecard
    from seqloom.predict.translate import Alignment
    from seqloom.runs.run import Run
    from seqloom.text.tokenizer import Tokenizer
    from seqloom.training.job import train

__version__ = "0.1.0"
__all__ = ["Model", "Run", "Tokenizer", "Trace", "__version__", "assemble", "load", "train"]
__all__ += ["Alignment", "Candidate", "Classification", "Filling", "Generation", "Mask", "Quantity", "Result", "Score"]
__all__ += ["Scorecard", "TaggedSpan", "Tagging", "TokenVectors", "Translation"]
__all__ += ["ConfigError", "DataError", "RunError", "SeqloomError", "ShapeError"]
_HOMES = {
    "errors": ("ConfigError", "DataError", "RunError", "SeqloomError", "ShapeError"),
    "lens.trace": ("Trace",),
    "predict.load": ("assemble", "load"),
    "predict.model": ("Model",),
    "predict.scorecard": ("Scorecard",),
    "predict.translate": ("Alignment",),
    "runs.run": ("Run",),
    "text.tokenizer": ("Tokenizer",),
    "training.job": ("train",),
}
"""The modules that names come from; those that are not listed are results."""

if not TYPE_CHECKING:  # a type checker reads the imports above, and knows that there is nothing else

    def __getattr__(name: str) -> Any:
        if name not in __all__:
            raise AttributeError(f"module 'seqloom' has no attribute '{name}'")
        from importlib import import_module

        home = next((home for home, names in _HOMES.items() if name in names), "predict.results")
        return getattr(import_module(f"seqloom.{home}"), name)


def __dir__() -> list[str]:
    return __all__
