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
from seqloom.predict.predictor import Predictor, batch_by_length, cut_texts
from seqloom.predict.results import Result, Score
from seqloom.text.tokenizer import Encoding
from seqloom.types import PairBatch, TokenBatch

_LOGITS = 1 << 23  # computed at a time


@dataclass
class _Part:
    """The tokens of a piece of a text, and their scores once they are known."""

    encoding: Encoding
    start: int = 0
    scores: list[float | None] = field(default_factory=list)


@dataclass
class _Text:
    """A text in parts."""

    text: str
    ends: bool
    """Whether the end of the text is predicted, too."""
    parts: list[_Part] = field(default_factory=list)

    def sum_up(self, end: str) -> Score:
        scores = [score for part in self.parts for score in part.scores]
        known = [score for score in scores if score is not None]
        tokens = [token for part in self.parts for token in part.encoding.tokens]
        offsets = [(part.start + a, part.start + b) for part in self.parts for a, b in part.encoding.offsets]
        if self.ends and self.parts:
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
            pieces=max(1, len(self.parts)),
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
            scored = _score_pairs(model, network, texts, targets)
        case LanguageModel() | BidirectionalLanguageModel() if network.output is not None:
            scored = _score_forwards(model, network, texts)
        case MaskedLanguageModel() if network.output is not None:
            scored = _score_masked(model, network, texts)
        case _:
            model.refuse("score")
    frame = model.frames["target" if targets is not None else "text"]
    end = model.tokenizer.target.token(frame.after[0]) if frame.after else ""
    return [text.sum_up(end) for text in scored]


def find_lead(model: Predictor) -> tuple[int, ...]:
    """The tokens before the first one: the special tokens or, in running text, the end of the previous text."""
    before, after = model.frames["text"]
    running = isinstance(getattr(model.config.batch, "rows", None), WindowRows)
    return before or (after if running else ())


def _cut(model: Predictor, texts: Sequence[str], room: int, *, ends: bool) -> list[_Text]:
    scored = [_Text(text, ends and bool(text.strip())) for text in texts]
    for piece in cut_texts(model.tokenizer, texts, room):
        scored[piece.owner].parts.append(_Part(model.tokenizer.encode(piece.text), piece.start))
    return scored


def _score_forwards(
    model: Predictor, network: LanguageModel | BidirectionalLanguageModel, texts: Sequence[str]
) -> list[_Text]:
    assert network.output is not None
    lead, after = find_lead(model), model.frames["text"].after
    scored = _cut(model, texts, max(1, model.longest - len(lead) - len(after)), ends=bool(after))
    parts = [part for text in scored for part in text.parts]
    last = [part is text.parts[-1] for text in scored for part in text.parts]
    rows = [[*lead, *part.encoding.ids, *(after if ends else ())] for part, ends in zip(parts, last, strict=True)]
    for indices, tokens in model.batch(rows):
        real = tokens.mask[:, 1:]
        seen = TokenBatch(tokens.ids[:, :-1], real)
        if isinstance(network, LanguageModel):
            states = network(seen) if real.any() else torch.zeros(*real.shape, 1, device=real.device)
        else:
            states = network.read_forwards(seen)
        known = score_tokens(network.output, states[real], tokens.ids[:, 1:][real]).tolist() if real.any() else []
        for index, count in zip(indices, real.sum(1).tolist(), strict=True):
            parts[index].scores, known = [*([] if lead else [None]), *known[:count]], known[count:]
    return scored


