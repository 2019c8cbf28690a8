"""A target text for each source text, and which source word each of its words comes from.

That is where the model attended while it wrote the word: the weights of the last attention to the source, averaged over
its heads. The weight between two words is the sum over their tokens, and each target word takes the source word with
the most.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from jaxtyping import Float
from torch import Tensor

from seqloom.decode.options import Request, Search
from seqloom.errors import ConfigError
from seqloom.models.seq2seq import Seq2Seq
from seqloom.predict.pieces import Piece, group_pieces
from seqloom.predict.predictor import Predictor, batch_by_length
from seqloom.predict.results import Translation
from seqloom.predict.search import spell_forbidden, spell_required
from seqloom.seeds import derive_seed
from seqloom.text.tokenizer import Encoding, group_by_word
from seqloom.types import Hypothesis, PairBatch, TokenBatch

_BATCH_TOKENS = 4096


@torch.inference_mode()
def translate(
    model: Predictor, texts: Sequence[str], wanted: Search, *, align: bool, numbers: Sequence[int]
) -> list[Translation]:
    """Translate each text; of one in several pieces, a prefix and constraints concern the first.

    `numbers` are those of the texts: with the seed, they decide what is drawn.
    """
    network = model.compile()
    if not isinstance(network, Seq2Seq):
        model.refuse("translate")
    end = model.find_end("target")
    never = model.list_suppressed(network.output, end)
    model.engine.check(wanted)
    pieces, rows = model.read(texts, "source")
    requests = _ask(model, wanted, pieces, rows, numbers)
    found: list[list[Translation]] = [[] for _ in pieces]
    for batch in batch_by_length(rows, max(1, _BATCH_TOKENS // wanted.width)):
        asked = [requests[index] for index in batch]
        answers = model.engine.search([rows[index] for index in batch], asked, wanted, end=end, never=never)
        for index, hypotheses in zip(batch, answers, strict=True):
            found[index] = [_write(model, hypothesis) for hypothesis in hypotheses]
    if align:
        _align(model, pieces, found)
    return [
        _join(texts[owner], [pieces[i] for i in own], [found[i] for i in own])
        for owner, own in enumerate(group_pieces(pieces, len(texts)))
    ]


def _ask(
    model: Predictor, wanted: Search, pieces: Sequence[Piece], rows: Sequence[Sequence[int]], numbers: Sequence[int]
) -> list[Request]:
    tokenizer = model.tokenizer
    start, *lead = model.frames["target"].before
    prefix, required = (*lead, *tokenizer.encode(wanted.prefix).ids), spell_required(wanted, tokenizer)
    forbidden = spell_forbidden(wanted, tokenizer)
    forced = len(prefix) + sum(map(len, required))
    requests: list[Request] = []
    for piece, row in zip(pieces, rows, strict=True):
        first = piece.start == 0 or not requests or pieces[len(requests) - 1].owner != piece.owner
        longest = wanted.max_length or 2 * len(row) + 10 + forced
        requests.append(
            Request(
                start=start,
                max_length=min(longest, model.positions("decoder") or longest),
                prefix=prefix if first else tuple(lead),
                seed=derive_seed(wanted.seed, numbers[piece.owner], piece.start) if wanted.sample else 0,
                required=required if first else (),
                forbidden=forbidden,
            )
        )
    return requests


def _write(model: Predictor, found: Hypothesis) -> Translation:
    tokens = tuple(model.tokenizer.token(id) for id in found.ids)
    text = model.tokenizer.decode(found.ids)
    return Translation(text, found.score, tokens, found.token_scores, finished=found.finished)


def _align(model: Predictor, pieces: Sequence[Piece], found: list[list[Translation]]) -> None:
    pairs = [(number, rank) for number, answers in enumerate(found) for rank in range(len(answers))]
    sources = [pieces[number].text for number, _ in pairs]
    targets = [found[number][rank].text for number, rank in pairs]
    for (number, rank), alignment in zip(pairs, align_words(model, sources, targets), strict=True):
        found[number][rank] = replace(found[number][rank], alignment=alignment)


def _join(text: str, pieces: list[Piece], found: list[list[Translation]]) -> Translation:
    """The translations of the pieces of a text as one, the best with the best, the second with the second."""
    if not pieces:
        return Translation("")
    ranks = [_chain(text, pieces, [answers[rank] for answers in found]) for rank in range(min(len(a) for a in found))]
    return replace(ranks[0], alternatives=tuple(ranks[1:]))


def _chain(text: str, pieces: list[Piece], parts: list[Translation]) -> Translation:
    if len(parts) == 1:
        return parts[0]
    written, pairs = "", []
    for piece, part in zip(pieces, parts, strict=True):
        read, begun = _count_words(text[: piece.start]), _count_words(written)
        pairs += [(read + source, begun + target) for source, target in part.alignment]
        written += part.text + piece.gap
    return Translation(
        written,
        sum(part.score for part in parts),
        tuple(token for part in parts for token in part.tokens),
        tuple(score for part in parts for score in part.token_scores),
        tuple(pairs),
        all(part.finished for part in parts),
        pieces=len(parts),
    )


def _count_words(before: str) -> int:
    """How many words end before what follows; one that does not end goes on in it."""
    return len(before.split()) - (before != "" and not before[-1].isspace())


@dataclass(frozen=True)
class Alignment:
    """How much each target token attended to each source token, over all heads of the last attention to the source."""

    source: list[str]
    target: list[str]
    weights: Float[Tensor, "T S"]


def align_words(model: Predictor, sources: Sequence[str], targets: Sequence[str]) -> list[tuple[tuple[int, int], ...]]:
    """Pairs of (source word, target word) for each pair of texts; none for a model without attention."""
    read, written = ([model.tokenizer.encode(text) for text in texts] for texts in (sources, targets))
    pairs: list[tuple[tuple[int, int], ...]] = []
    for source, target, seen, made, weights in zip(
        sources, targets, read, written, attend_source(model, read, written), strict=True
    ):
        if weights is None:
            pairs.append(())
            continue
        between = _sum_words(_sum_words(weights, target, made).T, source, seen).T  # (target words, source words)
        found = zip(between.argmax(1).tolist() if between.numel() else (), between.sum(1).tolist(), strict=False)
        pairs.append(tuple((origin, word) for word, (origin, weight) in enumerate(found) if weight > 0))
    return pairs


def align_tokens(model: Predictor, source: str, target: str) -> Alignment:
    """How much each token of a target attends to each token of its source."""
    read, written = model.tokenizer.encode(source), model.tokenizer.encode(target)
    (weights,) = attend_source(model, [read], [written])
    if weights is None:
        raise ConfigError("this model has no attention to its source: it knows it by model.decoder.context alone")
    names = [[model.tokenizer.decode([id]) for id in ids] for ids in (read.ids, written.ids)]
    return Alignment(names[0], names[1], weights)


@torch.inference_mode()
def attend_source(model: Predictor, sources: Sequence[Encoding], targets: Sequence[Encoding]) -> list[Tensor | None]:
    """For each pair, the weights (target token, source token); the row of a token is that of predicting it."""
    network = model.compile()
    if not isinstance(network, Seq2Seq):
        model.refuse("align")
    found: list[Tensor | None] = [None] * len(sources)
    rows = [model.frame("source", source.ids) for source in sources]
    wanted = [model.frame("target", target.ids)[:-1] for target in targets]
    before = len(model.frames["source"].before)
    for batch in batch_by_length([[*row, *want] for row, want in zip(rows, wanted, strict=True)]):
        source, target = model.pad([rows[i] for i in batch]), model.pad([wanted[i] for i in batch])
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
