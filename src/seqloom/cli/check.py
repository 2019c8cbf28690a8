"""`seqloom check`: what is wrong with the data, before any training."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from rich.console import Console

    from seqloom.config.data import Data
    from seqloom.data.doctor import Report
    from seqloom.data.doctor.repair import Repair
    from seqloom.data.doctor.report import Finding, Forecast, Lengths, Rehearsal, SplitStats, TextStats, TokenLengths
    from seqloom.data.files import Advance
    from seqloom.tasks import Config

_SHOWN = 5
"""Records of each kind whose place is printed."""
_NOT_REHEARSED = (
    "standard input can be read only once, so the data was not prepared as training prepares it: tokens were not "
    "counted, records that training would leave out, cut or split were not looked for, and there is no forecast; save "
    "the input to a file for that"
)


def check(
    config: Annotated[Path, typer.Argument(help="The configuration file.")],
    overrides: Annotated[
        list[str] | None, typer.Argument(metavar="SECTION.KEY=VALUE", help="Settings that differ from the file.")
    ] = None,
    fix: Annotated[
        Path | None,
        typer.Option(
            "--fix", metavar="DIR", help="Write a repaired copy of the data, and a log of it, to a new folder."
        ),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the report as JSON.")] = False,
    measure: Annotated[
        bool, typer.Option("--forecast/--no-forecast", help="Take a few training steps to see how long an epoch is.")
    ] = True,
) -> None:
    """Read all data of a configuration and report faults with file and line, sizes, coverage and a forecast.

    The data is also prepared as training prepares it: every record that would be left out, cut or split is counted.

    Exit code 0: training may start. 1: there are errors, which training refuses.

    Example: seqloom check de-en.toml --fix repaired
    """
    import json

    from rich.console import Console

    from seqloom.data.doctor import examine
    from seqloom.data.doctor.repair import repair
    from seqloom.tasks import Task
    from seqloom.tasks.configuration import load

    settings, base = load(config, overrides or ()), config.parent
    for sentence in settings.describe_idle_keys() if isinstance(settings, Task) else ():
        typer.echo(f"note: {sentence}", err=True)
    data = settings.data
    with _progress(data, base) as advance:
        report = examine(data, base, advance=advance)
    if not report.errors:
        report = _rehearse(load(config, overrides or (), words=report.words), base, report, measure=measure)
    repaired = repair(data, base, fix) if fix else None
    if as_json:
        content: dict[str, Any] = json.loads(report.model_dump_json())
        if repaired:
            content["repair"] = {
                "changes": [{"kind": k, "change": c, "count": n} for (k, c), n in repaired.changes.items()],
                "config": write_toml(repaired.data),
                "report": repaired.report.model_dump(mode="json"),
            }
        typer.echo(json.dumps(content, indent=2, ensure_ascii=False))
    else:
        console = Console(highlight=False, markup=False, soft_wrap=True)
        print_report(console, report)
        if repaired and fix:
            _print_repair(console, repaired, fix)
    if (repaired.report if repaired else report).errors or report.refusal:
        raise typer.Exit(1)


def _rehearse(settings: "Config", base: Path, report: "Report", *, measure: bool) -> "Report":
    """Prepare the data as training does, in a folder that is then deleted; what training would refuse is said."""
    import tempfile

    from rich.console import Console

    from seqloom.errors import SeqloomError
    from seqloom.tasks import Task
    from seqloom.training.rehearsal import reads_stdin, rehearse

    if not isinstance(settings, Task):  # word vectors: there is nothing to prepare
        return report
    if reads_stdin(settings, base):
        return report.model_copy(update={"not_rehearsed": _NOT_REHEARSED})
    with tempfile.TemporaryDirectory() as name, Console(stderr=True).status("preparing the data") as status:
        folder = Path(name)
        try:
            rehearsal = rehearse(settings, base, folder, status.update)
            report = report.model_copy(update={"rehearsal": rehearsal})
            if measure:
                from seqloom.training.forecast import forecast

                status.update("taking a few training steps")
                report = report.model_copy(update={"forecast": forecast(settings, base, folder, report)})
        except SeqloomError as error:
            return report.model_copy(update={"refusal": str(error)})
    return report


def print_report(console: "Console", report: "Report") -> None:
    """Print the findings, then sizes, lengths and coverage of each split."""
    for finding in report.findings:
        _print_finding(console, finding)
    for stats in report.splits:
        _print_split(console, stats, report.rehearsal)
    if report.rehearsal:
        _print_rehearsal(console, report.rehearsal)
    if report.not_rehearsed:
        console.print()
        console.print(report.not_rehearsed, style="yellow")
    if report.forecast:
        epoch = report.forecast
        memory = epoch.peak_memory_bytes
        console.print(
            f"an epoch of a {epoch.size} model would take {_count(epoch.steps_per_epoch, 'step')},"
            f" {epoch.minutes_per_epoch:.1f} minutes and"
            f" {'an unknown amount' if memory is None else f'{memory / 2**30:.1f} GiB'} of memory on this machine"
        )
        console.print(_describe_budget(epoch))
        if epoch.snapshots:
            console.print(_describe_snapshots(epoch))
    warnings = sum(finding.severity == "warn" for finding in report.findings)
    errors = len(report.errors) + bool(report.refusal)
    verdict = "training would refuse this data" if errors else "training may start"
    if report.refusal:
        console.print("error", style="bold red", end="")
        console.print(f" {_printable(report.refusal)}")
    console.print(
        f"{_count(errors, 'error')}, {_count(warnings, 'warning')}: {verdict}", style="red" if errors else "green"
    )


def _describe_snapshots(forecast: "Forecast") -> str:
    size = forecast.snapshots * forecast.snapshot_bytes
    return (
        f"{_count(forecast.snapshots, 'snapshot')} of its weights to look inside would take"
        f" {size / 2**20:,.1f} MiB of disk; train.snapshots=0 keeps none"
    )


def _describe_budget(forecast: "Forecast") -> str:
    epochs, minutes = f"{forecast.epochs:.2g} epochs", f"{forecast.minutes:.2g} minutes"
    if forecast.epochs >= 10:
        epochs = f"{forecast.epochs:,.0f} epochs"
    if forecast.minutes >= 10:
        minutes = f"{forecast.minutes:,.0f} minutes"
    said = [text for text in (epochs, minutes) if text.split()[1] != forecast.budget.split()[1]]
    return f"the budget, {forecast.budget}, is about {' and '.join(said)}"


def _print_finding(console: "Console", finding: "Finding") -> None:
    style = "bold red" if finding.severity == "error" else "yellow"
    console.print(finding.severity, style=style, end="")
    console.print(f" {finding.kind} ({finding.split}: {finding.count:,})", style="bold", end="")
    console.print(f" {finding.meaning}")
    for place in finding.places:
        console.print(f"    {_printable(f'{place}: {place.message}')}")
    if finding.count > len(finding.places) and finding.kind not in ("crlf", "bom"):
        console.print(f"    … and {finding.count - len(finding.places):,} more", style="dim")


def _print_rehearsal(console: "Console", rehearsal: "Rehearsal") -> None:
    """What training will do with the records."""
    console.print()
    other = rehearsal.target_vocabulary
    sizes = f"{rehearsal.vocabulary:,} different ones" + ("" if other is None else f" in sources, {other:,} in targets")
    console.print(f"tokens were counted with {rehearsal.tokenizer}: {sizes}")
    if rehearsal.first_records:
        console.print(
            f"there is much data, so only the first {rehearsal.first_records:,} records of each corpus were tokenised; "
            "training tokenises and counts all of them",
            style="yellow",
        )
    console.print(rehearsal.batches)
    for treated in rehearsal.treated:
        console.print(f"{treated.split}: {treated.count:,} {treated.what}", style="yellow")
        for place in treated.places[:_SHOWN]:
            console.print(f"    {_printable(place)}")
        if treated.count > _SHOWN:
            console.print(f"    … and {treated.count - _SHOWN:,} more; --json lists them all", style="dim")


def _print_split(console: "Console", stats: "SplitStats", rehearsal: "Rehearsal | None") -> None:
    console.print()
    console.print(f"{stats.split}: {_count(stats.records, 'record')} in {_count(stats.files, 'file')}", style="bold")
    if stats.compared < stats.records:
        console.print(f"  the first {stats.compared:,} were compared with each other", style="dim")
    for role, column in stats.columns.items():
        more = "" if column.vocabulary_complete else "+"
        console.print(
            f"  {role}: {column.words:,} words ({column.distinct_words:,}{more} different),"
            f" {column.characters:,} characters ({column.distinct_characters:,} different), {column.bytes:,} bytes"
        )
        _print_coverage(console, column)
        for line in _draw_lengths(column):
            console.print(f"    {line}")
        if rehearsal and (tokens := rehearsal.lengths.get(stats.split, {}).get(role)):
            console.print(f"    tokens a record: {_describe_lengths(tokens)}")
    if stats.several_sentences is not None:
        console.print(f"  {stats.several_sentences:.1%} of the sources have several sentences")
    if stats.labels:
        shown = ", ".join(f"{_printable(label)} {count:,}" for label, count in list(stats.labels.items())[:20])
        rest = stats.distinct_labels - min(20, len(stats.labels))
        console.print(f"  labels: {shown}" + (f", and {rest:,} more" if rest else ""))


def _print_coverage(console: "Console", column: "TextStats") -> None:
    if column.coverage is None:
        return
    cover = column.coverage
    words = f" (not: {_printable(', '.join(cover.unseen_words))})" if cover.unseen_words else ""
    letters = f" (not: {_printable(', '.join(cover.unseen_characters))})" if cover.unseen_characters else ""
    console.print(
        f"    seen in training: {cover.words:.2%} of the words{words},"
        f" {cover.characters:.3%} of the characters{letters}"
    )


def _draw_lengths(column: "TextStats") -> Iterator[str]:
    lengths = column.lengths
    yield f"words a record: {_describe_lengths(lengths)}"
    most = max((count for _, count in lengths.histogram), default=0)
    first = 0
    for last, count in lengths.histogram:
        span = f"{first:,}" if first == last else f"{first:,}-{last:,}"
        if count:
            yield f"{span:>13} {count:>11,} {'█' * round(40 * count / most)}".rstrip()
        first = last + 1


def _describe_lengths(lengths: "Lengths | TokenLengths") -> str:
    return f"mean {lengths.mean}, median {lengths.median}, 95% within {lengths.high}, longest {lengths.longest:,}"


def _print_repair(console: "Console", repaired: "Repair", folder: Path) -> None:
    console.print()
    console.print(f"wrote a repaired copy to {folder}; every change is in {folder / 'changes.jsonl'}", style="bold")
    for (kind, change), count in repaired.changes.items():
        console.print(f"  {change} {kind}: {count:,}")
    for finding in repaired.report.errors:
        console.print("still ", end="")
        _print_finding(console, finding)
    console.print("put this in place of your [data.train], [data.valid] and [data.test]:")
    console.print()
    console.print(write_toml(repaired.data))


def write_toml(data: "Data") -> str:
    """Write the splits of a configuration as TOML, without defaults."""
    from seqloom.config.dump import write_table

    splits = {}
    for split in ("train", "valid", "test"):
        corpora = [{"format": c.format, **c.model_dump(exclude_defaults=True)} for c in getattr(data, split)]
        if corpora:
            splits[split] = tuple(corpora) if len(corpora) > 1 else corpora[0]
    return "\n".join(write_table(splits, ("data",))).lstrip()


@contextmanager
def _progress(data: "Data", base: Path) -> Iterator["Advance"]:
    """Show a progress bar on a terminal if there is much data."""
    from rich.console import Console
    from rich.progress import Progress

    from seqloom.data.corpus import SPLITS, open_split

    files = [file for split in SPLITS for corpus in open_split(data, split, base) for file in corpus.files()]
    total = sum(Path(file).stat().st_size for file in files if Path(file).is_file())
    console = Console(stderr=True)
    with Progress(console=console, transient=True, disable=not console.is_terminal or total < 1 << 23) as bar:
        task = bar.add_task("reading", total=total)
        yield lambda size: bar.advance(task, size)


def _printable(text: str) -> str:
    """Escape characters that a terminal would not print."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def _count(number: int, noun: str) -> str:
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"
