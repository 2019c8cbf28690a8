"""`seqloom eval` as a user runs it: every task, two runs, outputs without a model, and what it refuses."""

import json
import math
import shutil
from pathlib import Path
from typing import Any

import pytest
from sacrebleu.metrics.bleu import BLEU

from forked import Done, seqloom
from small_corpora import write_config
from small_runs import TRAIN, Runs

METRICS = {
    "translation": ["bleu", "chrf", "ter", "exact_match"],
    "classification": ["accuracy", "macro_f1"],
    "regression": ["pearson", "spearman"],
    "tagging": ["accuracy"],
    "language-model": ["perplexity", "bits_per_byte"],
    "bidirectional-language-model": ["perplexity", "bits_per_byte"],
    "masked-language-model": ["pseudo_perplexity"],
}
TRAINED_BY = {"translation": "bleu", "classification": "accuracy", "regression": "pearson", "tagging": "accuracy"}
FEW = ("--samples", 50)


def card(*arguments: object) -> dict[str, Any]:
    done = seqloom("eval", *arguments, "--json")
    assert done.returncode == 0, done.stderr.decode()
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def values(found: dict[str, Any], key: str = "metrics") -> dict[str, float]:
    return {one["name"]: one["value"] for one in found[key]}


def refused(done: Done, code: int = 1) -> str:
    assert (done.returncode, done.stdout) == (code, b"")
    said = done.stderr.decode()
    assert "Traceback" not in said
    return said


@pytest.mark.parametrize("task", METRICS)
def test_every_task_has_its_metrics_with_intervals(task: str, runs: Runs, corpora: Path) -> None:
    found = card(runs(task), *FEW)
    assert found["records"] == 60
    assert [one["name"] for one in found["metrics"]] == METRICS[task]
    for one in found["metrics"]:
        assert one["low"] <= one["value"] <= one["high"]
    ending = {"translation": "source", "classification": "tsv", "regression": "numbers.tsv", "tagging": "conll"}
    assert found["files"] == [str(corpora / f"valid.{ending.get(task, 'txt')}")]
    if task in TRAINED_BY:  # the numbers that training watched, of the same sentences
        log = [json.loads(line) for line in (runs(task) / "log.jsonl").read_text().splitlines()]
        watched = [line["valid"][TRAINED_BY[task]] for line in log if "valid" in line]
        assert found["metrics"][0]["value"] == pytest.approx(max(watched), abs=1e-3)


@pytest.mark.parametrize("task", ["translation", "classification", "regression", "tagging", "language-model"])
def test_files_that_are_named_are_the_same_files(task: str, runs: Runs, corpora: Path, tmp_path: Path) -> None:
    endings = {
        "translation": ["source", "target"],
        "classification": ["tsv"],
        "regression": ["numbers.tsv"],
        "tagging": ["conll"],
    }
    files = [corpora / f"valid.{ending}" for ending in endings.get(task, ["txt"])]
    named = card(runs(task), "--data", *files, *FEW)
    assert named == card(runs(task), *FEW)
    if task == "translation":
        table = tmp_path / "pairs.tsv"
        pairs = zip(*(file.read_text().splitlines() for file in files), strict=True)
        table.write_text("".join(f"{source}\t{target}\n" for source, target in pairs))
        assert values(card(runs(task), "--data", table, *FEW)) == values(named)


def test_a_translation_is_scored_as_sacrebleu_scores_what_translate_writes(
    runs: Runs, corpora: Path, tmp_path: Path
) -> None:
    run, sources, references = runs("translation"), corpora / "valid.source", tmp_path / "references"
    references.write_text((corpora / "valid.target").read_text().replace("MOUSE THE", "MICE, MANY, THE"))
    search = ("--beam", 3, "--length-penalty", 0.5)
    outputs = tmp_path / "outputs"
    outputs.write_bytes(seqloom("translate", run, sources, *search).stdout)
    written, right = outputs.read_text().splitlines(), references.read_text().splitlines()
    assert written != right
    found = card(run, "--data", sources, references, *search, "--metrics", "bleu", *FEW)
    (bleu,) = found["metrics"]
    peer = BLEU(force=True)
    assert bleu["value"] == pytest.approx(peer.corpus_score(written, [right]).score)
    assert bleu["signature"] == str(peer.get_signature())
    again = card("--outputs", outputs, "--references", references, "--metrics", "bleu", *FEW)
    assert again["metrics"] == found["metrics"]
    tokenized = card("--outputs", outputs, "--references", references, "--tokenized", *FEW)
    assert "tok:none" in tokenized["metrics"][0]["signature"]


def test_a_language_model_is_as_perplexed_as_its_scores_say(runs: Runs, corpora: Path) -> None:
    run, file = runs("language-model"), corpora / "valid.txt"
    lines = [json.loads(line) for line in seqloom("score", run, file, "--json").stdout.splitlines()]
    total = sum(line["log_probability"] for line in lines)
    tokens = sum(score is not None for line in lines for score in line["token_scores"])
    found = values(card(run, "--data", file, *FEW))
    assert found["perplexity"] == pytest.approx(math.exp(-total / tokens), rel=1e-5)
    assert found["bits_per_byte"] == pytest.approx(
        -total / math.log(2) / sum(line["num_bytes"] for line in lines), rel=1e-5
    )


