"""Which word of the source each word of a target comes from: where the model looked while it wrote it.

The weights are those of the last attention to the source, averaged over its heads; the weight between two words is the
sum over their tokens, and each target word takes the source word with the most.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from seqloom.models.seq2seq import Seq2Seq
from seqloom.predict.loaded import Loaded, batch_by_length
from seqloom.text.tokenizer import Encoding, group_by_word
from seqloom.types import PairBatch, TokenBatch


@dataclass(frozen=True)
class Alignment:
    """What each target token looked at, over all heads of the last attention to the source."""

    source: list[str]
    target: list[str]
    weights: Float[Tensor, "T S"]


def align_words(loaded: Loaded, sources: Sequence[str], targets: Sequence[str]) -> list[tuple[tuple[int, int], ...]]:
    """Pairs of (source word, target word) for each pair of texts; none for a model without attention."""
    read, written = ([loaded.tokenizer.encode(text) for text in texts] for texts in (sources, targets))
    pairs: list[tuple[tuple[int, int], ...]] = []
    for source, target, seen, made, weights in zip(
        sources, targets, read, written, attend_source(loaded, read, written), strict=True
    ):
        if weights is None:
            pairs.append(())
            continue
        between = _sum_words(_sum_words(weights, target, made).T, source, seen).T  # (target words, source words)
        found = zip(between.argmax(1).tolist() if between.numel() else (), between.sum(1).tolist(), strict=False)
        pairs.append(tuple((origin, word) for word, (origin, weight) in enumerate(found) if weight > 0))
    return pairs


@torch.inference_mode()
def attend_source(loaded: Loaded, sources: Sequence[Encoding], targets: Sequence[Encoding]) -> list[Tensor | None]:
    """For each pair, the weights (target token, source token); the row of a token is that of predicting it."""
    network = loaded.compile()
    if not isinstance(network, Seq2Seq):
        loaded.refuse("align")
    found: list[Tensor | None] = [None] * len(sources)
    rows = [loaded.frame("source", source.ids) for source in sources]
    wanted = [loaded.frame("target", target.ids)[:-1] for target in targets]
    before = len(loaded.frames["source"].before)
    for batch in batch_by_length([[*row, *want] for row, want in zip(rows, wanted, strict=True)]):
        source, target = loaded.pad([rows[i] for i in batch]), loaded.pad([wanted[i] for i in batch])
        weights = network.align(PairBatch(source, TokenBatch(target.ids, target.mask)))
        if weights is None:
            return found
        for place, index in enumerate(batch):
            size = len(sources[index].ids)
            found[index] = weights[place, : len(targets[index].ids), before : before + size].float().cpu()
    return found


def _sum_words(rows: Float[Tensor, "T _"], text: str, encoding: Encoding) -> Float[Tensor, "W _"]:
    """Rows of tokens as rows of the words they are part of."""
    groups = group_by_word(text, encoding.offsets)
    tokens = torch.tensor([token for group in groups for token in group], dtype=torch.long)
    words = torch.tensor([word for word, group in enumerate(groups) for _ in group], dtype=torch.long)
    return rows.new_zeros(len(groups), rows.shape[1]).index_add_(0, words, rows[tokens])
