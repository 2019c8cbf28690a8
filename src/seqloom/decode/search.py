"""Search over a step function: any model that reads tokens and scores the next one."""

from collections.abc import Iterator, Sequence

import torch

from seqloom.decode.beam import search_beams
from seqloom.decode.greedy import Step, choose_tokens, search_greedily
from seqloom.decode.options import Request, SearchOptions, Tokens
from seqloom.errors import ConfigError
from seqloom.types import DecodeState, Hypothesis


def search(
    step: Step,
    state: DecodeState,
    requests: Sequence[Request],
    options: SearchOptions,
    *,
    ends: Tokens,
    never: Tokens = (),
) -> list[list[Hypothesis]]:
    """The best hypotheses for each line, best first; one beam is greedy search.

    `state` has a row for each request, and room for its `max_length`. A line's result does not depend on the others.
    A search with constraints or a small beam may find fewer than `nbest`, but always one. No answer contains a token of
    `never`. Without `ends`, only its `max_length` ends an answer.
    """
    found: list[list[Hypothesis]] = [[Hypothesis(request.prefix, 0.0, (), False)] for request in requests]
    lines = [line for line, request in enumerate(requests) if len(request.prefix) < request.max_length]
    if not lines:
        return found
    if len(lines) < len(requests):
        state = state.select(torch.tensor(lines, device=state.device))
    searched = [requests[line] for line in lines]
    find = search_beams if options.beam > 1 else search_greedily
    for line, hypotheses in zip(lines, find(step, state, searched, options, ends=ends, never=never), strict=True):
        found[line] = hypotheses
    return found


def stream(
    step: Step, state: DecodeState, request: Request, options: SearchOptions, *, ends: Tokens, never: Tokens = ()
) -> Iterator[int]:
    """The tokens after one line's prefix, each as soon as it is chosen."""
    if options.beam > 1 or options.nbest > 1:
        raise ConfigError("beam search knows its answer only at the end; stream with beam = 1 and nbest = 1")
    if len(request.prefix) < request.max_length:
        for chosen in choose_tokens(step, state, [request], options, ends=ends, never=never):
            yield from (token.id for token in chosen if token.id not in ends)
