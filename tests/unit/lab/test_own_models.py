"""Experiments on models of one's own: of every family where it makes sense, and a sentence where it does not."""

import json
from pathlib import Path

import pytest
import torch

from contracts.random_models import find_folder
from forked import Done, seqloom
from seqloom.lab import attention, bottleneck, context, cost, heads, pairs, probe  # noqa: F401 - so that forked commands need not
from unit.lens.test_roles import make_induction_model

pytestmark = pytest.mark.usefixtures("as_users_run")
ATTENDING = {
    "language-model/transformer": "decoder.1.head.0",
    "language-model/window": "decoder.1.head.0",
    "masked-language-model/transformer": "encoder.1.head.0",
    "tagging/transformer": "encoder.1.head.0",
    "translation/transformer": "decoder.1.cross.0",
    "translation/additive": "decoder.1.cross.0",
    "translation/recurrent": "decoder.lookup",
    "translation/convolutional": "decoder.1.cross.0",
}
"""Models that attend, and the head that is shown unless another is asked for."""
GROUPS = ("1 to 2", "3 to 4", "5 to 6", "7 to 8", "9 to 10")
NOT_ATTENDING = ("language-model/recurrent", "language-model/convolutional", "tagging/recurrent")


def conduct(folder: Path, *arguments: object) -> Done:
    return seqloom("lab", *arguments, "--out", folder)


def read(done: Done, folder: Path, name: str) -> str:
    assert done.returncode == 0, done.stderr.decode()
    assert {path.suffix for path in folder.iterdir()} == {".md", ".svg", ".json"}
    return (folder / f"{name}.md").read_text(encoding="utf-8")


def test_the_steps_of_a_head_lead_to_its_weights(tmp_path: Path) -> None:
    for name, head in ATTENDING.items():
        text = "w1 w2 [MASK] w4" if name.startswith("masked") else "w1 w2 w3 w2"
        page = read(
            conduct(tmp_path / head / name, "attention", find_folder(name), text), tmp_path / head / name, "attention"
        )
        assert f"**{head} at “" in page, name
        table = [line.split(" | ") for line in page.partition("| token |")[2].partition("\n\n")[0].splitlines()[2:]]
        scores, weights = (torch.tensor([float(row[at].strip(" |")) for row in table]) for at in (1, 2))
        torch.testing.assert_close(scores.softmax(0), weights, rtol=0.0, atol=2e-3)


@pytest.mark.parametrize("name", NOT_ATTENDING)
def test_a_model_without_attention_is_answered_with_a_sentence(name: str, tmp_path: Path) -> None:
    shown = conduct(tmp_path, "attention", find_folder(name), "w1 w2 w3")
    assert (shown.returncode, shown.stdout) == (1, b"")
    assert b"error: this model does not attend to anything" in shown.stderr
    described = conduct(tmp_path, "heads", find_folder(name))
    assert (described.returncode, described.stdout) == (1, b"")
    assert b"error: this model has no layer whose positions attend to each other" in described.stderr


def test_the_heads_of_ones_own_model_are_found(tmp_path: Path) -> None:
    make_induction_model().save(tmp_path / "run")
    page = read(conduct(tmp_path / "page", "heads", tmp_path / "run"), tmp_path / "page", "heads")
    claims = json.loads((tmp_path / "page" / "heads.json").read_text())["claims"]
    assert all(claim["holds"] for claim in claims)
    assert "decoder.1.head.0" in page


@pytest.mark.parametrize(
    "name", ["language-model/recurrent", "bidirectional-language-model/recurrent", "tagging/transformer"]
)
def test_vectors_of_ones_own_words_are_compared(name: str, tmp_path: Path) -> None:
    texts = ("w1 w2 w3", "w5 w2 and")
    page = read(conduct(tmp_path, "context", "w2", *texts, find_folder(name)), tmp_path, "context")
    assert "| w2 to itself | 1.00 |" in page
    assert "does not know 1 of the 6 tokens of these texts" in page


def test_every_layer_of_ones_own_model_is_probed(tmp_path: Path) -> None:
    tagged = tmp_path / "tagged.conll"
    tagged.write_text("".join(f"w{n % 5 + 3}\t{'AB'[n % 2]}\nw{n % 4 + 8}\tC\n\n" for n in range(40)))
    page = read(
        conduct(tmp_path / "page", "probe", find_folder("language-model/transformer"), "--data", tagged),
        tmp_path / "page",
        "probe",
    )
    assert "| accuracy |" in page
    assert "does not know" not in page
    assert "layer 2" in page


def test_of_words_with_one_tag_nothing_is_said_about_ambiguous_ones(tmp_path: Path) -> None:
    tagged = tmp_path / "tagged.conll"
    tagged.write_text("".join(f"w{n % 5 + 3}\tA\nw{n % 4 + 8}\tB\n\n" for n in range(40)))
    run = find_folder("language-model/transformer")
    page = read(
        conduct(tmp_path / "page", "probe", run, "--data", tagged, "--sentences", 30), tmp_path / "page", "probe"
    )
    assert "No word that was tested has several tags" in page
    assert "ambiguous word" not in page  # neither a row of zeros nor a verdict
    assert f"Made by `seqloom lab probe {run} --data tagged.conll --sentences 30`" in page


