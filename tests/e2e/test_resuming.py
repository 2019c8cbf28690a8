"""A training that goes on under other conditions says that its bits will differ; under the same, they do not."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from rich.console import Console
from safetensors.torch import load_file

import seqloom
from forked import start
from listening import Listening
from manifests import rewrite_manifest
from saved_pages import read_page
from seqloom.errors import ConfigError, Notice, RunError
from seqloom.native import library
from seqloom.native.library import has_bfloat16
from seqloom.runs.checkpoint import FORMAT
from seqloom.runs.machine import describe_machine
from seqloom.training.job import train
from small_corpora import write_config
from together import train_together

Go = Callable[..., list[str]]


@pytest.fixture
def go(corpora: Path, tmp_path: Path) -> Go:
    """Train a small model in a folder, up to its end or for some steps; what was told."""
    path = write_config(tmp_path, corpora, "tagging", "transformer", "steps = 12")

    def train_on(name: str, *overrides: str, steps: int = 100) -> list[str]:
        asked, watch = iter(range(100)), Listening()
        train(path, overrides, out=tmp_path / name, monitor=watch, should_stop=lambda: next(asked) >= steps)
        return watch.heard

    return train_on


def newest(run: Path) -> Path:
    return sorted((run / "checkpoints").iterdir())[-1]


def said_of_bits(heard: list[str]) -> list[str]:
    return [line for line in heard if "bit-identical" in line]


def test_the_same_machine_says_nothing_and_ends_with_the_same_bits(go: Go, tmp_path: Path) -> None:
    go("whole")
    go("broken", steps=4)
    heard = go("broken")
    assert any("resuming from step 5" in line for line in heard)
    assert not said_of_bits(heard)
    for name in ("model.safetensors", "log.jsonl"):
        assert (tmp_path / "whole" / name).read_bytes() == (tmp_path / "broken" / name).read_bytes(), name


@pytest.mark.parametrize("steps", [4, 6, 8, 13])  # 7 and 14 are saved anyway, and 14 is the end
@pytest.mark.parametrize("extra", ["train.average=2", "train.ema=0.9", "train.validate_every=7"])
def test_a_stop_leaves_no_trace(extra: str, steps: int, go: Go, tmp_path: Path) -> None:
    go("whole", extra, "train.steps=14")
    go("broken", extra, "train.steps=14", steps=steps)
    go("broken", extra, "train.steps=14")
    whole, broken = ({path.name for path in (tmp_path / run / "checkpoints").iterdir()} for run in ("whole", "broken"))
    assert whole == broken == {"step-00000007", "step-00000014"}
    for name in ("model.safetensors", "log.jsonl", "checkpoints/step-00000007/model.safetensors"):
        assert (tmp_path / "whole" / name).read_bytes() == (tmp_path / "broken" / name).read_bytes(), name


def test_a_stop_after_a_stop_keeps_the_newest(go: Go, tmp_path: Path) -> None:
    go("whole", "train.average=2")
    for steps in (2, 2, 1):
        go("broken", "train.average=2", steps=steps)
    names = {path.name for path in (tmp_path / "broken" / "checkpoints").iterdir()}
    assert names == {"step-00000007", "stopped-00000008"}
    heard = go("broken", "train.average=2")
    assert any("resuming from step 8" in line for line in heard)
    for name in ("model.safetensors", "log.jsonl"):
        assert (tmp_path / "whole" / name).read_bytes() == (tmp_path / "broken" / name).read_bytes(), name


def damage(folder: Path) -> None:
    (folder / "model.safetensors").write_bytes(b"")


def test_a_damaged_best_checkpoint_is_noticed_on_resuming_and_another_one_becomes_best(go: Go, tmp_path: Path) -> None:
    every = ["train.validate_every=2", "train.judge_by=loss"]
    go("run", *every, steps=16)
    best = json.loads((newest(tmp_path / "run") / "state.json").read_bytes())["best_step"]
    damage(tmp_path / "run" / "checkpoints" / f"step-{best:08d}")
    heard = go("run", *every)
    assert (
        sum("it was the best checkpoint, and the best of those to come will take its place" in line for line in heard)
        == 1
    )
    assert seqloom.load(tmp_path / "run").tag("the cat sees the dog .").tags


@pytest.mark.parametrize(
    ("extra", "step", "told"),
    [
        ("train.average=2 train.validate_every=12", 7, "left out of the mean of the last checkpoints"),
        (
            "train.optimizer.kind=adamw train.optimizer.learning_rate=1e-30",
            4,
            "gets the weights of the last step instead",
        ),
    ],
)
def test_damage_that_is_noticed_at_the_end_still_leaves_a_model(
    extra: str, step: int, told: str, corpora: Path, tmp_path: Path
) -> None:
    class Damaging(Listening):
        def validate(self, progress, validation) -> None:
            if progress.step == 12:
                damage(tmp_path / "run" / "checkpoints" / f"step-{step:08d}")

    path = write_config(tmp_path, corpora, "tagging", "transformer", "steps = 12\nvalidate_every = 4")
    watch = Damaging()
    train(path, extra.split(), out=tmp_path / "run", monitor=watch)
    assert [line for line in watch.heard if f"step-{step:08d}" in line and told in line]
    weights = [load_file(folder / "model.safetensors") for folder in (tmp_path / "run", newest(tmp_path / "run"))]
    assert all(torch.equal(tensor, weights[1][name]) for name, tensor in weights[0].items())


def test_what_a_killed_save_left_is_cleared_away_at_the_next_start(go: Go, tmp_path: Path) -> None:
    go("run", steps=4)
    left = [
        tmp_path / "run" / "checkpoints" / ".step-00000007.4711.partial",
        tmp_path / "run" / ".config.toml.1.partial",
    ]
    left[0].mkdir()
    for file in (left[0] / "model.safetensors", left[1]):
        file.write_bytes(b"half")
    go("run")
    assert not any(path.exists() for path in left)


@pytest.mark.parametrize(
    ("field", "value", "spoken"),
    [
        ("seqloom", "0.0.1", "Seqloom 0.0.1"),
        ("torch", "1.13.1", "PyTorch 1.13.1"),
        ("kernels", "sparc", "kernels sparc"),
        ("instructions", "sparc VIS", "instructions sparc VIS"),
        ("precision", "float64", "precision float64"),
        ("threads", 77, "threads 77"),
        ("processes", 8, "processes 8"),
        ("device", "mps", "device mps"),
    ],
)
def test_each_condition_that_differs_is_told_in_one_sentence(
    field: str, value: str | int, spoken: str, go: Go, tmp_path: Path
) -> None:
    go("run", steps=4)
    now = json.loads((newest(tmp_path / "run") / "manifest.json").read_bytes())[field]
    rewrite_manifest(newest(tmp_path / "run"), **{field: value})
    (told,) = said_of_bits(go("run"))
    start = "not bit-identical from here, because the checkpoint was written with"
    assert told.startswith(f"{start} {spoken}, and this is ")
    assert told.endswith(f" {now}")
    assert seqloom.load(tmp_path / "run").tag("the cat sees the dog .").tags
    assert not said_of_bits(go("run"))  # it is finished: nothing is computed any more


def test_another_number_of_threads_is_another_order_of_sums(go: Go, tmp_path: Path) -> None:
    go("run", steps=4)
    try:
        (told,) = said_of_bits(go("run", "train.threads=2"))
    finally:
        torch.set_num_threads(1)
    assert told.endswith("was written with threads 1, and this is threads 2")


bfloat16 = pytest.mark.skipif(not has_bfloat16(), reason="this processor, or its kernels, have no bfloat16")


@bfloat16
def test_the_precision_that_auto_took_stays_with_the_run(
    go: Go, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run, auto = tmp_path / "run", "train.precision=auto"
    heard = go("run", auto, steps=4)
    assert any("precision: a new run takes bfloat16, because the processor and the kernels have it" in s for s in heard)
    assert 'precision = "bfloat16"' in (run / "config.toml").read_text()
    with monkeypatch.context() as elsewhere:
        elsewhere.setattr(library._State, "found", library.choose("x86-64-v3"))
        with pytest.raises(ConfigError, match=r"needs a processor and kernels that have it.*train\.precision=float32"):
            go("run", auto)
    go("run", auto)
    go("whole", "train.precision=bfloat16")
    first, second = ((tmp_path / name / "model.safetensors").read_bytes() for name in ("whole", "run"))
    assert first == second


@bfloat16
def test_a_run_in_bfloat16_goes_on_elsewhere_in_float32(
    go: Go, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    go("run", "train.precision=auto", steps=4)
    monkeypatch.setattr(library._State, "found", library.choose("x86-64-v3"))
    (told,) = said_of_bits(go("run", "train.precision=float32", steps=4))
    assert "precision bfloat16" in told
    assert "precision float32" in told
    heard = go("run", "train.precision=auto")  # it keeps what it was last trained in
    assert not said_of_bits(heard)
    assert 'precision = "float32"' in (tmp_path / "run" / "config.toml").read_text()


def test_where_there_is_no_bfloat16_auto_takes_float32(go: Go, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(library._State, "found", library.choose("none"))
    go("auto", "train.precision=auto", steps=2)
    assert 'precision = "float32"' in (tmp_path / "auto" / "config.toml").read_text()
    with pytest.raises(ConfigError, match=r'train\.precision = "bfloat16" needs a processor'):
        go("asked", "train.precision=bfloat16", steps=2)
    assert not (tmp_path / "asked").exists()


@bfloat16
def test_a_manifest_says_what_made_the_weights(go: Go, tmp_path: Path) -> None:
    go("run", "train.precision=bfloat16")
    for folder in (tmp_path / "run", newest(tmp_path / "run")):
        manifest = json.loads((folder / "manifest.json").read_bytes())
        assert manifest.items() >= {**describe_machine(), "format": FORMAT, "precision": "bfloat16"}.items()


def test_a_manifest_lists_the_conditions_of_earlier_steps(go: Go, tmp_path: Path) -> None:
    def read(folder: Path) -> dict[str, Any]:
        return dict(json.loads((folder / "manifest.json").read_bytes()))

    run, snapshots = tmp_path / "run", "train.snapshots=2"
    go("run", snapshots, steps=2)
    rewrite_manifest(newest(run), kernels="sparc", threads=77)
    go("run", snapshots, steps=2)
    first = read(newest(run))["earlier"]
    assert [(one["until_step"], one["kernels"], one["threads"]) for one in first] == [(3, "sparc", 77)]
    assert first[0]["seqloom"] == seqloom.__version__
    go("run", snapshots, steps=2)  # under the same conditions as before
    assert read(newest(run))["earlier"] == first
    rewrite_manifest(newest(run), torch="1.13.1")
    go("run", snapshots)
    for folder in (run, newest(run), *sorted((run / "snapshots").iterdir())[-1:]):
        later = read(folder)
        assert later["earlier"][0] == first[0]
        assert [one["until_step"] for one in later["earlier"]] == [3, 9]
        assert later["earlier"][1].items() >= {**describe_machine(), "torch": "1.13.1"}.items()
        assert later.items() >= describe_machine().items()
    go("whole")
    assert "earlier" not in read(tmp_path / "whole")


def test_the_first_line_says_which_kernels_run_and_so_does_the_report(go: Go, tmp_path: Path) -> None:
    first, *_ = go("run")
    assert first.startswith(f"kernels: {describe_machine()['kernels']}, 1 thread. ")
    facts = dict(read_page(tmp_path / "run" / "report.html")["/run"]["facts"])
    assert facts["kernels"] == first.removeprefix("kernels: ")


def test_a_run_of_another_format_is_refused_and_left_as_it_is(go: Go, tmp_path: Path) -> None:
    go("run", steps=4)
    rewrite_manifest(newest(tmp_path / "run"), format=1, seqloom=None)
    before = {path: path.read_bytes() for path in (tmp_path / "run").rglob("*") if path.is_file()}
    with pytest.raises(
        RunError, match=r"has format 1, .* train again in another folder, or use the version that wrote"
    ):
        go("run")
    assert {path: path.read_bytes() for path in before} == before
    go("other")
    rewrite_manifest(tmp_path / "other", format=1, seqloom=None)
    with pytest.raises(RunError, match="has format 1"):
        seqloom.load(tmp_path / "other")
    done = start("verify", tmp_path / "other").wait()
    assert done.returncode == 1
    assert b"train again" in done.stdout


def test_of_several_processes_only_the_lead_speaks(
    corpora: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    path = write_config(tmp_path, corpora, "tagging", "recurrent", "steps = 12")
    train_together(path, tmp_path / "run", kill_at=9)
    rewrite_manifest(newest(tmp_path / "run"), kernels="sparc")
    capfd.readouterr()
    assert train_together(path, tmp_path / "run", console=Console(stderr=True)) == [0, 0]
    assert capfd.readouterr().err.count("written with kernels sparc, and this is kernels") == 1


PRETRAINED = ["train.adapters.rank=2", "init={init}"]


@pytest.mark.parametrize("extra", [[], ["train.ema=0.9"], PRETRAINED], ids=["plain", "averaged", "adapted"])
def test_a_stopped_training_can_be_used_at_once(extra: list[str], go: Go, corpora: Path, tmp_path: Path) -> None:
    if extra is PRETRAINED:
        extra = [setting.format(init=tmp_path / "init") for setting in extra]
        go("init")
    every = [*extra, "train.validate_every=4", "train.judge_by=accuracy"]
    go("run", *every, steps=12)  # two validations of four batches each are asked, too
    best = json.loads((newest(tmp_path / "run") / "state.json").read_bytes())["best_step"]
    with pytest.warns(Notice, match=f"is not finished; these are the weights of step {best}, the best of"):
        model = seqloom.load(tmp_path / "run")
    direct = seqloom.load(tmp_path / "run" / "checkpoints" / f"step-{best:08d}")
    assert model.tag("the cat sees the dog .") == direct.tag("the cat sees the dog .")
    lines = [json.loads(line) for line in (tmp_path / "run" / "log.jsonl").read_text().splitlines()]
    judged = next(line["valid"]["accuracy"] for line in lines if "valid" in line and line["step"] == best)
    assert direct.evaluate(split="valid")["accuracy"].value == pytest.approx(judged)


def test_the_command_says_that_a_training_is_not_finished(go: Go, tmp_path: Path) -> None:
    go("run", steps=4)
    done = start("tag", tmp_path / "run", stdin=b"the cat sees the dog .\n").wait()
    assert done.returncode == 0
    assert b"note: " in done.stderr
    assert b"its training is not finished; these are the weights of step 5, the last that was saved" in done.stderr


def test_a_training_that_saved_nothing_is_told(go: Go, tmp_path: Path) -> None:
    go("run", steps=4)
    shutil.rmtree(tmp_path / "run" / "checkpoints")
    with pytest.raises(RunError, match="has saved nothing to use so far; the same `seqloom train` command resumes it"):
        seqloom.load(tmp_path / "run")
    with pytest.raises(RunError, match="has saved nothing to use"):
        go("other", f"init={tmp_path / 'run'}")
    assert not (tmp_path / "other" / "data").exists()  # it was told before anything was read


def test_a_model_starts_from_the_best_checkpoint_of_an_unfinished_run(go: Go, tmp_path: Path) -> None:
    go("run", steps=4)
    heard = go("other", f"init={tmp_path / 'run'}")
    assert any(line.startswith("init: ") and "weights of step 5" in line for line in heard)


def rates_of(run: Path) -> list[float]:
    lines = map(json.loads, (run / "log.jsonl").read_text().splitlines())
    return [line["rate"] for line in lines if "rate" in line]


def said_of_budget(heard: list[str]) -> list[str]:
    return [line for line in heard if line.startswith("the budget was")]


@pytest.mark.parametrize("steps", [2, 5, 100])
def test_a_finished_training_goes_on_with_a_larger_budget_as_if_it_had_had_it(
    steps: int, go: Go, tmp_path: Path
) -> None:
    every = ["train.save_every=2", "train.validate_every=2"]
    go("whole", *every, "train.steps=20")
    go("run", *every, "train.steps=10")
    before = seqloom.load(tmp_path / "run").tag("the cat sees the dog .")
    (told,) = said_of_budget(go("run", *every, "train.steps=20", steps=steps))
    assert told == (
        "the budget was 10 steps and is now 20 steps: the training goes on from step 6, the last checkpoint before the "
        "rate went down; a new run with this budget may end with other weights"
    )
    if steps < 100:
        assert seqloom.load(tmp_path / "run").tag("the cat sees the dog .") == before  # until the new model is there
        go("run", *every, "train.steps=20")
    for name in ("model.safetensors", "log.jsonl", "config.toml"):
        assert (tmp_path / "whole" / name).read_bytes() == (tmp_path / "run" / name).read_bytes(), name


def test_a_rate_that_went_down_rises_again(go: Go, tmp_path: Path) -> None:
    linear = ["train.schedule=linear", "train.warmup=2"]
    go("run", *linear, "train.steps=10")
    (told,) = said_of_budget(go("run", *linear, "train.steps=30"))
    assert "so it rises again from step 10" in told
    rates = rates_of(tmp_path / "run")
    assert rates[9] < 0.2
    assert rates[10] == 0.5
    assert rates[11] > 0.9
    assert rates[-1] < 0.1
    assert not said_of_budget(go("run", *linear, "train.steps=30"))


def test_a_training_that_is_stopped_may_get_another_budget(go: Go, tmp_path: Path) -> None:
    go("whole", "train.steps=20")
    go("run", "train.steps=12", steps=3)
    (told,) = said_of_budget(go("run", "train.steps=20"))
    assert "goes on from step 4, where the rate was still high" in told
    assert (tmp_path / "whole" / "log.jsonl").read_bytes() == (tmp_path / "run" / "log.jsonl").read_bytes()


def test_a_budget_that_is_spent_already_is_refused(go: Go, tmp_path: Path) -> None:
    go("run")
    before = (tmp_path / "run" / "model.safetensors").read_bytes()
    with pytest.raises(
        RunError, match=r"has taken 12 steps, which is all of the new budget \(5 steps\) or more; give a"
    ):
        go("run", "train.steps=5")
    assert (tmp_path / "run" / "model.safetensors").read_bytes() == before
    with pytest.raises(RunError, match=r"what differs: train\.seed \(the run has 1, not 9\)"):
        go("run", "train.seed=9")


def test_a_finished_run_says_so_and_stays_as_it_is(go: Go, tmp_path: Path) -> None:
    go("run")
    shutil.rmtree(tmp_path / "run" / "checkpoints")  # nobody needs them any more
    before = {path: path.stat().st_mtime_ns for path in (tmp_path / "run").iterdir() if path.suffix != ""}
    (told,) = (line for line in go("run") if "is finished" in line)
    assert "A larger budget continues it, such as train.steps=24; to train anew, choose another folder (out)" in told
    assert {path: path.stat().st_mtime_ns for path in before} == before


@pytest.mark.parametrize("steps", [8, 9, 14])
def test_what_follows_the_budget_is_told_and_resumes_exactly(steps: int, go: Go, tmp_path: Path) -> None:
    path = tmp_path / "tagging-transformer.toml"
    for line in ("warmup = 5\n", "save_every = 7\n", "validate_every = 20\n"):
        path.write_text(path.read_text().replace(line, ""))
    heard = go("whole", "train.steps=40")
    budget = "40 steps; warm-up over 2 steps; a validation and a checkpoint every 10 steps"
    assert f"budget: {budget}" in heard
    assert json.loads((tmp_path / "whole" / "manifest.json").read_bytes())["budget"] == budget
    go("broken", "train.steps=40", steps=steps)
    go("broken", "train.steps=40")
    lines = [json.loads(line) for line in (tmp_path / "whole" / "log.jsonl").read_text().splitlines()]
    assert [line["step"] for line in lines if "valid" in line] == [10, 20, 30, 40]
    for name in ("model.safetensors", "log.jsonl"):
        assert (tmp_path / "whole" / name).read_bytes() == (tmp_path / "broken" / name).read_bytes(), name


def test_a_run_of_the_time_when_the_warm_up_did_not_follow_the_budget_goes_on(go: Go, tmp_path: Path) -> None:
    go("run", "train.warmup=200", "train.save_every=500", steps=4)
    path = tmp_path / "tagging-transformer.toml"
    path.write_text(path.read_text().replace("warmup = 5\nsave_every = 7\n", ""))
    go("run")
    assert rates_of(tmp_path / "run")[-1] == 12 / 200
