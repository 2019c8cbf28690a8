"""What a reader has to know about experiments on a model of one's own: which of the words it does not know at all.

A model whose tokeniser has whole words reads every other word as one and the same unknown token. Its vectors, tags and
probabilities then say nothing about these words, and numbers that look like a result are not one.
"""

from collections.abc import Iterable, Sequence

from seqloom.predict.model import Model


def note_unknown(name: str, model: Model, texts: Iterable[str]) -> list[str]:
    """A sentence about unknown tokens in some texts, if there are any."""
    unknown = model.tokenizer.roles.unk
    ids = [token for text in texts for token in model.tokenizer.encode(text).ids]
    count = sum(token == unknown for token in ids)
    return [f"{name} does not know {count:,} of the {len(ids):,} tokens of these texts."] if count else []


def note_alike(name: str, model: Model, pairs: Sequence[tuple[str, str]]) -> list[str]:
    """A sentence about pairs of texts that differ only in words that the model does not know."""
    count = sum(model.tokenizer.encode(one).ids == model.tokenizer.encode(other).ids for one, other in pairs)
    return [f"{name} reads both sentences of {count:,} of {len(pairs):,} pairs alike, for want of words."] * bool(count)
