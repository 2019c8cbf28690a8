"""From the name of an experiment to its page: parameters, measuring, report, files."""

import shlex
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from seqloom import __version__
from seqloom.errors import ConfigError
from seqloom.lab.catalogue import find_experiment
from seqloom.lab.experiment import Experiment, Parameters, Report
from seqloom.lab.page import print_report, write_page
from seqloom.lab.runner import Say, conduct
from seqloom.tasks.configuration import apply_override, validate


class Shown(NamedTuple):
    """A report that was written."""

    text: str
    """As it is printed."""
    facts: dict[str, Any]
    """What the JSON file holds."""
    folder: Path


def run_experiment(
    name: str,
    changes: Sequence[str] = (),
    *,
    seed: int = 1,
    seeds: int = 1,
    folder: Path | None = None,
    jobs: int | None = None,
    again: bool = False,
    say: Say = lambda done, total, text: None,
) -> Shown:
    """Conduct an experiment and write its page; `changes` are parameters as KEY=VALUE."""
    experiment = find_experiment(name)
    parameters = read_parameters(experiment, changes)
    folder = find_folder(name) if folder is None else folder
    if again:
        shutil.rmtree(folder / "units", ignore_errors=True)
    _make(folder)
    wanted = range(seed, seed + seeds)
    results = conduct(experiment, parameters, wanted, folder, jobs=jobs, say=say)
    options = {"seed": None if seed == 1 else seed, "seeds": None if seeds == 1 else seeds, "set": [*changes]}
    about = {
        "command": spell_command(name, **options),
        "parameters": parameters.model_dump(mode="json"),
        "seeds": list(wanted),
    }
    units = {unit: list(results[unit]) for unit in experiment.list_units(parameters)}
    return show(experiment, experiment.report(parameters, results), folder, about, units)


def show(
    experiment: Experiment[Any], report: Report, folder: Path, about: dict[str, Any], results: dict[str, Any]
) -> Shown:
    """Write a report; one about a model of one's own has no results, and need not show what the experiment teaches."""
    name, teaches = experiment.name, experiment.teaches if results else ""
    _make(folder)
    facts = write_page(name, teaches, report, folder, {"seqloom": __version__, **about}, results)
    return Shown(print_report(name, teaches, report), facts, folder)


def spell_command(name: str, *words: object, **options: object) -> str:
    """The command that a page was made by, as a shell reads it. An option that is None is left out."""
    spelled = [str(word) for word in words]
    for key, given in options.items():
        values = given if isinstance(given, list | tuple) else [given]
        spelled += [word for value in values if value is not None for word in (f"--{key}", str(value))]
    return shlex.join(["seqloom", "lab", name, *spelled])


def _make(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigError(f"{folder}: no page can be written there: {error.strerror}") from None


def find_folder(name: str, *others: Path) -> Path:
    """Where an experiment is kept; about models of one's own, a folder with their names."""
    return Path("runs", "lab", "-".join([name, *(other.resolve().name for other in others)]))


def read_parameters(experiment: Experiment[Any], changes: Sequence[str]) -> Parameters:
    """The parameters, with some of them changed."""
    data: dict[str, Any] = {}
    keys = [apply_override(data, change) for change in changes]
    unknown = [key for key in keys if key not in experiment.parameters.model_fields]
    if unknown:
        known = ", ".join(experiment.parameters.model_fields) or "none"
        raise ConfigError(f"lab {experiment.name}: there is no parameter {unknown[0]}; there are: {known}")
    given = {key: _read_list(f"lab {experiment.name}: {key}", value) for key, value in data.items()}
    parameters: Parameters = validate(given, experiment.parameters, "", f"lab {experiment.name}")
    return parameters


def _read_list(name: str, value: Any) -> Any:
    """A parameter with several values has at least one, and each of them once."""
    if not isinstance(value, list):
        return value
    if not value:
        raise ConfigError(f"{name} must have at least one value")
    if twice := [one for at, one in enumerate(value) if one in value[:at]]:
        raise ConfigError(f"{name} has {twice[0]} more than once")
    return tuple(value)
