"""`seqloom lab`: claims about sequence models, each measured in two minutes: a table, a picture and one sentence."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from seqloom.cli.evaluate import ManyFiles, count_records
from seqloom.cli.options import Command, Commands, declare, expand
from seqloom.lab.catalogue import QUESTIONS

if TYPE_CHECKING:
    from seqloom.lab.experiment import Report
    from seqloom.lab.session import Shown
    from seqloom.predict.model import Model

app = typer.Typer(
    cls=Commands,
    help="Claims about sequence models, each measured in two minutes: a table, a picture and one sentence.",
    no_args_is_help=True,
)


class Settings(NamedTuple):
    """How experiments are conducted."""

    seed: int
    seeds: int
    out: Path | None
    changes: list[str]
    jobs: int | None
    again: bool
    as_json: bool


_OUT = Annotated[Path | None, typer.Option("--out", help="Where the page goes; by default runs/lab/NAME.")]
_JSON = Annotated[bool, typer.Option("--json", help="Print JSON.")]
_OPTIONS = [
    declare("seed", Annotated[int, typer.Option("--seed", min=0, help="The same seed gives the same numbers.")], 1),
    declare(
        "seeds", Annotated[int, typer.Option("--seeds", min=1, help="Repeat with this many seeds, for intervals.")], 1
    ),
    declare("out", _OUT, None),
    declare(
        "changes",
        Annotated[
            list[str] | None,
            typer.Option(
                "--set", metavar="KEY=VALUE", help="Change a parameter, such as steps=100; an unknown KEY lists them."
            ),
        ],
        None,
    ),
    declare(
        "jobs",
        Annotated[int | None, typer.Option("--jobs", min=1, help="Models trained at once; by default one a core.")],
        None,
    ),
    declare("again", Annotated[bool, typer.Option("--again", help="Measure anew what was measured before.")], False),
    declare("as_json", _JSON, False),
]


def _collect(changes: list[str] | None, **others: Any) -> Settings:
    return Settings(changes=changes or [], **others)


_takes_settings = expand("settings", _OPTIONS, _collect)
_Runs = Annotated[
    list[Path] | None, typer.Argument(metavar="RUN", help="Your own runs; without one, small models are trained.")
]


def _conduct(name: str, settings: Settings) -> "Shown":
    """An experiment, with a bar while it is measured."""
    try:
        return _measure(name, settings)
    except KeyboardInterrupt:
        typer.echo("stopped; the same command goes on from there", err=True)
        raise typer.Exit(130) from None


def _measure(name: str, settings: Settings) -> "Shown":
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    from seqloom.lab.session import run_experiment

    seed, seeds, out, changes, jobs, again, _ = settings
    options: dict[str, Any] = {"seed": seed, "seeds": seeds, "folder": out, "jobs": jobs, "again": again}
    console = Console(stderr=True)
    if not console.is_terminal:

        def say(done: int, total: int, text: str) -> None:
            console.print(f"{name}: {done} of {total}: {text}", highlight=False, soft_wrap=True)

        return run_experiment(name, changes, **options, say=say)
    columns = (TextColumn(name), BarColumn(), "{task.completed} of {task.total}", TextColumn("{task.description}"))
    with Progress(*columns, TimeElapsedColumn(), console=console, transient=True) as bar:
        task = bar.add_task("measuring", total=None)

        def show(done: int, total: int, text: str) -> None:
            bar.update(task, completed=done, total=total, description=text)

        return run_experiment(name, changes, **options, say=show)


def _print(shown: "Shown", *, as_json: bool) -> None:
    if as_json:
        typer.echo(json.dumps(shown.facts, ensure_ascii=False))
        return
    typer.echo(shown.text)
    typer.echo(f"\n{shown.folder}: {shown.facts['experiment']}.md, .svg, .json")


def _show_own(
    name: str, report: "Report", runs: list[Path], settings: Settings, *words: object, **options: object
) -> None:
    """Write and print a report about somebody's own models; `words` and `options` are what was asked."""
    from seqloom.lab.catalogue import find_experiment
    from seqloom.lab.session import find_folder, show, spell_command

    folder = find_folder(name, *runs) if settings.out is None else settings.out
    about = {"command": spell_command(name, *words, **options), "runs": [str(run) for run in runs]}
    _print(show(find_experiment(name), report, folder, about, {}), as_json=settings.as_json)


def _refuse(name: str, settings: Settings, *, own: bool, **given: bool) -> None:
    """Refuse what would change nothing: options of an experiment for one's own runs, or those of runs without one."""
    from seqloom.errors import ConfigError

    repeated = {"--seeds": settings.seeds > 1, "--set": bool(settings.changes), "--jobs": settings.jobs is not None}
    idle = repeated | {"--again": settings.again} if own else {f"--{key}": value for key, value in given.items()}
    if wrong := [option for option, value in idle.items() if value]:
        when = "for runs of one's own" if own else "without a run"
        raise ConfigError(f"lab {name}: {', '.join(wrong)} would change nothing {when}; leave it out")


