"""A run keeps weights at evenly spaced steps to look inside; the training itself does not notice."""

import json
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
import torch

import seqloom
from forked import seqloom as command
from listening import Listening
from seqloom.errors import RunError
from seqloom.runs.verify import verify
from seqloom.runs.weights import find_weights, read_weights
from seqloom.training.job import train
from small_corpora import write_config
from together import train_together

Go = Callable[..., list[str]]


@pytest.fixture
def go(corpora: Path, tmp_path: Path) -> Go:
    """Train a small tagger in a folder, up to its end or for some steps; what was told."""
    path = write_config(tmp_path, corpora, "tagging", "transformer", "steps = 21")
    path.write_text(path.read_text().replace("steps = 21\n", "").replace("snapshots = 0\n", ""))

    def train_on(name: str, *overrides: str, stop_after: int = 1000) -> list[str]:
        asked, watch = iter(range(10_000)), Listening()
        given = overrides if any("=" in one and one.startswith(BUDGETS) for one in overrides) else (*overrides, STEPS)
        train(path, given, out=tmp_path / name, monitor=watch, should_stop=lambda: next(asked) >= stop_after)
        return watch.heard

    return train_on


BUDGETS = ("train.steps", "train.epochs", "train.tokens", "train.minutes")
STEPS = "train.steps=21"


def steps_of(run: Path) -> list[int]:
    return [int(folder.name.removeprefix("step-")) for folder in sorted((run / "snapshots").iterdir())]


def bytes_of(run: Path) -> dict[str, bytes]:
    return {path.parent.name: path.read_bytes() for path in run.glob("snapshots/*/model.safetensors")}


def shares_of(run: Path, name: str, whole: float) -> list[float]:
    states = [json.loads(path.read_bytes()) for path in sorted(run.glob("snapshots/*/state.json"))]
    return [state[name] / whole for state in states]


def assert_same_weights(one: Path, other: Path) -> None:
    first, second = (read_weights(find_weights(folder)) for folder in (one, other))
    assert first.keys() == second.keys()
    for name, tensor in first.items():
        torch.testing.assert_close(tensor, second[name], rtol=0.0, atol=0.0)


@pytest.mark.parametrize("extra", [(), ("train.ema=0.9",), ("init={base}", "train.adapters.rank=2")])
def test_a_snapshot_is_the_model_of_its_step(extra: Sequence[str], go: Go, tmp_path: Path) -> None:
    if "init={base}" in extra:
        go("base", "train.steps=2")
    extra = [one.format(base=tmp_path / "base") for one in extra]
    go("run", *extra, "train.save_every=3", "train.keep=9")
    run = tmp_path / "run"
    assert steps_of(run) == [0, 3, 6, 9, 12, 15, 18, 21]
    for step in (3, 12, 21):
        assert_same_weights(run / "snapshots" / f"step-{step:08d}", run / "checkpoints" / f"step-{step:08d}")
    text = "the cat sees the dog ."
    models = [seqloom.load(run / where / "step-00000012") for where in ("snapshots", "checkpoints")]
    assert models[0].tag(text) == models[1].tag(text)
    first = seqloom.load(run / "snapshots" / "step-00000000")
    assert first.evaluate(split="valid")["accuracy"].value < models[0].evaluate(split="valid")["accuracy"].value


def test_a_training_has_the_same_bits_without_them(go: Go, tmp_path: Path) -> None:
    go("with")
    go("without", "train.snapshots=0")
    for name in ("model.safetensors", "log.jsonl", "checkpoints/step-00000021/optimizer.safetensors"):
        assert (tmp_path / "with" / name).read_bytes() == (tmp_path / "without" / name).read_bytes(), name
    assert not (tmp_path / "without" / "snapshots").exists()


@pytest.mark.parametrize(
    ("count", "steps"), [(1, [21]), (2, [0, 21]), (4, [0, 7, 14, 21]), (100, list(range(22)))], ids=str
)
def test_their_number_is_a_key(count: int, steps: list[int], go: Go, tmp_path: Path) -> None:
    go("run", f"train.snapshots={count}")
    assert steps_of(tmp_path / "run") == steps


@pytest.mark.parametrize(
    ("budget", "name", "whole"),
    [
        ("train.epochs=2", "step", None),
        ("train.tokens=8000", "predictions", 8000),
        ("train.minutes=0.02", "seconds", 1.2),
    ],
)
def test_they_are_evenly_spaced_in_every_budget(
    budget: str, name: str, whole: float | None, go: Go, tmp_path: Path
) -> None:
    go("run", budget)
    whole = whole or steps_of(tmp_path / "run")[-1]
    log = [json.loads(line) for line in (tmp_path / "run" / "log.jsonl").read_text().splitlines()]
    steps = [line for line in log if "loss" in line]
    most = {"step": 1.0, "predictions": max(line["count"] for line in steps), "seconds": 0.6}[name] / whole
    shares = shares_of(tmp_path / "run", name, whole)
    assert shares[0] == 0.0
    assert shares[-1] >= 1.0
    if name != "seconds":  # where the machine is slow, several moments may pass in one step
        assert len(shares) == 8
        for number, share in enumerate(shares):
            assert number / 7 <= share < number / 7 + most + 1e-9


