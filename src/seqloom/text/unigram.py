"""Learning a unigram vocabulary: the pieces whose independent draws best explain the words of a corpus.

A word w of count c(w) may be cut in many ways; with piece probabilities p its likelihood is the sum over all cuts,
P(w) = Σ_{cuts} Π p(piece), and the corpus asks for max Σ_w c(w) log P(w) (Kudo 2018, "Subword Regularization", §3.2).
Start from all frequent substrings; repeat: expectation maximisation of p by the forward-backward algorithm, then drop
the pieces whose loss c(x)·(log p(x) − log P(best cut of x into others)) is least, until the wanted number is left.

The `tokenizers` library has such a trainer, but it iterates over hash maps in random order, so two runs on one file
disagree; here the same words always give the same pieces. Everything is an array over the positions of all distinct
words, put end to end with one free slot after each: `edges[i, n-1]` is the piece of n characters that starts at
position i, or -1.
"""

from collections.abc import Mapping
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

LONGEST_PIECE = 16
SEEDS_PER_PIECE = 10
KEPT_PER_ROUND = 0.75
EM_STEPS = 2
RARE = 0.5  # expected occurrences below which a piece is not worth keeping
# Distinct words beyond this many characters in all (the rarest ones) are left out: it bounds memory below 1 GB.
MOST_POSITIONS = 2_000_000


def learn_pieces(words: Mapping[str, int], size: int, min_frequency: int) -> list[tuple[str, float]]:
    """At most `size` pieces with their log-probabilities, the likeliest first; every character of `words` is one."""
    lattice = _Lattice(words)
    lattice.seed(SEEDS_PER_PIECE * size, min_frequency)
    while len(lattice.scores) > size:
        for _ in range(EM_STEPS):
            lattice.maximise(size)
        lattice.prune(max(size, int(KEPT_PER_ROUND * len(lattice.scores))))
    for _ in range(EM_STEPS):
        lattice.maximise(size)
    return lattice.pieces()


