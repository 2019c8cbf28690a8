"""Every task and family: it learns, and a training that was killed ends with the same bits as one that was not."""

import json
import math
import os
import re
import shutil
import signal
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import torch
from rich.console import Console
from safetensors.torch import load_file

import seqloom
from saved_pages import read_page
from seqloom.errors import ConfigError, DataError, RunError
from seqloom.native.library import has_bfloat16
from seqloom.runs.run import Run, TrainingRun
from seqloom.runs.verify import verify
from seqloom.tasks.configuration import load_resolved
from seqloom.training.job import train
from seqloom.training.monitor import PlainMonitor
from small_corpora import DATA, write_config

FAMILIES = ("transformer", "recurrent", "convolutional")


class Silent(PlainMonitor):
    """Prints nowhere; can pull the plug after a step."""

    def __init__(self, kill_at: int = -1) -> None:
        super().__init__(Console(quiet=True))
        self.kill_at = kill_at

    def step(self, progress, outcome, spent) -> None:
        if progress.step == self.kill_at:
            os.kill(os.getpid(), signal.SIGKILL)


def run_and_die(path: Path, out: Path, kill_at: int, overrides: list[str]) -> None:
    """Train in a child process that is killed, with no chance to clean up."""
    child = os.fork()
    if child == 0:
        try:
            train(path, overrides, out=out, monitor=Silent(kill_at))
        finally:
            os._exit(0)
    _, status = os.waitpid(child, 0)
    assert os.WIFSIGNALED(status), "the child ended by itself before it could be killed"


def read_log(run: Run) -> list[dict[str, Any]]:
    return [json.loads(line) for line in run.log.path.read_text().splitlines()]


def valid_of(run: Run) -> list[dict[str, float]]:
    return [line["valid"] for line in read_log(run) if "valid" in line]


def trivial_loss(corpora: Path, task: str) -> float:
    """The loss of the best answer that ignores its input: the frequencies of the training answers."""
    read = lambda name: (corpora / name).read_text().splitlines()  # noqa: E731
    ends = ["<end>"]
    match task:
        case "classification":
            known, asked = ([row.split("\t")[1] for row in read(f"{split}.tsv")[1:]] for split in ("train", "valid"))
        case "tagging":
            known, asked = ([row.split()[1] for row in read(f"{s}.conll") if row] for s in ("train", "valid"))
        case "translation":
            known, asked = ([w for row in read(f"{s}.target") for w in row.split() + ends] for s in ("train", "valid"))
        case _:
            known, asked = ([w for row in read(f"{s}.txt") for w in row.split() + ends] for s in ("train", "valid"))
    counts = Counter(known)
    return -sum(math.log(counts[answer] / len(known)) for answer in asked) / len(asked)


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("task", DATA)
def test_it_learns_more_than_frequencies(task: str, family: str, corpora: Path, tmp_path: Path) -> None:
    path = write_config(
        tmp_path, corpora, task, family, "steps = 100\nlabel_smoothing = 0.0\noptimizer.learning_rate = 0.01"
    )
    run = train(path, out=tmp_path / "run", monitor=Silent())
    assert min(valid["loss"] for valid in valid_of(run)) < 0.8 * trivial_loss(corpora, task)
    assert (run.folder / "model.safetensors").exists()


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("task", DATA)
def test_a_killed_training_ends_with_the_same_bits(task: str, family: str, corpora: Path, tmp_path: Path) -> None:
    path = write_config(tmp_path, corpora, task, family, "steps = 24")
    whole = train(path, out=tmp_path / "whole", monitor=Silent())
    for kill_at in (3, 16):
        run_and_die(path, tmp_path / "broken", kill_at, [])
    broken = train(path, out=tmp_path / "broken", monitor=Silent())
    for name in ("model.safetensors", "log.jsonl", "checkpoints/step-00000024/optimizer.safetensors"):
        assert (whole.folder / name).read_bytes() == (broken.folder / name).read_bytes(), name


