"""The traces of a server: made on request, one at a time, the last ones kept up to a limit of memory."""

import json
import threading
import warnings
from collections import OrderedDict
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from seqloom.errors import DataError, Notice, SeqloomError
from seqloom.lens.trace import Trace
from seqloom.predict.load import load
from seqloom.predict.model import Model
from seqloom.runs.weights import find_run, list_moments

WAITING = 32
"""Requests that may wait for their turn: PyTorch uses all cores for one, so one is computed at a time."""
KEPT_BYTES = 1 << 30
"""Memory for the traces that are kept; the newest one is kept in any case."""
MAX_CHANGES = 32
Text = Annotated[str, Field(max_length=100_000)]


class BusyError(SeqloomError):
    """Too many requests at once."""


class GoneError(SeqloomError):
    """A trace that was never made, or is no longer kept."""


Change = dict[str, bool | int | float | str | tuple[int, ...]]
"""What is to be otherwise, as `lens.changes.Change` reads it."""


class Request(BaseModel):
    """What is traced."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    text: Text
    second: Text | None = None
    target: Text | None = None
    search: dict[str, bool | int | float | str] = {}
    changes: Annotated[tuple[Change, ...], Field(max_length=MAX_CHANGES)] = ()
    checkpoint: str | None = None

    def plain(self) -> dict[str, Any]:
        """The request as JSON, without what was not asked for."""
        return self.model_dump(mode="json", exclude_defaults=True)

    @property
    def key(self) -> str:
        """The same for the same request."""
        return json.dumps(self.plain(), sort_keys=True, ensure_ascii=False)


@dataclass(frozen=True)
class Kept:
    """A trace, what was asked for, and what Seqloom said while it answered."""

    request: Request
    trace: Trace
    notes: tuple[str, ...]

    def describe(self) -> dict[str, Any]:
        """The trace as the page is told of it."""
        meta = self.trace.to_json()
        notes = dict.fromkeys([*meta["notes"], *self.notes])
        seen = meta["views"]
        views = {"mixing": seen["mixing"], "why": seen["attribution"], "search": seen["search"]}
        return {**meta, "request": self.request.plain(), "notes": list(notes), "views": views}


class Traces:
    """Makes traces of one model and of the checkpoints of its run, and keeps the last ones."""

    def __init__(self, model: Model, *, kept_bytes: int = KEPT_BYTES) -> None:
        self._models: dict[str, Model] = {"": model}
        self._kept: OrderedDict[str, Kept] = OrderedDict()  # by id
        self._ids: dict[str, str] = {}  # by request
        self._limit = kept_bytes
        self._turn, self._places = threading.Lock(), threading.Semaphore(WAITING)
        self._lock = threading.Lock()

    def make(self, request: Request) -> Kept:
        """The trace of a request; the same request has the same answer."""
        if found := self._find(request):
            return found
        with self.wait():
            return self._find(request) or self._make(request)

    def get(self, id: str) -> Kept:
        """A trace that is kept."""
        with self._lock:
            if id not in self._kept:
                raise GoneError("this trace is no longer kept; ask for it again")
            self._kept.move_to_end(id)
            return self._kept[id]

    def change(self, id: str, change: dict[str, Any]) -> Kept:
        """The trace with one more change."""
        request = self.get(id).request
        if len(request.changes) >= MAX_CHANGES:
            raise DataError(f"a trace takes {MAX_CHANGES} changes; begin anew")
        try:
            return self.make(Request.model_validate({**request.plain(), "changes": (*request.changes, change)}))
        except ValidationError as error:
            raise DataError(f"the change cannot be read: {error.errors()[0]['msg']}") from None

    def _make(self, request: Request) -> Kept:
        if request.changes:
            before = request.model_copy(update={"changes": request.changes[:-1]})
            start = self._find(before) or self._make(before)
            with listen() as notes:
                trace = start.trace.change(request.changes[-1], {id: kept.trace for id, kept in self._kept.items()})
            return self._keep(Kept(request, trace, (*start.notes, *notes)))
        with listen() as notes:
            trace = _trace(self._open(request.checkpoint or ""), request)
        return self._keep(Kept(request, trace, tuple(notes)))

    def _find(self, request: Request) -> Kept | None:
        with self._lock:
            kept = self._kept.get(self._ids.get(request.key, ""))
            if kept is not None:
                self._kept.move_to_end(kept.trace.id)
            return kept

    @contextmanager
    def wait(self) -> Iterator[None]:
        """Wait for one's turn to compute something."""
        if not self._places.acquire(blocking=False):
            raise BusyError("the server is busy with other requests; wait until these are done")
        try:
            with self._turn:
                yield
        finally:
            self._places.release()

    def _keep(self, made: Kept) -> Kept:
        with self._lock:
            self._kept[made.trace.id] = made
            self._ids[made.request.key] = made.trace.id
            while len(self._kept) > 1 and sum(kept.trace.nbytes for kept in self._kept.values()) > self._limit:
                _, gone = self._kept.popitem(last=False)
                self._ids.pop(gone.request.key, None)
        return made

    def _open(self, checkpoint: str) -> Model:
        """The model, or that of a checkpoint: one of those that are in the run's folder at this moment."""
        if checkpoint not in self._models:
            folder = self._models[""].folder
            known = {} if folder is None else list_moments(find_run(folder))
            if checkpoint not in known:
                raise DataError("the run has no such checkpoint; choose one of those that it lists")
            while len(self._models) > 2:  # the model, and the two checkpoints that were used last
                del self._models[list(self._models)[1]]
            self._models[checkpoint] = load(known[checkpoint])
        return self._models[checkpoint]


def _trace(model: Model, request: Request) -> Trace:
    if request.second is not None and request.target is not None:
        raise DataError("give a second text or a target, not both")
    other = request.second if request.second is not None else request.target
    more: dict[str, Any] = dict(request.search)
    return model.trace(request.text, *([] if other is None else [other]), **more)


@contextmanager
def listen() -> Iterator[list[str]]:
    """What Seqloom says while it works: notices become sentences on the page."""
    notes: list[str] = []
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        yield notes
    notes += [str(one.message) for one in said if issubclass(one.category, Notice)]
