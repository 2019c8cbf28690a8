"""What the verbs share: one line out for each line in, progress and faults on standard error."""

import inspect
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from seqloom.cli.options import Command, Engine, PrecisionOption, declare, expand
from seqloom.cli.process import starts_quickly

if TYPE_CHECKING:
    from collections import Counter

    from rich.progress import Progress, ProgressColumn

    from seqloom.predict.bulk import Line, LineResult, Runner, Verb
    from seqloom.predict.formats import Format
    from seqloom.predict.job import StreamVerb
    from seqloom.predict.predictor import Predictor

    Reader = partial[Iterator[list[Line]]]
_SHOWN = 10  # faults that are printed one by one
_PAUSE = 10.0  # seconds between two lines of progress where there is no terminal


Place = Literal[Engine, "ray"]
InputFormat = Literal["text", "csv", "tsv", "jsonl", "parquet", "label-first", "conll", "conllu"]


@dataclass(frozen=True)
class Lines:
    """The lines that a verb is applied to, by which model, and where the results go: each field is an option."""

    run: Annotated[Path, typer.Argument(metavar="RUN", help="The folder of a finished run.")]
    file: Annotated[
        Path | None,
        typer.Argument(
            metavar="FILE",
            help="A file of lines, or a table such as a .csv (also gzip, xz, bzip2); none, or -: standard input.",
        ),
    ] = None
    place: Annotated[
        Place,
        typer.Option(
            "--engine",
            help="What computes: the compiled network, the network itself (open), CTranslate2, also in int8, or a Ray "
            "cluster (RAY_ADDRESS).",
        ),
    ] = "compiled"
    precision: PrecisionOption = "float32"
    workers: Annotated[
        int | None, typer.Option(min=1, help="How many processes --engine ray starts; by default, one per core.")
    ] = None
    as_json: Annotated[
        bool, typer.Option("--json", help="Print one JSON object per line, with everything there is to know.")
    ] = False
    output: Annotated[
        Path | None,
        typer.Option("-o", "--output", metavar="FILE", help="Write to a file; a killed job can be resumed."),
    ] = None
    resume: Annotated[bool, typer.Option("--resume", help="Resume the job that was writing the file of -o.")] = False
    format: Annotated[
        InputFormat | None,
        typer.Option("--format", help="What FILE holds; by default its name tells: .csv, .tsv, .jsonl, .parquet, …"),
    ] = None
    column: Annotated[
        list[str] | None,
        typer.Option(
            "--column",
            metavar="NAME",
            help="The column of a table to read, by name or number; by default, that of the run's own data. For a pair "
            "of texts, give it twice.",
        ),
    ] = None

    @property
    def engine(self) -> Engine:
        """The engine; on Ray, it is the compiled one."""
        return "compiled" if self.place == "ray" else self.place

    def load(self, **languages: str | None) -> "Predictor":
        """The model of the run."""
        from seqloom.predict.load import open_predictor

        return open_predictor(self.run, self.engine, languages=languages, precision=self.precision)

    def _open(
        self, model: "Predictor", columns: int = 1, optional: int = 0, *, plain: bool = False, words: bool = False
    ) -> "Reader":
        """What reads the blocks of lines; says so if they are not simply lines of text."""
        from seqloom.predict.bulk import read_lines
        from seqloom.predict.inputs import find_records

        path = str(self.file or "-")
        format = "text" if plain else self.format
        found = find_records(model, path, columns, optional, format, self.column or ())
        if found is None:
            return partial(read_lines, path)
        typer.echo(str(found), err=True)
        return partial(found.read, as_text=not words)

    def answer(
        self,
        name: str,
        model: "Predictor",
        verb: "Verb",
        show: "Callable[[Any], str] | Format",
        *,
        columns: int = 1,
        optional: int = 0,
        second: Path | None = None,
        blank: int | None = None,
        plain: bool = False,
        settings: Mapping[str, Any],
    ) -> None:
        """Apply a verb to the lines, here or on a Ray cluster; `show` writes a result as a line of text.

        `columns` is how many texts a line holds, of which the last `optional` ones may be missing, `second` a file with
        the second of two. With `blank`, so many blank lines take the place of those of the file. `plain`: the file has
        lines of text, whatever its name. The output is decided by the model, the name of the verb and its `settings`.
        """
        from seqloom.cli.process import call_without_trimming, disable_trimming, resume_collection
        from seqloom.predict.bulk import Line, read_lines, read_pairs, run_here, split_columns
        from seqloom.predict.formats import Format, JsonFormat, TextFormat
        from seqloom.predict.job import run_to_file, run_to_stream
        from seqloom.predict.storage import identify

        if self.resume and self.output is None:
            raise typer.BadParameter("--resume needs the file of the job to resume; name it with -o")
        if self.workers is not None and self.place != "ray":
            raise typer.BadParameter(
                "--workers is the number of processes of --engine ray; leave it out, or add --engine ray"
            )
        disable_trimming()
        format = show if isinstance(show, Format) else JsonFormat() if self.as_json else TextFormat(show)
        here = partial(verb, model)
        here([], *([] for _ in range(columns)))  # a verb the model cannot do is refused before anything is read
        resume_collection()
        path, file, stdout = str(self.file or "-"), self.file, sys.stdout.buffer  # a cluster redirects what is printed
        size = file.stat().st_size if file is not None and file.is_file() else None
        runner: AbstractContextManager[Runner] = nullcontext(run_here(here))
        if self.place == "ray":
            from seqloom.predict.ray import open_cluster

            runner = open_cluster(self.run, partial(call_without_trimming, verb), self.workers, self.precision)
        read = self._open(model, columns, optional, plain=plain or second is not None, words=name == "tag")
        stopped = "stopped" if self.output is None else f"stopped; --resume continues {self.output}"
        with _report(name, stopped, size) as (report, advance), runner as run:
            blocks = read(advance) if second is None else read_pairs((path, str(second)))
            blocks = blocks if blank is None else iter([[Line(("",))] * blank])
            if columns > 1 and second is None and read.func is read_lines:
                blocks = split_columns(blocks, columns, optional)
            if self.output is None:
                counts = run_to_stream(blocks, run, format, stdout, report)
            else:
                whole = {"model": identify(self.run), "verb": name, "form": type(format).__name__, **settings}
                whole["precision"] = self.precision
                counts = run_to_file(blocks, run, format, self.output, whole, resume=self.resume, report=report)
        _conclude(name, counts)

    def stream(self, name: str, model: "Predictor", verb: "StreamVerb", *, blank: int | None = None) -> None:
        """Apply a verb to lines one by one, and print what it finds as it finds it; `blank` is as for `answer`."""
        from seqloom.cli.process import disable_trimming, resume_collection
        from seqloom.predict.bulk import Line
        from seqloom.predict.job import run_streaming

        disable_trimming()
        resume_collection()
        read = self._open(model)
        with _report(name, "\nstopped", live=False) as (report, advance):
            blocks = read(advance) if blank is None else iter([[Line(("",))] * blank])
            counts = run_streaming(blocks, verb, sys.stdout.buffer, report)
        _conclude(name, counts)


