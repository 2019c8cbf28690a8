"""The command line as a person meets it."""

import itertools
import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import click
import pytest
from typer.main import get_command

import seqloom
from forked import start
from seqloom.cli.main import app
from seqloom.config.recipes import RECIPES
from seqloom.tasks import configuration as config


def run(*arguments: str, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-m", "seqloom", *arguments], capture_output=True, text=True, cwd=cwd)


def test_version() -> None:
    done = run("--version")
    assert (done.returncode, done.stdout) == (0, f"seqloom {seqloom.__version__}\n")
    assert re.fullmatch(r"\d+\.\d+\.\d+", seqloom.__version__)


def ask_for_help(*call: str) -> str:
    return start(*call, "--help").wait().stdout.decode()


def commands(*group: str) -> list[str]:
    listing = ask_for_help(*group).partition("Commands:\n")[2].partition("\n\n")[0]
    return re.findall(r"^  (\w[\w-]*)", listing, flags=re.MULTILINE)


def test_every_verb_has_help_with_an_example() -> None:
    verbs = commands()
    assert {"demo", "new", "schema", "train", "check"} <= set(verbs)
    assert {"translate", "generate", "classify", "tag", "embed", "fill", "score"} <= set(verbs)
    calls = [(verb, *inner) for verb in verbs for inner in ([(i,) for i in commands(verb)] or [()])]
    for call in calls:
        _, said, example = ask_for_help(*call).partition("Example: ")
        assert said, call
        words = shlex.split(example.partition("\n\n")[0])  # as a shell reads it
        parts = [[*part] for is_pipe, part in itertools.groupby(words, lambda word: word in ("|", ">")) if not is_pipe]
        ours = [part[1:] for part in parts if part[0] == "seqloom"]
        assert any(part[: len(call)] == [*call] for part in ours), call
        for part in ours:
            read_words(get_command(app), part)


def read_words(command: click.Command, words: list[str]) -> None:
    """Fails with a sentence where the command line would."""
    context = command.make_context("seqloom", words)
    if isinstance(command, click.Group):
        _, inner, rest = command.resolve_command(context, [*context.protected_args, *context.args])
        assert inner is not None
        read_words(inner, rest)


@pytest.mark.parametrize("task", config.TASKS)
def test_new_writes_a_file_that_loads(task: str, tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    done = start("new", task, "-o", path).wait()
    assert done.returncode == 0, done.stderr
    assert config.load(path).task == task
    printed = start("new", task).wait().stdout
    assert path.read_bytes() == printed == start("new", task, "-o", "-").wait().stdout


def test_new_does_not_overwrite(tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_text("precious")
    done = run("new", "tagging", "-o", str(path))
    assert done.returncode == 2
    assert "exists already" in done.stderr
    assert path.read_text() == "precious"


def test_a_wrong_task_is_wrong_usage_without_a_traceback() -> None:
    done = run("new", "translatoin")
    assert done.returncode == 2
    assert 'did you mean "translation"?' in done.stderr
    assert "Traceback" not in done.stderr


def test_a_wrong_recipe_is_answered_with_the_right_ones() -> None:
    done = run("new", "translation", "--recipe", "gru-atention")
    assert done.returncode == 2
    assert 'did you mean "gru-attention"?' in done.stderr
    assert "Traceback" not in done.stderr


def test_a_folder_that_is_not_there_is_named(tmp_path: Path) -> None:
    done = run("new", "translation", "-o", str(tmp_path / "none" / "my.toml"))
    assert done.returncode == 2
    assert done.stderr == f"error: {tmp_path / 'none' / 'my.toml'} cannot be written: No such file or directory\n"


def test_the_schema_is_json() -> None:
    assert "$defs" in json.loads(run("schema").stdout)


def test_help_does_not_cut_sentences() -> None:
    for group in ((), ("tokenizer",), ("vectors",)):
        assert "..." not in ask_for_help(*group).partition("Commands:\n")[2], group


def test_every_recipe_is_listed_and_printed() -> None:
    lines = start("recipes").wait().stdout.decode().splitlines()[1:]
    names = [line.split()[0] for line in lines]
    assert set(names) == {*RECIPES, *config.TASKS}
    for name in names:
        printed = start("recipes", name).wait().stdout.decode()
        assert config.parse(printed).task == (RECIPES[name].task if name in RECIPES else name)
    rows = [json.loads(line) for line in start("recipes", "--json").wait().stdout.splitlines()]
    assert [row["name"] for row in rows] == names
    wrong = start("recipes", "gru-atention").wait()
    assert wrong.returncode == 2
    assert b'did you mean "gru-attention"?' in wrong.stderr


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_a_shell_can_complete_commands(shell: str) -> None:
    script = subprocess.run(
        [sys.executable, "-m", "seqloom", "--show-completion", shell],
        capture_output=True,
        text=True,
        env={**os.environ, "_TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION": "1"},
    )
    assert script.returncode == 0, script.stderr
    assert "_SEQLOOM_COMPLETE" in script.stdout


def test_completion_answers_with_the_commands_that_fit() -> None:
    words = {"COMP_WORDS": "seqloom tra", "COMP_CWORD": "1", "_SEQLOOM_COMPLETE": "complete_bash"}
    code = "import sys; sys.argv = ['seqloom']; from seqloom.cli.main import run; run()"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env={**os.environ, **words})
    assert done.stdout.split() == ["train", "translate"], done.stderr
