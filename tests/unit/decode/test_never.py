"""Tokens that are no part of any answer."""

from dataclasses import replace

import pytest

from seqloom.decode.options import Request, SearchOptions
from seqloom.decode.search import search
from unit.decode.tables import END, START, TableModel

METHODS = {
    "greedy": SearchOptions(),
    "beam": SearchOptions(beam=3, nbest=2),
    "sampling": SearchOptions(sample=True, top_p=0.9, nbest=2),
}


@pytest.mark.parametrize("options", METHODS.values(), ids=METHODS)
def test_what_is_never_an_answer_is_what_every_line_forbids(options: SearchOptions) -> None:
    chosen = 0
    for seed in range(8):
        model = TableModel(seed, vocab_size=6)
        requests = [Request(START, 6, prefix=(3,) * n, seed=n) for n in range(3)]
        forbidding = [replace(request, forbidden=((2,), (4,))) for request in requests]
        free, never, forbidden = (
            search(model.step, model.start(3), asked, options, ends=(END,), never=tokens)
            for asked, tokens in ((requests, ()), (requests, (2, 4)), (forbidding, ()))
        )
        assert never == forbidden
        chosen += free != never
    assert chosen, "the tokens would have been chosen"
