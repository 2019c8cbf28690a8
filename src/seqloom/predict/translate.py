"""Translation, sentence by sentence or as a whole, and the alignment of target words with source words.

Alignments come from the last attention to the source, averaged over its heads. The weight between two words is the sum
over their tokens; each target word is aligned with the source word of the largest weight.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor

from seqloom.config.data import ParallelData, SourceUnit
from seqloom.decode.options import Request, Search
from seqloom.decode.record import SearchRecord
from seqloom.errors import ConfigError, RunError
from seqloom.models.seq2seq import Seq2Seq
from seqloom.predict.plan import Plan, PlannedLine
from seqloom.predict.predictor import Piece, Predictor, batch_by_length, group_pieces
from seqloom.predict.results import Translation
from seqloom.predict.search import spell_forbidden, spell_required
from seqloom.seeds import derive_seed
from seqloom.text.sentences import find_sentences
from seqloom.text.tokenizer import Encoding, group_by_word
from seqloom.types import Hypothesis, PairBatch, TokenBatch

_UNSPACED = ("zh", "yue", "ja", "th", "lo", "km", "my", "bo", "dz")
"""Languages that write no space between sentences."""


@dataclass(frozen=True)
class Splitting:
    """Whether texts are split into sentences before they are translated, and the languages of both sides."""

    unit: SourceUnit = "line"
    source_language: str | None = None
    target_language: str | None = None

    def __call__(self, text: Piece) -> list[Piece]:
        """The sentences of a text; their translations are joined by its white space or, if it has none, a space."""
        spans = find_sentences(text.text, self.source_language) if self.unit == "sentence" else []
        if len(spans) < 2:
            return [text]
        spaced = (self.target_language or "").partition("-")[0].lower() not in _UNSPACED
        gaps = [text.text[end:start] for (_, end), (start, _) in pairwise(spans)]
        gaps = [gap if gap.strip(" ") else " " if spaced else "" for gap in gaps] + [""]
        return [
            Piece(text.owner, text.text[start:end], start, gap, sentence=number)
            for number, ((start, end), gap) in enumerate(zip(spans, gaps, strict=True))
        ]


def plan_splitting(model: Predictor, unit: SourceUnit | None = None) -> Splitting:
    """How a model's texts are split: by default, as its configuration says, and not at all if that says nothing."""
    data = model.config.data
    if not isinstance(data, ParallelData):
        model.refuse("translate")
    return Splitting(unit or data.source_unit or "line", data.source_language, data.target_language)


@torch.inference_mode()
def translate(
    model: Predictor,
    texts: Sequence[str],
    wanted: Search,
    *,
    align: bool,
    numbers: Sequence[int] = (),
    splitting: Splitting | None = None,
    records: list[SearchRecord] | None = None,
) -> list[Translation]:
    """Translate each text; in a text of several pieces, a prefix and constraints apply to the first.

    What is sampled depends on the seed and on the `numbers` of the texts: by default 1, 2, 3, … If a list of `records`
    is given, the record of each piece's search is added to it.
    """
    plan = plan_translation(model, texts, wanted, align=align, numbers=numbers, splitting=splitting)
    return plan.run(model, records)


def plan_translation(
    model: Predictor,
    texts: Sequence[str],
    wanted: Search,
    *,
    align: bool,
    numbers: Sequence[int] = (),
    splitting: Splitting | None = None,
) -> Plan[Translation]:
    """What a translation asks of an engine: a line for each piece of a text."""
    network = model.compile()
    if not isinstance(network, Seq2Seq):
        model.refuse("translate")
    ends = model.find_ends("target")
    never = model.list_suppressed(network.output, ends, wanted)
    model.engine.check(wanted)
    pieces, rows = model.read(texts, "source", splitting or plan_splitting(model))
    requests = _make_requests(model, wanted, pieces, rows, numbers or range(1, len(texts) + 1))

    def finish(hypotheses: Sequence[Sequence[Hypothesis]]) -> list[Translation]:
        found = [[_write(model, one) for one in line] for line in hypotheses]
        if align:
            _align(model, pieces, found)
        return [
            _join_pieces(texts[owner], [pieces[i] for i in own], [found[i] for i in own])
            for owner, own in enumerate(group_pieces(pieces, len(texts)))
        ]

    lines = [PlannedLine(row, request, wanted) for row, request in zip(rows, requests, strict=True)]
    return Plan(lines, ends, never, finish)


def _make_requests(
    model: Predictor, wanted: Search, pieces: Sequence[Piece], rows: Sequence[Sequence[int]], numbers: Sequence[int]
) -> list[Request]:
    tokenizer = model.tokenizer.target
    if not model.frames["target"].before:
        raise RunError("no special token stands before a target, so a translation has nothing to begin with")
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
    tokenizer = model.tokenizer.target
    text, tokens = tokenizer.decode(found.ids), tuple(map(tokenizer.token, found.ids))
    return Translation(text, found.score, tokens, found.token_scores, finished=found.finished)