def _name_runs(runs: list[Path]) -> dict[str, Path]:
    """Runs by their names, or by their paths if two have the same name."""
    names = [run.name if [one.name for one in runs].count(run.name) == 1 else str(run) for run in runs]
    return dict(zip(names, runs, strict=True))


def _load(runs: list[Path]) -> "dict[str, Model]":
    from seqloom.predict.load import load

    return {name: load(run) for name, run in _name_runs(runs).items()}


def _make_plain(name: str, example: str) -> Command:
    """A command for an experiment that needs nobody's model."""

    def command(settings: Settings) -> None:
        _print(_conduct(name, settings), as_json=settings.as_json)

    command.__doc__ = f"{QUESTIONS[name]}\n\nExample: seqloom lab {name} {example}"
    return _takes_settings(command)


@app.command("attention")
@_takes_settings
def attention(
    settings: Settings,
    run: Annotated[
        Path | None, typer.Argument(metavar="RUN", help="Your own run; without it, the numbers of notes.")
    ] = None,
    text: Annotated[str | None, typer.Argument(metavar="TEXT", help="What its head reads.")] = None,
    stack: Annotated[
        str | None, typer.Option("--stack", help="encoder, decoder or cross; by default the last.")
    ] = None,
    layer: Annotated[int, typer.Option("--layer", help="From 0; by default the last.")] = -1,
    head: Annotated[int, typer.Option("--head", min=0, help="From 0.")] = 0,
    token: Annotated[int, typer.Option("--token", help="The token that attends, from 0; by default the last.")] = -1,
) -> None:
    """What does one attention head compute, number by number?

    Example: seqloom lab attention runs/my-run "a text" --layer 1 --head 3
    """
    from seqloom.errors import ConfigError

    chosen = {"stack": stack is not None, "layer": layer != -1, "head": head != 0, "token": token != -1}
    _refuse("attention", settings, own=run is not None, **chosen)
    if run is None:
        _print(_conduct("attention", settings), as_json=settings.as_json)
        return
    if text is None:
        raise ConfigError("lab attention: give a text after the run")
    from seqloom.lab.attention import inspect

    (model,) = _load([run]).values()
    report = inspect(model, text, stack=stack, layer=layer, head=head, token=token)
    asked: dict[str, object] = {"stack": stack, "layer": layer, "head": head, "token": token}
    _show_own("attention", report, [run], settings, run, text, **{key: asked[key] for key in asked if chosen[key]})


@app.command("bottleneck", cls=ManyFiles)
@_takes_settings
def bottleneck(
    settings: Settings,
    runs: Annotated[
        list[Path] | None,
        typer.Argument(
            metavar="RUN", help="Your own translators: BLEU by length; without one, small ones are trained."
        ),
    ] = None,
    data: Annotated[
        list[Path] | None,
        typer.Option(
            "--data",
            metavar="FILE ...",
            help="Sources and their translations, as of eval; by default, the first run's validation data.",
        ),
    ] = None,
) -> None:
    """What does a decoder lose that sees its source as one vector?

    Example: seqloom lab bottleneck runs/with-attention runs/without --data test.de test.en
    """
    _refuse("bottleneck", settings, own=bool(runs), data=bool(data))
    if not runs:
        _print(_conduct("bottleneck", settings), as_json=settings.as_json)
        return
    from seqloom.lab.bottleneck import inspect
    from seqloom.predict.load import open_predictor

    translators = {name: open_predictor(run) for name, run in _name_runs(runs).items()}
    with count_records("bottleneck") as advance:
        report = inspect(translators, data or (), advance)
    files = ["--data", *(one.name for one in data)] if data else []
    _show_own("bottleneck", report, runs, settings, *runs, *files)


@app.command("heads")
@_takes_settings
def heads(
    settings: Settings,
    run: Annotated[Path | None, typer.Argument(metavar="RUN", help="Your own run; without it, one is trained.")] = None,
) -> None:
    """How does a model learn from its prompt, and which heads do it?

    Example: seqloom lab heads runs/my-run
    """
    _refuse("heads", settings, own=run is not None)
    if run is None:
        _print(_conduct("heads", settings), as_json=settings.as_json)
        return
    from seqloom.lab.heads import inspect

    (model,) = _load([run]).values()
    _show_own("heads", inspect(model), [run], settings, run)


