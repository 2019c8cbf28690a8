"""The probability of a text.

language model        log P(x) = Σ_t log P(x_t | x_<t), the end of the text among the x_t
bidirectional         the same, read forwards
translation           log P(y | x), the end of y among its tokens
masked                Σ_t log P(x_t | all others): the pseudo-log-likelihood of Salazar et al. 2020, eq. 1

perplexity = exp(−log P / tokens)        bits per byte = −log₂ P / bytes, where a predicted end counts as one byte
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from jaxtyping import Float, Int
from torch import Tensor

from seqloom.config.batches import WindowRows
from seqloom.errors import DataError
from seqloom.metrics.likelihood import exponentiate
from seqloom.models.language_models import BidirectionalLanguageModel, LanguageModel, MaskedLanguageModel
from seqloom.models.seq2seq import Seq2Seq
from seqloom.nn.embeddings import OutputLayer
from seqloom.predict.pieces import cut_texts
from seqloom.predict.predictor import Predictor, batch_by_length
from seqloom.predict.results import Score, Span
from seqloom.text.tokenizer import Encoding
from seqloom.types import PairBatch, TokenBatch

_LOGITS = 1 << 23  # computed at a time


@dataclass
class _Scored:
    """The tokens of a text, piece by piece, and their scores as they become known."""

    text: str
    ends: bool
    """Whether the end of the text is predicted, too."""
    encodings: list[Encoding] = field(default_factory=list)
    scores: list[list[float | None]] = field(default_factory=list)
    starts: list[int] = field(default_factory=list)

    def sum_up(self, end: str) -> Score:
        scores = [score for piece in self.scores for score in piece]
        known = [score for score in scores if score is not None]
        tokens = [token for encoding in self.encodings for token in encoding.tokens]
        offsets: list[Span] = [
            (start + first, start + last)
            for start, encoding in zip(self.starts, self.encodings, strict=True)
            for first, last in encoding.offsets
        ]
        if self.ends and self.encodings:
            tokens.append(end)
            offsets.append((len(self.text), len(self.text)))
        unseen = next((index for index, score in enumerate(scores) if score is not None), 0)
        skipped = offsets[unseen][0] if unseen else 0
        size = len(self.text[skipped:].encode()) + self.ends
        total = math.fsum(known)
        return Score(
            total,
            exponentiate(-total / len(known)) if known else None,
            -total / math.log(2) / size if known and size else None,
            tuple(tokens),
            tuple(scores),
            tuple(offsets),
            size if known else 0,
            pieces=max(1, len(self.encodings)),
        )


@torch.inference_mode()
def score(model: Predictor, texts: Sequence[str], targets: Sequence[str] | None = None) -> list[Score]:
    """The log-probability of each text or, with `targets`, of each target given its text."""
    network = model.compile()
    if isinstance(network, Seq2Seq) != (targets is not None):
        if targets is None:
            raise DataError("a translation model scores a target given its source; give it both")
        raise DataError("only a translation model scores a target given its source; give this model single texts")
    match network:
        case Seq2Seq():
            assert targets is not None
            if len(targets) != len(texts):
                raise DataError(f"{len(texts)} sources but {len(targets)} targets")
            reads = _score_pairs(model, network, texts, targets)
        case LanguageModel() | BidirectionalLanguageModel() if network.output is not None:
            reads = _score_forwards(model, network, texts)
        case MaskedLanguageModel() if network.output is not None:
            reads = _score_masked(model, network, texts)
        case _:
            model.refuse("score")
    frame = model.frames["target" if targets is not None else "text"]
    end = model.tokenizer.token(frame.after[0]) if frame.after else ""
    return [read.sum_up(end) for read in reads]


def find_lead(model: Predictor) -> tuple[int, ...]:
    """The tokens before the first one: the special tokens or, in running text, the end of the previous text."""
    before, after = model.frames["text"]
    running = isinstance(getattr(model.config.batch, "rows", None), WindowRows)
    return before or (after if running else ())


def _open(model: Predictor, texts: Sequence[str], room: int, ends: bool) -> list[_Scored]:
    reads = [_Scored(text, ends and bool(text.strip())) for text in texts]
    for piece in cut_texts(model.tokenizer, texts, room):
        read = reads[piece.owner]
        read.encodings.append(model.tokenizer.encode(piece.text))
        read.scores.append([None] * len(piece.ids))
        read.starts.append(piece.start)
    return reads


def _score_forwards(
    model: Predictor, network: LanguageModel | BidirectionalLanguageModel, texts: Sequence[str]
) -> list[_Scored]:
    assert network.output is not None
    lead, after = find_lead(model), model.frames["text"].after
    reads = _open(model, texts, max(1, model.longest - len(lead) - len(after)), bool(after))
    rows, owners = [], []
    for read in reads:
        for number, encoding in enumerate(read.encodings):
            last = number == len(read.encodings) - 1
            rows.append([*lead, *encoding.ids, *(after if last else ())])
            owners.append((read, number))
    for indices, tokens in model.batch(rows):
        real = tokens.mask[:, 1:]
        seen = TokenBatch(tokens.ids[:, :-1], real)
        if isinstance(network, LanguageModel):
            states = network(seen) if real.any() else torch.zeros(*real.shape, 1, device=real.device)
        else:
            states = network.forwards(network.embedding(seen.ids), real).states
        known = score_tokens(network.output, states[real], tokens.ids[:, 1:][real]).tolist() if real.any() else []
        for index, count in zip(indices, real.sum(1).tolist(), strict=True):
            read, number = owners[index]
            read.scores[number] = [*([] if lead else [None]), *known[:count]]
            known = known[count:]
    return reads


def _score_pairs(model: Predictor, network: Seq2Seq, texts: Sequence[str], targets: Sequence[str]) -> list[_Scored]:
    reads = [_Scored(target, bool(text.strip() or target.strip())) for text, target in zip(texts, targets, strict=True)]
    asked = [index for index, read in enumerate(reads) if read.ends]
    sources = [model.frame("source", ids) for ids in model.tokenizer.encode_batch([texts[i] for i in asked])]
    rows = []
    for index in asked:
        reads[index].encodings, reads[index].starts = [model.tokenizer.encode(targets[index])], [0]
        rows.append(model.frame("target", reads[index].encodings[0].ids))
    for batch in batch_by_length([[*source, *row] for source, row in zip(sources, rows, strict=True)]):
        tokens = model.pad([rows[place] for place in batch])
        real = tokens.mask[:, 1:]
        pair = PairBatch(model.pad([sources[place] for place in batch]), TokenBatch(tokens.ids[:, :-1], real))
        known = score_tokens(network.output, network(pair)[real], tokens.ids[:, 1:][real]).tolist()
        for place, count in zip(batch, real.sum(1).tolist(), strict=True):
            reads[asked[place]].scores, known = [known[:count]], known[count:]
    return reads


def _score_masked(model: Predictor, network: MaskedLanguageModel, texts: Sequence[str]) -> list[_Scored]:
    """Score each token in a row of its own, where it is masked."""
    mask, before = model.tokenizer.roles.mask, len(model.frames["text"].before)
    assert mask is not None
    assert network.output is not None
    reads = _open(model, texts, model.room("text"), ends=False)
    hidden = [
        (read, number, place)
        for read in reads
        for number, encoding in enumerate(read.encodings)
        for place in range(len(encoding.ids))
    ]
    for batch in batch_by_length([read.encodings[number].ids for read, number, _ in hidden]):
        own = [hidden[index] for index in batch]
        spelled = [(read.encodings[number].ids, place) for read, number, place in own]
        tokens = model.pad([model.frame("text", [*ids[:at], mask, *ids[at + 1 :]]) for ids, at in spelled])
        chosen = torch.zeros_like(tokens.mask)
        chosen[torch.arange(len(batch)), torch.tensor([before + at for _, at in spelled])] = True
        targets = torch.tensor([ids[at] for ids, at in spelled], device=tokens.ids.device)
        known = score_tokens(network.output, network(tokens, chosen), targets).tolist()
        for (read, number, place), value in zip(own, known, strict=True):
            read.scores[number][place] = value
    return reads


def score_tokens(output: OutputLayer, states: Float[Tensor, "N D"], targets: Int[Tensor, "N"]) -> Float[Tensor, "N"]:
    """log softmax(W h + b) at each target, computed in chunks so that the logits need little memory."""
    chunk = max(1, _LOGITS // len(output.weight))
    parts = []
    for rows, wanted in zip(states.split(chunk), targets.split(chunk), strict=True):
        logits = output(rows).float()
        parts.append(logits.gather(1, wanted.unsqueeze(1)).squeeze(1) - logits.logsumexp(1))
    return torch.cat(parts) if parts else states.new_zeros(0)
