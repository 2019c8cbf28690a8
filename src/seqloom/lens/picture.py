"""A map in the terminal: the darker, the more."""

from collections.abc import Sequence

from jaxtyping import Float
from rich.text import Text
from torch import Tensor

_SHADES = " ░▒▓█"


def picture(weights: Float[Tensor, "T S"], rows: Sequence[str], columns: Sequence[str]) -> Text:
    """A line for each row token, a cell as wide as each column token."""
    widths = [max(len(token), 1) for token in columns]
    margin = max((len(token) for token in rows), default=0)
    text = Text(" " * (margin + 1))
    text.append("".join(token.ljust(width) for token, width in zip(columns, widths, strict=True)), style="bold")
    for token, line in zip(rows, weights.tolist(), strict=True):
        text.append("\n" + token.rjust(margin) + " ", style="bold")
        for weight, width in zip(line, widths, strict=True):
            shade = _SHADES[min(int(weight * len(_SHADES)), len(_SHADES) - 1)]
            text.append(shade * width, style="cyan")
    return text