@app.command("context")
@_takes_settings
def context(
    settings: Settings,
    word: Annotated[str | None, typer.Argument(metavar="WORD", help="A word of several meanings.")] = None,
    given: Annotated[
        list[str] | None,
        typer.Argument(metavar="TEXT|RUN", help="Texts that contain it, and your own runs (folders)."),
    ] = None,
    partners: Annotated[
        list[str] | None,
        typer.Option("--with", metavar="WORD", help="A word beside it that gets a line of its own; several times."),
    ] = None,
) -> None:
    """Does the vector of a word move towards the words around it?

    Example: seqloom lab context apple "apple released their new phone" "an apple and an orange" runs/my-run
    """
    from seqloom.errors import ConfigError

    _refuse("context", settings, own=word is not None, **{"with": bool(partners)})
    if word is None:
        _print(_conduct("context", settings), as_json=settings.as_json)
        return
    runs = [Path(one) for one in given or [] if Path(one).is_dir()]
    texts = [one for one in given or [] if not Path(one).is_dir()]
    if not runs or len(texts) < 2:
        last = f"; there is no folder {texts[-1]}" if texts and not runs else ""
        raise ConfigError(
            f"lab context: give a word, at least two texts that contain it, and the folder of a run{last}"
        )
    from seqloom.lab.context import inspect

    report = inspect(_load(runs), word, texts, tuple(dict.fromkeys(partners or ())))
    _show_own("context", report, runs, settings, word, *texts, *runs, **{"with": partners})


@app.command("probe")
@_takes_settings
def probe(
    settings: Settings,
    run: Annotated[Path | None, typer.Argument(metavar="RUN", help="Your own run; without it, one is trained.")] = None,
    data: Annotated[
        Path | None, typer.Option("--data", help="Tagged sentences: CoNLL-U, or columns of words and tags.")
    ] = None,
    column: Annotated[str | None, typer.Option("--tags", help="The column of a CoNLL-U file; by default upos.")] = None,
    count: Annotated[int, typer.Option("--sentences", min=2, help="How many of them.")] = 1000,
) -> None:
    """Which layers know the parts of speech?

    Example: seqloom lab probe runs/my-run --data en_ewt-ud-dev.conllu
    """
    from seqloom.errors import ConfigError

    _refuse("probe", settings, own=run is not None, data=data is not None, tags=column is not None)
    if run is None:
        _print(_conduct("probe", settings), as_json=settings.as_json)
        return
    if data is None:
        raise ConfigError("lab probe: say with --data which tagged sentences to probe the run with")
    from seqloom.lab.probe import inspect

    ((name, model),) = _load([run]).items()
    report = inspect(model, data, column=column, count=count, seed=settings.seed, name=name)
    options = {"data": data.name, "tags": column, "sentences": None if count == 1000 else count}
    _show_own("probe", report, [run], settings, run, **options, seed=None if settings.seed == 1 else settings.seed)


@app.command("pairs")
@_takes_settings
def pairs(
    settings: Settings,
    runs: _Runs = None,
    data: Annotated[
        Path | None, typer.Option("--data", help="Pairs of your own, in BLiMP's form (JSON lines).")
    ] = None,
) -> None:
    """Which phenomena of grammar has a language model learned?

    Example: seqloom lab pairs runs/my-run --data blimp/anaphor_number_agreement.jsonl
    """
    _refuse("pairs", settings, own=bool(runs), data=data is not None)
    if not runs:
        _print(_conduct("pairs", settings), as_json=settings.as_json)
        return
    from seqloom.lab.pairs import inspect

    report = inspect(_load(runs), data, seed=settings.seed)
    seed = None if settings.seed == 1 else settings.seed
    _show_own("pairs", report, runs, settings, *runs, data=data and data.name, seed=seed)


@app.command("all")
@_takes_settings
def run_all(settings: Settings) -> None:
    """Conduct every experiment, one after the other, and list the claims that hold and those that do not.

    Example: seqloom lab all --seeds 3
    """
    from seqloom.errors import ConfigError

    if settings.changes:
        raise ConfigError("lab all: parameters belong to one experiment; leave --set out")
    found = []
    for name in QUESTIONS:
        out = Path("runs", "lab", name) if settings.out is None else settings.out / name
        shown = _conduct(name, settings._replace(out=out))
        found.append(shown.facts)
        if not settings.as_json:
            _print(shown, as_json=False)
            typer.echo("\n" + "─" * 80 + "\n")
    if settings.as_json:
        typer.echo(json.dumps(found, ensure_ascii=False))
        return
    for facts in found:
        for claim in facts["claims"]:
            typer.echo(f"{facts['experiment']}: {'holds' if claim['holds'] else 'does not hold'}: {claim['said']}")


for _name, _example in {
    "scale": "--seeds 5",
    "distance": "--seed 2",
    "collapse": "--set layers=12",
    "order": """--set 'encodings=["rotary", "alibi"]'""",
    "cost": "--set dim=512",
}.items():
    app.command(_name)(_make_plain(_name, _example))
app.registered_commands.sort(key=lambda command: [*QUESTIONS, "all"].index(command.name or ""))
