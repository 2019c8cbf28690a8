"""Greedy search and sampling: one token after the other, without going back.

A token is sampled from the truncated softmax(scores / temperature): a uniform number u picks the token at which the
cumulative sum, in the order of ids, passes u. Each row draws its own numbers, so that its text does not depend on the
other rows. If scores are rounded differently in another batch, the same u nearly always picks the same token.
"""

import math
import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor

from seqloom.decode.constraints import Constraints, Matches
from seqloom.decode.options import Request, SearchOptions, Tokens, penalise_length
from seqloom.decode.repetition import Repetition
from seqloom.devices import choose_precise, read, send
from seqloom.errors import RunError
from seqloom.nn.cross_entropy import find_top, normalise
from seqloom.types import DecodeState, Hypothesis

Step = Callable[[Int[Tensor, "R T"], DecodeState], tuple[Float[Tensor, "R V"], DecodeState]]
"""Takes the new tokens of each row and a state; gives the scores of the next token, and the new state.

The scores are logits, or anything that differs from log P by a constant for each row; a repetition penalty, which
changes with that constant, is for logits.
"""

NAN_SCORES = (
    "the network's scores are not numbers (NaN): some weights are NaN, or too large for their precision; "
    "see which of model.network.named_parameters() are not finite"
)


class Token(NamedTuple):
    """The next token of one sample of a line."""

    line: int
    sample: int
    id: int
    score: float
    """Its log-probability."""


@dataclass(slots=True)
class Row:
    """One sample of a line, or the line itself."""

    line: int
    sample: int
    request: Request
    matches: Matches | None
    numbers: Iterator[float]
    """The uniform numbers for sampling; greedy search has none."""
    read: list[int]
    """The start, the prefix and what was chosen after it."""
    done: bool = False


class GreedySearch:
    """What runs on the host: which token each row goes on with, and which rows are done."""

    def __init__(self, requests: Sequence[Request], options: SearchOptions, *, ends: Tokens, never: Tokens) -> None:
        self.requests, self.options, self.ends = requests, options, ends
        self.samples = options.nbest if options.sample else 1
        """The rows of each line, which stay together."""
        self.constraints = Constraints(requests, options, ends=ends, never=never)
        self.repetition = Repetition(options, ends) if options.limits_repetition else None
        self.rows: list[Row] = []
        for line, request in enumerate(requests):
            self.add(line, request)

    def add(self, line: int, request: Request) -> None:
        """Let a line come in, as the last one."""
        self.constraints.add([request])
        self.rows += [
            Row(
                line,
                n,
                request,
                Matches.start(request),
                draw_numbers(request.seed, n) if self.options.sample else iter(()),
                [request.start, *request.prefix],
            )
            for n in range(self.samples)
        ]

    def advance(self, scores: Float[Tensor, "R V"], lengths: Sequence[int]) -> tuple[list[Token], Int[Tensor, "R"]]:
        """Extend every row by one token: the new tokens of the rows that search, and what every row reads next.

        `lengths` are the numbers of tokens that each row has after its start.
        """
        rows, past = self.rows, self.list_read(lengths)
        if self.repetition is not None:
            self.repetition.penalise(scores, past)
        normalisers, bounds = normalise(scores)
        self.constraints.mask(scores, (row.matches for row in rows), lengths)
        if self.repetition is not None:
            wanted = [() if row.matches is None else row.matches.list_wanted() for row in rows]
            self.repetition.ban(scores, past, wanted)
        if self.options.sample:
            chosen = sample_tokens(scores, self.options, _draw_next(rows, lengths))
            best = scores.gather(1, chosen.unsqueeze(1)).squeeze(1)
        else:
            best, chosen = (top[:, 0] for top in find_top(scores, 1, bounds))
        (tokens, gains), found, forced = read(chosen, best - normalisers), [], False
        known = zip(rows, lengths, gains, strict=True)
        for index, (row, length, score) in enumerate(known):
            if row.done:
                continue
            if math.isnan(score):
                raise RunError(NAN_SCORES)
            if length < len(row.request.prefix):
                tokens[index], forced = row.request.prefix[length], True
                continue
            if score > -math.inf:
                found.append(Token(row.line, row.sample, tokens[index], score))
            row.read.append(tokens[index])
            ended = tokens[index] in self.ends or length + 1 == row.request.max_length
            row.done = ended or score == -math.inf  # nothing was allowed
            if row.matches is not None:
                row.matches = row.matches.advance(tokens[index])
        return found, send(torch.tensor(tokens), scores.device) if forced else chosen

    def list_read(self, lengths: Sequence[int]) -> Sequence[Sequence[int]]:
        """If repetition is limited, all tokens that each row has read; none while it reads its prefix."""
        if self.repetition is None:
            return ()
        known = zip(self.rows, lengths, strict=True)
        return [row.read if length >= len(row.request.prefix) else () for row, length in known]

    def find_active(self) -> list[int] | None:
        """The places of the lines that are not done, if it is time to remove the others."""
        done = [row.done for row in self.rows]
        return find_active([all(done[at : at + self.samples]) for at in range(0, len(done), self.samples)])


