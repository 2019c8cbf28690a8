"""Messages that Python and the command line share name an argument as each of them does."""

from pathlib import Path

import pytest
import typer

import seqloom
from seqloom.cli.main import app
from seqloom.cli.options import name_options
from unit.cli.test_main import run

COMMANDS = typer.main.get_command(app)


@pytest.mark.parametrize(
    ("arguments", "message", "said"),
    [
        (["train", "a.toml"], "choose another folder with `out`", "choose another folder with --out"),
        (["translate", "runs/a"], "leave `engine` out", "leave --engine out"),
        (
            ["generate", "runs/a"],
            "top_p: only for sampling; set `sample`, too",
            "top_p: only for sampling; set --sample, too",
        ),
        (["eval", "runs/a"], "see `length_penalty`", "see --length-penalty"),
        (["tokenizer", "train"], "name it with `output`", "name it with --output"),
        (["train", "a.toml"], "leave `engine` out", "leave `engine` out"),
        (["train", "a.toml"], "`seqloom check CONFIG` shows all", "`seqloom check CONFIG` shows all"),
        ([], "leave `engine` out", "leave `engine` out"),
    ],
)
def test_arguments_become_options_of_the_command(arguments: list[str], message: str, said: str) -> None:
    assert name_options(message, COMMANDS, arguments) == said


def test_what_python_and_the_command_line_say(tmp_path: Path) -> None:
    config = tmp_path / "a.toml"
    config.write_text('task = "language-model"\n[data.train]\nfiles = "a.txt"\n[train]\nsteps = 1\n')
    (tmp_path / "a.txt").write_text("a b c\n" * 9)
    (tmp_path / "out").write_text("a file, not a folder")
    told = run("train", str(config), "--out", str(tmp_path / "out")).stderr
    assert "choose another folder with --out" in told
    with pytest.raises(seqloom.SeqloomError, match="choose another folder with `out`"):
        seqloom.train(config, out=tmp_path / "out")
