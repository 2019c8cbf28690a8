"""From the pieces of a tokeniser to words: sum over columns, mean over rows.

A word attends to another as much as its pieces do on average, to all pieces of the other together. Special tokens stand
for themselves.
"""

import torch
from jaxtyping import Float
from torch import Tensor

from seqloom.lens.texts import Side, Word


def group_tokens(side: Side) -> tuple[Word, ...]:
    """The words and the special tokens of a side, in its order."""
    words = [(word.tokens[0], word) for word in side.words]
    inside = {index for word in side.words for index in word.tokens}
    words += [
        (index, Word(token.text, token.start or 0, token.end or 0, (index,)))
        for index, token in enumerate(side.tokens)
        if index not in inside
    ]
    return tuple(word for _, word in sorted(words, key=lambda pair: pair[0]))


def join_words(weights: Float[Tensor, "T S"], queries: Side, keys: Side) -> Float[Tensor, "W V"]:
    """A map of tokens as one of words; pooling has a single row, which stays."""
    columns = torch.stack([weights[:, list(word.tokens)].sum(1) for word in group_tokens(keys)], dim=1)
    if len(weights) != len(queries.tokens):
        return columns
    return torch.stack([columns[list(word.tokens)].mean(0) for word in group_tokens(queries)])
