"""One token after the other and no way back: the most probable one, or one that is drawn."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor

from seqloom.decode.constraints import Progress
from seqloom.decode.guide import Guide
from seqloom.decode.lines import NOT_NUMBERS, Step, list_staying, read_prefixes
from seqloom.decode.options import Request, Sampling, SearchOptions
from seqloom.decode.sampling import draw, make_numbers
from seqloom.errors import RunError
from seqloom.nn.cross_entropy import find_top, normalise
from seqloom.types import DecodeState


class Token(NamedTuple):
    """What was chosen for one sample of a line."""

    line: int
    sample: int
    id: int
    score: float


@dataclass(slots=True)
class _Row:
    line: int
    sample: int
    request: Request
    numbers: Iterator[float]
    progress: Progress | None
    done: bool = False


@torch.inference_mode()
def walk(
    step: Step, state: DecodeState, requests: Sequence[Request], options: SearchOptions, *, end_id: int
) -> Iterator[list[Token]]:
    """The tokens of all lines, step by step, without the prefixes, with the ends."""
    samples = 1 if options.sampling is None else options.nbest
    guide = Guide(requests, options, end_id=end_id)
    rows = [
        _Row(line, sample, request, make_numbers(request.seed, sample), guide.start(line))
        for line, request in enumerate(requests)
        for sample in range(samples)
    ]
    longest = max(len(request.prefix) for request in requests)
    scores, state = read_prefixes(step, state, requests)
    if samples > 1:
        state = state.branch(torch.zeros(len(requests), samples, dtype=torch.long, device=scores.device))
        scores = scores.repeat_interleave(samples, 0)
    while True:
        length = state.position - 1  # tokens after the start
        normalisers, bounds = normalise(scores)
        guide.block(scores, ((row.line, row.progress) for row in rows), length)
        best, chosen = _choose(scores, bounds, options.sampling, rows, length)
        tokens, found = chosen.tolist(), []
        for place, (row, score) in enumerate(zip(rows, (best - normalisers).tolist(), strict=True)):
            if row.done:
                continue
            if math.isnan(score):
                raise RunError(NOT_NUMBERS)
            if length < len(row.request.prefix):
                tokens[place] = row.request.prefix[length]
                continue
            if score > -math.inf:
                found.append(Token(row.line, row.sample, tokens[place], score))
            ended = tokens[place] == end_id or length + 1 == row.request.max_length
            row.done = ended or score == -math.inf  # nothing was allowed
            row.progress = guide.advance(row.line, row.progress, tokens[place])
        yield found
        if length < longest:
            chosen = torch.tensor(tokens, device=scores.device)
        if (staying := list_staying(_list_done(rows, samples))) is not None:
            if not staying:
                return
            places = [line * samples + sample for line in staying for sample in range(samples)]
            rows, chosen = [rows[place] for place in places], chosen[places]
            state = state.select(torch.tensor(staying, device=scores.device))
        scores, state = step(chosen.unsqueeze(1), state)


def _list_done(rows: list[_Row], samples: int) -> list[bool]:
    """Whether each line is, which is when all its samples are."""
    done = [row.done for row in rows]
    return done if samples == 1 else [all(done[at : at + samples]) for at in range(0, len(done), samples)]


def _choose(
    scores: Float[Tensor, "R V"],
    bounds: Float[Tensor, "R B"] | None,
    sampling: Sampling | None,
    rows: list[_Row],
    length: int,
) -> tuple[Float[Tensor, "R"], Int[Tensor, "R"]]:
    if sampling is None:
        best, chosen = find_top(scores, 1, bounds)
        return best[:, 0], chosen[:, 0]
    # A row that is done, or reads its prefix, draws nothing: its numbers wait for it.
    waits = [row.done or length < len(row.request.prefix) for row in rows]
    numbers = [0.0 if wait else next(row.numbers) for row, wait in zip(rows, waits, strict=True)]
    chosen = draw(scores, sampling, torch.tensor(numbers, dtype=torch.float64, device=scores.device))
    return scores.gather(1, chosen.unsqueeze(1)).squeeze(1), chosen
