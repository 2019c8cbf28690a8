"""The verbs as a user runs them: in pipes, on broken files, killed and resumed."""

import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from forked import seqloom, start
from seqloom.predict.load import load
from small_corpora import sentences
from small_runs import Runs

BROKEN = (
    b"the cat sees the dog .\n\nthe \xff horse\na mouse finds the sheep .\nnul \x00 here\r\nthe bird hears the fish ."
)
"""Six lines: good, empty, not UTF-8, good, with a NUL, good without a line end."""
VERBS = {
    "translate": "translation",
    "generate": "running-text",
    "score": "language-model",
    "fill": "masked-language-model",
    "classify": "classification",
    "tag": "tagging",
    "embed": "tagging",
}


@pytest.mark.parametrize("verb", VERBS)
def test_line_n_in_is_line_n_out(verb: str, runs: Runs) -> None:
    done = seqloom(verb, runs(VERBS[verb]), "--json", stdin=BROKEN)
    objects = [json.loads(line) for line in done.stdout.splitlines()]
    assert [o["line"] for o in objects] == [1, 2, 3, 4, 5, 6]
    assert [o.get("error") for o in objects] == [None, None, "bad_utf8", None, "nul", None]
    assert done.returncode == 1
    told = done.stderr.decode()
    assert "line 3: failed: bad_utf8: byte 0xff at byte 5" in told
    assert f"{verb}: 2 lines failed" in told
    assert "Traceback" not in told
    if verb != "embed":
        plain = seqloom(verb, runs(VERBS[verb]), stdin=BROKEN)
        lines = plain.stdout.decode().split("\n")
        assert lines[4] == "[failed: nul]"
        assert (lines[1] == "") == (verb != "generate"), "a text whose prompt is blank begins with nothing"
        assert lines[2] == "[failed: bad_utf8]"
        assert len(lines) == 7


def test_streamed_text_is_the_same_text(runs: Runs) -> None:
    given = ("generate", runs("running-text"), "--sample", "--max-length", "6")
    whole, bits = seqloom(*given, stdin=BROKEN), seqloom(*given, "--stream", stdin=BROKEN)
    assert bits.stdout == whole.stdout != b""
    assert (bits.returncode, bits.stderr) == (whole.returncode, whole.stderr)
    refused = seqloom(*given, "--stream", "--json", stdin=BROKEN)
    assert refused.returncode == 2
    assert b"--stream" in refused.stderr


def test_verify_uses_the_model_if_asked(runs: Runs, tmp_path: Path) -> None:
    done = seqloom("verify", runs("tagging"), "--deep", "--json")
    assert done.returncode == 0
    assert b"lines of the valid data" in done.stderr
    verdicts = {verdict["part"]: verdict for verdict in json.loads(done.stdout)}
    assert {"model", "embed", "tag"} <= verdicts.keys()
    assert 0 <= verdicts["tag"]["difference"] <= 1e-5
    (tmp_path / "lines").write_text("the cat sees the dog .\na bird\n", encoding="utf-8")
    done = seqloom("verify", runs("tagging"), "--deep", "--lines", tmp_path / "lines")
    assert b"tag: ok (2 lines, largest difference" in done.stdout
    shutil.copytree(runs("tagging"), tmp_path / "run")
    (tmp_path / "run" / "labels.json").write_text("[]", encoding="utf-8")
    done = seqloom("verify", tmp_path / "run", "--deep")
    assert (done.returncode, b"tag" in done.stdout, b"Traceback" in done.stderr) == (1, False, False)
    assert seqloom("verify", runs("tagging"), "--lines", tmp_path / "lines").returncode == 2


