r"""`seqloom tokenizer train | encode | decode`: make a tokeniser and try it; lines end with `\n` and nothing else."""

import sys
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeVar

import typer

from seqloom.cli.options import Commands

if TYPE_CHECKING:
    from seqloom.config.tokenizer import TokenizerConfig

app = typer.Typer(
    cls=Commands, no_args_is_help=True, rich_markup_mode=None, help="Make a tokeniser, and try it on text."
)

Kind = Literal["bpe", "characters", "bytes", "words", "wordpiece", "unigram"]
TokenizerPath = Annotated[
    Path,
    typer.Argument(
        metavar="TOK", help="A tokenizer.json, a folder with one (a run, Hugging Face) or a SentencePiece .model."
    ),
]
Target = Annotated[bool, typer.Option("--target", help="Use the tokeniser of targets, where they have their own.")]
Input = Annotated[Path | None, typer.Argument(metavar="[FILE]", help="Lines to read (.gz too); none: standard input.")]
Json = Annotated[bool, typer.Option("--json", help="Print a JSON object a line.")]
Line = TypeVar("Line")
STDIN = Path("-")
LINES_AT_ONCE = 1000


@app.command()
def train(
    files: Annotated[
        list[Path], typer.Argument(metavar="FILES", help="Text, one a line (.gz too); - is standard input.")
    ],
    output: Annotated[Path, typer.Option("-o", "--output", help="Where to write the tokenizer.json.")],
    kind: Annotated[Kind, typer.Option(help="How to cut text.")] = "bpe",
    size: Annotated[int | None, typer.Option(help="Tokens at most; 8,000 by default, 30,000 for words.")] = None,
    min_frequency: Annotated[int | None, typer.Option(help="Leave out what is seen less often.")] = None,
    normalisation: Annotated[
        Literal["nfc", "nfkc", "none"] | None, typer.Option(help="Unicode form; nfc by default.")
    ] = None,
    lowercase: Annotated[bool, typer.Option("--lowercase", help="Fold upper case into lower case.")] = False,
    punctuation: Annotated[
        Literal["split", "keep"] | None, typer.Option(help="For words: split it off (default) or keep it on.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Learn a tokeniser from text.

    bpe, characters and bytes lose nothing: decoding gives the text back, in its Unicode form. unigram loses only the
    character ▁. words loses words outside its vocabulary ([UNK]) and all spacing; wordpiece loses spacing, words with
    characters it never saw and words longer than 100 characters.

    Example: seqloom tokenizer train corpus.txt --kind bpe --size 8000 -o tok.json
    """
    import json
    import time
    import warnings

    from rich.console import Console

    from seqloom.errors import DataError
    from seqloom.text import Tokenizer

    options = {
        "kind": kind,
        "size": size,
        "min_frequency": min_frequency,
        "normalisation": normalisation,
        "lowercase": lowercase or None,
        "punctuation": punctuation,
    }
    if not output.absolute().parent.is_dir():
        raise DataError(f"{output}: the file cannot be written, because {output.parent} is not a folder; make it first")
    config = _configure({name: value for name, value in options.items() if value is not None})
    start, lines = time.monotonic(), 0
    with (
        Console(stderr=True).status(f"learning a {kind} tokeniser") as status,
        warnings.catch_warnings(record=True) as caught,
    ):

        def read() -> Iterator[str]:
            nonlocal lines
            for path in files:
                for line in _read_lines(path):
                    lines += 1
                    if lines % 100_000 == 0:
                        status.update(f"learning a {kind} tokeniser: {lines:,} lines read")
                    yield line

        tokenizer = Tokenizer.train(read(), config)
    for warning in caught:
        typer.echo(f"warning: {warning.message}", err=True)
    tokenizer.save(output)
    report = {
        "path": str(output),
        "kind": kind,
        "vocab_size": tokenizer.vocab_size,
        "lines": lines,
        "seconds": round(time.monotonic() - start, 2),
        "fingerprint": tokenizer.fingerprint,
    }
    sentence = f"wrote {output}: {kind}, {tokenizer.vocab_size:,} tokens, from {lines:,} lines"
    typer.echo(json.dumps(report) if as_json else sentence)


@app.command()
def encode(
    tok: TokenizerPath,
    file: Input = None,
    special: Annotated[
        bool, typer.Option("--special", help="Take names of special tokens, such as [MASK], for the tokens.")
    ] = False,
    target: Target = False,
    as_json: Json = False,
) -> None:
    """Print the ids of each line; with --json also the tokens and where in the line they stand.

    Example: echo "Guten Morgen" | seqloom tokenizer encode tok.json
    """
    from dataclasses import asdict

    from seqloom.text import Tokenizer

    tokenizer = Tokenizer.load(tok)
    tokenizer = tokenizer.target if target else tokenizer
    for lines in _batch(_read_lines(file or STDIN)):
        if as_json:
            _print_json(asdict(tokenizer.encode(line, special=special)) for line in lines)
        else:
            _print(" ".join(map(str, ids)) for ids in tokenizer.encode_batch(lines, special=special))


@app.command()
def decode(
    tok: TokenizerPath,
    file: Input = None,
    special: Annotated[bool, typer.Option("--special", help="Show special tokens by name.")] = False,
    target: Target = False,
    as_json: Json = False,
) -> None:
    """Print the text of each line of ids.

    Example: seqloom tokenizer encode tok.json < corpus.txt | seqloom tokenizer decode tok.json
    """
    from seqloom.errors import DataError
    from seqloom.text import Tokenizer

    tokenizer, name = Tokenizer.load(tok), str(file or "standard input")
    tokenizer = tokenizer.target if target else tokenizer
    for lines in _batch(enumerate(_read_lines(file or STDIN), start=1)):
        texts: list[str] = []
        for number, line in lines:
            try:
                texts.append(tokenizer.decode([int(id) for id in line.split()], special=special))
            except DataError as error:
                raise DataError(f"{name}:{number}: {error}") from None
            except ValueError:
                raise DataError(f"{name}:{number}: expected ids separated by spaces, not {line[:60]!r}") from None
            if "\n" in texts[-1] and not as_json:
                raise DataError(f"{name}:{number}: the text has a line break in it; use --json to keep a line a text")
        if as_json:
            _print_json({"text": text} for text in texts)
        else:
            _print(texts)


def _configure(options: dict[str, Any]) -> "TokenizerConfig":
    from seqloom.config.base import Section
    from seqloom.config.tokenizer import TokenizerConfig
    from seqloom.tasks.configuration import validate

    class Options(Section):
        tokenizer: TokenizerConfig

    config: TokenizerConfig = validate({"tokenizer": options}, Options, "", "the command").tokenizer
    return config


def _read_lines(path: Path) -> Iterator[str]:
    from seqloom.text.training import decode_lines, read_lines

    return decode_lines(sys.stdin.buffer, "standard input") if path == STDIN else read_lines(path)


def _batch(lines: Iterator[Line]) -> Iterator[list[Line]]:
    """Many lines at once, for speed; one at a time from a person's keyboard, who waits for the answer."""
    size = 1 if sys.stdin.isatty() else LINES_AT_ONCE
    while batch := list(islice(lines, size)):
        yield batch


def _print_json(objects: Iterator[dict[str, Any]]) -> None:
    import json

    _print(json.dumps(item, ensure_ascii=False) for item in objects)


def _print(lines: Iterator[str] | list[str]) -> None:
    # Bytes: a terminal's encoding and its newlines must not change a text.
    sys.stdout.buffer.write("".join(f"{line}\n" for line in lines).encode("utf-8"))
    sys.stdout.buffer.flush()