def search_greedily(step: Step, state: DecodeState, search: GreedySearch) -> list[list[Hypothesis]]:
    """One hypothesis of each line, of the most probable next tokens; or `nbest` samples of each, best first."""
    paths: list[list[list[Token]]] = [[[] for _ in range(search.samples)] for _ in search.requests]
    for chosen in choose_tokens(step, state, search):
        for token in chosen:
            paths[token.line][token.sample].append(token)
    found = []
    for request, line in zip(search.requests, paths, strict=True):
        hypotheses = [finish(request, path, search.options.length_penalty, search.ends) for path in line]
        found.append(sorted(hypotheses, key=lambda hypothesis: hypothesis.score, reverse=True))
    return found


def finish(request: Request, path: Sequence[Token], alpha: float, ends: Tokens) -> Hypothesis:
    """The hypothesis of the tokens that were chosen after a prefix."""
    scores = tuple(token.score for token in path)
    ids = tuple(token.id for token in path)
    finished = bool(ids) and ids[-1] in ends
    ids = request.prefix + (ids[:-1] if finished else ids)
    return Hypothesis(ids, penalise_length(sum(scores), len(scores), alpha), scores, finished)


@torch.inference_mode()
def choose_tokens(step: Step, state: DecodeState, search: GreedySearch) -> Iterator[list[Token]]:
    """The new tokens of all lines at each step, without the prefixes, with the ends."""
    samples = search.samples
    scores, state = read_prefixes(step, state, search.requests)
    if samples > 1:
        state = state.branch(torch.zeros(len(search.requests), samples, dtype=torch.long, device=scores.device))
        scores = scores.repeat_interleave(samples, 0)
    while True:
        found, chosen = search.advance(scores, count_read(state, samples))
        yield found
        if (active := search.find_active()) is not None:
            if not active:
                return
            kept = [line * samples + sample for line in active for sample in range(samples)]
            search.rows = [search.rows[index] for index in kept]
            chosen = chosen.index_select(0, send(torch.tensor(kept), chosen.device))
            state = state.select(torch.tensor(active))
        scores, state = step(chosen.unsqueeze(1), state)


def read_prefixes(
    step: Step, state: DecodeState, requests: Sequence[Request]
) -> tuple[Float[Tensor, "B V"], DecodeState]:
    """Read prefixes up to the length of the shortest at once; the rest of longer ones is read token by token."""
    common = min(len(request.prefix) for request in requests)
    rows = [[request.start, *request.prefix[:common]] for request in requests]
    return step(send(torch.tensor(rows), state.device), state)


def find_active(done: Sequence[bool]) -> list[int] | None:
    """The lines that are not done, if it is time to remove the others.

    Removing lines costs a copy of the state of the rest, so it waits until an eighth of them are done.
    """
    active = [line for line, is_done in enumerate(done) if not is_done]
    return active if (len(done) - len(active)) * 8 >= len(done) else None


def draw_numbers(seed: int, sample: int) -> Iterator[float]:
    """The uniform random numbers of one sample of a line."""
    generator = random.Random(f"{seed}/{sample}")
    while True:
        yield generator.random()


def count_read(state: DecodeState, rows: int = 1) -> list[int]:
    """How many tokens each line has read after its start; `rows` times each."""
    return [position - 1 for position in state.positions for _ in range(rows)]


def _draw_next(rows: list[Row], lengths: Sequence[int]) -> Float[Tensor, "R"]:
    """A number for each row; a row that is done or still reads its prefix gets 0 and draws none."""
    known = zip(rows, lengths, strict=True)
    numbers = [0.0 if row.done or length < len(row.request.prefix) else next(row.numbers) for row, length in known]
    return torch.tensor(numbers, dtype=torch.float64)


def sample_tokens(
    scores: Float[Tensor, "R V"], options: SearchOptions, numbers: Float[Tensor, "R"]
) -> Int[Tensor, "R"]:
    """A token for each row, picked by a number from 0 to 1."""
    temperature = 1.0 if options.temperature is None else options.temperature
    precise = choose_precise(scores.device)
    probabilities = truncate((scores.to(precise) / temperature).softmax(-1), options)
    cumulative = probabilities.cumsum(-1)
    drawn = send(numbers.to(precise), scores.device).unsqueeze(1)
    passed = torch.searchsorted(cumulative, drawn * cumulative[:, -1:], right=True)
    last = (probabilities > 0).int().cumsum(-1).argmax(-1)  # in case rounding carries u past the end
    return torch.minimum(passed.squeeze(1), last)


def truncate(probabilities: Float[Tensor, "R V"], options: SearchOptions) -> Float[Tensor, "R V"]:
    """Each distribution with its tail set to 0, not renormalised; the most probable token always remains."""
    p = probabilities
    if options.top_k is not None and options.top_k < p.shape[-1]:
        p = _keep_from(p, p.topk(options.top_k).values[:, -1:])
    if options.top_p is not None:
        ranked = p.sort(descending=True).values
        before = ranked.cumsum(-1) - ranked  # the sum of the more probable ones
        enough = before >= options.top_p * p.sum(-1, keepdim=True)
        p = _keep_from(p, ranked.masked_fill(enough, 1.0).amin(-1, keepdim=True))
    if options.min_p is not None:
        p = _keep_from(p, options.min_p * p.amax(-1, keepdim=True))
    return p


def _keep_from(p: Tensor, least: Tensor) -> Tensor:
    return p.masked_fill(p < least, 0.0)
