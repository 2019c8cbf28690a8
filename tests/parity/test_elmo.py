"""A small published ELMo beside the vectors that its TensorFlow implementation computed."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

from seqloom.errors import DataError
from seqloom.hub.bundle import Bundle
from seqloom.hub.elmo import load_folder
from seqloom.predict.load import load
from seqloom.types import TokenBatch
from shared_data import corpus

h5py = pytest.importorskip("h5py", reason="the published weights are HDF5; pip install h5py")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The published files, with a list of the words that the reference sentences have."""
    for name in ("options.json", "lm_weights.hdf5"):
        shutil.copyfile(corpus(f"elmo/{name}"), tmp_path / name)
    words = {word for stream in sentences() for line in stream for word in line.split()}
    (tmp_path / "vocab.txt").write_text("\n".join(sorted(words)), encoding="utf-8")
    return tmp_path


def sentences() -> list[list[str]]:
    return json.loads(corpus("elmo/lm_embeddings_sentences.json").read_bytes())


def encode(found: Bundle, rows: list[list[int]]) -> Tensor:
    """The top layer of both directions over sentences in a row, states carried from one to the next."""
    ids = torch.tensor([[id for row in rows for id in row]])
    with torch.no_grad():
        return found.network.encode(TokenBatch(ids, torch.ones_like(ids, dtype=torch.bool))).states[0]


@pytest.mark.parametrize("stream", range(3))
def test_the_vectors_of_the_reference(folder: Path, stream: int) -> None:
    """It carried states on: forwards into the next sentence's first word, backwards into the next one's last."""
    found = load_folder(folder)
    roles = found.tokenizer.roles
    rows = [[roles.bos, *found.tokenizer.encode(line).ids, roles.eos] for line in sentences()[stream]]
    ends = np.cumsum([len(row) for row in rows])
    ahead, behind = encode(found, rows)[:, :16], encode(found, rows[::-1])[:, 16:]
    with h5py.File(corpus(f"elmo/lm_embeddings_{stream}.hdf5")) as file:
        assert len(file) == len(rows)
        for number, row in enumerate(rows):
            start = ends[number] - len(row)
            back = ends[-1] - ends[number]
            ours = torch.stack([ahead[start : start + len(row)], behind[back : back + len(row)]])[:, 1:-1]
            np.testing.assert_allclose(ours.numpy(), file[str(number)][...], rtol=0, atol=1e-5)


def test_it_embeds_as_any_model_does(folder: Path) -> None:
    model = load(folder)
    assert model.embed(["Don 't !"]).shape == (1, 32)
    first, second = (model.embed(text, level="token").vectors[0] for text in ("the school", "the strike"))
    assert np.abs(first - second).max() > 1e-4


def test_files_that_do_not_fit(folder: Path) -> None:
    options = json.loads((folder / "options.json").read_text())
    options["lstm"]["dim"] = 2**30
    (folder / "options.json").write_text(json.dumps(options))
    with pytest.raises(DataError, match=r"W_0 is \(32, 256\), but the options say \(32, 4294967296\)"):
        load_folder(folder)
    (folder / "lm_weights.hdf5").write_bytes(b"\x89HDF\r\n\x1a\n" + bytes(200))
    with pytest.raises(DataError, match="is not ELMo's file of weights"):
        load_folder(folder)
    (folder / "vocab.txt").unlink()
    with pytest.raises(DataError, match="add one with the words"):
        load_folder(folder)
