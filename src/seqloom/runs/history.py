"""The history of a run, for a page to show: how good it is, its curves, samples, labels, data, settings, how to use it.

Everything is read from the folder, so it can be shown while another process trains the run, after that process was
killed, and of a run whose log is damaged. The result is plain JSON: no number in it is infinite or none.
"""

import hashlib
import json
import shlex
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any

from seqloom.config.settings import list_settings
from seqloom.errors import ConfigError, RunError
from seqloom.runs.checkpoint import is_snapshot, read_step
from seqloom.runs.curves import SHOWN_CHARACTERS, Curves, Validation, as_number, find_speed
from seqloom.runs.findings import read_findings
from seqloom.runs.listing import State, describe_best, find_state, name_family, read_labels
from seqloom.runs.log import Line, LogReader
from seqloom.runs.run import Run
from seqloom.runs.weights import list_moments
from seqloom.tasks import Config, Task
from seqloom.tasks.base import Judge
from seqloom.tasks.configuration import load_resolved

_ENDS = {"stopped": "it was stopped", "finished": "it was finished, and given a larger budget"}
_EXAMPLE = "a text"


class History:
    """Reads the folder of a run, and reads it again as it grows."""

    def __init__(self, folder: Path) -> None:
        self.run = Run(folder)
        self._logs = [LogReader(self.run.log.path), LogReader(self.run.speed.path)]
        self._curves, self._speed, self._damaged = Curves(), [], [0, 0]  # type: tuple[Curves, list[Line], list[int]]
        self._signs: list[int] = []
        self._data: dict[str, Any] = {}

    def read(self, state: State | None = None) -> dict[str, Any]:
        """Everything there is to show, as of now; `state` is for the training itself, which knows its own."""
        self._read_logs()
        folder, config, notes = self.run.folder, None, []
        try:
            config = load_resolved(folder / "config.toml")
        except ConfigError as error:
            notes.append(str(error))
        judge = Judge(config, read_labels(folder)) if isinstance(config, Task) else None
        best = None if judge is None else self._curves.find_best(judge)
        moments = list_moments(folder)
        found = {
            "name": folder.resolve().name,
            "folder": str(folder),
            "state": state or find_state(folder, resumable=bool(moments)),
            "task": None if config is None else config.task,
            "score": self._describe_score(judge, best),
            "facts": self._list_facts(config),
            "progress": self._describe_progress(),
            "notes": [*notes, *self._list_notes(config)],
            "train": self._curves.thin_steps(),
            "layers": self._curves.thin_layers(),
            "valid": self._curves.thin_validations(best),
            "speed": find_speed(self._speed),
            "restarts": _find_restarts(self._speed),
            "samples": self._curves.thin_samples(best),
            "labels": _describe_labels(best),
            "data": self._find_data(),
            "settings": [] if config is None else [asdict(setting) for setting in list_settings(config)],
            "moments": [
                {"name": name, "step": read_step(path), "kind": _name_kind(path)} for name, path in moments.items()
            ],
            "use": [] if not isinstance(config, Task) else self._list_usages(config),
        }
        content = json.dumps(found, ensure_ascii=False, allow_nan=False).encode(errors="replace")
        return {"version": hashlib.sha256(content).hexdigest()[:16], **json.loads(content)}

    def _read_logs(self) -> None:
        steps, speed = (log.read() for log in self._logs)
        for number, news in enumerate((steps, speed)):
            self._damaged[number] = news.damaged + (0 if news.anew else self._damaged[number])
        if steps.anew:
            self._curves = Curves()
        self._curves.add(steps.lines)
        self._speed = speed.lines if speed.anew else [*self._speed, *speed.lines]

    def _find_data(self) -> dict[str, Any]:
        """What is known of the data; read again only when it changed, because the list of records may be long."""
        signs = []
        for path in (self.run.treated, self.run.data / "checks"):
            signs.append(path.stat().st_mtime_ns if path.exists() else 0)
        if signs != self._signs:
            self._signs, self._data = signs, read_findings(self.run)
        return self._data

    def _describe_score(self, judge: Judge | None, best: Validation | None) -> dict[str, Any] | None:
        """The number to look at first: the best validation, or the training loss where nothing was validated."""
        if judge is not None and best is not None:
            found = {"lower": judge.lower_is_better, "split": "validation", "measures": best.measures}
            return asdict(describe_best(best, judge)) | found
        train = self._curves.thin_steps()
        points = [(step, loss) for step, loss in zip(train["steps"], train["loss"], strict=True) if loss is not None]
        if not points:
            return None
        step, loss = points[-1]
        return {"metric": "loss", "value": loss, "step": step, "sample": "", "lower": True, "split": "training"}

    def _describe_progress(self) -> dict[str, Any]:
        """How far the training has come."""
        last = next((line for line in reversed(self._speed) if "spent" in line), {})
        step = max([as_number(last.get("step")) or 0.0, *self._curves.steps[-1:]])
        numbers = {name: as_number(last.get(name)) for name in ("spent", "seconds", "validating", "predictions")}
        return {"step": int(step), **numbers}

    def _list_facts(self, config: Config | None) -> list[tuple[str, str]]:
        """What is said in a line each."""
        start: Line = next((line for line in reversed(self._speed) if "start" in line), {})
        progress = self._describe_progress()
        facts = {"task": None if config is None else config.task}
        if isinstance(config, Task):
            given = config.train.budget
            facts |= {"model": f"{config.size}, {name_family(config)}", "budget": None if given is None else str(given)}
        facts |= {name: str(start[name]) for name in ("budget", "batches") if name in start}
        weights, trained = as_number(start.get("weights")), as_number(start.get("trained"))
        if weights is not None:
            part = f", {trained:,.0f} of them trained" if trained not in (None, weights) else ""
            facts["weights"] = f"{weights:,.0f}{part}"
        facts |= {name: str(start[name]) for name in ("vocabulary", "training samples") if name in start}
        facts["steps"] = f"{progress['step']:,}" if progress["step"] else None
        if seconds := progress["seconds"]:
            validating, predictions = progress["validating"] or 0.0, progress["predictions"] or 0.0
            facts["time"] = f"{_spell_time(seconds)}, {validating / seconds:.0%} of it for validations"
            speed = predictions / (seconds - validating) if seconds > validating else 0.0
            facts["speed"] = f"{speed:,.0f} predictions a second" if speed else None
        memory = max((as_number(line.get("memory")) or 0.0 for line in self._speed), default=0.0)
        facts["memory"] = f"{memory / 2**20:,.0f} MiB at most" if memory else None
        facts |= {name: str(start[name]) for name in ("device", "precision", "processes") if name in start}
        begun = next((str(line["start"]) for line in self._speed if "start" in line), None)
        facts["begun"] = begun and f"{begun[:16].replace('T', ' ')} UTC"
        facts["kernels"] = str(start["kernels"]) if "kernels" in start else None
        return [(name, value) for name, value in facts.items() if value]

    def _list_notes(self, config: Config | None) -> list[str]:
        """What a reader of the page should know."""
        notes = []
        for name, damaged in zip(("log.jsonl", "speed.jsonl"), self._damaged, strict=True):
            if damaged:
                notes.append(f"{_count(damaged, 'line')} of {name} cannot be read and {_be(damaged)} left out.")
        if odd := self._curves.odd:
            notes.append(f"{_count(odd, 'line')} of log.jsonl {_be(odd)} neither a step nor a validation.")
        if infinite := self._curves.infinite:
            notes.append(f"At {_count(infinite, 'step')} the loss or its gradient was not finite: no update was made.")
        if isinstance(config, Task) and config.train.average:
            notes.append(f"The finished model is the mean of the last {config.train.average} checkpoints.")
        long = (text for one in self._curves.validations for sample in one.samples for text in sample.values())
        if any(len(text) > SHOWN_CHARACTERS for text in long):
            notes.append(f"Samples are cut after {SHOWN_CHARACTERS} characters.")
        return notes

    def _list_usages(self, task: Task) -> list[dict[str, str]]:
        folder, text = str(self.run.folder), self._find_example()
        return [
            {
                "what": usage.what,
                "command": usage.command.format(run=shlex.quote(folder), text=shlex.quote(text)),
                "python": usage.python.format(run=repr(folder), text=json.dumps(text, ensure_ascii=False)),
            }
            for usage in task.list_usages()
        ]

    def _find_example(self) -> str:
        """A text of the validation data, if there is a short one."""
        samples = (sample["text"] for one in self._curves.validations[-1:] for sample in one.samples)
        fitting = (text for text in samples if text.isprintable() and 0 < len(text) <= 80 and "[" not in text)
        return next(fitting, _EXAMPLE)


