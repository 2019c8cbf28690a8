"""Search over a step function: any model that reads tokens and scores the next one."""

from collections.abc import Iterator, Sequence

import torch

from seqloom.decode.beam import search_beams
from seqloom.decode.lines import Step
from seqloom.decode.options import Request, SearchOptions
from seqloom.decode.ranking import penalise_length
from seqloom.decode.walk import Token, walk
from seqloom.errors import ConfigError
from seqloom.types import DecodeState, Hypothesis


def search(
    step: Step, state: DecodeState, requests: Sequence[Request], options: SearchOptions, *, end_id: int
) -> list[list[Hypothesis]]:
    """The best hypotheses for each line, best first; one beam is greedy search.

    `state` has a row for each request and room for its `max_length`. What a line gets does not depend on the others.
    A search with constraints or a small beam may find fewer than `nbest`, but always one.
    """
    found: list[list[Hypothesis]] = [[Hypothesis(request.prefix, 0.0, (), False)] for request in requests]
    lines = [line for line, request in enumerate(requests) if len(request.prefix) < request.max_length]
    if not lines:
        return found
    if len(lines) < len(requests):
        state = state.select(torch.tensor(lines, device=state.device))
    chosen = [requests[line] for line in lines]
    find = search_beams if options.beam > 1 else _walk_all
    for line, hypotheses in zip(lines, find(step, state, chosen, options, end_id=end_id), strict=True):
        found[line] = hypotheses
    return found


def stream(step: Step, state: DecodeState, request: Request, options: SearchOptions, *, end_id: int) -> Iterator[int]:
    """The tokens after one line's prefix, each as soon as it is chosen."""
    if options.beam > 1 or options.nbest > 1:
        raise ConfigError("a beam knows its answer only at the end; stream with beam = 1 and nbest = 1")
    if len(request.prefix) < request.max_length:
        for found in walk(step, state, [request], options, end_id=end_id):
            yield from (token.id for token in found if token.id != end_id)


def _walk_all(
    step: Step, state: DecodeState, requests: Sequence[Request], options: SearchOptions, *, end_id: int
) -> list[list[Hypothesis]]:
    samples = 1 if options.sampling is None else options.nbest
    paths: list[list[list[Token]]] = [[[] for _ in range(samples)] for _ in requests]
    for found in walk(step, state, requests, options, end_id=end_id):
        for token in found:
            paths[token.line][token.sample].append(token)
    return [
        sorted(
            (_finish(request, path, options.length_penalty, end_id) for path in line),
            key=lambda h: h.score,
            reverse=True,
        )
        for request, line in zip(requests, paths, strict=True)
    ]


def _finish(request: Request, path: list[Token], alpha: float, end_id: int) -> Hypothesis:
    scores = tuple(token.score for token in path)
    ids = tuple(token.id for token in path)
    finished = ids[-1:] == (end_id,)
    ids = request.prefix + (ids[:-1] if finished else ids)
    return Hypothesis(ids, penalise_length(sum(scores), len(scores), alpha), scores, finished)