def test_labels_are_told_one_by_one(runs: Runs, tmp_path: Path) -> None:
    data = tmp_path / "data.tsv"
    data.write_text("text\tlabel\na cat sees the dog .\tshort\nthe horse likes the mouse .\tlong\nthe cat\todd\n")
    done = seqloom("eval", runs("classification"), "--data", data, *FEW)
    assert done.returncode == 0
    assert "note: the model knows no label odd" in done.stderr.decode()
    table = [line.split() for line in done.stdout.decode().splitlines()]
    assert table[0] == ["classification:", "3", "records", "of", str(data)]
    assert ["label", "precision", "recall", "f1", "wanted", "given"] in table
    assert ["odd", "0.0000", "0.0000", "0.0000", "1", "0"] in table
    found = card(runs("classification"), "--data", data, *FEW)
    assert {row["label"]: row["wanted"] for row in found["labels"]} == {"short": 1, "long": 1, "odd": 1}
    assert sum(found["confusions"]["odd"].values()) == 1


def test_two_runs_are_compared_on_the_same_data(runs: Runs, corpora: Path) -> None:
    run = runs("language-model")
    same = card(run, "--against", run, *FEW)
    assert [(one["difference"], one["p"]) for one in same["comparisons"]] == [(0, 1), (0, 1)]
    other = card(run, "--against", runs("language-model/recurrent"), *FEW)
    for one in other["comparisons"]:
        assert one["difference"] == pytest.approx(
            values(other)[one["name"]] - values(other, "against")[one["name"]], abs=1e-9
        )
        assert one["low"] <= one["difference"] <= one["high"]
    assert values(other, "against") == values(card(runs("language-model/recurrent"), *FEW))
    printed = seqloom("eval", run, "--against", run, *FEW).stdout.decode()
    assert printed.splitlines()[2].split()[-5:] == ["against", "difference", "95%", "interval", "p"]


def test_likelihoods_of_different_things_are_not_compared(runs: Runs) -> None:
    done = seqloom("eval", runs("language-model"), "--against", runs("running-text"), "--json", *FEW)
    found = json.loads(done.stdout)
    assert values(found, "against").keys() == {"perplexity", "bits_per_byte"}
    assert "comparisons" not in found
    told = done.stderr.decode()  # one of them predicts first words, too
    assert "note: perplexity does not say which system is better: it is a mean over tokens" in told
    assert "note: bits_per_byte does not say which system is better" in told


def test_outputs_are_compared_without_a_model(tmp_path: Path) -> None:
    right = [f"The {animal} sees {number} mice, and more." for animal in ("cat", "dog") for number in range(20)]
    systems = {
        "right": right,
        "good": [line.replace("more", "cheese") if number % 4 == 0 else line for number, line in enumerate(right)],
        "poor": ["There is nothing, really."] * 40,
    }
    for name, lines in systems.items():
        (tmp_path / name).write_text("".join(line + "\n" for line in lines))
    paths = {name: tmp_path / name for name in systems}
    found = card(
        "--outputs", paths["good"], "--references", paths["right"], "--against-outputs", paths["poor"], "--samples", 200
    )
    assert {one["name"]: one["p"] < 0.05 for one in found["comparisons"]} == dict.fromkeys(METRICS["translation"], True)
    two = card("--outputs", paths["poor"], "--references", paths["right"], paths["poor"], *FEW)
    assert values(two)["bleu"] == pytest.approx(100)
    assert "nrefs:2" in two["metrics"][0]["signature"]


def test_tokenised_text_is_refused_until_told(runs: Runs, corpora: Path, tmp_path: Path) -> None:
    written, tokenised = tmp_path / "written", tmp_path / "tokenised"
    written.write_text("A dog, a cat.\nIt isn't so.\n" * 5)
    tokenised.write_text("A dog , a cat .\nIt is n't so .\n" * 5)
    said = refused(seqloom("eval", "--outputs", tokenised, "--references", written, *FEW))
    assert 'output 1 is "A dog , a cat ."' in said
    assert 'reference 1 is "A dog, a cat."' in said
    assert "set --tokenized" in said
    assert "references are tokenised" in refused(seqloom("eval", "--outputs", written, "--references", tokenised, *FEW))
    (bleu, *_) = card("--outputs", tokenised, "--references", written, "--tokenized", *FEW)["metrics"]
    assert "tok:none" in bleu["signature"]
    assert bleu["value"] < 50
    both = seqloom("eval", "--outputs", tokenised, "--references", tokenised, *FEW)
    assert both.returncode == 0
    assert "note: the texts are tokenised (reference 1)" in both.stderr.decode()
    pieces = tmp_path / "pieces"
    pieces.write_text((corpora / "valid.target").read_text().replace(" ", " ▁"))
    said = refused(seqloom("eval", runs("translation"), "--data", corpora / "valid.source", pieces, *FEW))
    assert "the references are tokenised, the outputs are not" in said