def test_good_lines_are_no_failure(runs: Runs, tmp_path: Path) -> None:
    (tmp_path / "in").write_text("the cat sees the dog .\n\n", encoding="utf-8")
    done = seqloom("tag", runs("tagging"), tmp_path / "in")
    assert (done.returncode, done.stdout, done.stderr) == (0, b"DET NOUN VERB DET NOUN PUNCT\n\n", b"")
    assert seqloom("tag", runs("tagging")).stdout == b""
    missing = seqloom("tag", runs("tagging"), tmp_path / "nowhere")
    assert (missing.returncode, missing.stdout) == (1, b"")
    assert b"cannot be read" in missing.stderr


def test_a_pipe_answers_each_line_as_it_comes(runs: Runs) -> None:
    command = [sys.executable, "-m", "seqloom", "tag", str(runs("tagging"))]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        for text, tags in ((b"the cat\n", b"DET NOUN\n"), (b"\n", b"\n"), (b"the dog .\n", b"DET NOUN PUNCT\n")):
            process.stdin.write(text)
            process.stdin.flush()
            assert process.stdout.readline() == tags
        process.stdin.close()
    assert process.returncode == 0


def test_a_long_line_is_flagged_and_whole(runs: Runs) -> None:
    long = " ".join(sentences(12, seed=4))
    done = seqloom("tag", runs("tagging"), stdin=f"the cat\n{long}\n".encode())
    assert done.returncode == 0
    assert len(done.stdout.splitlines()[1].split()) == 72
    assert "line 2: too long for the model: processed in 3 pieces" in done.stderr.decode()
    assert "tag: 1 line split" in done.stderr.decode()


def test_sentences_of_a_line_are_translated_one_by_one(runs: Runs, tmp_path: Path) -> None:
    given = tmp_path / "in"
    given.write_text("the cat sees a dog . a bird likes the fish .\nthe cat sees a dog .\n", encoding="utf-8")
    run, out = runs("translation"), tmp_path / "out"
    done = seqloom("translate", run, given, "--json", "-o", out)
    assert done.returncode == 0
    assert "translate: 1 line of several sentences" in done.stderr.decode()
    both, one = (json.loads(line) for line in out.read_bytes().splitlines())
    assert [(o["pieces"], o["sentences"]) for o in (both, one)] == [(2, 2), (1, 1)]
    assert both["text"].startswith(one["text"] + " ")
    whole = seqloom("translate", run, given, "--json", "--split", "line")
    assert json.loads(whole.stdout.splitlines()[0])["pieces"] == 1
    assert b"sentences" not in whole.stderr
    other = seqloom("translate", run, given, "--json", "-o", out, "--resume", "--split", "line")
    assert "was started with other settings (unit)" in other.stderr.decode()
    wrong = seqloom("translate", run, given, "--source-language", "german")
    assert (wrong.returncode, b"Traceback" in wrong.stderr) == (2, False)
    assert 'source_language: "german" is not a BCP 47 language tag' in wrong.stderr.decode()


def test_what_a_model_cannot_do_is_said_before_anything_is_read(runs: Runs) -> None:
    done = seqloom("fill", runs("tagging"))
    assert done.returncode == 1
    assert "trained for tagging: it can tag and embed, not fill" in done.stderr.decode()
    wrong = seqloom("translate", runs("translation"), "--beam", 0)
    assert wrong.returncode == 2
    assert "beam" in wrong.stderr.decode()
    assert seqloom("translate", runs("translation"), "--resume").returncode == 2


def test_answers_can_be_asked_for_in_many_ways(runs: Runs) -> None:
    run, text = runs("translation"), b"the cat sees the dog .\n"

    def ask(*options: object) -> str:
        done = seqloom("translate", run, *options, stdin=text)
        assert done.returncode == 0, done.stderr
        return done.stdout.decode().rstrip("\n")

    assert len(ask("--beam", 4, "--nbest", 3).split("\t")) == 3
    assert ask("--prefix", "A MOUSE").startswith("A MOUSE")
    assert "GOAT" in ask("--beam", 3, "--constraints", "GOAT").split()
    assert "DOG" not in ask("--avoid", "DOG").split()
    assert ask("--sample", "--temperature", 2, "--seed", 3) == ask("--sample", "--temperature", 2, "--seed", 3)
    answer, pairs = ask("--alignments").split(" ||| ")
    assert answer == ask()
    assert [pair.split("-")[1] for pair in pairs.split()] == [str(n) for n in range(len(answer.split()))]


