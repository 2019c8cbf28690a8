"""`seqloom vectors`: ask about word vectors, and convert their files."""

import json
from collections.abc import Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from seqloom.cli.options import Commands

if TYPE_CHECKING:
    from rich.status import Status

    from seqloom.models.word_vectors import Neighbour, WordVectors

app = typer.Typer(cls=Commands, help="Ask about word vectors, and convert them.", no_args_is_help=True)

_File = Annotated[Path, typer.Argument(help="Word vectors: word2vec text or binary, or GloVe text; .gz too.")]
_Count = Annotated[int, typer.Option("-k", min=1, help="How many answers.")]
_Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]


@app.command()
def nearest(
    file: _File,
    words: Annotated[list[str], typer.Argument(help="The words to ask about.", metavar="WORD...")],
    k: _Count = 10,
    as_json: _Json = False,
) -> None:
    """Print the words nearest to each word, with the cosine of the angle between them.

    Example: seqloom vectors nearest vectors.txt king paris -k 5
    """
    vectors = _read(file)
    answers = {word: vectors.nearest(word, k) for word in words}
    if as_json:
        typer.echo(json.dumps({word: _as_objects(found) for word, found in answers.items()}, ensure_ascii=False))
        return
    for word, found in answers.items():
        typer.echo(f"{word}:")
        _print_table(found)


@app.command()
def analogy(file: _File, a: str, b: str, c: str, k: _Count = 10, as_json: _Json = False) -> None:
    """Print what is to C as B is to A.

    Example: seqloom vectors analogy vectors.txt man king woman -k 5
    """
    found = _read(file).analogy(a, b, c, k)
    if as_json:
        typer.echo(json.dumps({"a": a, "b": b, "c": c, "answers": _as_objects(found)}, ensure_ascii=False))
        return
    typer.echo(f"{a} is to {b} as {c} is to:")
    _print_table(found)


@app.command()
def convert(
    source: Annotated[Path, typer.Argument(help="The file to read; its format is recognised.")],
    target: Annotated[Path, typer.Argument(help="The file to write; compressed if it ends in .gz.")],
    format: Annotated[
        Literal["word2vec", "word2vec-binary", "glove"], typer.Option("--format", help="The format to write.")
    ],
    spaces: Annotated[
        str | None,
        typer.Option("--spaces", help="Replace spaces inside words with this; word2vec formats cannot hold them."),
    ] = None,
    as_json: _Json = False,
) -> None:
    """Read word vectors in one format and write them in another.

    Example: seqloom vectors convert glove.6B.50d.txt vectors.bin --format word2vec-binary
    """
    from seqloom.hub.word2vec import write_word_vectors
    from seqloom.models.word_vectors import WordVectors

    vectors = _read(source)
    renamed = [word for word in vectors.words if " " in word] if spaces is not None else []
    if spaces is not None:
        vectors = WordVectors([word.replace(" ", spaces) for word in vectors.words], vectors.vectors)
    with _status(f"writing {target}"):
        write_word_vectors(vectors, target, format)
    if as_json:
        done = {"words": len(vectors), "dim": vectors.dim, "format": format, "renamed": len(renamed)}
        typer.echo(json.dumps(done))
        return
    typer.echo(f"wrote {len(vectors)} words of {vectors.dim} numbers to {target} as {format}")
    if renamed:
        typer.echo(f'renamed {len(renamed)} words with spaces, such as "{renamed[0]}"')


def _read(file: Path) -> "WordVectors":
    with _status(f"reading {file}"):
        from seqloom.hub.word2vec import read_word_vectors

        return read_word_vectors(file)


def _status(text: str) -> "AbstractContextManager[Status]":
    from rich.console import Console

    return Console(stderr=True).status(text)


def _as_objects(found: "Sequence[Neighbour]") -> list[dict[str, object]]:
    return [{"word": n.word, "similarity": round(n.similarity, 6)} for n in found]


def _print_table(found: "Sequence[Neighbour]") -> None:
    for neighbour in found:
        typer.echo(f"  {neighbour.similarity:6.3f}  {neighbour.word}")