@pytest.mark.parametrize(
    "extra",
    [
        'optimizer = "adamw"',
        "ema = 0.9",
        "average = 2",
        'schedule = "plateau"\nvalidate_every = 2',
        "recompute = true",
        pytest.param(
            'precision = "bfloat16"',
            marks=pytest.mark.skipif(not has_bfloat16(), reason="this processor, or its kernels, have no bfloat16"),
        ),
        "accumulate = 2",
        'patience = 1\nvalidate_every = 3\noptimizer = {kind = "adamw", learning_rate = 1e-9}',
    ],
)
def test_every_way_of_training_resumes_exactly(extra: str, corpora: Path, tmp_path: Path) -> None:
    path = write_config(tmp_path, corpora, "tagging", "transformer", f"steps = 12\n{extra}")
    whole = train(path, out=tmp_path / "whole", monitor=Silent())
    run_and_die(path, tmp_path / "broken", 5 if "patience" in extra else 9, [])
    broken = train(path, out=tmp_path / "broken", monitor=Silent())
    assert (whole.folder / "model.safetensors").read_bytes() == (broken.folder / "model.safetensors").read_bytes()
    assert read_log(whole) == read_log(broken)


def weights_of(run: Run, step: int | None = None) -> dict[str, torch.Tensor]:
    folder = run.folder if step is None else run.checkpoints / f"step-{step:08d}"
    return load_file(folder / "model.safetensors")


def test_the_mean_of_the_last_checkpoints_is_their_mean(corpora: Path, tmp_path: Path) -> None:
    path = write_config(tmp_path, corpora, "tagging", "recurrent", "steps = 14\naverage = 2")
    run = train(path, out=tmp_path / "run", monitor=Silent())
    last, before, mean = weights_of(run, 14), weights_of(run, 7), weights_of(run)
    for name, tensor in mean.items():
        torch.testing.assert_close(tensor, (last[name] + before[name]) / 2)


def test_recomputing_changes_nothing_that_is_learned(corpora: Path, tmp_path: Path) -> None:
    path = write_config(tmp_path, corpora, "translation", "transformer", "steps = 4")
    kept, again = (
        train(path, [f"train.recompute={word}"], out=tmp_path / word, monitor=Silent()) for word in ("false", "true")
    )
    for name, tensor in weights_of(kept).items():
        torch.testing.assert_close(weights_of(again)[name], tensor)


def test_a_plateau_halves_the_rate(corpora: Path, tmp_path: Path) -> None:
    extra = 'steps = 12\nschedule = "plateau"\nvalidate_every = 2\noptimizer = {kind = "adamw", learning_rate = 1e-12}'
    run = train(write_config(tmp_path, corpora, "tagging", "recurrent", extra), out=tmp_path / "run", monitor=Silent())
    rates = [line["rate"] for line in read_log(run) if "rate" in line]
    assert rates[5] == 1.0
    assert rates[-1] < 1.0
    assert set(rates[5:]) <= {1.0, 0.5, 0.25, 0.125}


@pytest.mark.parametrize("task", ["translation", "bidirectional-language-model"])
def test_bpe_dropout_resumes_exactly_and_changes_what_is_learned(task: str, corpora: Path, tmp_path: Path) -> None:
    path = write_config(tmp_path, corpora, task, "recurrent", "steps = 12")
    text = path.read_text().replace('{kind = "words", min_frequency = 1}', '{kind = "bpe", size = 300, dropout = 0.3}')
    path.write_text(text)
    whole = train(path, out=tmp_path / "whole", monitor=Silent())
    run_and_die(path, tmp_path / "broken", 9, [])
    broken = train(path, out=tmp_path / "broken", monitor=Silent())
    plain = train(path, ["tokenizer.dropout=0.0"], out=tmp_path / "plain", monitor=Silent())
    weights = [(run.folder / "model.safetensors").read_bytes() for run in (whole, broken, plain)]
    assert weights[0] == weights[1] != weights[2]