def test_a_translation_is_scored_from_two_files_or_two_columns(runs: Runs, tmp_path: Path) -> None:
    (tmp_path / "s").write_text("the cat sees the dog .\n\n", encoding="utf-8")
    (tmp_path / "t").write_text(". DOG THE SEES CAT THE\n\n", encoding="utf-8")
    run = runs("translation")
    two = seqloom("score", run, tmp_path / "s", "--target", tmp_path / "t")
    columns = seqloom("score", run, stdin=b"the cat sees the dog .\t. DOG THE SEES CAT THE\n\n")
    assert two.returncode == columns.returncode == 0
    assert two.stdout == columns.stdout
    value, empty = two.stdout.decode().splitlines()
    assert float(value) == pytest.approx(
        load(run).score("the cat sees the dog .", ". DOG THE SEES CAT THE").log_probability, abs=1e-4
    )
    assert empty == ""
    alone = seqloom("score", run, stdin=b"no target\n")
    assert (alone.returncode, alone.stdout) == (1, b"[failed: columns]\n")


def test_shots(runs: Runs, tmp_path: Path) -> None:
    (tmp_path / "shots.tsv").write_text("the cat sees the\tdog\na bird hears the\tfish\n\n", encoding="utf-8")
    text = b"the goat likes the\n"
    done = seqloom("classify", runs("running-text"), "--shots", tmp_path / "shots.tsv", "--json", stdin=text)
    assert done.returncode == 0, done.stderr
    answer = json.loads(done.stdout)
    assert answer["probabilities"].keys() == {"dog", "fish"}
    assert answer["label"] in ("dog", "fish")
    (tmp_path / "shots.tsv").write_text("no label\n", encoding="utf-8")
    wrong = seqloom("classify", runs("running-text"), "--shots", tmp_path / "shots.tsv", stdin=text)
    assert "shots.tsv:1: expected a text, a tab and a label" in wrong.stderr.decode()


@pytest.mark.parametrize("ending", ["npy", "parquet", "jsonl"])
def test_vectors_in_every_form(ending: str, runs: Runs, tmp_path: Path) -> None:
    out = tmp_path / f"out.{ending}"
    done = seqloom("embed", runs("tagging"), "-o", out, "--pooling", "max", stdin=BROKEN)
    assert (done.returncode, done.stdout) == (1, b"")
    vectors: Any
    match ending:
        case "npy":
            vectors = np.load(out)
        case "parquet":
            from pyarrow import parquet

            rows = parquet.read_table(out).to_pylist()
            assert [row["error"] for row in rows] == [None, None, "bad_utf8", None, "nul", None]
            vectors = np.array([row["vector"] or [np.nan] * 32 for row in rows], np.float32)
        case _:
            rows = [json.loads(line) for line in out.read_text().splitlines()]
            vectors = np.array([row.get("vector", [np.nan] * 32) for row in rows], np.float32)
    expected = load(runs("tagging")).embed(["the cat sees the dog .", "a mouse finds the sheep ."], pooling="max")
    np.testing.assert_allclose(vectors[[0, 3]], expected, atol=1e-5)
    assert not vectors[1].any()
    assert np.isnan(vectors[[2, 4]]).all()


