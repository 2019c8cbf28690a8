"""Whatever goes wrong is answered with a sentence: what, where, and what to do; never with a traceback."""

import shutil
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest
from rich.console import Console

import seqloom
from seqloom.errors import SeqloomError
from seqloom.runs.verify import verify
from seqloom.tasks.configuration import load, load_resolved
from seqloom.training import job
from seqloom.training.job import train
from seqloom.training.monitor import PlainMonitor
from small_corpora import write_config
from small_runs import Runs

QUIET = PlainMonitor(Console(quiet=True))


def run_command(*arguments: str, shell: str = "", folder: Path | None = None) -> subprocess.CompletedProcess[str]:
    """Run the command line; `shell` is what follows the command there, such as `<&-`."""
    command = " ".join([sys.executable, "-m", "seqloom", *arguments, shell])
    return subprocess.run(["bash", "-c", command], cwd=folder, capture_output=True, text=True, input="a\n", check=False)


@pytest.mark.parametrize(
    ("task", "family", "override", "sentence"),
    [
        ("translation", "transformer", {"target_frame.before": []}, "target_frame.before: no token of the tokeniser"),
        (
            "translation",
            "transformer",
            {"target_frame.after": [], "target_frame.before": "bos"},
            "target_frame.after: ",
        ),
        ("translation", "recurrent", {"train.precision": "float16"}, "PyTorch has no LSTM in float16 on a processor"),
        *(
            (task, "transformer", {"tokenizer": {"kind": "words", "min_frequency": 10**6}}, "no token but the special")
            for task in ("language-model", "masked-language-model", "translation", "classification", "tagging")
        ),
        ("language-model", "transformer", {"model.vocab_size": 10**13}, "needs more memory than this machine has"),
        ("language-model", "recurrent", {"model.decoder.model_dim": 10**25}, "needs more memory than this machine has"),
        ("language-model", "recurrent", {"batch.rows.max_length": 10**25}, "batch.rows.max_length: expected less than"),
        ("translation", "transformer", {"model.vocab_size": 10}, "model.vocab_size = 10, but the tokeniser has"),
        ("language-model", "recurrent", {"train.freeze": ["embedding", "decoder"]}, "leaves no weight to train"),
    ],
)
def test_training_refuses_with_a_sentence(
    task: str, family: str, override: dict[str, object], sentence: str, corpora: Path, tmp_path: Path
) -> None:
    path = write_config(tmp_path, corpora, task, family, "steps = 2")
    with pytest.raises(SeqloomError, match=sentence):
        train(path, override, out=tmp_path / "run", monitor=QUIET)


@pytest.mark.parametrize(
    ("family", "override"),
    [
        ("transformer", {"train.sharding": "full"}),
        ("recurrent", {"train.precision": "float16", "model.encoder.cell": "gru", "model.decoder.cell": "gru"}),
        ("transformer", {"target_frame.before": ["cls", "bos"], "target_frame.after": "sep"}),
        ("transformer", {"model.decoder.positions": {"kind": "learned", "table": 12}}),
        ("transformer", {"model.vocab_size": 1000}),
    ],
)
def test_training_and_translating_work(family: str, override: dict[str, object], corpora: Path, tmp_path: Path) -> None:
    path = write_config(tmp_path, corpora, "translation", family, "steps = 2")
    path.write_text(path.read_text() + 'judge_by = "bleu"\n')
    run = train(path, override, out=tmp_path / "run", monitor=QUIET)
    assert isinstance(seqloom.load(run).translate("the cat sees a dog .").text, str)


@pytest.mark.parametrize("label", ["1e39", "-1e39", "1e30", "1e400", "nan", "inf", "1,5", "0x10", "one"])
def test_a_label_that_is_no_usable_number_is_refused_with_its_place(label: str, corpora: Path, tmp_path: Path) -> None:
    path = write_config(tmp_path, corpora, "classification", "recurrent", "steps = 1")
    (tmp_path / "numbers.tsv").write_text(f"text\tlabel\na b\t1\nc d\t{label}\n")
    files = {"data.labels": "numbers", "data.train.files": "numbers.tsv", "data.valid": []}
    with pytest.raises(SeqloomError, match=rf"numbers\.tsv:3: bad_value: the label \"{label}\" is"):
        train(path, files, out=tmp_path / "run", monitor=QUIET)