def _find_restarts(lines: Sequence[Line]) -> list[dict[str, Any]]:
    """Where a training was taken up again, and why it had ended."""
    found: list[dict[str, Any]] = []
    last: Line = {}
    resumed = False
    for line in lines:
        step = int(as_number(line.get("step", last.get("step"))) or 0)
        if "start" in line and last:
            why = _ENDS.get(str(last.get("end")), "it was broken off")
            found.append({"step": step, "time": str(line["start"]), "why": why})
            resumed = True
        elif "step" in line:
            if resumed:  # the first thing that a process says is from where it goes on
                found[-1]["step"] = step
            last, resumed = line, False
    return found


def _describe_labels(best: Validation | None) -> dict[str, Any] | None:
    """Each label by itself at the best validation; None where there are none."""
    line = {} if best is None else best.line
    names = ("label", "precision", "recall", "f1", "wanted", "given")
    with suppress(TypeError, ValueError, AttributeError):
        rows = [dict(zip(names, row, strict=True)) for row in line["labels"]] if "labels" in line else []
        for row in rows:
            row |= {"label": str(row["label"]), **{name: as_number(row[name]) for name in names[1:]}}
        pairs = [[str(wanted), str(given), int(count)] for wanted, given, count in line.get("confusions", ())]
        notes = [str(note) for note in line.get("notes", ())]
        if rows and best is not None:
            return {"step": best.step, "rows": rows, "confusions": pairs, "notes": notes}
    return None


def _name_kind(folder: Path) -> str:
    if is_snapshot(folder):
        return "snapshot"
    return "stopped" if folder.name.startswith("stopped") else "checkpoint"


def _spell_time(seconds: float) -> str:
    for size, unit in ((3600.0, "hours"), (60.0, "minutes")):
        if seconds >= 2 * size:
            return f"{seconds / size:.1f} {unit}"
    return f"{seconds:.1f} seconds"


def _count(number: int, what: str) -> str:
    return f"{number:,} {what}{'' if number == 1 else 's'}"


def _be(number: int) -> str:
    return "is" if number == 1 else "are"


def read_history(folder: Path) -> dict[str, Any]:
    """The history of a run at this moment."""
    if not (folder / "config.toml").exists():
        raise RunError(f"{folder}: there is no run here; `seqloom train CONFIG --out {folder}` makes one")
    return History(folder).read()