class _Lattice:
    """All cuts of all words at once."""

    def __init__(self, words: Mapping[str, int]) -> None:
        ranked = sorted(words, key=lambda word: (-words[word], word))
        total = np.cumsum([len(word) + 1 for word in ranked])
        kept = ranked[: max(1, int(np.searchsorted(total, MOST_POSITIONS)))]
        kept.sort(key=len, reverse=True)  # so that the words with a character at step p are a prefix of all words
        self.text = "\0".join([*kept, "\0" * LONGEST_PIECE])
        self.lengths = np.array([len(word) for word in kept])
        self.starts = np.concatenate([[0], np.cumsum(self.lengths + 1)[:-1]])
        self.codes = np.frombuffer(self.text.encode("utf-32-le"), dtype=np.uint32).astype(np.int64)
        self.remaining = np.zeros(len(self.codes), dtype=np.int64)  # characters from here to the end of the word
        self.weights = np.zeros(len(self.codes))
        self.word_of = np.zeros(len(self.codes), dtype=np.int64)
        inside = np.flatnonzero(self.codes)
        self.word_of[inside] = np.repeat(np.arange(len(kept)), self.lengths)
        owner = self.word_of[inside]
        self.remaining[inside] = self.starts[owner] + self.lengths[owner] - inside
        self.weights[inside] = np.array([words[word] for word in kept], dtype=float)[owner]

    def seed(self, limit: int, min_frequency: int) -> None:
        """Take all characters and the `limit` substrings that cover most of the corpus (frequency times length)."""
        alphabet, substring = np.unique(self.codes, return_inverse=True)
        codes = substring.copy()
        self.edges = np.full((len(codes), LONGEST_PIECE), -1, dtype=np.int32)
        found: list[tuple[Any, Any, Any]] = []  # per length: frequency, first position, number in `edges`
        known = 0
        for n in range(1, LONGEST_PIECE + 1):
            here = np.flatnonzero(self.remaining >= n)
            if not len(here):
                break
            # A substring of n characters is one of n - 1 and a character: exact numbers without hashing strings.
            keys = substring[here] * len(alphabet) + codes[here + n - 1] if n > 1 else codes[here]
            _, first, number = np.unique(keys, return_index=True, return_inverse=True)
            substring[here] = number
            self.edges[here, n - 1] = known + number
            frequency = np.bincount(number, weights=self.weights[here])
            found.append((frequency, here[first], known + np.arange(len(first))))
            known += len(first)
        size = np.repeat(np.arange(1, len(found) + 1), [len(f) for f, _, _ in found])
        frequency, first, number = (np.concatenate(column) for column in zip(*found, strict=True))
        order = np.lexsort((number, -frequency * size))
        single = order[size[order] == 1]
        longer = order[(size[order] > 1) & (frequency[order] >= max(2, min_frequency))][:limit]
        chosen = np.concatenate([single, longer])
        self.scores = np.log(frequency[chosen] / frequency[chosen].sum())
        self.first, self.sizes = first[chosen], size[chosen]
        self._renumber(chosen, known)

    def _renumber(self, chosen: Ints, known: int) -> None:
        number = np.full(known + 1, -1, dtype=np.int32)  # the last place answers for -1, no piece
        number[chosen] = np.arange(len(chosen))
        self.edges = number[self.edges]

    def _keep(self, chosen: Ints, scores: Floats) -> None:
        known = len(self.scores)
        self.scores, self.first, self.sizes = scores, self.first[chosen], self.sizes[chosen]
        self._renumber(chosen, known)

    def _edge_scores(self, rows: Ints, columns: Ints) -> Floats:
        return np.append(self.scores, -np.inf)[self.edges[rows, columns]]

    def _sums(self, forward: bool) -> Floats:
        """log Σ over all cuts from the start of the word to each position (or from each position to the end)."""
        sums = np.full(len(self.codes), -np.inf)
        sums[self.starts if forward else self.starts + self.lengths] = 0.0
        for step in range(1, int(self.lengths[0]) + 1):
            active = int(np.searchsorted(-self.lengths, -step, side="right"))
            reach = np.arange(1, min(step, LONGEST_PIECE) + 1)
            if forward:
                nodes = self.starts[:active] + step
                begins = nodes[:, None] - reach
                paths = sums[begins] + self._edge_scores(begins, reach - 1)
            else:
                nodes = self.starts[:active] + self.lengths[:active] - step
                paths = sums[nodes[:, None] + reach] + self._edge_scores(nodes[:, None], reach - 1)
            best = paths.max(axis=1)
            sums[nodes] = best + np.log(np.exp(paths - best[:, None]).sum(axis=1))
        return sums

    def maximise(self, size: int) -> None:
        """Take one step of expectation maximisation; above `size` pieces, drop those that are hardly expected."""
        before, after = self._sums(forward=True), self._sums(forward=False)
        whole = after[self.starts][self.word_of]
        counts = np.zeros(len(self.scores))
        for n in range(1, LONGEST_PIECE + 1):
            here = np.flatnonzero(self.edges[:, n - 1] >= 0)
            piece = self.edges[here, n - 1]
            share = np.exp(before[here] + self.scores[piece] + after[here + n] - whole[here])
            counts += np.bincount(piece, weights=share * self.weights[here], minlength=len(counts))
        useful = (counts >= RARE) | (self.sizes == 1)
        chosen = np.flatnonzero(useful) if useful.sum() > size else np.arange(len(counts))
        self.counts = np.maximum(counts[chosen], RARE)
        self._keep(chosen, np.log(self.counts / self.counts.sum()))

    def prune(self, size: int) -> None:
        """Keep all characters and the pieces with the greatest loss, `size` in all."""
        loss = self.counts * (self.scores - self._best_alternatives())
        loss[self.sizes == 1] = np.inf
        chosen = np.sort(np.argsort(-loss, kind="stable")[:size])
        self._keep(chosen, self.scores[chosen])

    def _best_alternatives(self) -> Floats:
        """The log-probability of the best cut of each piece into two or more other pieces."""
        best = np.full((len(self.scores), LONGEST_PIECE + 1), -np.inf)
        best[:, 0] = 0.0
        for end in range(1, LONGEST_PIECE + 1):
            for n in range(1, end + 1):
                rows = np.flatnonzero((self.sizes >= end) & (self.sizes > n))
                path = best[rows, end - n] + self._edge_scores(self.first[rows] + end - n, np.array(n - 1))
                best[rows, end] = np.maximum(best[rows, end], path)
        return cast("Floats", best[np.arange(len(best)), self.sizes])

    def pieces(self) -> list[tuple[str, float]]:
        spelled: list[tuple[str, Any]] = [
            (self.text[first : first + size], round(float(score), 6))
            for first, size, score in zip(self.first, self.sizes, self.scores, strict=True)
        ]
        return sorted(spelled, key=lambda piece: (-piece[1], piece[0]))