def test_no_flipped_bit_of_a_configuration_makes_a_traceback(corpora: Path, tmp_path: Path) -> None:
    path = write_config(tmp_path, corpora, "classification", "recurrent", "steps = 1")
    text = path.read_bytes()
    for place in range(0, 8 * len(text), 13):
        damaged = bytearray(text)
        damaged[place // 8] ^= 1 << place % 8
        path.write_bytes(damaged)
        with suppress(SeqloomError):
            load(path)


def test_no_flipped_bit_of_a_runs_configuration_makes_a_traceback(runs: Runs, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    shutil.copytree(runs("classification"), folder)
    (folder / "manifest.json").unlink()  # its hashes would find out
    path = folder / "config.toml"
    text = path.read_bytes()
    for place in range(0, 8 * len(text), 41):
        damaged = bytearray(text)
        damaged[place // 8] ^= 1 << place % 8
        path.write_bytes(damaged)
        with suppress(SeqloomError):
            load_resolved(path)
    path.write_bytes(b"\xff\xfe" + text)
    with pytest.raises(SeqloomError, match=r"config\.toml"):
        seqloom.load(folder / "checkpoints" / "best" if (folder / "checkpoints" / "best").exists() else folder)


def test_a_model_without_its_manifest_is_not_verified(runs: Runs, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    shutil.copytree(runs("classification"), folder)
    assert not [verdict for verdict in verify(folder) if verdict.fault]
    (folder / "manifest.json").unlink()
    assert next(verdict.fault for verdict in verify(folder) if verdict.part == "model").endswith(
        "is missing, so nothing vouches for the model"
    )


@pytest.mark.parametrize("words", [["a", "b"], ["a b", "c"], [], ["", "a"]])
def test_words_are_tagged_as_they_are_given(words: list[str], runs: Runs) -> None:
    tagged = seqloom.load(runs("tagging")).tag([words])
    assert tagged[0].words == tuple(words)
    assert len(tagged[0].tags) == len(words)


@pytest.mark.parametrize(
    ("arguments", "shell", "code", "sentence"),
    [
        (("tokenizer", "encode", "{run}/tokenizer.json"), "<&-", 1, "error: standard input is closed; give a file"),
        (("--version",), "<&-", 0, ""),
        (("--version",), ">&-", 1, "error: standard output is closed; send it to a file"),
        (("--version",), "2>&-", 0, ""),
        (("schema",), "> /dev/full", 1, "error: standard output: cannot be written: No space left on device"),
        (("schema",), "| (exec <&-; sleep 2); exit ${PIPESTATUS[0]}", 0, ""),
        (("translate", "{run}"), "| (exec <&-; sleep 3); exit ${PIPESTATUS[0]}", 0, ""),
        (("check", "{run}/config.toml", "--no-forecast"), "| (exec <&-; sleep 4); exit ${PIPESTATUS[0]}", 0, ""),
    ],
)
def test_closed_streams(arguments: tuple[str, ...], shell: str, code: int, sentence: str, runs: Runs) -> None:
    done = run_command(*(part.replace("{run}", str(runs("translation"))) for part in arguments), shell=shell)
    assert "Traceback" not in done.stderr
    assert sentence in done.stderr
    assert done.returncode == code, done.stderr


@pytest.mark.parametrize("failure", [OSError("no room"), KeyError("gone"), OverflowError("too large")])
def test_no_report_fails_a_run(
    failure: Exception,
    corpora: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def fail(*_: object) -> Path:
        raise failure

    monkeypatch.setattr(job, "write_report", fail)
    path = write_config(tmp_path, corpora, "classification", "recurrent", "steps = 1")
    run = job.train(path, out=tmp_path / "run", monitor=PlainMonitor(Console(width=200)))
    assert run.weights.exists()
    assert f"the run is finished, but its report could not be written: {failure}" in capsys.readouterr().out