def takes_lines(*, searches: bool = False, as_json: str = "") -> Callable[[Command], Command]:
    """Add the fields of `Lines` to a command as options; the command receives them as the parameter `lines`.

    `searches`: the verb has several engines. `as_json` is the help of --json, where it is not the usual one.
    """
    options = dict(inspect.signature(Lines).parameters)
    if not searches:
        about = "Where to compute: here, or on a Ray cluster (RAY_ADDRESS)."
        here = Annotated[Literal["compiled", "ray"], typer.Option("--engine", help=about)]
        options["place"] = declare("place", here, "compiled")
    if as_json:
        options["as_json"] = declare("as_json", Annotated[bool, typer.Option("--json", help=as_json)], False)
    expanded = expand("lines", list(options.values()), Lines)
    return lambda command: expanded(starts_quickly(command))


def _conclude(name: str, counts: "Counter[str]") -> None:
    """Print how many lines have each flag, and exit with 1 if any failed."""
    if counts:
        summary = ", ".join(f"{count:,} {'line' if count == 1 else 'lines'} {flag}" for flag, count in counts.items())
        typer.echo(f"{name}: {summary}", err=True)
    if counts["failed"]:
        raise typer.Exit(1)


@contextmanager
def _report(
    name: str, stopped: str, size: int | None = None, *, live: bool = True
) -> Iterator[tuple[Callable[[int, Sequence["LineResult"]], None], Callable[[int], None]]]:
    """Functions that show the progress: `report` takes a window of results, `advance` a number of bytes read.

    Ctrl-C prints `stopped` and ends the command.
    """
    from seqloom.predict.bulk import describe_flags

    faults = 0
    try:
        with show_progress(name, "lines", total=size, live=live and not sys.stdin.isatty()) as (progress, show):

            def report(first: int, results: Sequence["LineResult"]) -> None:
                nonlocal faults
                for sentence in describe_flags(first, results):
                    faults += 1
                    if faults <= _SHOWN + 1:
                        shown = "and more; each is marked in the output" if faults > _SHOWN else sentence
                        progress.console.print(shown, highlight=False, markup=False, soft_wrap=True)
                show(first + len(results) - 1)

            yield report, lambda count: progress.advance(progress.task_ids[0], count)
    except KeyboardInterrupt:
        typer.echo(stopped, err=True)
        raise typer.Exit(130) from None


@contextmanager
def show_progress(
    name: str, unit: str, *columns: "ProgressColumn", total: int | None = None, live: bool = True
) -> Iterator[tuple["Progress", Callable[[int], None]]]:
    """A bar in a terminal, otherwise a line now and then; also a function that takes how many units are done."""
    from rich.console import Console
    from rich.progress import Progress

    console = Console(stderr=True)
    live = live and console.is_terminal
    last = time.monotonic()
    with Progress(*columns, console=console, transient=True, disable=not live) as progress:
        task = progress.add_task(name, total=total)

        def show(done: int) -> None:
            nonlocal last
            progress.update(task, description=f"{name}: {done:,} {unit}")
            if not live and time.monotonic() - last >= _PAUSE:
                last = time.monotonic()
                console.print(f"{name}: {done:,} {unit}", highlight=False)

        yield progress, show
