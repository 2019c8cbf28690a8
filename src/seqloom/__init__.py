"""Seqloom: from plain text to your own sequence model.

Importing this package is cheap: torch is imported by the parts that compute, when they are asked to.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from seqloom.predict.load import load
    from seqloom.training.job import train

__version__ = "0.1.0"
__all__ = ["__version__", "load", "train"]


def __getattr__(name: str) -> Any:
    match name:
        case "load":
            from seqloom.predict.load import load

            return load
        case "train":
            from seqloom.training.job import train

            return train
        case _:
            raise AttributeError(f"module 'seqloom' has no attribute '{name}'")
