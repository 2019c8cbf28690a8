"""What the verbs share: lines in, one line out for each, progress and faults on standard error."""

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

if TYPE_CHECKING:
    from collections import Counter

    from seqloom.predict import Model
    from seqloom.predict.bulk import Answerer, Ask, Outcome
    from seqloom.predict.forms import Form
    from seqloom.predict.live import LiveVerb

Run = Annotated[Path, typer.Argument(metavar="RUN", help="The folder of a finished run.")]
File = Annotated[
    Path | None,
    typer.Argument(metavar="FILE", help="A file of lines (also gzip, xz, bzip2); none, or -: standard input."),
]
Json = Annotated[bool, typer.Option("--json", help="Print a JSON object a line, with everything there is to know.")]
Output = Annotated[
    Path | None, typer.Option("-o", "--output", metavar="FILE", help="Write to a file, which a killed job can resume.")
]
Resume = Annotated[bool, typer.Option("--resume", help="Go on with the file of -o where a killed job stopped.")]
Engine = Annotated[
    Literal["compiled", "ray"],
    typer.Option("--engine", help="Where to compute: here, or on a Ray cluster (RAY_ADDRESS)."),
]
Workers = Annotated[
    int | None,
    typer.Option("--workers", min=1, help="How many processes compute with --engine ray, otherwise one a core."),
]

_SHOWN = 10  # faults that are told one by one
_PAUSE = 10.0  # seconds between two lines of progress where there is no terminal


def answer_lines(
    run: Path,
    name: str,
    model: "Model",
    ask: "Ask",
    form: "Form",
    *,
    file: Path | None,
    output: Path | None,
    resume: bool,
    engine: str,
    workers: int | None,
    columns: int = 1,
    second: Path | None = None,
    options: Mapping[str, Any],
) -> None:
    """Ask the model of a run about lines, here or on a Ray cluster.

    `columns` is how many texts a line holds, `second` a file with the second of two. What decides the output is the
    model, the name of the verb and its `options`.
    """
    from seqloom.cli.process import call_without_trimming, disable_trimming
    from seqloom.predict.bulk import answer_in_turn
    from seqloom.predict.job import run_to_file, run_to_stream
    from seqloom.predict.lines import read_lines, read_pairs, split_columns
    from seqloom.predict.load import identify

    if resume and output is None:
        raise typer.BadParameter("--resume goes on with a file; name it with -o")
    if workers is not None and engine != "ray":
        raise typer.BadParameter("--workers is the number of processes of --engine ray; leave it out, or give that")
    disable_trimming()
    verb = partial(ask, model)
    verb([], *([] for _ in range(columns)))  # what the model cannot do, it says before anything is read
    path, stdout = str(file or "-"), sys.stdout.buffer
    size = file.stat().st_size if file is not None and file.is_file() else None
    answerer: AbstractContextManager[Answerer] = nullcontext(answer_in_turn(verb))
    if engine == "ray":
        from seqloom.predict.ray import open_cluster

        answerer = open_cluster(run, partial(call_without_trimming, ask), workers)
    with _watch(name, size) as (tell, advance), answerer as answer:
        blocks = read_lines(path, advance) if second is None else read_pairs((path, str(second)))
        if columns > 1 and second is None:
            blocks = split_columns(blocks, columns)
        try:
            if output is None:
                counts = run_to_stream(blocks, answer, form, stdout, tell)
            else:
                asked = {"model": identify(run), "verb": name, "form": type(form).__name__, **options}
                counts = run_to_file(blocks, answer, form, output, asked, resume=resume, tell=tell)
        except KeyboardInterrupt:
            typer.echo("stopped" if output is None else f"stopped; --resume goes on with {output}", err=True)
            raise typer.Exit(130) from None
    _conclude(name, counts)


def stream_lines(name: str, verb: "LiveVerb", *, file: Path | None) -> None:
    """Apply a verb to lines one by one, and print what it finds as it finds it."""
    from seqloom.cli.process import disable_trimming
    from seqloom.predict.lines import read_lines
    from seqloom.predict.live import run_live

    disable_trimming()
    with _watch(name, None, bar=False) as (tell, _):
        try:
            counts = run_live(read_lines(str(file or "-")), verb, sys.stdout.buffer, tell)
        except KeyboardInterrupt:
            typer.echo("\nstopped", err=True)
            raise typer.Exit(130) from None
    _conclude(name, counts)


def keep_given(**options: Any) -> dict[str, Any]:
    """The options that were given; the others are for the model to decide."""
    return {key: value for key, value in options.items() if value is not None and value is not False and value != []}


def choose_form(as_json: bool, show: Callable[[Any], str]) -> "Form":
    """JSON, or plain lines."""
    from seqloom.predict.forms import JsonForm, TextForm

    return JsonForm() if as_json else TextForm(show)


def _conclude(name: str, counts: "Counter[str]") -> None:
    """Say how many lines were not as the others, and fail if any failed."""
    if counts:
        told = ", ".join(f"{count:,} {'line' if count == 1 else 'lines'} {flag}" for flag, count in counts.items())
        typer.echo(f"{name}: {told}", err=True)
    if counts["failed"]:
        raise typer.Exit(1)


@contextmanager
def _watch(
    name: str, size: int | None, *, bar: bool = True
) -> Iterator[tuple[Callable[[int, Sequence["Outcome"]], None], Callable[[int], None]]]:
    """A bar in a terminal, else a line now and then; and the first few faults as they are met."""
    import time

    from rich.console import Console
    from rich.progress import Progress

    from seqloom.predict.bulk import describe_flags

    console = Console(stderr=True)
    live = bar and console.is_terminal and not sys.stdin.isatty()
    faults, last = 0, time.monotonic()
    with Progress(console=console, transient=True, disable=not live) as progress:
        task = progress.add_task(name, total=size)

        def tell(first: int, outcomes: Sequence["Outcome"]) -> None:
            nonlocal faults, last
            for sentence in describe_flags(first, outcomes):
                faults += 1
                if faults <= _SHOWN + 1:
                    more = faults > _SHOWN
                    progress.console.print(
                        "and more; each is marked in the output" if more else sentence,
                        highlight=False,
                        markup=False,
                        soft_wrap=True,
                    )
            done = first + len(outcomes) - 1
            progress.update(task, description=f"{name}: {done:,} lines")
            if not live and time.monotonic() - last >= _PAUSE:
                last = time.monotonic()
                console.print(f"{name}: {done:,} lines", highlight=False)

        yield tell, lambda count: progress.advance(task, count)
