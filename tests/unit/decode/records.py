"""What holds for the record of every search."""

import json
from dataclasses import dataclass

from seqloom.decode.options import Request, SearchOptions, penalise_length
from seqloom.decode.record import SearchCandidate, SearchRecord
from seqloom.types import Hypothesis


@dataclass
class Reader:
    """A record with the ways through it."""

    record: SearchRecord
    request: Request
    options: SearchOptions

    def __post_init__(self) -> None:
        self.by_id = {one.id: one for step in self.record.steps for one in step.candidates}

    def trace(self, candidate: SearchCandidate) -> list[SearchCandidate]:
        path = [candidate]
        while path[0].parent is not None:
            path.insert(0, self.by_id[path[0].parent])
        return path

    def read(self, candidate: SearchCandidate) -> list[int]:
        """All tokens before a candidate."""
        return [self.request.start, *self.request.prefix, *(one.token for one in self.trace(candidate)[:-1])]


def check(record: SearchRecord, found: list[Hypothesis], request: Request, options: SearchOptions) -> Reader:
    """What holds for every record."""
    reader = Reader(record, request, options)
    assert sorted(reader.by_id) == list(range(len(reader.by_id)))
    assert [(h.ids, h.score, h.finished) for h in record.hypotheses] == [(h.ids, h.score, h.finished) for h in found]
    for one, expected in zip(record.hypotheses, found, strict=True):
        path = [reader.by_id[id] for id in one.steps]
        assert tuple(step.log_probability for step in path) == expected.token_scores
        assert one.log_probability == sum(expected.token_scores)
        assert [step.parent for step in path] == [None, *one.steps[:-1]][: len(path)]
        assert request.prefix + tuple(step.token for step in path)[: len(one.ids) - len(request.prefix)] == one.ids
        if path and not options.coverage_penalty:
            assert path[-1].score == one.score
    last = sorted(one.steps[-1] for one in record.hypotheses if one.steps)
    assert sorted(one.id for one in reader.by_id.values() if one.status == "finished") == last
    for number, step in enumerate(record.steps):
        assert step.length == len(request.prefix) + number + 1
        for one in step.candidates:
            parent = None if one.parent is None else reader.by_id[one.parent]
            assert (parent is None) == (number == 0)
            assert one.total == (0.0 if parent is None else parent.total) + one.log_probability
            assert len(reader.trace(one)) == number + 1
            if not options.coverage_penalty:
                assert one.score == penalise_length(one.total, number + 1, options.length_penalty)
            if parent is not None:
                assert parent.status == "kept" or "no token was allowed" in (parent.reason or "")
            if one.status in ("dropped", "replaced"):
                assert one.reason
                assert one.status == "dropped" or "took its place" in one.reason
        assert sum(one.status == "kept" for one in step.candidates) <= options.width
    json.dumps(record.to_json(), allow_nan=False)
    return reader
