"""One training of a comparison, in a process of its own: train, answer the records that judge, write down how it went.

The process is its own so that its memory is that of one training, and so that a training that is killed for lack of
memory takes nothing else with it. What it found is one file; of a training that failed, the file says why.
"""

import json
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

from rich.console import Console

from seqloom import __version__
from seqloom.errors import RunError, SeqloomError
from seqloom.files import write_whole
from seqloom.lab.compare.plan import Trial, link_preparation
from seqloom.predict.evaluate import Wanted, measure, open_records, read_records
from seqloom.predict.load import open_predictor
from seqloom.runs.listing import find_state
from seqloom.runs.log import read_log
from seqloom.runs.run import Run
from seqloom.tasks.base import Judge, Task
from seqloom.training.clock import CLOCKS
from seqloom.training.job import train
from seqloom.training.loop import is_out_of_memory
from seqloom.training.monitor import PlainMonitor

_PATIENCE = 60.0  # seconds to wait for a process that was killed and still holds the folder
Outcome = dict[str, Any]
ShouldStop = Callable[[], bool]


class _StoppedError(Exception):
    """Somebody asked to stop while records were being answered."""


def run_trial(trial: Trial, should_stop: ShouldStop = lambda: False) -> None:
    """Train a cell with a seed and measure it; what is finished already is not done again."""
    if find_outcome(trial) is not None:
        return
    trial.log.parent.mkdir(parents=True, exist_ok=True)
    with trial.log.open("a", encoding="utf-8") as log:
        try:
            found = _train_and_measure(trial, PlainMonitor(Console(file=log, width=200)), should_stop)
        except _StoppedError:
            return
        except SeqloomError as error:
            fail(trial, str(error))
        except Exception as error:
            traceback.print_exc(file=log)
            fail(trial, "out of memory" if is_out_of_memory(error) else f"{type(error).__name__}: {error}")
        else:
            if found is not None:
                write_outcome(trial, {"found": found})


def find_outcome(trial: Trial) -> Outcome | None:
    """What a training has found before, unless it failed or something has changed since."""
    outcome = read_outcome(trial)
    return outcome["found"] if outcome is not None and "found" in outcome else None


def read_outcome(trial: Trial) -> Outcome | None:
    """How a training ended, if it did: `found`, or `failed` with the reason."""
    try:
        outcome: Outcome = json.loads(trial.outcome.read_bytes())
    except (OSError, ValueError):
        return None
    return outcome if outcome.get("key") == trial.key else None


def write_outcome(trial: Trial, outcome: Outcome) -> None:
    """Write down how a training ended."""
    write_whole(trial.outcome, json.dumps({"key": trial.key, **outcome}, ensure_ascii=False).encode())


def fail(trial: Trial, reason: str) -> None:
    """Write down that a training failed."""
    write_outcome(trial, {"failed": reason})


def _train_and_measure(trial: Trial, monitor: PlainMonitor, should_stop: ShouldStop) -> Outcome | None:
    """What was found; None if it was stopped."""
    if trial.version != __version__:
        raise RunError(f"this machine has Seqloom {__version__}, not {trial.version}; install the same one everywhere")
    _wait_until_free(Path(trial.folder), should_stop)
    link_preparation(trial)
    run = train(trial.config, trial.overrides, out=trial.folder, monitor=monitor, should_stop=should_stop)
    if not _is_ended(run):
        return None
    monitor.say(f"answering the {trial.split} data")
    return {**_measure(trial, should_stop), **_read_logs(run)}


def _is_ended(run: Run) -> bool:
    """Whether the training has come to its end; a run that continues with a larger budget was finished before."""
    lines = [line for line in read_log(run.speed.path) if "step" in line]
    return run.finished and lines[-1].get("end") != "stopped"


def _wait_until_free(folder: Path, should_stop: ShouldStop) -> None:
    """A process whose machine is being lost may hold the run for a moment longer."""
    end = time.monotonic() + _PATIENCE
    while find_state(folder, resumable=True) == "in training" and time.monotonic() < end and not should_stop():
        time.sleep(0.2)


def _measure(trial: Trial, should_stop: ShouldStop) -> Outcome:
    """The rows of the metric, one for each record, and what a reader should know about them."""

    def advance(_: int) -> None:
        if should_stop():
            raise _StoppedError

    predictor = open_predictor(Path(trial.folder))
    clock = CLOCKS[predictor.config.train.clock]
    started = clock()
    corpora = open_records(predictor, (), "test" if trial.split == "test" else "valid")
    records = read_records(corpora)
    wanted = Wanted((trial.metric,), tokenized=trial.tokenized)
    performance = measure(predictor, corpora, records, wanted, advance)
    (found,) = performance.measures
    return {
        "records": len(records),
        "rows": found.rows.tolist(),
        "signature": found.signature,
        "notes": list(performance.details.notes),
        "labels": list(predictor.labels),
        "answering": clock() - started,
        "judged_by": _name_judge(predictor.config, predictor.labels),
    }


def _name_judge(task: Task, labels: tuple[str, ...]) -> str:
    return Judge(task, labels).name


def _read_logs(run: Run) -> Outcome:
    """How the training went, and what it took."""
    speed = [line for line in read_log(run.speed.path) if "step" in line]
    last = speed[-1]
    seconds = last["seconds"] - last["validating"]
    memory = [line["memory"] for line in speed if line.get("memory")]
    return {
        "steps": last["step"],
        "predictions": last["predictions"],
        "curve": [[line["step"], line["valid"]] for line in read_log(run.log.path) if "valid" in line],
        "seconds": last["seconds"],
        "tokens_per_second": last["predictions"] / seconds if seconds > 0 else 0.0,
        "memory": max(memory, default=None),
    }
