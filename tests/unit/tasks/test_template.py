"""The file that `seqloom new` writes: short, and with `--full` every key, true and valid."""

import re
import tomllib
from pathlib import Path

import pytest
from pydantic import BaseModel

from seqloom.config.batches import Frame
from seqloom.config.dump import dump
from seqloom.config.faults import section_models
from seqloom.config.recipes import RECIPES
from seqloom.tasks import TASKS
from seqloom.tasks import configuration as config
from seqloom.tasks.template import render

KINDS = [(task, None) for task in TASKS] + [(recipe.task, name) for name, recipe in RECIPES.items()]
KEY = re.compile(r"^# ([\w.]+ = [^#]*?)(  # an example)?$")


def write(task: str, recipe: str | None, *, full: bool) -> str:
    return render(task, RECIPES[recipe] if recipe else None, full=full)


def load(text: str, base: Path, task: str) -> config.Config:
    """The configuration of a file; `size` is the one that the file's comments tell of."""
    return config.parse(text, [] if task == "word-vectors" else ["size=small"], base=base)


@pytest.mark.parametrize("task", TASKS)
def test_the_file_is_short(task: str) -> None:
    lines = render(task).splitlines()
    assert len(lines) <= 27
    assert all(len(line) <= 120 for line in lines)
    tables = tomllib.loads(render(task))
    assert ("test" in tables["data"]) == (task != "word-vectors")


@pytest.mark.parametrize(("task", "recipe"), KINDS)
def test_the_full_file_says_the_same_as_the_short_one(task: str, recipe: str | None, tmp_path: Path) -> None:
    short, full = (load(write(task, recipe, full=full), tmp_path, task) for full in (False, True))
    assert short == full


@pytest.mark.parametrize(("task", "recipe"), KINDS)
def test_every_key_behind_a_mark_shows_its_default_and_is_valid(task: str, recipe: str | None, tmp_path: Path) -> None:
    run = tmp_path / "runs" / "pretrained"
    run.mkdir(parents=True)
    lines = write(task, recipe, full=True).splitlines()
    usual = load("\n".join(lines), tmp_path, task)
    (run / "config.toml").write_text(dump(usual), encoding="utf-8")
    found = 0
    for number, line in enumerate(lines):
        if key := KEY.match(line):
            found += 1
            text = "\n".join([*lines[:number], key[1], *lines[number + 1 :]])
            given = load(text, tmp_path, task)
            assert (given == usual) != bool(key[2]), line
    assert found > 30


@pytest.mark.parametrize("task", TASKS)
def test_the_full_file_has_every_key(task: str) -> None:
    """Of the sections that the default chooses."""
    text = render(task, full=True)

    def check(section: BaseModel, path: str) -> None:
        for name, field in type(section).model_fields.items():
            value = getattr(section, name)
            value = value[0] if isinstance(value, tuple) and value and section_models(field.annotation) else value
            if isinstance(value, BaseModel) and not isinstance(value, Frame):
                check(value, f"{path}{name}.")
            elif name not in ("features", "separator"):  # what `init` brings, and what a tsv has not
                assert re.search(rf"^(# )?([\w.]+\.)?{name} = ", text, re.MULTILINE), f"{path}{name}"

    check(load(text, Path(), task), "")


@pytest.mark.parametrize("task", [task for task in TASKS if task.endswith("language-model")])
@pytest.mark.parametrize("given", ["batch.tokens=64", "batch.rows.length=64", "batch.rows.max_length=64"])
def test_one_key_of_the_batches_does_not_change_what_a_row_is(task: str, given: str) -> None:
    usual = TASKS[task].model_fields["batch"].default.rows
    if given.split("=")[0].removeprefix("batch.rows.") in (*type(usual).model_fields, "batch.tokens"):
        assert config.parse(render(task), [given]).batch.rows.kind == usual.kind  # type: ignore[attr-defined]


def test_one_key_of_the_positions_does_not_change_their_kind() -> None:
    found = config.parse(render("translation"), ["model.encoder.positions.base=5000.0"])
    assert found.model.encoder.positions.kind == "rotary"  # type: ignore[attr-defined]
