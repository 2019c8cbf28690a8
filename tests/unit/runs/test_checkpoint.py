"""A checkpoint is whole or not there, and damage is found out."""

import json
import random
from pathlib import Path

import pytest
import torch

from manifests import rewrite_manifest
from seqloom.errors import RunError
from seqloom.runs.checkpoint import FORMAT, Checkpoint, find_newest, load_checkpoint, save_checkpoint

WRITER = {"seqloom": "0.1.0", "kernels": "x86-64-v4", "threads": 2}


def example(step: int) -> Checkpoint:
    torch.manual_seed(step)
    moments = {"w/exp_avg": torch.randn(4, 3), "w/step": torch.tensor(1.0)}
    return Checkpoint({"w": torch.randn(4, 3)}, moments, {"step": step}, WRITER)


def same(one: Checkpoint, other: Checkpoint) -> bool:
    tensors = zip([one.model, one.optimizer], [other.model, other.optimizer], strict=True)
    equal = all(a.keys() == b.keys() and all(torch.equal(a[k], b[k]) for k in a) for a, b in tensors)
    return equal and one.state == other.state and one.conditions == other.conditions


def test_what_is_saved_is_what_is_loaded(tmp_path: Path) -> None:
    save_checkpoint(tmp_path / "step-1", example(1))
    assert same(load_checkpoint(tmp_path / "step-1"), example(1))
    assert [path.name for path in tmp_path.iterdir()] == ["step-1"]


def test_every_flipped_bit_and_every_cut_is_found_out(tmp_path: Path) -> None:
    folder = tmp_path / "step-1"
    save_checkpoint(folder, example(1))
    rng = random.Random(0)
    files = sorted(folder.iterdir())
    for _ in range(100):
        path = rng.choice(files)
        whole = path.read_bytes()
        broken = bytearray(whole)
        if rng.random() < 0.3:
            del broken[rng.randrange(len(broken)) :]
        else:
            broken[rng.randrange(len(broken))] ^= 1 << rng.randrange(8)
        path.write_bytes(broken)
        with pytest.raises(RunError, match=path.name):
            load_checkpoint(folder)
        path.write_bytes(whole)
    assert same(load_checkpoint(folder), example(1))


def test_every_bit_of_the_manifest_counts(tmp_path: Path) -> None:
    folder = tmp_path / "step-1"
    save_checkpoint(folder, example(1))
    manifest = folder / "manifest.json"
    whole = manifest.read_bytes()
    for bit in range(0, 8 * len(whole), 7):
        broken = bytearray(whole)
        broken[bit // 8] ^= 1 << bit % 8
        manifest.write_bytes(broken)
        with pytest.raises(RunError, match="manifest"):
            load_checkpoint(folder)


def test_the_newest_whole_one_is_used_and_the_others_are_named(tmp_path: Path) -> None:
    for step in (1, 2, 3):
        save_checkpoint(tmp_path / f"step-{step:08d}", example(step))
    (tmp_path / "step-00000003" / "model.safetensors").write_bytes(b"")
    heard: list[str] = []
    found = find_newest(tmp_path, heard.append)
    assert found is not None
    assert same(found[1], example(2))
    assert len(heard) == 1
    assert "step-00000003" in heard[0]
    assert find_newest(tmp_path / "empty", heard.append) is None


def test_a_folder_that_cannot_be_written_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(RunError, match="cannot be written"):
        save_checkpoint(tmp_path / "file" / "step-1", example(1))


def test_the_manifest_says_what_wrote_it(tmp_path: Path) -> None:
    save_checkpoint(tmp_path / "step-1", example(1))
    manifest = json.loads((tmp_path / "step-1" / "manifest.json").read_text())
    assert manifest.items() >= {**WRITER, "format": FORMAT}.items()
    assert set(manifest["files"]) == {"model.safetensors", "optimizer.safetensors", "state.json"}


@pytest.mark.parametrize(
    ("writer", "advice"),
    [("9.9.9", "use Seqloom 9.9.9, which wrote it"), (None, "use the version that wrote it")],
)
def test_another_format_is_refused_with_advice_and_never_passed_over(
    writer: str | None, advice: str, tmp_path: Path
) -> None:
    for step in (1, 2):
        save_checkpoint(tmp_path / f"step-{step:08d}", example(step))
    rewrite_manifest(tmp_path / "step-00000002", format=FORMAT + 1, seqloom=writer)
    heard: list[str] = []
    with pytest.raises(RunError, match=f"step-00000002: has format {FORMAT + 1}, .* train again .*, or {advice}"):
        find_newest(tmp_path, heard.append)
    assert not heard
