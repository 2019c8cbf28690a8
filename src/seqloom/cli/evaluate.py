"""`seqloom eval`: the metrics of a model, or of outputs from elsewhere, with their intervals."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer
from typer.core import TyperCommand

from seqloom.cli.bulk import show_progress
from seqloom.cli.options import Engine, EngineOption, Precision, PrecisionOption, keep_given, takes_search

if TYPE_CHECKING:
    from seqloom.metrics.resampling import Comparison, Estimate
    from seqloom.predict.scorecard import Scorecard


class ManyFiles(TyperCommand):
    """A command whose options --data and --references take all the files that follow."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Repeat the option before each of its files, as the parser expects."""
        spread: list[str] = []
        option = ""
        for argument in args:
            if argument.startswith("-") and argument != "-":
                option = argument if argument in ("--data", "--references") else ""
                spread += [] if option else [argument]
            else:
                spread += [option, argument] if option else [argument]
        return super().parse_args(ctx, spread)


@takes_search(("beam", "length_penalty", "coverage_penalty", "max_length"))
def evaluate(
    run: Annotated[Path | None, typer.Argument(metavar="RUN", help="The folder of a finished run.")] = None,
    data: Annotated[
        list[Path] | None,
        typer.Option(
            metavar="FILE ...",
            help="Files with the right answers, in the format of the run's own data; for translation SOURCE TARGET, or "
            "a table of two columns. By default, the run's own validation data.",
        ),
    ] = None,
    split: Annotated[
        Literal["valid", "test"], typer.Option(help="Without --data: which split of the run's own data.")
    ] = "valid",
    source_unit: Annotated[
        Literal["sentence", "line"] | None,
        typer.Option(
            "--source-unit",
            help="For translation, what translate --split says: each sentence by itself, or each line as a whole; by "
            "default as the run's data.source_unit says.",
        ),
    ] = None,
    against: Annotated[
        Path | None, typer.Option(metavar="RUN2", help="Another run to compare with, on the same data.")
    ] = None,
    outputs: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Instead of RUN: a file of translations.")
    ] = None,
    references: Annotated[
        list[Path] | None,
        typer.Option(metavar="FILE ...", help="With --outputs: one or more files of reference translations."),
    ] = None,
    against_outputs: Annotated[
        Path | None, typer.Option(metavar="FILE", help="With --outputs: the outputs of another system to compare with.")
    ] = None,
    metrics: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME", help="Only this metric; may be given several times. TER is slow."),
    ] = None,
    tokenized: Annotated[
        bool, typer.Option("--tokenized", help="Compare texts as they are, token by token (tok:none).")
    ] = False,
    engine: EngineOption = "compiled",
    precision: PrecisionOption = "float32",
    samples: Annotated[
        int | None, typer.Option(min=1, help="Resamples for the intervals and p-values; 1000 by default.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print everything as JSON.")] = False,
    *,
    search: dict[str, Any],
) -> None:
    """Print the metrics of a run's task with 95% intervals; with --against, also p-values of the differences.

    translation: BLEU, chrF, TER with sacreBLEU's signatures, exact match. classification: accuracy, macro-F1 and each
    label; of numbers, Pearson's and Spearman's correlation. tagging: accuracy, and F1 where tags are spans.
    language models: perplexity and bits per byte.

    Tokenised text is not scored against text that is not, unless --tokenized says so.

    Example: seqloom eval runs/de-en --data test.de test.en --beam 5 --against runs/baseline
    """
    import json
    import warnings

    from seqloom.errors import Notice

    options = keep_given(metrics=tuple(metrics or ()), tokenized=tokenized, samples=samples)
    if run is not None and outputs is not None:
        raise typer.BadParameter("a RUN makes its own outputs; give either RUN or --outputs")
    if run is not None:
        _refuse("--outputs", references=references, against_outputs=against_outputs)
        units = keep_given(source_unit=source_unit)
        card = _evaluate_run(run, data or (), against, engine, precision, split=split, **units, **options, **search)
    elif outputs is not None and references:
        _refuse("a RUN", data=data, against=against, source_unit=source_unit, **search)
        card = _evaluate_outputs(outputs, references, against_outputs, **options)
    else:
        raise typer.BadParameter("name a RUN, or --outputs FILE with --references FILE")
    for note in card.notes:
        warnings.warn(note, Notice, stacklevel=1)
    typer.echo(json.dumps(card.as_plain(), indent=2, ensure_ascii=False) if as_json else "\n".join(_show(card)))


