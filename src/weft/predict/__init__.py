"""Using a trained model: translate, generate, classify, tag, embed, fill, score."""

from weft.predict.load import load
from weft.predict.model import Model

__all__ = ["Model", "load"]