def test_every_form_holds_all_layers(runs: Runs, tmp_path: Path) -> None:
    from pyarrow import parquet

    model, texts = load(runs("tagging")), ["the cat sees the dog .", "a mouse"]
    (tmp_path / "in.txt").write_text("\n".join(texts) + "\n")
    for ending in ("npy", "parquet", "jsonl"):
        asked = ("embed", runs("tagging"), tmp_path / "in.txt", "--layer", "all", "-o", tmp_path / f"out.{ending}")
        assert seqloom(*asked).returncode == 0
    expected = model.embed(texts, layer="all")
    np.testing.assert_array_equal(np.load(tmp_path / "out.npy"), expected)
    np.testing.assert_array_equal(parquet.read_table(tmp_path / "out.parquet")["vector"].to_pylist(), expected)
    rows = [json.loads(line) for line in (tmp_path / "out.jsonl").read_text().splitlines()]
    np.testing.assert_allclose([row["vector"] for row in rows], expected, rtol=1e-6)
    tokens = ("embed", runs("tagging"), tmp_path / "in.txt", "--layer", "all", "--level", "token")
    assert seqloom(*tokens, "-o", tmp_path / "tokens.parquet").returncode == 0
    read = parquet.read_table(tmp_path / "tokens.parquet")["vectors"].to_pylist()
    for ours, one in zip(read, model.embed(texts, level="token", layer="all"), strict=True):
        np.testing.assert_array_equal(ours, one.vectors)
    wrong = seqloom("embed", runs("tagging"), tmp_path / "in.txt", "--layer", "last")
    assert b"--layer last: give a number, all, mix or concat" in wrong.stderr


def write_lines(path: Path, count: int) -> None:
    rng = random.Random(count)
    lines = [text.encode() for text in sentences(count, seed=3)]
    for number in rng.sample(range(count), count // 50):
        lines[number] = rng.choice((b"\xff\xfe bad", b"nul \x00", b"", b" "))
    path.write_bytes(b"\n".join(lines) + b"\n")


def wait_for(output: Path, size: int) -> None:
    """Until a file is larger than that."""
    while not output.exists() or output.stat().st_size <= size:
        time.sleep(0.002)


def test_a_bulk_job_killed_at_any_moment_resumes_exactly(runs: Runs, tmp_path: Path) -> None:
    write_lines(tmp_path / "in", 6_000)
    output = tmp_path / "broken"
    whole = seqloom("tag", runs("tagging"), tmp_path / "in", "--json", "-o", tmp_path / "whole")
    assert whole.returncode == 1
    job = ("tag", runs("tagging"), tmp_path / "in", "--json", "-o", output, "--resume")
    size = 0
    for _ in range(3):
        process = start(*job)
        wait_for(output, size)
        os.kill(process.pid, signal.SIGKILL)
        assert process.wait().returncode == -signal.SIGKILL
        size = output.stat().st_size
    assert 0 < size < (tmp_path / "whole").stat().st_size
    last = seqloom(*job)
    assert last.returncode == 1
    assert output.read_bytes() == (tmp_path / "whole").read_bytes()
    assert last.stderr.splitlines()[-1] == whole.stderr.splitlines()[-1], "the counts are those of the whole job"
    assert b"other settings (form)" in seqloom("tag", runs("tagging"), tmp_path / "in", "-o", output, "--resume").stderr
    write_lines(tmp_path / "in", 5_000)
    refused = seqloom(*job)
    assert refused.returncode == 1
    assert b"another input" in refused.stderr


def test_control_c_keeps_what_is_done(runs: Runs, tmp_path: Path) -> None:
    write_lines(tmp_path / "in", 4_000)
    output = tmp_path / "out"
    job = ("tag", runs("tagging"), tmp_path / "in", "-o", output, "--resume")
    process = start(*job)
    wait_for(output, 0)
    os.kill(process.pid, signal.SIGINT)
    stopped = process.wait()
    assert stopped.returncode == 130
    assert b"Traceback" not in stopped.stderr
    assert b"--resume continues" in stopped.stderr
    kept = output.read_bytes()
    assert kept.endswith(b"\n")
    assert seqloom(*job).returncode == 1
    assert output.read_bytes().startswith(kept)
    assert output.read_bytes().count(b"\n") == 4_000
