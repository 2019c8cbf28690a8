"""Using a trained model: translate, generate, classify, tag, embed, fill, score."""

from seqloom.predict.load import load
from seqloom.predict.model import Model

__all__ = ["Model", "load"]
