"""`seqloom vectors` as a person meets it."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from typer.testing import CliRunner

from seqloom.cli.vectors import app
from seqloom.hub.word2vec import read_word_vectors

TEXT = "man 0 1 1\nwoman 0 -1 1\nking 1 1 1\nqueen 1 -1 1\nNew York -1 0 -1\n"


@pytest.fixture
def file(tmp_path: Path) -> str:
    path = tmp_path / "glove.txt"
    path.write_text(TEXT, encoding="utf-8")
    return str(path)


def run(*arguments: str) -> str:
    result = CliRunner().invoke(app, list(arguments), catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.stdout


def test_nearest(file: str) -> None:
    assert run("nearest", file, "king", "queen", "-k", "1") == "king:\n   0.816  man\nqueen:\n   0.816  woman\n"
    answer = json.loads(run("nearest", file, "king", "-k", "2", "--json"))
    assert [n["word"] for n in answer["king"]] == ["man", "queen"]
    assert answer["king"][0]["similarity"] == pytest.approx((2 / 3) ** 0.5, abs=1e-6)


def test_analogy(file: str) -> None:
    assert run("analogy", file, "man", "king", "woman", "-k", "1").splitlines()[1].split()[1] == "queen"
    assert json.loads(run("analogy", file, "man", "king", "woman", "--json"))["answers"][0]["word"] == "queen"


@pytest.mark.parametrize("format", ["word2vec", "word2vec-binary"])
def test_convert(file: str, format: str, tmp_path: Path) -> None:
    target = tmp_path / "out.gz"
    printed = run("convert", file, str(target), "--format", format, "--spaces", "_")
    assert "wrote 5 words of 3 numbers" in printed
    assert 'renamed 1 words with spaces, such as "New York"' in printed
    vectors = read_word_vectors(target)
    assert vectors.words == ("man", "woman", "king", "queen", "New_York")
    assert torch.equal(vectors.vectors, read_word_vectors(file).vectors)
    printed = json.loads(run("convert", str(target), str(tmp_path / "back"), "--format", "glove", "--json"))
    assert printed == {"words": 5, "dim": 3, "format": "glove", "renamed": 0}


def test_mistakes_end_with_a_sentence_and_the_right_code(file: str, tmp_path: Path) -> None:
    def seqloom(*arguments: str) -> tuple[int, str]:
        done = subprocess.run([sys.executable, "-m", "seqloom", "vectors", *arguments], capture_output=True, text=True)
        assert "Traceback" not in done.stderr
        return done.returncode, done.stderr

    assert seqloom("nearest", file, "King") == (
        1,
        'error: "King" is not among the 5 words with a vector; "king" is\n',
    )
    code, message = seqloom("convert", file, str(tmp_path / "out"), "--format", "word2vec")
    assert code == 1
    assert "'New York' cannot be written as word2vec" in message
    assert seqloom("convert", file, str(tmp_path / "out"), "--format", "fasttext")[0] == 2