@pytest.mark.parametrize("task", ["language-model", "tagging"])
def test_bpe_dropout_is_refused_where_it_cannot_work(task: str, corpora: Path, tmp_path: Path) -> None:
    path = write_config(tmp_path, corpora, task, "recurrent", "steps = 12")
    text = path.read_text().replace('{kind = "words", min_frequency = 1}', '{kind = "bpe", dropout = 0.3}')
    path.write_text(text.replace('{kind = "lines", max_length = 32}', '{kind = "packed", length = 32}'))
    with pytest.raises(ConfigError, match=r"tokenizer\.dropout"):
        train(path, out=tmp_path / "run", monitor=Silent())


def test_a_loss_that_is_not_finite_stops_the_training_and_is_never_saved(corpora: Path, tmp_path: Path) -> None:
    path = write_config(tmp_path, corpora, "tagging", "recurrent", "optimizer.learning_rate = 1e38")
    with pytest.raises(RunError, match="not finite for 5 steps in a row"):
        train(path, out=tmp_path / "run", monitor=Silent())
    assert all(not verdict.fault for verdict in verify(tmp_path / "run"))
    assert sum("skipped" in line for line in read_log(Run(tmp_path / "run"))) == 5


@pytest.mark.parametrize("budget", ["steps = 1000", "tokens = 1000"])
def test_nothing_to_predict_is_refused_instead_of_waited_for(budget: str, tmp_path: Path) -> None:
    (tmp_path / "train.txt").write_text("one\ntwo\nthree\n" * 20)  # rows of one token, which nothing precedes
    path = write_config(tmp_path, tmp_path, "language-model", "recurrent", budget)
    text = path.read_text().replace("[batch]", "[frame]\nafter = []\n[batch]")
    path.write_text(text.replace("[data.valid]\n" + f'files = "{tmp_path}/valid.txt"\n', ""))
    with pytest.raises(RunError, match=r"nothing was predicted in .* so there is nothing to learn"):
        train(path, out=tmp_path / "run", monitor=Silent())


def test_validation_data_without_anything_to_predict_are_refused(corpora: Path, tmp_path: Path) -> None:
    """They would have the best of all losses, 0."""
    (tmp_path / "valid.txt").write_text("cat\ndog\n")
    path = write_config(tmp_path, corpora, "language-model", "recurrent", "steps = 4")
    text = path.read_text().replace("[batch]", "[frame]\nafter = []\n[batch]")
    path.write_text(text.replace(f"{corpora}/valid.txt", "valid.txt"))
    with pytest.raises(DataError, match=r"no record of data\.valid has anything to predict"):
        train(path, out=tmp_path / "run", monitor=Silent())


def test_a_masking_rate_of_nothing_is_refused(corpora: Path, tmp_path: Path) -> None:
    path = write_config(tmp_path, corpora, "masked-language-model", "transformer", "tokens = 100")
    with pytest.raises(ConfigError, match=r"masking\.tokens\.rate|masking\.rate"):
        train(path, ["masking.rate=0.0"], out=tmp_path / "run", monitor=Silent())


def test_a_stop_saves_and_the_same_call_goes_on(corpora: Path, tmp_path: Path) -> None:
    path = write_config(tmp_path, corpora, "tagging", "recurrent", "steps = 20")
    whole = train(path, out=tmp_path / "whole", monitor=Silent())
    asked = iter(range(100))
    stopped = train(path, out=tmp_path / "stopped", monitor=Silent(), should_stop=lambda: next(asked) >= 4)
    assert not (stopped.folder / "model.safetensors").exists()
    train(path, out=tmp_path / "stopped", monitor=Silent())
    assert (stopped.folder / "model.safetensors").read_bytes() == (whole.folder / "model.safetensors").read_bytes()


def test_a_second_training_is_kept_out_and_another_configuration_refused(corpora: Path, tmp_path: Path) -> None:
    path = write_config(tmp_path, corpora, "tagging", "recurrent", "steps = 2")
    run = train(path, out=tmp_path / "run", monitor=Silent())
    with TrainingRun(run.folder).lock(), pytest.raises(RunError, match="another process"):
        train(path, out=tmp_path / "run", monitor=Silent())
    with pytest.raises(RunError, match="another configuration; what differs: train"):
        train(path, ["train.seed=9"], out=tmp_path / "run", monitor=Silent())


