"""The records a model is judged by: of files, or of a split that its run was configured with."""

from collections.abc import Sequence
from pathlib import Path
from typing import Literal

from seqloom.config.data import (
    CorpusSection,
    DelimitedPairs,
    KeyedPairs,
    LabelledData,
    PairColumns,
    ParallelFiles,
    TaggedFiles,
)
from seqloom.data.corpus import Corpus, open_split
from seqloom.data.example import Example
from seqloom.data.fault import UNREADABLE, Fault
from seqloom.data.lines import read_blocks
from seqloom.data.places import STDIN
from seqloom.errors import ConfigError, DataError, RunError
from seqloom.predict.loaded import Loaded
from seqloom.runs.run import Run

Judged = Literal["valid", "test"]


def open_records(loaded: Loaded, files: Sequence[Path], split: Judged) -> tuple[Corpus, ...]:
    """The files that the user names or, without any, a split of the model's own data."""
    return (_open_files(loaded, files),) if files else _open_own(loaded, split)


def read_records(corpora: Sequence[Corpus]) -> list[Example]:
    """All their records."""
    records = [example for corpus in corpora for example in corpus]
    if not records:
        raise DataError(f"{', '.join(corpora[0].files())}: there is no record here")
    return records


def _open_files(loaded: Loaded, files: Sequence[Path]) -> Corpus:
    """Files in the format of the data that the model was trained on."""
    data = loaded.config.data
    section = _name_files(data.train[0], [str(file) for file in files])
    numbers = isinstance(data, LabelledData) and data.labels == "numbers"
    return Corpus(section, Path(), data.max_line_bytes, numbers)


def _name_files(section: CorpusSection, files: list[str]) -> CorpusSection:
    """The same section with other files; pairs of texts are two files, or the columns of one."""
    match section, files:
        case ((ParallelFiles() | DelimitedPairs() | KeyedPairs()), [source, target]):
            return ParallelFiles(source=(source,), target=(target,))
        case ParallelFiles(), [table]:
            return DelimitedPairs(files=(table,), columns=PairColumns(source=1, target=2))
        case ((DelimitedPairs() | KeyedPairs()), [_]):
            pass
        case ((ParallelFiles() | DelimitedPairs() | KeyedPairs()), _):
            raise ConfigError(f"--data: {len(files)} files; give two, source and target, or one table of pairs")
        case TaggedFiles(), [words, tags]:
            return TaggedFiles(words=(words,), tags=(tags,))
        case TaggedFiles(), _:
            raise ConfigError(f"--data: {len(files)} files; give two, words and tags, as the model was trained on")
    return section.model_copy(update={"files": tuple(files)})


def _open_own(loaded: Loaded, split: Judged) -> tuple[Corpus, ...]:
    data = loaded.config.data
    folder = loaded.folder
    if folder is None or not (folder / "config.toml").exists():
        raise RunError("this model was not trained here, so it has no data of its own; name files with --data")
    base = Run(folder).find_base()
    corpora = open_split(data, split, base)
    if not corpora:
        raise RunError(f"{folder}: its configuration has no data.{split}; name files with --data")
    for corpus in corpora:
        named = corpus.sides()
        if any(STDIN in side for side in named[0]):
            raise RunError(f"{folder}: its data.{split} was standard input, which is gone; name files with --data")
        for fault in named[1]:
            raise DataError(
                f"{fault.place}: {fault.message}. It is data.{split} in {folder / 'config.toml'}, with names relative "
                f"to the folder of the configuration it was trained with ({base.absolute()}, as far as the run knows); "
                "put it there, or name files with --data"
            )
    return corpora


def read_texts(path: Path) -> list[str]:
    """The lines of a file, all of them; what cannot be read is an error, for a line left out would shift the rest."""
    lines: list[str] = []
    for block in read_blocks(str(path), 1 << 20):
        bad: list[Fault] = [fault for fault in block.faults if fault.kind in UNREADABLE]
        if bad:
            raise min(bad, key=lambda fault: fault.line).error()
        lines += block.lines
    return lines


def read_parallel_texts(paths: Sequence[Path]) -> list[list[str]]:
    """The lines of several files that correspond."""
    texts = [read_texts(path) for path in paths]
    for path, lines in zip(paths, texts, strict=True):
        if len(lines) != len(texts[0]):
            raise DataError(f"{paths[0]} has {len(texts[0]):,} lines, but {path} has {len(lines):,}")
    return texts
