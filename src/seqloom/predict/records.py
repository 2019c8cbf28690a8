"""The records a model is judged by: of files, or of a split that its run was configured with."""

from collections.abc import Sequence
from pathlib import Path
from typing import Literal

from seqloom.data.corpus import Corpus, open_corpus, open_split
from seqloom.data.examples import Example
from seqloom.data.files import STDIN, read_lines
from seqloom.errors import ConfigError, DataError, RunError
from seqloom.predict.predictor import Predictor
from seqloom.runs.run import Run

Judged = Literal["valid", "test"]


def open_records(loaded: Predictor, files: Sequence[Path], split: Judged) -> tuple[Corpus, ...]:
    """The files that the user names or, without any, a split of the model's own data."""
    return (_open_files(loaded, files),) if files else _open_own(loaded, split)


def read_records(corpora: Sequence[Corpus]) -> list[Example]:
    """All their records."""
    records = [example for corpus in corpora for example in corpus]
    if not records:
        raise DataError(f"{', '.join(corpora[0].files())}: there is no record here")
    return records


def _open_files(loaded: Predictor, files: Sequence[Path]) -> Corpus:
    """Files in the format of the data that the model was trained on."""
    data = loaded.config.data
    try:
        return open_corpus(data, data.name_files([str(file) for file in files]), Path())
    except ValueError as error:
        raise ConfigError(f"--data: {error}") from None


def _open_own(loaded: Predictor, split: Judged) -> tuple[Corpus, ...]:
    data = loaded.config.data
    folder = loaded.folder
    if folder is None or not (folder / "config.toml").exists():
        raise RunError("this model was not trained here, so it has no data of its own; name files with --data")
    base = Run(folder).find_base()
    corpora = open_split(data, split, base)
    if not corpora:
        raise RunError(f"{folder}: its configuration has no data.{split}; name files with --data")
    for corpus in corpora:
        if STDIN in corpus.files():
            raise RunError(f"{folder}: its data.{split} was standard input, which is gone; name files with --data")
        for fault in corpus.sides()[1]:
            raise DataError(
                f"{fault.place}: {fault.message}. It is data.{split} in {folder / 'config.toml'}, with names relative "
                f"to the folder of the configuration it was trained with ({base.absolute()}, as far as the run knows); "
                "put it there, or name files with --data"
            )
    return corpora


def read_texts(path: Path) -> list[str]:
    """The lines of a file, all of them; what cannot be read is an error, for a line left out would shift the rest."""
    return [line for _, line in read_lines(path)]


def read_parallel_texts(paths: Sequence[Path]) -> list[list[str]]:
    """The lines of several files that correspond."""
    texts = [read_texts(path) for path in paths]
    for path, lines in zip(paths, texts, strict=True):
        if len(lines) != len(texts[0]):
            raise DataError(f"{paths[0]} has {len(texts[0]):,} lines, but {path} has {len(lines):,}")
    return texts
