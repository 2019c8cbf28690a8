"""What a verb reads: lines of text, or the columns of a table, in the format of the run's own data.

The name of a file says its format. A table is read by the columns that the model was trained on, and only by those that
the verb needs, so a file may hold labels or not. One record of the table is one line of the output.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, Literal

from seqloom.config.data import Column, ConllFiles, ConlluFiles, CorpusSection, Delimited, Keyed, LabelFirstFiles, Table
from seqloom.data.corpus import FORMATS
from seqloom.data.examples import UNREADABLE, Chunk, Fault
from seqloom.data.files import STDIN, Advance, ignore
from seqloom.errors import ConfigError, DataError
from seqloom.predict.bulk import FAILS, LONGEST_LINE, Line, find_nul, read_lines
from seqloom.predict.predictor import Predictor

InputFormat = Literal["text", "csv", "tsv", "jsonl", "parquet", "label-first", "conll", "conllu"]
_SUFFIXES: dict[str, InputFormat] = {
    ".csv": "csv",
    ".tsv": "tsv",
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".parquet": "parquet",
    ".conll": "conll",
    ".conllu": "conllu",
}
_COMPRESSED = (".gz", ".xz", ".bz2")
_WITHOUT_COLUMNS = {"label-first": LabelFirstFiles, "conll": ConllFiles, "conllu": ConlluFiles}
_ADVICE = "say which with --column (a name, or a number from 1), or read whole lines with --format text"
_SEEN = 20  # lines that show whether a label stands before each


class _Delimited(Delimited):
    columns: dict[str, Column]

    @property
    def named_columns(self) -> dict[str, Column]:
        return self.columns


class _Keyed(Keyed):
    columns: dict[str, Column]

    @property
    def named_columns(self) -> dict[str, Column]:
        return self.columns


@dataclass(frozen=True)
class Records:
    """A file of records, and the columns of it that a verb reads."""

    path: str
    section: CorpusSection
    roles: tuple[str, ...]
    count: int
    """How many texts the verb takes; those that the file does not have are blank."""

    def __str__(self) -> str:
        columns = self.section.named_columns if isinstance(self.section, Table) else {}
        named = " and ".join(f"column {columns[role]}" if role in columns else f"the {role}" for role in self.roles)
        name = "standard input" if self.path == STDIN else self.path
        return f"{name}: reads {named} ({self.section.format}); --format text reads whole lines"

    def read(self, advance: Advance = ignore, *, as_text: bool = True) -> Iterator[list[Line]]:
        """The texts of each record; one that cannot be read has a fault, and a blank one is blank.

        `as_text`: where a record has words, they are joined by spaces.
        """
        format = FORMATS[self.section.format](self.section)
        (key,) = self.section.sides
        waiting: list[Fault] = []  # a reader reports the faults of a block before the last of its records
        for chunk in format.read({key: self.path}, LONGEST_LINE, advance):
            for fault in chunk.faults:
                if fault.kind == "unknown_column":
                    raise DataError(f"{fault.place}: {fault.message}; {_ADVICE}")
                if fault.line == 0 and fault.kind in UNREADABLE and fault.kind != "empty_file":
                    raise fault.error()
            waiting += [fault for fault in chunk.faults if fault.line and fault.kind in (*UNREADABLE, "blank")]
            last = chunk.lines[-1] if len(chunk) else 0
            yield self._merge(chunk, [fault for fault in waiting if fault.line <= last], as_text)
            waiting = [fault for fault in waiting if fault.line > last]
        yield self._merge(Chunk(self.path, [], {}), waiting, as_text)

    def _merge(self, chunk: Chunk, faults: Sequence[Fault], as_text: bool) -> list[Line]:
        """The records and the faults between them, in the order of the file."""
        columns = [chunk.columns[role] for role in self.roles] if len(chunk) else []
        rows: Iterator[tuple[Any, ...]] = zip(*columns, strict=True)
        found = {line: self._make_line(row, as_text) for line, row in zip(chunk.lines, rows, strict=True)}
        blank = ("",) * self.count
        for fault in faults:
            if fault.kind == "blank":
                found[fault.line] = Line(blank)
                continue
            place = fault.line
            if fault.kind in FAILS:  # the line may be a later one of its record
                place = max((line for line in chunk.lines if line <= fault.line), default=0)
            if not place:  # it is in the header
                raise fault.error()
            found[place] = Line(blank, fault.kind, f"{fault.place}: {fault.message}")
        return [found[line] for line in sorted(found)]

    def _make_line(self, row: tuple[Any, ...], as_text: bool) -> Line:
        texts = tuple(text if isinstance(text, str) else " ".join(text) for text in row)
        missing = ("",) * (self.count - len(row))
        return find_nul("".join(texts)) or Line((texts if as_text else row) + missing)


def find_records(
    model: Predictor,
    path: str,
    count: int,
    optional: int = 0,
    format: InputFormat | None = None,
    columns: Sequence[str] = (),
) -> Records | None:
    """The records of a file from which a verb reads `count` texts; None if each of its lines is a text.

    The last `optional` texts may be missing. `format` and `columns` are what the user says; the model's own data say
    the rest.
    """
    name = Path(path)
    suffix = name.with_suffix("").suffix if name.suffix in _COMPRESSED else name.suffix
    kind = format or ("text" if path == STDIN else _SUFFIXES.get(suffix.lower(), "text"))
    roles = tuple(model.frames)[:count]
    own = () if model.seen is None else model.config.data.train  # a model from elsewhere names files of nobody
    if kind == "text":
        if columns:
            raise ConfigError("--column: lines of text have no columns; say which --format the file has")
        if format is None and path != STDIN and any(section.format == "label-first" for section in own):
            _refuse_labels(model, path)
        return None
    same = next((section for section in own if section.format == kind), None)
    if kind in _WITHOUT_COLUMNS:
        if columns:
            raise ConfigError(f"--column: a file of the format {kind} has no columns to choose from")
        if roles != (("words",) if kind.startswith("conll") else ("text",)):
            raise ConfigError(f"{path}: {model.config.task} does not read {kind}; --format text reads whole lines")
        return Records(path, (same or _WITHOUT_COLUMNS[kind](files=(path,))).replace_files([path]), roles, count)
    if optional and "second" not in roles:  # an imported classifier, whose data do not say whether texts are pairs
        roles = (*roles, "second")
    if columns and not count - optional <= len(columns) <= count:
        raise ConfigError(f"--column: {len(columns)} given, but {len(roles)} needed: {', '.join(roles)}")
    table: dict[str, Column] = dict(zip(roles, map(_read_column, columns), strict=False))
    known = same or next((section for section in own if isinstance(section, Table)), None)
    if not columns and isinstance(known, Table):
        table = {role: known.named_columns[role] for role in roles if role in known.named_columns}
    elif not columns and kind == "tsv" and count > 1:
        return None  # as many texts as are needed, separated by tabs
    if not table or (kind not in ("csv", "tsv") and any(isinstance(column, int) for column in table.values())):
        raise ConfigError(f"{path}: the model was not trained on such a table, so its column is not known; {_ADVICE}")
    section: CorpusSection
    if kind == "jsonl" or kind == "parquet":
        section = _Keyed(format=kind, files=(path,), columns=table)
    else:
        header, separator = None, None
        if isinstance(same, Delimited):
            named = any(isinstance(column, str) for column in (*same.named_columns.values(), *table.values()))
            header, separator = named if same.header is None else same.header or named, same.separator
        shape: Literal["csv", "tsv"] = "csv" if kind == "csv" else "tsv"
        section = _Delimited(format=shape, files=(path,), columns=table, header=header, separator=separator)
    return Records(path, section, tuple(table), count)


def _read_column(name: str) -> Column:
    return int(name) if name.isdecimal() and int(name) else name


def _refuse_labels(model: Predictor, path: str) -> None:
    """Refuse lines that all begin with a label, as the training data did: most probably it is no part of the text."""
    lines = (line.texts[0] for block in read_lines(path) for line in block if line.texts[0].strip())
    first = [text.partition(" ")[0] for text in islice(lines, _SEEN)]
    if first and {*first} <= {*model.labels}:
        raise DataError(
            f"{path}: every line begins with a label, as in the training data; --format label-first reads the text "
            "after it, --format text the whole line"
        )
