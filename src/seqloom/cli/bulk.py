"""What the verbs share: lines in, one line out for each, progress and faults on standard error."""

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

from seqloom.cli.options import Command, Engine, expand

if TYPE_CHECKING:
    from collections import Counter

    from seqloom.predict.bulk import LineResult, Runner, Verb
    from seqloom.predict.formats import Format
    from seqloom.predict.job import StreamVerb
    from seqloom.predict.predictor import Predictor

_SHOWN = 10  # faults that are told one by one
_PAUSE = 10.0  # seconds between two lines of progress where there is no terminal


@dataclass(frozen=True)
class Lines:
    """The lines that a verb is applied to, by which model, and where the results go."""

    run: Path
    file: Path | None
    place: Literal["compiled", "open", "ctranslate2", "ctranslate2-int8", "ray"]
    workers: int | None
    as_json: bool
    output: Path | None
    resume: bool

    @property
    def engine(self) -> Engine:
        """What computes; Ray only says where."""
        return "compiled" if self.place == "ray" else self.place

    def load(self) -> "Predictor":
        """The model of the run."""
        from seqloom.predict.load import open_predictor

        return open_predictor(self.run, self.engine)

    def answer(
        self,
        name: str,
        model: "Predictor",
        verb: "Verb",
        show: "Callable[[Any], str] | Format",
        *,
        columns: int = 1,
        second: Path | None = None,
        settings: Mapping[str, Any],
    ) -> None:
        """Apply a verb to the lines, here or on a Ray cluster; `show` writes a result as a line of text.

        `columns` is how many texts a line holds, `second` a file with the second of two. The output is decided by the
        model, the name of the verb and its `settings`.
        """
        from seqloom.cli.process import call_without_trimming, disable_trimming
        from seqloom.predict.bulk import read_lines, read_pairs, run_here, split_columns
        from seqloom.predict.formats import Format, JsonFormat, TextFormat
        from seqloom.predict.job import run_to_file, run_to_stream
        from seqloom.predict.storage import identify

        if self.resume and self.output is None:
            raise typer.BadParameter("--resume goes on with a file; name it with -o")
        if self.workers is not None and self.place != "ray":
            raise typer.BadParameter("--workers is the number of processes of --engine ray; leave it out, or give that")
        disable_trimming()
        format = show if isinstance(show, Format) else JsonFormat() if self.as_json else TextFormat(show)
        here = partial(verb, model)
        here([], *([] for _ in range(columns)))  # what the model cannot do, it says before anything is read
        path, file, stdout = str(self.file or "-"), self.file, sys.stdout.buffer  # a cluster redirects what is printed
        size = file.stat().st_size if file is not None and file.is_file() else None
        runner: AbstractContextManager[Runner] = nullcontext(run_here(here))
        if self.place == "ray":
            from seqloom.predict.ray import open_cluster

            runner = open_cluster(self.run, partial(call_without_trimming, verb), self.workers)
        with _show_progress(name, size) as (report, advance), runner as run:
            blocks = read_lines(path, advance) if second is None else read_pairs((path, str(second)))
            if columns > 1 and second is None:
                blocks = split_columns(blocks, columns)
            try:
                if self.output is None:
                    counts = run_to_stream(blocks, run, format, stdout, report)
                else:
                    whole = {"model": identify(self.run), "verb": name, "form": type(format).__name__, **settings}
                    counts = run_to_file(blocks, run, format, self.output, whole, resume=self.resume, report=report)
            except KeyboardInterrupt:
                stopped = "stopped" if self.output is None else f"stopped; --resume goes on with {self.output}"
                typer.echo(stopped, err=True)
                raise typer.Exit(130) from None
        _conclude(name, counts)

    def stream(self, name: str, verb: "StreamVerb") -> None:
        """Apply a verb to lines one by one, and print what it finds as it finds it."""
        from seqloom.cli.process import disable_trimming
        from seqloom.predict.bulk import read_lines
        from seqloom.predict.job import run_streaming

        disable_trimming()
        with _show_progress(name, None, bar=False) as (report, _):
            try:
                counts = run_streaming(read_lines(str(self.file or "-")), verb, sys.stdout.buffer, report)
            except KeyboardInterrupt:
                typer.echo("\nstopped", err=True)
                raise typer.Exit(130) from None
        _conclude(name, counts)