def _align(model: Predictor, pieces: Sequence[Piece], found: list[list[Translation]]) -> None:
    pairs = [(number, rank) for number, answers in enumerate(found) for rank in range(len(answers))]
    sources = [pieces[number].text for number, _ in pairs]
    targets = [found[number][rank].text for number, rank in pairs]
    for (number, rank), alignment in zip(pairs, align_words(model, sources, targets), strict=True):
        found[number][rank] = replace(found[number][rank], alignment=alignment)


def _join_pieces(text: str, pieces: list[Piece], found: list[list[Translation]]) -> Translation:
    """One translation from those of the pieces of a text: the best joined, then as alternatives the second best."""
    if not pieces:
        return Translation("")
    ranks = [_join(text, pieces, parts) for parts in zip(*found, strict=False)]
    return replace(ranks[0], alternatives=tuple(ranks[1:]))


def _join(text: str, pieces: list[Piece], parts: Sequence[Translation]) -> Translation:
    if len(parts) == 1:
        return parts[0]
    written, pairs = "", []
    for piece, part in zip(pieces, parts, strict=True):
        sources, targets = _count_words(text[: piece.start]), _count_words(written)
        pairs += [(sources + source, targets + target) for source, target in part.alignment]
        written += part.text + piece.gap
    return Translation(
        written,
        sum(part.score for part in parts),
        tuple(token for part in parts for token in part.tokens),
        tuple(score for part in parts for score in part.token_scores),
        tuple(pairs),
        all(part.finished for part in parts),
        pieces=len(parts),
        sentences=pieces[-1].sentence + 1,
    )


def _count_words(before: str) -> int:
    """How many words end in the text before a piece; a word without white space after it continues in the piece."""
    return len(before.split()) - (before != "" and not before[-1].isspace())


@dataclass(frozen=True)
class Alignment:
    """How much each target token attended to each source token: the mean over heads of the last cross-attention."""

    source: list[str]
    target: list[str]
    weights: Float[Tensor, "T S"]


def align_words(model: Predictor, sources: Sequence[str], targets: Sequence[str]) -> list[tuple[tuple[int, int], ...]]:
    """Pairs of (source word, target word) for each pair of texts; none for a model without attention."""
    read = [model.tokenizer.encode(text) for text in sources]
    written = [model.tokenizer.target.encode(text) for text in targets]
    found = attend_source(model, read, written)
    pairs: list[tuple[tuple[int, int], ...]] = []
    for source, target, source_ids, target_ids, weights in zip(sources, targets, read, written, found, strict=True):
        if weights is None:
            pairs.append(())
            continue
        by_word = _sum_words(_sum_words(weights, target, target_ids).T, source, source_ids).T  # (targets, sources)
        best = zip(by_word.argmax(1).tolist() if by_word.numel() else (), by_word.sum(1).tolist(), strict=False)
        pairs.append(tuple((origin, word) for word, (origin, weight) in enumerate(best) if weight > 0))
    return pairs


def align_tokens(model: Predictor, source: str, target: str) -> Alignment:
    """How much each token of a target attends to each token of its source."""
    tokenizer = model.tokenizer
    read, written = tokenizer.encode(source), tokenizer.target.encode(target)
    (weights,) = attend_source(model, [read], [written])
    if weights is None:
        raise ConfigError("this model has no attention to its source, which it knows by model.decoder.context alone")
    sources = [tokenizer.decode([id]) for id in read.ids]
    return Alignment(sources, [tokenizer.target.decode([id]) for id in written.ids], weights)


@torch.inference_mode()
def attend_source(model: Predictor, sources: Sequence[Encoding], targets: Sequence[Encoding]) -> list[Tensor | None]:
    """The attention weights of each pair, (target token, source token): row t is the step that predicts token t."""
    network = model.compile()
    if not isinstance(network, Seq2Seq):
        model.refuse("align")
    found: list[Tensor | None] = [None] * len(sources)
    rows = [model.frame("source", source.ids) for source in sources]
    most = model.positions("decoder")  # a table of positions may end before a target does
    wanted = [model.frame("target", target.ids)[:-1][:most] for target in targets]
    before = len(model.frames["source"].before)
    for batch in batch_by_length([[*row, *want] for row, want in zip(rows, wanted, strict=True)]):
        source, target = model.pad([rows[i] for i in batch]), model.pad([wanted[i] for i in batch], "target")
        weights = network.align(PairBatch(source, TokenBatch(target.ids, target.mask)))
        if weights is None:
            return found
        for place, index in enumerate(batch):
            size = len(sources[index].ids)
            read = weights[place, : len(targets[index].ids), before : before + size].float().cpu()
            found[index] = F.pad(read, (0, 0, 0, len(targets[index].ids) - len(read)))
    return found


def _sum_words(rows: Float[Tensor, "T _"], text: str, encoding: Encoding) -> Float[Tensor, "W _"]:
    """The sum of the rows of each word's tokens."""
    groups = group_by_word(text, encoding.offsets)
    tokens = torch.tensor([token for group in groups for token in group], dtype=torch.long)
    words = torch.tensor([word for word, group in enumerate(groups) for _ in group], dtype=torch.long)
    return rows.new_zeros(len(groups), rows.shape[1]).index_add_(0, words, rows[tokens])
