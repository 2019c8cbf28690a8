"""How the model came to be: the history of its run, live while it is trained, and of the runs beside it."""

import threading
from typing import Any

from fastapi import APIRouter

from seqloom.errors import DataError
from seqloom.runs.history import History
from seqloom.runs.listing import list_neighbours
from seqloom.runs.weights import find_run
from seqloom.serve.subject import Subject

_KEPT = 4
"""Histories that are kept, so that only what is new in their logs is read."""


class Histories:
    """The histories of a run and of those beside it. Only runs that a list has named are opened."""

    def __init__(self, subject: Subject) -> None:
        self._run = find_run(subject.folder)
        self._kept: dict[str, History] = {}
        self._lock = threading.Lock()

    def list_runs(self) -> list[dict[str, str]]:
        """The runs in the same folder, without this one."""
        return [{"name": path.name, "task": task} for path, task in list_neighbours(self._run)]

    def read(self, name: str | None) -> dict[str, Any]:
        """The history of the run, or of another one by name."""
        known = {path.name: path for path, _ in list_neighbours(self._run)} if name else {}
        if name and name not in known:
            raise DataError("there is no such run beside this one; choose one of those that are listed")
        with self._lock:  # a history reads on from where it was
            if (name or "") not in self._kept:
                while len(self._kept) >= _KEPT:
                    del self._kept[next(iter(self._kept))]
                self._kept[name or ""] = History(known[name] if name else self._run)
            return self._kept[name or ""].read()


def run_routes(subject: Subject) -> APIRouter:
    """The addresses of the view of runs."""
    routes, histories = APIRouter(), Histories(subject)

    @routes.get("/run")
    def run(since: str = "", name: str | None = None) -> dict[str, Any]:
        """The history; if it is still the one of version `since`, only that."""
        if not subject.is_run:
            raise DataError("this model was not trained here, so there is no training to show")
        found = histories.read(name)
        return {"version": since, "same": True} if found["version"] == since else found

    @routes.get("/runs")
    def runs() -> dict[str, Any]:
        return {"runs": histories.list_runs()}

    return routes