_PLACES = {
    True: (
        Literal["compiled", "open", "ctranslate2", "ctranslate2-int8", "ray"],
        "What computes: the network, compiled or in the open, CTranslate2, also in int8, or a Ray cluster "
        "(RAY_ADDRESS).",
    ),
    False: (Literal["compiled", "ray"], "Where to compute: here, or on a Ray cluster (RAY_ADDRESS)."),
}


def takes_lines(
    *, searches: bool = False, as_json: str = "Print a JSON object a line, with everything there is to know."
) -> Callable[[Command], Command]:
    """Give a command what every verb over lines takes, as its parameter `lines`; `searches`: it has more engines."""
    places, about = _PLACES[searches]
    file = "A file of lines (also gzip, xz, bzip2); none, or -: standard input."
    options: dict[str, tuple[Any, Any]] = {
        "run": (
            Annotated[Path, typer.Argument(metavar="RUN", help="The folder of a finished run.")],
            inspect.Parameter.empty,
        ),
        "file": (Annotated[Path | None, typer.Argument(metavar="FILE", help=file)], None),
        "place": (Annotated[places, typer.Option("--engine", help=about)], "compiled"),
        "workers": (
            Annotated[
                int | None, typer.Option(min=1, help="How many processes --engine ray has; one a core if left out.")
            ],
            None,
        ),
        "as_json": (Annotated[bool, typer.Option("--json", help=as_json)], False),
        "output": (
            Annotated[
                Path | None,
                typer.Option("-o", "--output", metavar="FILE", help="Write to a file, which a killed job can resume."),
            ],
            None,
        ),
        "resume": (
            Annotated[bool, typer.Option("--resume", help="Go on with the file of -o where a killed job stopped.")],
            False,
        ),
    }
    return expand("lines", options, Lines)


def _conclude(name: str, counts: "Counter[str]") -> None:
    """Say how many lines were not as the others, and fail if any failed."""
    if counts:
        told = ", ".join(f"{count:,} {'line' if count == 1 else 'lines'} {flag}" for flag, count in counts.items())
        typer.echo(f"{name}: {told}", err=True)
    if counts["failed"]:
        raise typer.Exit(1)


@contextmanager
def _show_progress(
    name: str, size: int | None, *, bar: bool = True
) -> Iterator[tuple[Callable[[int, Sequence["LineResult"]], None], Callable[[int], None]]]:
    """A bar in a terminal, else a line now and then; and the first few faults as they are met."""
    from rich.console import Console
    from rich.progress import Progress

    from seqloom.predict.bulk import describe_flags

    console = Console(stderr=True)
    live = bar and console.is_terminal and not sys.stdin.isatty()
    faults, last = 0, time.monotonic()
    with Progress(console=console, transient=True, disable=not live) as progress:
        task = progress.add_task(name, total=size)

        def report(first: int, results: Sequence["LineResult"]) -> None:
            nonlocal faults, last
            for sentence in describe_flags(first, results):
                faults += 1
                if faults <= _SHOWN + 1:
                    shown = "and more; each is marked in the output" if faults > _SHOWN else sentence
                    progress.console.print(shown, highlight=False, markup=False, soft_wrap=True)
            done = first + len(results) - 1
            progress.update(task, description=f"{name}: {done:,} lines")
            if not live and time.monotonic() - last >= _PAUSE:
                last = time.monotonic()
                console.print(f"{name}: {done:,} lines", highlight=False)

        yield report, lambda count: progress.advance(task, count)
