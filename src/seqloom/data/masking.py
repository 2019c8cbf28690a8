"""Noise for masked language models: hide some tokens, to be predicted from the others.

A row is divided into units: single tokens, whole words, or spans of random length. Units are taken in random order
until they hold the wanted share of the row's tokens; the unit that crosses the line is taken with the probability that
makes the expected share exact. Of the chosen tokens, 80% become the mask token, 10% a random one and 10% stay as they
are (Devlin et al. 2019, section 3.1), so that the model cannot trust any token it sees.

The noise of a row is a pure function of the seed and the row's own key: it does not depend on the rows beside it, on
the padding, or on the number of processes.
"""

from collections.abc import Sequence
from dataclasses import astuple, dataclass, field
from typing import assert_never

import numpy as np
import torch
from jaxtyping import Bool, Int
from numpy.typing import NDArray
from torch import Tensor

from seqloom.config.batches import Masking, SpanMasking, TokenMasking, WordMasking
from seqloom.data.noise import Stream, draw_uniform
from seqloom.errors import ConfigError
from seqloom.text import Tokenizer
from seqloom.types import TokenBatch

Integers = NDArray[np.int64]
Flags = NDArray[np.bool_]


@dataclass(frozen=True)
class MaskedBatch:
    """What the model sees, where tokens were hidden, and what stood there."""

    text: TokenBatch
    hidden: Bool[Tensor, "B T"]
    targets: Int[Tensor, "B T"]
    host: "MaskedBatch | None" = field(default=None, repr=False, compare=False)
    """The same in main memory, where this is on another device and came from there."""

    @property
    def known(self) -> "MaskedBatch":
        """The same in main memory, if it is there."""
        return self if self.host is None else self.host


@dataclass(frozen=True)
class Masker:
    """Hides tokens.

    `ordinary` says for every id of the vocabulary whether it may be hidden, or be shown as a random token: true for
    all but special tokens. `begins_word` says whether it is the first token of a word.
    """

    config: Masking
    mask_id: int
    ordinary: Flags
    begins_word: Flags
    seed: int

    def hide(self, batch: TokenBatch, keys: Integers) -> MaskedBatch:
        """Hide tokens of each row; `keys` addresses each row's noise."""
        ids = batch.ids.numpy()
        maskable = batch.mask.numpy() & self.ordinary[ids]
        starts = self._start_units(ids, maskable, keys)
        hidden = self._choose(starts, maskable, keys)
        action = self._draw(Stream.MASK_ACTION, keys, ids.shape)
        if isinstance(self.config, SpanMasking):  # a span is treated as a whole, as its first token is
            action = np.take_along_axis(action, _find_starts(starts), axis=1)
        candidates = np.flatnonzero(self.ordinary)
        guesses = candidates[(self._draw(Stream.MASK_TOKEN, keys, ids.shape) * len(candidates)).astype(np.int64)]
        shown = np.where(action < self.config.mask, self.mask_id, guesses)
        shown = np.where(hidden & (action < self.config.mask + self.config.random), shown, ids)
        text = TokenBatch(torch.from_numpy(shown), batch.mask, batch.documents)
        return MaskedBatch(text, torch.from_numpy(hidden), batch.ids)

    def _start_units(self, ids: Integers, maskable: Flags, keys: Integers) -> Flags:
        """Where a unit begins; after anything that cannot be hidden, always."""
        match self.config:
            case TokenMasking():
                starts = np.ones(ids.shape, bool)
            case WordMasking():
                starts = self.begins_word[ids]
            case SpanMasking(mean_length=mean):  # a coin at every token: lengths between heads are geometric
                starts = self._draw(Stream.MASK_UNITS, keys, ids.shape) < 1 / mean
            case _:
                assert_never(self.config)
        starts[:, :1] = True
        starts[:, 1:] |= ~maskable[:, :-1] | ~maskable[:, 1:]
        return starts

    def _choose(self, starts: Flags, maskable: Flags, keys: Integers) -> Flags:
        rows, width = starts.shape
        units = np.cumsum(starts, axis=1) - 1
        places = (units + np.arange(rows)[:, None] * width).ravel()
        sizes = np.bincount(places, weights=maskable.ravel(), minlength=rows * width).reshape(rows, width)
        order = np.argsort(self._draw(Stream.MASK_PRIORITY, keys, starts.shape), axis=1)
        ordered = np.take_along_axis(sizes, order, axis=1)
        before = np.cumsum(ordered, axis=1) - ordered
        wanted = self.config.rate * maskable.sum(axis=1, keepdims=True)
        taken = np.empty(starts.shape, bool)
        np.put_along_axis(taken, order, before + ordered * self._draw(Stream.MASK_LAST, keys, (rows, 1)) < wanted, 1)
        return np.take_along_axis(taken, units, axis=1) & maskable

    def _draw(self, stream: Stream, keys: Integers, shape: tuple[int, int]) -> NDArray[np.float64]:
        return draw_uniform(self.seed, stream, keys, shape[1])


def build_masker(config: Masking, tokenizer: Tokenizer, seed: int) -> Masker:
    """A masker for the tokens of a tokeniser."""
    if tokenizer.roles.mask is None:
        raise ConfigError("masking needs a mask token and this tokeniser has none; train one, or choose another file")
    ordinary = np.ones(tokenizer.vocab_size, bool)
    ordinary[[id for id in astuple(tokenizer.roles) if id is not None]] = False
    if not ordinary.any():
        raise ConfigError("this tokeniser has no token but the special ones, so there is nothing to hide")
    begins_word = find_word_starts([tokenizer.token(id) for id in range(tokenizer.vocab_size)])
    return Masker(config, tokenizer.roles.mask, ordinary, begins_word, seed)


def find_word_starts(tokens: Sequence[str]) -> Flags:
    """Which tokens begin a word, by their spelling: `##` marks the others (WordPiece), `Ġ` or `▁` a space before.

    Where a vocabulary has no such mark, a token is a word.
    """
    marked = {mark: np.array([token.startswith(mark) for token in tokens], bool) for mark in ("##", "Ġ", "▁")}
    mark = max(marked, key=lambda mark: int(marked[mark].sum()))
    return marked[mark] if mark != "##" and marked[mark].any() else ~marked["##"]


def _find_starts(starts: Flags) -> Integers:
    """For each position, that of the first token of its unit."""
    return np.maximum.accumulate(np.where(starts, np.arange(starts.shape[1]), 0), axis=1)
