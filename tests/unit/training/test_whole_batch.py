"""A loss that compares the records of a batch gets the batch whole: it is refused or recomputed, never divided."""

from pathlib import Path
from typing import Any, ClassVar

import pytest
from rich.console import Console

from seqloom.errors import ConfigError
from seqloom.nn.transformer import Stack
from seqloom.runs.run import TrainingRun
from seqloom.tasks import TASKS, ClassificationTask
from seqloom.tasks.configuration import load
from seqloom.training import loop
from seqloom.training.distributed import ProcessGroup
from seqloom.training.job import build, check_undivided
from seqloom.training.monitor import PlainMonitor
from seqloom.training.prepare import prepare
from small_corpora import corpora, write_config

__all__ = ["corpora"]


class ComparingTask(ClassificationTask):
    needs_whole_batch: ClassVar = True


class Listening(PlainMonitor):
    def __init__(self) -> None:
        super().__init__(Console(quiet=True))
        self.lines: list[str] = []

    def say(self, message: str) -> None:
        self.lines.append(message)


def make_task(folder: Path, corpora: Path, *overrides: str) -> ComparingTask:
    path = write_config(folder, corpora, "classification", "transformer", "steps = 3")
    config = load(path, ["size=tiny", *overrides])
    return ComparingTask.model_validate({name: getattr(config, name) for name in type(config).model_fields})


def fit(folder: Path, corpora: Path) -> tuple[Any, list[str]]:
    task, monitor = make_task(folder, corpora), Listening()
    prepared = prepare(task, folder, folder / "run", monitor.say)
    model = build(task, prepared, folder)
    loop.fit(model, task, prepared, TrainingRun(folder / "run"), monitor)
    return model, monitor.lines


def test_a_subclass_does_not_take_the_place_of_its_task() -> None:
    assert TASKS["classification"] is ClassificationTask


@pytest.mark.parametrize("case", ["accumulate", "processes"])
def test_a_batch_that_would_be_divided_is_refused(case: str, corpora: Path, tmp_path: Path) -> None:
    overrides = ["train.accumulate=2"] if case == "accumulate" else []
    group = ProcessGroup(0, 2) if case == "processes" else ProcessGroup()
    with pytest.raises(ConfigError, match="compares all records of a batch, so a batch cannot be divided"):
        check_undivided(make_task(tmp_path, corpora, *overrides), group)


def test_layers_are_recomputed_when_memory_runs_out(
    corpora: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    take_step, sizes = loop.take_step, []

    def short_of_memory(learner: Any, parts: list[Any], *rest: Any) -> Any:
        sizes.append(len(parts))
        if len(sizes) == 1:
            raise MemoryError
        return take_step(learner, parts, *rest)

    monkeypatch.setattr(loop, "take_step", short_of_memory)
    model, lines = fit(tmp_path, corpora)
    assert sizes == [1, 1, 1, 1]
    assert all(module.recompute for module in model.modules() if isinstance(module, Stack))
    assert any("layers are computed again" in line for line in lines)
