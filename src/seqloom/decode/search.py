"""Search over a step function: any model that reads tokens and scores the next one."""

from collections.abc import Iterator, Sequence

import torch

from seqloom.decode.beam import BeamSearch, search_beams
from seqloom.decode.greedy import GreedySearch, Step, choose_tokens, search_greedily
from seqloom.decode.options import Request, SearchOptions, Tokens
from seqloom.decode.record import Recorder
from seqloom.decode.recorded import RecordedBeamSearch, RecordedGreedySearch
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
    recorder: Recorder | None = None,
) -> list[list[Hypothesis]]:
    """The best hypotheses for each line, best first; one beam is greedy search.

    `state` has a row for each request, and room for its `max_length`. A line's result does not depend on the others.
    A search with constraints or a small beam may find fewer than `nbest`, but always one. No answer contains a token of
    `never`. Without `ends`, only its `max_length` ends an answer. A `recorder` gets a record of each line's search.
    """
    found: list[list[Hypothesis]] = [[Hypothesis(request.prefix, 0.0, (), False)] for request in requests]
    lines = [line for line, request in enumerate(requests) if len(request.prefix) < request.max_length]
    if recorder is not None:
        recorder.begin(requests, options)
    if lines:
        if len(lines) < len(requests):
            state = state.select(torch.tensor(lines))
        searched = [requests[line] for line in lines]
        if options.beam > 1:
            beams = BeamSearch(searched, options, ends=ends, never=never)
            if recorder is not None:
                beams = RecordedBeamSearch(searched, options, recorder.select(lines), ends=ends, never=never)
            answers = search_beams(step, state, beams)
        else:
            greedy = GreedySearch(searched, options, ends=ends, never=never)
            if recorder is not None:
                greedy = RecordedGreedySearch(searched, options, recorder.select(lines), ends=ends, never=never)
            answers = search_greedily(step, state, greedy)
        for line, hypotheses in zip(lines, answers, strict=True):
            found[line] = hypotheses
    if recorder is not None:
        recorder.end(found)
    return found


def stream(
    step: Step, state: DecodeState, request: Request, options: SearchOptions, *, ends: Tokens, never: Tokens = ()
) -> Iterator[int]:
    """The tokens after one line's prefix, each as soon as it is chosen."""
    if options.beam > 1 or options.nbest > 1:
        raise ConfigError("beam search knows its answer only at the end; stream with beam = 1 and nbest = 1")
    if len(request.prefix) < request.max_length:
        for chosen in choose_tokens(step, state, GreedySearch([request], options, ends=ends, never=never)):
            yield from (token.id for token in chosen if token.id not in ends)
