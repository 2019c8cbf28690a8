r"""Skip-gram with negative sampling, as products of small matrices.

Every word w has an input vector v_w and an output vector u_w. A word i of the text predicts each neighbour j within a
distance drawn evenly from 1..window, against k noise words n drawn from P(n) ∝ count(n)^0.75. The objective to maximise
is (Mikolov et al. 2013, "Distributed Representations of Words and Phrases and their Compositionality", equation 4)

    log σ(u_j·v_i) + k E_{n~P} log σ(−u_n·v_i)

whose gradient along each score s is y − σ(s), with y = 1 for a neighbour and 0 for noise. A word of relative frequency
f is kept, each time it occurs, with probability min(1, √(t/f) + t/f): their equation 5 as their program has it.

Pair by pair, this is a stream of dot products that wait for memory. Here BLOCK consecutive words share their
neighbours and one set of BLOCK noise words (as in Ji et al. 2016, "Parallelizing Word2Vec in Shared and Distributed
Memory"). For the words' input vectors V (BLOCK × d) and the output vectors U of the block's columns (the words,
`window` words to either side of them, and the noise), with the rate η and the weight W of each pair:

    G = η W ∘ (Y − σ(V Uᵀ))        V += G U        U += Gᵀ V

W_ij is 1 where j is a neighbour of i and, for a noise column, k/BLOCK times the number of neighbours of i, so that the
expectation is that of equation 4. A batch is BLOCKS such blocks, updated together. Sums run in a fixed order: the same
seed gives the same bits.

A batch adds up gradients that were all taken at one point, so a word that occurs often in it, or meets long vectors,
would overshoot where it would settle one pair at a time. On text that repeats itself (lists, forms, pages written by a
program) the vectors would then diverge. The second derivative along u_j is at most ¼ Σ_i W_ij |v_i|², summed over the
batch, since σ' ≤ ¼, and likewise along v_i. Each word's rate is η or, if less, the one at which (rate × this bound) is
MOST_STEP. Gradient descent on a quadratic converges below 2.
"""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor
from torch.nn import functional as F

from seqloom.tasks.word_vectors import WordVectorsConfig

BLOCK = 16
"""Consecutive words that share their columns; also how many noise words they share."""
BLOCKS = 16
"""Blocks in a batch. Larger batches are faster and less like one pair at a time: at 64 the vectors get worse."""
MOST_STEP = 2.0
"""The most that (rate × curvature) may be, for any word in any batch."""
MEASURE_EVERY = 64
"""The loss is measured on one batch in so many, which takes about one hundredth of the time."""

Ids = npt.NDArray[np.int32]
"""Words of a text by number; a negative number ends a sentence."""


class _Batches(NamedTuple):
    """Batches for training; the first dimension of each tensor counts them."""

    words: Tensor  # (S, BLOCKS·BLOCK) the predicting words
    columns: Tensor  # (S, BLOCKS·C) the words predicted or drawn as noise
    left: Tensor  # (S, BLOCKS·BLOCK) rows of the weight tables
    right: Tensor
    rate: Tensor  # (S,)