def _score_pairs(model: Predictor, network: Seq2Seq, texts: Sequence[str], targets: Sequence[str]) -> list[_Text]:
    scored = [_Text(target, bool(text.strip() or target.strip())) for text, target in zip(texts, targets, strict=True)]
    asked = [index for index, text in enumerate(scored) if text.ends]
    sources = [model.frame("source", ids) for ids in model.tokenizer.encode_batch([texts[i] for i in asked])]
    parts = [_Part(model.tokenizer.target.encode(targets[index])) for index in asked]
    rows = [model.frame("target", part.encoding.ids) for part in parts]
    for index, part in zip(asked, parts, strict=True):
        scored[index].parts.append(part)
    for batch in batch_by_length([[*source, *row] for source, row in zip(sources, rows, strict=True)]):
        tokens = model.pad([rows[place] for place in batch], "target")
        real = tokens.mask[:, 1:]
        pair = PairBatch(model.pad([sources[place] for place in batch]), TokenBatch(tokens.ids[:, :-1], real))
        known = score_tokens(network.output, network(pair)[real], tokens.ids[:, 1:][real]).tolist()
        for place, count in zip(batch, real.sum(1).tolist(), strict=True):
            parts[place].scores, known = known[:count], known[count:]
    return scored


def _score_masked(model: Predictor, network: MaskedLanguageModel, texts: Sequence[str]) -> list[_Text]:
    """Score each token in a row of its own, where it is masked."""
    mask, before = model.tokenizer.roles.mask, len(model.frames["text"].before)
    assert mask is not None
    assert network.output is not None
    scored = _cut(model, texts, model.room("text"), ends=False)
    for part in (part for text in scored for part in text.parts):
        part.scores = [None] * len(part.encoding.ids)
    hidden = [(part, at) for text in scored for part in text.parts for at in range(len(part.encoding.ids))]
    for batch in batch_by_length([part.encoding.ids for part, _ in hidden]):
        own = [hidden[index] for index in batch]
        rows = [[*part.encoding.ids[:at], mask, *part.encoding.ids[at + 1 :]] for part, at in own]
        tokens = model.pad([model.frame("text", row) for row in rows])
        chosen = torch.zeros_like(tokens.mask)
        chosen[torch.arange(len(batch)), torch.tensor([before + at for _, at in own])] = True
        targets = torch.tensor([part.encoding.ids[at] for part, at in own], device=tokens.ids.device)
        known = score_tokens(network.output, network(tokens, chosen), targets).tolist()
        for (part, at), value in zip(own, known, strict=True):
            part.scores[at] = value
    return scored


def score_tokens(output: OutputLayer, states: Float[Tensor, "N D"], targets: Int[Tensor, "N"]) -> Float[Tensor, "N"]:
    """log softmax(W h + b) at each target, computed in chunks so that the logits need little memory."""
    chunk = max(1, _LOGITS // len(output.weight))
    parts = []
    for rows, wanted in zip(states.split(chunk), targets.split(chunk), strict=True):
        logits = output(rows).float()
        parts.append(logits.gather(1, wanted.unsqueeze(1)).squeeze(1) - logits.logsumexp(1))
    return torch.cat(parts) if parts else states.new_zeros(0)


@dataclass(frozen=True)
class Alternatives(Result):
    """The log-probability of each token of a row after its first, and of the most probable tokens at its place."""

    scores: tuple[float, ...]
    best: tuple[tuple[tuple[int, float], ...], ...]
    """Pairs of (id, log-probability), best first."""


@torch.inference_mode()
def find_alternatives(model: Predictor, rows: Sequence[Sequence[int]], top: int) -> list[Alternatives]:
    """What a language model gives each token of rows of ids, and its `top` tokens there."""
    network = model.compile()
    if not isinstance(network, LanguageModel):
        model.refuse("give log-probabilities of tokens")
    found: list[Alternatives] = []
    for row in rows:
        if len(row) < 2:
            found.append(Alternatives((), ()))
            continue
        batch = model.pad([row])
        states = network(TokenBatch(batch.ids[:, :-1], batch.mask[:, 1:]))
        log_p = network.output(states[0]).float().log_softmax(-1)
        scores = log_p.gather(1, batch.ids[0, 1:].unsqueeze(1)).squeeze(1).tolist()
        best = log_p.topk(min(top, log_p.shape[1])) if top else None
        pairs = [()] * len(scores) if best is None else zip(best.indices.tolist(), best.values.tolist(), strict=True)
        listed = tuple(tuple(zip(*pair, strict=True)) if pair else () for pair in pairs)
        found.append(Alternatives(tuple(scores), listed))
    return found