def _refuse(needed: str, **options: Any) -> None:
    for name in keep_given(**options):
        raise typer.BadParameter(f"--{name.replace('_', '-')} goes with {needed}")


def _evaluate_run(
    run: Path, data: Sequence[Path], against: Path | None, engine: Engine, precision: Precision, **options: Any
) -> "Scorecard":
    from seqloom.cli.process import disable_trimming
    from seqloom.predict.load import load

    model = load(run, engine=engine, precision=precision)
    other = load(against, engine=engine, precision=precision) if against is not None else None
    disable_trimming()
    with count_records("eval") as advance:
        return model.evaluate(*data, against=other, advance=advance, **options)


def _evaluate_outputs(
    outputs: Path, references: Sequence[Path], against: Path | None, samples: int | None = None, **options: Any
) -> "Scorecard":
    from seqloom.metrics.translation import TRANSLATION
    from seqloom.predict.evaluate import Wanted, check_metrics, measure_outputs, read_parallel_texts
    from seqloom.predict.scorecard import make_scorecard

    files = [outputs, *references, *([against] if against is not None else [])]
    texts = read_parallel_texts(files)
    wanted = Wanted(**options)
    check_metrics(wanted.metrics, [metric.name for metric in TRANSLATION])
    right = texts[1 : 1 + len(references)]
    with count_records("eval") as advance:
        found = measure_outputs(texts[0], right, wanted)
        advance(len(texts[0]))
        other = measure_outputs(texts[-1], right, wanted) if against is not None else None
        return make_scorecard(
            "translation", (str(outputs),), len(texts[0]), found, other, **keep_given(samples=samples)
        )


@contextmanager
def count_records(name: str) -> Iterator[Callable[[int], None]]:
    """A function that takes the number of records just done, and shows how many that makes."""
    from rich.progress import SpinnerColumn, TextColumn, TimeElapsedColumn

    done = 0
    columns = (SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn())
    with show_progress(name, "records", *columns) as (_, show):

        def advance(count: int) -> None:
            nonlocal done
            done += count
            show(done)

        yield advance


def _show(card: "Scorecard") -> Iterator[str]:
    more = f" and {len(card.files) - 1:,} more" if len(card.files) > 1 else ""
    yield f"{card.task}: {card.records:,} {'record' if card.records == 1 else 'records'} of {card.files[0]}{more}"
    yield ""
    compared = ("against", "difference", "95% interval", "p") if card.against else ()
    yield from align(
        ("metric", "value", "95% interval", *compared, ""),
        [
            (one.name, _number(one, one.value), _interval(one, one), *_compare(card, one), one.signature)
            for one in card.metrics
        ],
    )
    if card.labels:
        yield ""
        yield from align(
            ("label", "precision", "recall", "f1", "wanted", "given"),
            [
                (one.label, *(f"{share:.4f}" for share in (one.precision, one.recall, one.f1)), one.wanted, one.given)
                for one in card.labels
            ],
        )


def _compare(card: "Scorecard", metric: "Estimate") -> tuple[str, ...]:
    """The cells that compare a metric with that of the other system."""
    if not card.against:
        return ()
    other = next((_number(metric, one.value) for one in card.against if one.name == metric.name), "")
    found = next((one for one in card.comparisons if one.name == metric.name), None)
    if found is None:
        return other, "", "", ""
    return other, _number(metric, found.difference, "+"), _interval(metric, found), f"{found.p:.3f}"


def _number(metric: "Estimate", value: float, sign: str = "") -> str:
    """Metrics with a signature go up to 100, so they need fewer decimals."""
    return f"{value:{sign}.2f}" if metric.signature else f"{value:{sign}.4f}"


def _interval(metric: "Estimate", found: "Estimate | Comparison") -> str:
    return f"{_number(metric, found.low)} to {_number(metric, found.high)}"


def align(head: Sequence[str], rows: Iterable[Sequence[object]]) -> Iterator[str]:
    """The lines of a table, its columns aligned."""
    table = [[str(cell) for cell in row] for row in (head, *rows)]
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    for row in table:
        yield "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