def test_the_end_is_kept_where_patience_ends_it(go: Go, tmp_path: Path) -> None:
    stubborn = ("train.patience=1", "train.validate_every=2", "train.optimizer={kind='adamw', learning_rate=1e-12}")
    heard = go("run", *stubborn)
    assert any("finished at step 4 after 1 validations" in line for line in heard)
    assert steps_of(tmp_path / "run") == [0, 3, 4]


@pytest.mark.parametrize("extra", [(), ("train.ema=0.9", "train.save_every=5")])
def test_a_stop_and_a_kill_leave_no_trace(extra: Sequence[str], go: Go, corpora: Path, tmp_path: Path) -> None:
    go("whole", *extra)
    for stop_after in (2, 8, 4):
        go("broken", *extra, stop_after=stop_after)
    newest = sorted((tmp_path / "broken" / "checkpoints").iterdir())[-1]
    for path in newest.iterdir():  # as if it had been killed before that was saved
        path.unlink()
    left = tmp_path / "broken" / "snapshots" / ".step-00000018.4711.partial"
    left.mkdir()
    (left / "model.safetensors").write_bytes(b"half")
    go("broken", *extra)
    assert not left.exists()
    assert bytes_of(tmp_path / "whole") == bytes_of(tmp_path / "broken")
    assert not [verdict for verdict in verify(tmp_path / "broken") if verdict.fault and "snapshots" in verdict.part]


def test_the_moments_of_the_past_are_forgotten_where_the_training_goes_back(go: Go, tmp_path: Path) -> None:
    go("run", "train.save_every=10", stop_after=16)
    for folder in (tmp_path / "run" / "checkpoints").glob("stopped-*"):
        (folder / "state.json").write_bytes(b"damaged")
    (tmp_path / "run" / "snapshots" / "step-00000015").rename(tmp_path / "run" / "snapshots" / "step-00000016")
    go("run", "train.save_every=10")
    assert steps_of(tmp_path / "run") == [0, 3, 6, 9, 12, 15, 18, 21]


@pytest.mark.parametrize("sharding", ["none", "full"])
def test_several_processes_keep_the_same_ones(sharding: str, corpora: Path, tmp_path: Path) -> None:
    extra = f'steps = 14\nema = 0.9\nsharding = "{sharding}"\nsnapshots = 3\nkeep = 9'
    path = write_config(tmp_path, corpora, "tagging", "transformer", extra)
    assert train_together(path, tmp_path / "whole") == [0, 0]
    assert -9 in train_together(path, tmp_path / "broken", kill_at=12)
    assert steps_of(tmp_path / "broken") == [0, 7]
    assert train_together(path, tmp_path / "broken") == [0, 0]
    assert steps_of(tmp_path / "whole") == [0, 7, 14]
    assert bytes_of(tmp_path / "whole") == bytes_of(tmp_path / "broken")
    assert_same_weights(*(tmp_path / "whole" / where / "step-00000007" for where in ("snapshots", "checkpoints")))


def test_another_budget_or_number_leaves_them_evenly_spaced(go: Go, tmp_path: Path) -> None:
    often = ("train.save_every=2", "train.validate_every=2")
    go("run", *often, "train.steps=10")
    assert steps_of(tmp_path / "run") == [0, 2, 3, 5, 6, 8, 9, 10]
    go("run", *often, "train.steps=20")  # from step 6, the last checkpoint before the rate went down
    assert steps_of(tmp_path / "run") == [0, 3, 6, 9, 12, 15, 18, 20]
    go("fewer", stop_after=10)
    go("fewer", "train.snapshots=4")
    assert steps_of(tmp_path / "fewer") == [0, 9, 14, 21]
    go("none", stop_after=10)
    kept = steps_of(tmp_path / "none")
    go("none", "train.snapshots=0")
    assert steps_of(tmp_path / "none") == kept


def test_damage_is_told(go: Go, tmp_path: Path) -> None:
    go("run", stop_after=13)
    weights = tmp_path / "run" / "snapshots" / "step-00000006" / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-1])
    with pytest.raises(RunError, match="is damaged"):
        seqloom.load(weights.parent)
    done = command("verify", tmp_path / "run")
    assert done.returncode == 1
    assert b"snapshots/step-00000003: ok" in done.stdout
    assert b"snapshots/step-00000006: " in done.stdout
    heard = go("run")
    assert any("step-00000006" in line and "this snapshot is removed" in line for line in heard)
    assert steps_of(tmp_path / "run") == [0, 3, 9, 12, 15, 18, 21]


def test_a_snapshot_that_cannot_be_written_is_no_reason_to_stop(go: Go, tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "snapshots").write_text("a file in the place of the folder")
    heard = go("run")
    assert sum("the training goes on without this snapshot" in line for line in heard) == 8
    assert (tmp_path / "run" / "model.safetensors").exists()


def test_a_snapshot_alone_is_told_what_it_lacks(go: Go, tmp_path: Path) -> None:
    go("run", "train.snapshots=1")
    (tmp_path / "run" / "snapshots").rename(tmp_path / "snapshots")
    with pytest.raises(RunError, match="without its run; put it back into the run's folder snapshots"):
        seqloom.load(tmp_path / "snapshots" / "step-00000021")
