"""`seqloom tokenizer`, as typed."""

import gzip
import json
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from seqloom.cli.main import app
from seqloom.text import Tokenizer

HARD_LINES = b"one\r\n\n two  spaces \nnul\0 and \xe2\x80\xa8 and \xc2\x85 and \x0b\nlast [MASK] without end"


@pytest.fixture(scope="module")
def tok(texts: list[str], tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder: Path = tmp_path_factory.mktemp("command")
    with gzip.open(folder / "corpus.txt.gz", "wt", encoding="utf-8") as file:
        file.write("\n".join(texts))
    done = CliRunner().invoke(
        app, ["tokenizer", "train", str(folder / "corpus.txt.gz"), "--size", "300", "-o", str(folder / "tok.json")]
    )
    assert done.exit_code == 0
    assert done.stdout == f"wrote {folder / 'tok.json'}: bpe, 300 tokens, from {len(texts)} lines\n"
    return folder / "tok.json"


def run(*arguments: str | Path, stdin: bytes = b"") -> bytes:
    done = CliRunner().invoke(app, ["tokenizer", *map(str, arguments)], input=stdin, catch_exceptions=False)
    assert done.exit_code == 0
    output: bytes = done.stdout_bytes
    return output


def fail(*arguments: str | Path, stdin: bytes = b"") -> tuple[int, str]:
    command = [sys.executable, "-m", "seqloom", "tokenizer", *map(str, arguments)]
    done = subprocess.run(command, input=stdin, capture_output=True)
    assert b"Traceback" not in done.stderr
    return done.returncode, done.stderr.decode()


def test_encoding_and_decoding_gives_every_line_back(tok: Path) -> None:
    ids = run("encode", tok, stdin=HARD_LINES)
    assert ids.count(b"\n") == HARD_LINES.count(b"\n") + 1
    assert run("decode", tok, stdin=ids) == HARD_LINES + b"\n"


def test_ids_are_those_of_the_library(tok: Path) -> None:
    lines = HARD_LINES.decode().split("\n")
    printed = run("encode", tok, stdin=HARD_LINES).decode().splitlines()
    assert [list(map(int, line.split())) for line in printed] == Tokenizer.load(tok).encode_batch(lines)


def test_json_has_tokens_and_offsets(tok: Path, tmp_path: Path) -> None:
    (tmp_path / "text.txt").write_bytes("e\u0301 the".encode())
    (line,) = run("encode", tok, tmp_path / "text.txt", "--json").splitlines()
    encoding = Tokenizer.load(tok).encode("e\u0301 the")
    expected = {"ids": encoding.ids, "tokens": encoding.tokens, "offsets": [list(pair) for pair in encoding.offsets]}
    assert json.loads(line) == expected
    assert expected["offsets"][0] == [0, 2]


def test_special_tokens_are_text_unless_asked_for(tok: Path) -> None:
    assert b"4" not in run("encode", tok, stdin=b"[MASK]").split()
    assert run("encode", tok, "--special", stdin=b"[MASK]") == b"4\n"
    assert run("decode", tok, stdin=b"4") == b"\n"
    assert run("decode", tok, "--special", stdin=b"4") == b"[MASK]\n"


def test_a_line_break_in_a_decoded_text_is_not_printed_as_one(tok: Path) -> None:
    ids = " ".join(map(str, Tokenizer.load(tok).encode("a\nb").ids)).encode()
    assert json.loads(run("decode", tok, "--json", stdin=ids)) == {"text": "a\nb"}
    code, complaint = fail("decode", tok, stdin=ids)
    assert (code, "use --json" in complaint) == (1, True)


@pytest.mark.parametrize("kind", ["bytes", "characters", "words", "wordpiece", "unigram"])
def test_every_kind_can_be_trained(kind: str, tok: Path, tmp_path: Path) -> None:
    corpus = tok.with_name("corpus.txt.gz")
    report = json.loads(run("train", corpus, "--kind", kind, "-o", tmp_path / "tok.json", "--json"))
    tokenizer = Tokenizer.load(tmp_path / "tok.json")
    assert report["vocab_size"] == tokenizer.vocab_size
    assert report["fingerprint"] == tokenizer.fingerprint
    assert run("decode", tmp_path / "tok.json", stdin=run("encode", tmp_path / "tok.json", stdin=b"the dog")) == (
        b"the dog\n"
    )


def test_options_reach_the_tokeniser(tmp_path: Path) -> None:
    out = tmp_path / "tok.json"
    text = "ＡＢＣ abc".encode()
    run("train", "-", "-o", out, "--lowercase", "--normalisation", "nfkc", "--min-frequency", "1", stdin=text)
    assert run("decode", out, stdin=run("encode", out, stdin=text)) == b"abc abc\n"


def test_a_size_out_of_reach_is_said(tmp_path: Path) -> None:
    done = CliRunner().invoke(app, ["tokenizer", "train", "-", "-o", str(tmp_path / "tok.json")], input=b"tiny")
    assert done.exit_code == 0
    assert "warning: the vocabulary has 263 tokens, fewer than its limit (size = 8,000)" in done.stderr


def test_help_says_what_is_lost() -> None:
    text = " ".join(run("train", "--help").decode().split())
    assert "lose nothing" in text
    assert "words loses words outside its vocabulary ([UNK]) and all spacing" in text
    assert "wordpiece loses spacing" in text
    assert "Example: seqloom tokenizer train" in text


@pytest.mark.parametrize(
    ("arguments", "stdin", "code", "complaint"),
    [
        (("encode", "{tok}"), b"fine\n\xff", 1, "standard input:2: byte 1 of the line (0xff) is not UTF-8"),
        (("encode", "no.json"), b"", 1, "no.json: there is no such file"),
        (("encode", "{tok}", "no.txt"), b"", 1, "no.txt: there is no such file"),
        (("decode", "{tok}"), b"1 2\n3 x", 1, "standard input:2: expected ids separated by spaces, not '3 x'"),
        (("decode", "{tok}"), b"1\n\n300", 1, "standard input:3: there is no token 300"),
        (("train", "-", "-o", "no/such/folder/tok.json"), b"text", 1, "no/such/folder is not a folder"),
        (("train", "-", "-o", "tok.json"), b"", 1, "no text to learn a tokeniser from"),
        (("train", "-", "-o", "tok.json", "--kind", "bytes", "--size", "9"), b"text", 2, "tokenizer.size: belongs to"),
        (("train", "-", "-o", "tok.json", "--kind", "bpee"), b"text", 2, "'bpee' is not one of"),
    ],
)
def test_faults_are_said_with_their_place(
    arguments: tuple[str, ...], stdin: bytes, code: int, complaint: str, tok: Path
) -> None:
    returned, message = fail(*(argument.format(tok=tok) for argument in arguments), stdin=stdin)
    assert complaint in " ".join(message.split())
    assert returned == code
