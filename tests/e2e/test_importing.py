"""Published weights through the commands: import, use, fine-tune."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from seqloom.predict.load import load

transformers = pytest.importorskip("transformers", reason="makes the folder; pip install transformers")
WORDS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *"abcdefgh"]


def seqloom(*arguments: str, cwd: Path, given: str = "") -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "seqloom", *arguments]
    return subprocess.run(command, capture_output=True, text=True, cwd=cwd, input=given)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    config = transformers.BertConfig(
        vocab_size=16, hidden_size=12, num_hidden_layers=1, num_attention_heads=3, intermediate_size=8
    )
    transformers.BertForMaskedLM(config).save_pretrained(tmp_path / "bert")
    (tmp_path / "bert" / "vocab.txt").write_text("\n".join(WORDS) + "\n")
    return tmp_path / "bert"


def test_an_imported_run_is_the_folder(folder: Path, tmp_path: Path) -> None:
    done = seqloom("import", str(folder), "-o", "run", "--json", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["task"] == "masked-language-model"
    assert seqloom("verify", "run", cwd=tmp_path).returncode == 0
    assert json.loads((tmp_path / "run" / "manifest.json").read_bytes())["precision"] == "float32"
    texts = ["a b c", "h"]
    np.testing.assert_array_equal(load(tmp_path / "run").embed(texts), load(folder).embed(texts))
    assert load(tmp_path / "run").fill("a [MASK] c") == load(folder).fill("a [MASK] c")
    again = seqloom("import", str(folder), "-o", "run", cwd=tmp_path)
    assert again.returncode == 1
    assert "is not empty" in again.stderr


@pytest.mark.long
def test_fine_tuning_starts_from_it(folder: Path, tmp_path: Path) -> None:
    assert seqloom("import", str(folder), "-o", "run", cwd=tmp_path).returncode == 0
    (tmp_path / "data.tsv").write_text("text\tlabel\na b\tgood\nc d\tbad\na c b\tgood\nd d\tbad\n")
    (tmp_path / "tuned.toml").write_text(
        'task = "classification"\ninit = "run"\ndata.train.files = "data.tsv"\n[train]\nsteps = 1\nthreads = 1\n'
        'freeze = ["embedding", "encoder"]\n'
    )
    done = seqloom("train", "tuned.toml", "--out", "tuned", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    before, after = load(folder).network, load(tmp_path / "tuned").network
    for name, parameter in before.named_parameters():
        if name.startswith(("embedding", "encoder")):
            assert bool((after.get_parameter(name) == parameter).all()), name


def test_a_folder_that_cannot_be_imported(tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    done = seqloom("import", "other", cwd=tmp_path)
    assert done.returncode == 1
    assert "other: holds no published weights: neither Hugging Face's config.json nor ELMo's files" in done.stderr
    assert not (tmp_path / "runs" / "other").exists()


@pytest.mark.long
def test_unpickle_says_what_it_does(folder: Path, tmp_path: Path) -> None:
    old = shutil.copytree(folder, tmp_path / "old")
    torch.save(load_file(old / "model.safetensors"), old / "pytorch_model.bin")
    (old / "model.safetensors").unlink()
    done = seqloom("unpickle", str(old), cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "a pickle, with the restricted unpickler" in done.stderr
    done = seqloom("unpickle", str(old), cwd=tmp_path)
    assert done.returncode == 1
    assert "exists already; nothing was done" in done.stderr