def test_pairs_are_asked_of_language_models_of_every_kind(tmp_path: Path) -> None:
    asked = tmp_path / "pairs.jsonl"
    lines = [{"UID": "known", "sentence_good": "w3 w4", "sentence_bad": "w4 w3"}]
    lines += [{"UID": "unknown", "sentence_good": "the dogs", "sentence_bad": "the dog"}]
    asked.write_text("".join(json.dumps(line) + "\n" for line in lines))
    names = (
        "language-model/convolutional",
        "masked-language-model/recurrent",
        "bidirectional-language-model/recurrent",
    )
    folders = [find_folder(name) for name in names]
    page = read(conduct(tmp_path / "page", "pairs", *folders, "--data", asked), tmp_path / "page", "pairs")
    assert "| unknown | 1 | 0.50 | 0.50 | 0.50 |" in page
    assert page.count("reads both sentences of 1 of 2 pairs alike") == 3
    assert "--data pairs.jsonl`" in page
    refused = conduct(tmp_path, "pairs", find_folder("translation/transformer"))
    assert refused.returncode == 1
    assert b"minimal pairs need a language model" in refused.stderr


def test_bleu_of_ones_own_translators_is_shown_by_length(tmp_path: Path) -> None:
    files = tmp_path / "source.txt", tmp_path / "target.txt"
    for number, path in enumerate(files):
        path.write_text("".join(" ".join(["w3"] * (n % 10 + 1 + number)) + "\n" for n in range(40)))
    names = ("translation/recurrent", "translation/additive")
    folders = [find_folder(name) for name in names]
    page = read(conduct(tmp_path / "page", "bottleneck", *folders, "--data", *files), tmp_path / "page", "bottleneck")
    table = page.partition("| words |")[2].partition("\n\n")[0].splitlines()[2:]
    assert [row.split(" | ")[:2] for row in table] == [["| " + words, "8"] for words in GROUPS]
    assert all(row.count(" to ") == 3 for row in table)  # of lengths, and an interval for each model
    assert "says little of sources that are shorter" in page
    refused = conduct(tmp_path, "bottleneck", find_folder("tagging/recurrent"), "--data", *files)
    assert refused.returncode == 1
    assert b"BLEU by length needs a translation model" in refused.stderr


def test_words_beside_ones_own_word_have_lines_of_their_own(tmp_path: Path) -> None:
    texts, run = ("w1 w2 w3", "w5 w2 w4"), find_folder("masked-language-model/transformer")
    page = read(conduct(tmp_path, "context", "w2", *texts, run, "--with", "w3", "--with", "w4"), tmp_path, "context")
    assert "| w2 to w3 |" in page
    assert f"Made by `seqloom lab context w2 'w1 w2 w3' 'w5 w2 w4' {run} --with w3 --with w4`" in page
    assert page.index("| w2 to w4 |") < page.index("| w2 to the words around it |")
    absent = conduct(tmp_path, "context", "w2", *texts, run, "--with", "w9")
    assert absent.returncode == 1
    assert "“w9” does not stand beside “w2”" in absent.stderr.decode()


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["heads", "{run}", "--seeds", "3"], "lab heads: --seeds would change nothing for runs of one's own"),
        (["attention", "--head", "1"], "lab attention: --head would change nothing without a run"),
        (["attention", "{run}"], "lab attention: give a text after the run"),
        (["attention", "{run}", "w1", "--head", "9"], "head: decoder.1 has 2, counted from 0, so there is no 9"),
        (["attention", "{run}", "w1", "--stack", "cross"], "stack: this model attends in decoder, not in cross"),
        (["context", "w1", "w1 w2", "{run}"], "lab context: give a word, at least two texts that contain it"),
        (["context", "w1", "w1 w2", "w1 w3", "no-run"], "the folder of a run; there is no folder no-run"),
        (["context", "--with", "w1"], "lab context: --with would change nothing without a run"),
        (["bottleneck", "--data", "source", "target"], "lab bottleneck: --data would change nothing without a run"),
        (["scale", "--set", "dims=[]"], "lab scale: dims must have at least one value"),
        (["scale", "--set", "dims=[4, 4]"], "lab scale: dims has 4 more than once"),
        (["cost", "--set", "counted_dims=[16]"], "an exponent is fitted to at least two sizes"),
        (["probe", "{run}"], "lab probe: say with --data which tagged sentences"),
        (["all", "--set", "steps=1"], "lab all: parameters belong to one experiment"),
        (["scale", "--set", "queries=0"], "queries: expected greater than 0, not 0"),
    ],
)
def test_wrong_usage_is_said(arguments: list[str], sentence: str, tmp_path: Path) -> None:
    run = str(find_folder("language-model/transformer"))
    done = conduct(tmp_path, *(one.format(run=run) for one in arguments))
    assert (done.returncode, done.stdout) == (2, b"")
    assert sentence in done.stderr.decode()
    assert "Traceback" not in done.stderr.decode()


def test_a_place_where_nothing_can_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    done = conduct(tmp_path / "file" / "page", "attention")
    assert (done.returncode, done.stdout) == (2, b"")
    assert "no page can be written there" in done.stderr.decode()
