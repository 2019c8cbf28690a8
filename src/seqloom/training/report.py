"""What happened, on one page: the view of runs of `seqloom explore`, saved as one file that needs nothing else."""

from pathlib import Path
from typing import Any

from seqloom.files import write_whole
from seqloom.page.bundle import saved_page
from seqloom.page.saved import Saved
from seqloom.runs.history import History
from seqloom.runs.run import Run

_VIEWS = ("answer", "mixing", "why", "search", "change", "words")


def write_report(run: Run) -> Path:
    """Make the page of a finished run from its folder."""
    history = History(run.folder).read(state="finished")
    path = run.folder / "report.html"
    page = saved_page(Saved({"/model": describe_model(history), "/run": history}, state={"view": "runs"}))
    write_whole(path, page.encode())
    return path


def describe_model(history: dict[str, Any]) -> dict[str, Any]:
    """What the page says of the model: the report of a run has its history, and no model."""
    why = f"This is the report of a training. To look inside the model: seqloom explore {history['folder']}"
    return {
        "name": history["name"],
        "task": history["task"],
        "families": [],
        "weights": 0,
        "views": {**dict.fromkeys(_VIEWS, why), "runs": True},
        "runs": True,
    }