def test_a_run_finds_its_data_again(corpora: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Names are relative to the folder of the configuration, wherever one stands and wherever the two are moved."""
    home = tmp_path / "home"
    (home / "texts").mkdir(parents=True)
    for split in ("train", "valid"):
        shutil.copy(corpora / f"{split}.tsv", home / "texts")
    write_config(home, corpora, "classification", "transformer", TRAIN.format(steps=3))
    (config,) = home.glob("*.toml")
    config.write_text(config.read_text().replace(f"{corpora}/", "texts/"))
    monkeypatch.chdir(home)
    assert seqloom("train", config.name, "--out", "runs/one").returncode == 0
    expected = values(card("runs/one", *FEW))
    monkeypatch.chdir("/")
    moved = tmp_path / "moved"
    home.rename(moved)
    assert values(card(moved / "runs/one", *FEW)) == expected
    (moved / "texts" / "valid.tsv").rename(moved / "texts" / "test.tsv")
    said = refused(seqloom("eval", moved / "runs/one"))
    assert f"{moved / 'texts/valid.tsv'}: there is no such file" in said
    assert "data.valid in" in said
    assert "name the files to evaluate on" in said
    assert values(card(moved / "runs/one", "--data", moved / "texts/test.tsv", *FEW)) == expected
    shutil.rmtree(moved / "runs/one/data")  # it may be deleted; then the current folder is as good a guess as any
    (moved / "texts" / "test.tsv").rename(moved / "texts" / "valid.tsv")
    assert "no such file" in refused(seqloom("eval", moved / "runs/one"))
    monkeypatch.chdir(moved)
    assert values(card("runs/one", *FEW)) == expected


def test_spans_have_their_f1(corpora: Path, tmp_path: Path) -> None:
    parts = {"DET": "B-NP", "NOUN": "I-NP", "VERB": "O", "PUNCT": "O"}
    for split in ("train", "valid"):
        text = (corpora / f"{split}.conll").read_text()
        for tag, part in parts.items():
            text = text.replace(f" {tag}\n", f" {part}\n")
        (tmp_path / f"{split}.conll").write_text(text)
    path = write_config(tmp_path, tmp_path, "tagging", "transformer", TRAIN.format(steps=40))
    assert seqloom("train", path, "--out", tmp_path / "run").returncode == 0
    found = card(tmp_path / "run", *FEW)
    assert list(values(found)) == ["accuracy", "span_f1"]
    assert values(found)["span_f1"] > 0.9
    assert [(row["label"], row["wanted"]) for row in found["labels"]] == [("NP", 120)]
    odd = tmp_path / "odd.conll"  # a word with white space inside is one word
    odd.write_text("a\u00a0b\tB-NP\ncat\tI-NP\n\n")
    assert card(tmp_path / "run", "--data", odd, *FEW)["records"] == 1


def test_what_cannot_be_done_is_said(runs: Runs, corpora: Path, tmp_path: Path) -> None:
    short = tmp_path / "short"
    short.write_text("a\nb\n")
    run = runs("translation")
    source = corpora / "valid.source"
    assert f"60 lines, but {short} has 2" in refused(seqloom("eval", run, "--data", source, short))
    unequal = refused(seqloom("eval", "--outputs", source, "--references", short))
    assert f"{source} has 60 lines, but {short} has 2" in unequal
    assert "its configuration has no data.test" in refused(seqloom("eval", run, "--split", "test"))
    assert "no such file" in refused(seqloom("eval", runs("tagging"), "--data", tmp_path / "nowhere"))
    assert "give two, source and target" in refused(seqloom("eval", run, "--data", short, short, short), 2)
    assert "rouge is not a metric of this task; it has bleu, chrf" in refused(
        seqloom("eval", run, "--metrics", "rouge"), 2
    )
    assert "only translation models search" in refused(seqloom("eval", runs("tagging"), "--beam", 2), 2)
    assert "cannot be compared" in refused(seqloom("eval", run, "--against", runs("tagging")), 2)
    assert "(pearson, spearman)" in refused(seqloom("eval", runs("classification"), "--against", runs("regression")), 2)
    assert "name a RUN" in refused(seqloom("eval"), 2)
    assert "name a RUN" in refused(seqloom("eval", "--outputs", short), 2)
    assert "--references goes with --outputs" in refused(seqloom("eval", run, "--references", short), 2)
    assert "--beam goes with a RUN" in refused(
        seqloom("eval", "--outputs", short, "--references", short, "--beam", 2), 2
    )
    assert "--samples" in refused(seqloom("eval", runs("tagging"), "--samples", 0), 2)
    empty = tmp_path / "empty"
    empty.write_text("")
    assert "the file is empty" in refused(seqloom("eval", runs("language-model"), "--data", empty))
    blank = tmp_path / "blank"
    blank.write_text("\n\n")
    assert "no text has a token" in refused(seqloom("eval", runs("language-model"), "--data", blank))