class SkipGram:
    """The vectors of a vocabulary while they are trained."""

    def __init__(self, counts: npt.NDArray[np.int64], config: WordVectorsConfig) -> None:
        self.config = config
        size, dim, window, k = len(counts), config.dim, config.window, config.negatives
        start = np.random.default_rng([config.seed]).random((size, dim), dtype=np.float32)
        self.input = torch.from_numpy((start - 0.5) / dim)
        self.output = torch.zeros(size, dim)

        frequency = counts / counts.sum()
        self.keep = keep_probability(frequency, config.subsample)
        self.noise = np.cumsum(counts**0.75 / (counts**0.75).sum())

        self.left_weights, self.right_weights = _weight_tables(window, k)
        columns = self.left_weights.size(1)
        self.is_neighbour = (torch.arange(columns) < columns - BLOCK).float()  # Y
        self._v, self._v_step = torch.empty(2, BLOCKS, BLOCK, dim).unbind()
        self._u, self._u_step = torch.empty(2, BLOCKS, columns, dim).unbind()
        self._g, self._g_slow, self._w, self._w_right = torch.empty(4, BLOCKS, BLOCK, columns).unbind()
        self._curvature = torch.zeros(size)

    def train(self, ids: Ids, rates: tuple[float, float], random: np.random.Generator) -> float:
        """Train on a piece of text, the rate moving from the first to the second; returns the loss per pair."""
        batches = self._make_batches(ids, rates, random)
        losses = []
        for number, batch in enumerate(zip(*(part.unbind() for part in batches), strict=True)):
            if number % MEASURE_EVERY == 0:  # on text not yet trained on
                losses.append(self._loss(*batch[:4]))
            self._step(*batch)
        return sum(losses) / len(losses)

    def _step(self, words: Tensor, columns: Tensor, left: Tensor, right: Tensor, rate: Tensor) -> None:
        """One batch. Every result goes to a buffer that is reused: fresh memory would cost more than the arithmetic."""
        v, u, g, slow, w = self._v, self._u, self._g, self._g_slow, self._weigh(left, right)
        torch.index_select(self.input, 0, words, out=v.view(-1, v.size(-1)))
        torch.index_select(self.output, 0, columns, out=u.view(-1, u.size(-1)))
        torch.bmm(v, u.mT, out=g)
        torch.sub(self.is_neighbour, g.sigmoid_(), out=g).mul_(w)
        torch.mul(g, self._rates(words, w @ _squares(u), rate).view(BLOCKS, -1, 1), out=slow)
        torch.bmm(slow, u, out=self._v_step)
        torch.mul(g, self._rates(columns, w.mT @ _squares(v), rate).view(BLOCKS, 1, -1), out=slow)
        torch.bmm(slow.mT, v, out=self._u_step)
        self.input.index_add_(0, words, self._v_step.view(-1, v.size(-1)))
        self.output.index_add_(0, columns, self._u_step.view(-1, u.size(-1)))

    def _rates(self, words: Tensor, curvature: Tensor, rate: Tensor) -> Tensor:
        """`rate` for each word of a batch, or less where the word's curvature, summed over the batch, is too high."""
        total = self._curvature.index_add_(0, words, curvature.view(-1)).index_select(0, words)
        self._curvature.index_fill_(0, words, 0.0)
        return torch.minimum(total.reciprocal_().mul_(4 * MOST_STEP), rate, out=total)

    def _weigh(self, left: Tensor, right: Tensor) -> Tensor:
        """W: what lies to the left of a word and what lies to its right never meet, so their weights are summed."""
        torch.index_select(self.left_weights, 0, left, out=self._w.view(-1, self._w.size(-1)))
        torch.index_select(self.right_weights, 0, right, out=self._w_right.view(-1, self._w.size(-1)))
        return self._w.add_(self._w_right)

    def _loss(self, words: Tensor, columns: Tensor, left: Tensor, right: Tensor) -> float:
        weights = self._weigh(left, right)
        v = self.input[words].view_as(self._v)
        scores = torch.bmm(v, self.output[columns].view_as(self._u).mT)
        signed = torch.where(self.is_neighbour.bool(), scores, -scores)
        pairs = (weights * self.is_neighbour).sum().clamp(min=1)
        return float(-(weights * F.logsigmoid(signed)).sum() / pairs)

    def _make_batches(self, ids: Ids, rates: tuple[float, float], random: np.random.Generator) -> _Batches:
        """The batches of a piece of text, with all that is random: the words kept, how far each predicts, the noise."""
        window = self.config.window
        ids = ids[(ids < 0) | (random.random(len(ids), dtype=np.float32) < self.keep[ids])]
        words = ids[ids >= 0]
        before, after = measure_reach(ids, random.integers(1, window, len(words), endpoint=True))
        steps = max(1, -(-len(words) // (BLOCKS * BLOCK)))
        size = steps * BLOCKS * BLOCK

        # Words that fill up the last batch reach no one, so they have no weight.
        text = torch.zeros(window + size + window, dtype=torch.long)
        text[window : window + len(words)] = torch.from_numpy(words)
        left, right = torch.zeros(2, size, dtype=torch.long)
        left[: len(words)], right[: len(words)] = torch.from_numpy(before), torch.from_numpy(after)
        place = torch.arange(size) % BLOCK

        around = text.as_strided((size // BLOCK, BLOCK + 2 * window), (BLOCK, 1))
        noise = torch.from_numpy(np.searchsorted(self.noise[:-1], random.random((size // BLOCK, BLOCK)), side="right"))
        by_step = (steps, BLOCKS * BLOCK)
        return _Batches(
            text[window : window + size].view(by_step),
            torch.cat([around, noise], dim=1).view(steps, -1),
            (left * BLOCK + place).view(by_step),
            (right * BLOCK + place).view(by_step),
            torch.linspace(*rates, steps + 1)[:-1],
        )


def keep_probability(frequency: npt.NDArray[np.float64], threshold: float) -> npt.NDArray[np.float32]:
    """The chance that one occurrence of a word is kept; with threshold 0 all are."""
    if threshold == 0:
        return np.ones(len(frequency), np.float32)
    ratio = threshold / frequency
    return np.minimum(1.0, np.sqrt(ratio) + ratio).astype(np.float32)


def measure_reach(ids: Ids, most: npt.NDArray[np.int64]) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """How many words to its left and to its right each word predicts: `most` of them, within its sentence."""
    end = ids < 0
    place = np.flatnonzero(~end)
    bounds = np.concatenate([[-1], np.flatnonzero(end), [len(ids)]])
    sentence = np.cumsum(end)[place]
    return np.minimum(place - bounds[sentence] - 1, most), np.minimum(bounds[sentence + 1] - place - 1, most)


def _weight_tables(window: int, negatives: int) -> tuple[Tensor, Tensor]:
    """W's rows by (reach, place in the block), for what lies to the left and to the right, flattened to two tables."""
    place = torch.arange(BLOCK)[:, None]
    offset = torch.arange(-window, BLOCK + window) - place  # (BLOCK, BLOCK + 2·window)
    reach = torch.arange(window + 1)[:, None, None]
    noise = (reach * (negatives / BLOCK)).expand(-1, BLOCK, BLOCK)
    left = torch.cat([((offset < 0) & (offset >= -reach)).float(), noise], dim=2)
    right = torch.cat([((offset > 0) & (offset <= reach)).float(), noise], dim=2)
    return left.flatten(0, 1), right.flatten(0, 1)


def _squares(vectors: Tensor) -> Tensor:
    """The squared length of each vector."""
    lengths: Tensor = torch.linalg.vector_norm(vectors, dim=-1, keepdim=True)
    return lengths.square_()