def test_accumulation_changes_nothing_but_memory(corpora: Path, tmp_path: Path) -> None:
    path = write_config(tmp_path, corpora, "tagging", "transformer", "steps = 8")
    overrides = ["model.encoder.dropout=0.0", "model.embedding_dropout=0.0"]
    runs = [
        train(path, [*overrides, f"train.accumulate={parts}"], out=tmp_path / str(parts), monitor=Silent())
        for parts in (1, 3)
    ]
    losses = [[line["loss"] for line in read_log(run) if "loss" in line] for run in runs]
    assert losses[0] == pytest.approx(losses[1], rel=1e-4)


@pytest.fixture(scope="module")
def pretrained(corpora: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("pretrained")
    path = write_config(folder, corpora, "masked-language-model", "transformer", "steps = 60")
    return train(path, out=folder / "run", monitor=Silent()).folder


@pytest.mark.parametrize(
    ("extra", "moved", "kept"),
    [
        ("", ["embedding.weight", "encoder.final_norm.weight", "head.weight"], []),
        ('freeze = ["embedding", "encoder"]', ["head.weight"], ["embedding.weight", "encoder.final_norm.weight"]),
        ("adapters = {rank = 2}", ["encoder.blocks.0.attention.in_projection.weight"], ["embedding.weight"]),
    ],
)
def test_fine_tuning_starts_from_a_run_and_trains_what_it_should(
    extra: str, moved: list[str], kept: list[str], pretrained: Path, corpora: Path, tmp_path: Path
) -> None:
    path = write_config(tmp_path, corpora, "tagging", "transformer", f"steps = 12\n{extra}")
    text = re.sub(r"\[model.encoder\].*?\[train\]", "[train]", path.read_text(), flags=re.DOTALL)
    path.write_text(f'init = "{pretrained}"\n' + text)
    run = train(path, out=tmp_path / "run", monitor=Silent())
    before, after = (load_file(folder / "model.safetensors") for folder in (pretrained, run.folder))
    for name in moved:
        assert name not in before or not torch.equal(before[name], after[name]), name
    for name in kept:
        assert torch.equal(before[name], after[name]), name
    assert not [name for name in after if "parametrizations" in name]  # adapters were merged: an ordinary model
    run_and_die(path, tmp_path / "broken", 9, [])
    broken = train(path, out=tmp_path / "broken", monitor=Silent())
    assert (run.folder / "model.safetensors").read_bytes() == (broken.folder / "model.safetensors").read_bytes()


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("task", ["tagging", "classification"])
def test_the_states_of_a_bidirectional_language_model_are_features_of_another(
    task: str, family: str, corpora: Path, tmp_path: Path
) -> None:
    elmo = write_config(tmp_path, corpora, "bidirectional-language-model", family, "steps = 12")
    start = train(elmo, out=tmp_path / "elmo", monitor=Silent()).folder
    path = write_config(tmp_path, corpora, task, "recurrent", "steps = 12")
    path.write_text(f'init = "{start}"\n' + path.read_text().replace("model_dim = 32", "model_dim = 20"))
    run = train(path, out=tmp_path / "run", monitor=Silent())
    before, after = weights_of(Run(start)), weights_of(run)
    for name in (name for name in before if not name.startswith("output")):
        assert torch.equal(after[f"features.reader.{name}"], before[name]), name
    assert after["features.mix.weights"].abs().max() > 0.0  # how the layers are mixed was learned
    thawed = weights_of(train(path, ["model.features.frozen=false"], out=tmp_path / "thawed", monitor=Silent()))
    assert not torch.equal(thawed["features.reader.embedding.weight"], before["embedding.weight"])
    shutil.rmtree(start)  # from here on the run stands on its own
    assert seqloom.load(run.folder).config == load_resolved(run.folder / "config.toml")


def test_an_adapter_of_rank_r_changes_a_matrix_by_rank_r(pretrained: Path, corpora: Path, tmp_path: Path) -> None:
    path = write_config(tmp_path, corpora, "tagging", "transformer", "steps = 12\nadapters = {rank = 2}")
    path.write_text(f'init = "{pretrained}"\n' + path.read_text())
    run = train(path, out=tmp_path / "run", monitor=Silent())
    name = "encoder.blocks.0.attention.in_projection.weight"
    before, after = (load_file(folder / "model.safetensors")[name] for folder in (pretrained, run.folder))
    values = torch.linalg.svdvals((after - before).double())
    assert values[1] > 1e-4
    assert values[2] < 1e-5


def test_a_wrong_start_is_told(pretrained: Path, corpora: Path, tmp_path: Path) -> None:
    path = write_config(tmp_path, corpora, "tagging", "transformer", 'steps = 2\nfreeze = "encodr"')
    with pytest.raises(ConfigError, match='nothing is called "encodr"; the parts are embedding, encoder, head'):
        train(path, out=tmp_path / "a", monitor=Silent())
    path.write_text(f'init = "{tmp_path}/nowhere"\n' + path.read_text())
    with pytest.raises(ConfigError, match="is not a run"):
        train(path, out=tmp_path / "b", monitor=Silent())


def test_the_report_is_one_page_that_shows_the_run(corpora: Path, tmp_path: Path) -> None:
    path = write_config(tmp_path, corpora, "translation", "recurrent", "steps = 6\nvalidate_every = 3")
    run = train(path, out=tmp_path / "run", monitor=Silent())
    answers = read_page(run.folder / "report.html")
    history, log = answers["/run"], read_log(run)
    assert answers["/model"]["views"]["runs"] is True
    assert history["state"] == "finished"
    steps = [line for line in log if "rate" in line]
    for name in ("loss", "norm", "rate"):
        assert history["train"][name] == [line[name] for line in steps]
    validations = [line for line in log if "valid" in line]
    assert history["valid"]["steps"] == [3, 6]
    assert history["valid"]["measures"] == {
        name: [line["valid"][name] for line in validations] for name in validations[0]["valid"]
    }
    best = max(validations, key=lambda line: line["valid"]["bleu"])
    assert history["score"] == {
        "metric": "bleu",
        "value": best["valid"]["bleu"],
        "step": best["step"],
        "sample": "",
        "lower": False,
        "split": "validation",
        "measures": best["valid"],
    }
    assert history["layers"]["norms"]["encoder.layers.0"] == [steps[0]["layers"]["encoder.layers.0"]]
    assert [one["samples"] for one in history["samples"]["at"]] == [line["samples"] for line in validations]
    assert f"seqloom translate {run.folder}" in history["use"][0]["command"]


def test_a_training_does_not_go_on_with_other_data(corpora: Path, tmp_path: Path) -> None:
    copy = tmp_path / "corpora"
    shutil.copytree(corpora, copy)
    path = write_config(tmp_path, copy, "tagging", "recurrent", "steps = 20")
    run_and_die(path, tmp_path / "run", 16, [])
    text = (copy / "train.conll").read_text()
    (copy / "train.conll").write_text(text + "cat NOUN\n")
    with pytest.raises(RunError, match="the training data changed since step 14"):
        train(path, out=tmp_path / "run", monitor=Silent())


@pytest.mark.parametrize("layers", [12, 24, 96])
def test_deep_stacks_train(layers: int, corpora: Path, tmp_path: Path) -> None:
    path = write_config(tmp_path, corpora, "tagging", "transformer", "steps = 15\noptimizer.learning_rate = 3e-3")
    overrides = [f"model.encoder.num_layers={layers}", "model.encoder.model_dim=16", "model.encoder.num_heads=2"]
    run = train(path, overrides, out=tmp_path / "run", monitor=Silent())
    losses = [line["loss"] for line in read_log(run) if "loss" in line]
    assert losses[-1] < 0.9 * losses[0]
    norms = next(line["layers"] for line in read_log(run) if "layers" in line)
    blocks = [norms[f"encoder.blocks.{layer}"] for layer in range(layers)]
    assert min(blocks) > 1e-3 * max(blocks)  # no layer is out of the gradient's reach
