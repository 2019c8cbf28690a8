"""A run in other people's formats: used without Seqloom, it says the same."""

import json
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

from seqloom.errors import RunError
from seqloom.predict.export import Format, export
from seqloom.predict.load import load
from small_runs import Runs, runs

__all__ = ["runs"]
pytest.importorskip("transformers", reason="an exported model is compared there; pip install 'seqloom[export]'")
pytest.importorskip("ctranslate2")
pytest.importorskip("onnxruntime")
LINES = ["the cat sees the dog .", "a mouse likes the horse .", "the goat finds the"]


def seqloom(*arguments: str, cwd: Path, given: str = "") -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "seqloom", *arguments]
    return subprocess.run(command, capture_output=True, text=True, cwd=cwd, input=given)


def use_without_seqloom(format: str, folder: Path) -> list[str]:
    script = Path(__file__).with_name("without_seqloom.py")
    command = [sys.executable, "-I", "-S", str(script), sysconfig.get_path("purelib"), format, str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, input="\n".join(LINES) + "\n")
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


@pytest.mark.parametrize(
    ("run", "format"),
    [
        pytest.param("sinusoidal", "huggingface", marks=pytest.mark.long),
        ("translation", "ctranslate2"),
        pytest.param("translation/recurrent", "onnx", marks=pytest.mark.long),
        ("language-model", "ctranslate2"),
        ("language-model", "onnx"),
    ],
)
def test_the_same_answers_without_seqloom(run: str, format: Format, runs: Runs, tmp_path: Path) -> None:
    done = export(runs(run), format, tmp_path / "exported", licence="cc-by-4.0")
    assert done.difference < 1e-5
    model = load(runs(run))
    if run == "language-model":
        expected = [found.text.strip() for found in model.generate(LINES)]
    else:
        expected = [found.text for found in model.translate(LINES, align=False)]
    assert use_without_seqloom(format, done.folder) == expected
    if format == "huggingface":
        card = (done.folder / "README.md").read_text()
        assert 'license: "cc-by-4.0"' in card
        assert "`train.source`, `train.target`" in card
        assert "| bleu |" in card


def test_the_command_says_what_it_wrote(runs: Runs, tmp_path: Path) -> None:
    asked = ("export", str(runs("translation")), "--to", "ctranslate2", "-o", "out", "--json")
    done = seqloom(*asked, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    said = json.loads(done.stdout)
    assert said["kind"] == "ctranslate2.Translator"
    assert said["difference"] < 1e-5
    assert {path.name for path in (tmp_path / "out").iterdir()} >= {"model.bin", "config.json", "tokenizer.json"}
    again = seqloom(*asked, cwd=tmp_path)
    assert again.returncode == 1
    assert "is not empty; choose another folder with --out" in again.stderr
    with pytest.raises(RunError, match="is not empty; choose another folder with `out`"):
        export(runs("translation"), "ctranslate2", tmp_path / "out")


def test_what_cannot_be_expressed_is_refused_before_anything_is_written(runs: Runs, tmp_path: Path) -> None:
    done = seqloom("export", str(runs("translation/recurrent")), "--to", "huggingface", "-o", "out", cwd=tmp_path)
    assert done.returncode == 1
    assert 'model.encoder.family = "recurrent": cannot be exported' in done.stderr
    assert not list(tmp_path.iterdir())


def test_a_model_that_computes_something_else_is_not_kept(
    runs: Runs, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("seqloom.predict.export.TOLERANCE", -1.0)
    with pytest.raises(RuntimeError, match="more than rounding explains"):
        export(runs("translation"), "ctranslate2", tmp_path / "out")
    assert not list(tmp_path.iterdir())


def test_translating_with_ctranslate2(runs: Runs, tmp_path: Path) -> None:
    run, given = str(runs("translation")), "\n".join([*LINES, "", "the cat"]) + "\n"
    own = seqloom("translate", run, cwd=tmp_path, given=given)
    other = seqloom("translate", run, "--engine", "ctranslate2", cwd=tmp_path, given=given)
    assert other.returncode == own.returncode == 0, other.stderr
    assert other.stdout == own.stdout
    assert len(list((runs("translation") / "engines").iterdir())) == 1
    assert seqloom("verify", run, cwd=tmp_path).returncode == 0
    refused = seqloom("translate", run, "--engine", "ctranslate2", "--sample", cwd=tmp_path, given=given)
    assert refused.returncode == 2
    assert "leave --engine out" in refused.stderr
