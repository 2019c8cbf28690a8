"""Files made to hurt: a clear error, nothing executed, no memory taken."""

import json
import os
import pickle
import random
import struct
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from seqloom.errors import DataError, SeqloomError
from seqloom.hub.huggingface.files import convert_pickle, read_header
from seqloom.hub.load import load_published

Bert = Callable[..., Path]


class Evil:
    """An object whose pickle runs a command."""

    def __init__(self, mark: Path) -> None:
        self.mark = mark

    def __reduce__(self) -> Any:
        return os.system, (f"touch {self.mark}",)


def split(data: bytes) -> tuple[dict[str, Any], bytes]:
    (length,) = struct.unpack("<Q", data[:8])
    return json.loads(data[8 : 8 + length]), data[8 + length :]


def mutate(data: bytes, dice: random.Random) -> bytes:
    """One way or another of spoiling a safetensors file."""
    header, numbers = split(data)
    name = dice.choice(sorted(header))
    entry = header[name]
    absurd = dice.choice([-1, 0, 1, 2**31, 2**62, 2**63, 2**64, 10**30, 1.5, "4", None, True, [], {}])
    match dice.randrange(9):
        case 0:
            spoiled = bytearray(data)
            for _ in range(dice.randrange(1, 8)):
                spoiled[dice.randrange(len(data) - len(numbers))] = dice.randrange(256)
            return bytes(spoiled)
        case 1:
            return data[: dice.randrange(len(data))]
        case 2:
            return struct.pack("<Q", dice.choice([0, 1, len(data), 2**32, 2**63, 2**64 - 1])) + data[8:]
        case 3:
            entry["shape"] = [absurd] * dice.randrange(20)
        case 4:
            entry["data_offsets"] = [absurd, dice.choice([absurd, 0, 2**40])]
        case 5:
            entry["dtype"] = dice.choice(["F8_E4M3", "I4", "", "F32 ", "I64", "BF16", None, 3])
        case 6:
            header[name] = absurd
        case 7:
            header = {**header, name * 2: dict(entry)}
        case 8:
            header[name] = json.loads("[" * 500 + "]" * 500)
    text = json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + numbers


def test_500_spoiled_headers(bert: Bert) -> None:
    folder = bert()
    path, dice = folder / "model.safetensors", random.Random(0)
    whole = path.read_bytes()
    refused = []
    for _ in range(500):
        path.write_bytes(mutate(whole, dice))
        try:
            load_published(folder)
        except SeqloomError as error:
            refused.append(str(error))
    assert len(refused) > 400
    assert all(str(folder) in message for message in refused)
    path.write_bytes(whole)
    load_published(folder)


ABSURD: dict[str, list[Any]] = {
    "hidden_size": [2**30, 2**31 - 1, 2**62, 10**30, 0, -4, 4.0, "4", None, [4], True],
    "num_hidden_layers": [2**30, 10**12, 0, 2, 100],
    "num_attention_heads": [2**30, 3, 0],
    "intermediate_size": [2**31 - 1, 2**40, 0],
    "vocab_size": [2**31 - 1, 2**40, 11, 0],
    "max_position_embeddings": [2**31 - 1, 2**40, 1],
    "type_vocab_size": [2**31 - 1, 0],
    "layer_norm_eps": [-1.0, 1e308, "small", float("nan")],
    "hidden_act": ["quick_gelu", "__import__('os')", 7],
    "position_embedding_type": ["relative_key"],
    "is_decoder": [True],
    "add_cross_attention": [True],
    "quantization_config": [{"bits": 4}],
    "model_type": ["mamba", 3, None],
    "architectures": [["BertForQuestionAnswering"]],
}


@pytest.mark.parametrize(("key", "number"), [(key, n) for key, values in ABSURD.items() for n in range(len(values))])
def test_absurd_settings(bert: Bert, key: str, number: int) -> None:
    with pytest.raises(SeqloomError, match=r"bert"):
        load_published(bert(**{key: ABSURD[key][number]}))


def test_absurd_settings_take_no_memory(bert: Bert) -> None:
    """In a process that may not have more than half a gigabyte beyond what the libraries need."""
    folder = bert(hidden_size=2**20, intermediate_size=2**24, vocab_size=2**30, max_position_embeddings=2**30)
    code = """
import resource, sys, seqloom.predict.load
from seqloom.errors import SeqloomError
used = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (used + (1 << 29),) * 2)
try:
    seqloom.load(sys.argv[1])
except SeqloomError as error:
    print(error)
"""
    done = subprocess.run([sys.executable, "-c", code, str(folder)], capture_output=True, text=True, check=True)
    assert "embedding.weight is (12, 4), but by its configuration it is (1073741824, 1048576)" in done.stdout


@pytest.mark.parametrize("name", ["config.json", "vocab.txt", "model.safetensors"])
@pytest.mark.parametrize(
    "content", [b"", b"{", b"[" * 100_000, b"\xff\xfe", b"[]", b"null", random.Random(1).randbytes(64)], ids=range(7)
)
def test_files_that_are_something_else(bert: Bert, name: str, content: bytes) -> None:
    folder = bert()
    (folder / name).write_bytes(content)
    with pytest.raises(SeqloomError):
        load_published(folder)


@pytest.mark.parametrize("protocol", range(6))
def test_a_pickle_under_another_name_is_not_opened(bert: Bert, tmp_path: Path, protocol: int) -> None:
    folder, mark = bert(), tmp_path / "executed"
    content = torch_archive(Evil(mark), tmp_path) if protocol > 4 else pickle.dumps(Evil(mark), protocol)
    (folder / "model.safetensors").write_bytes(content)
    with pytest.raises(DataError, match="is not a safetensors file"):
        load_published(folder)
    assert not mark.exists()


def torch_archive(content: Any, folder: Path) -> bytes:
    path = folder / "archive"
    torch.save(content, path)
    return path.read_bytes()


def test_a_hostile_checkpoint_is_not_converted(bert: Bert, tmp_path: Path) -> None:
    folder, mark = bert(), tmp_path / "executed"
    (folder / "model.safetensors").unlink()
    (folder / "pytorch_model.bin").write_bytes(torch_archive({"weight": Evil(mark)}, tmp_path))
    with pytest.raises(DataError, match="is not a checkpoint of tensors alone"):
        convert_pickle(folder)
    assert not mark.exists()
    assert not (folder / "model.safetensors").exists()


def test_an_index_cannot_lead_out_of_its_folder(bert: Bert, tmp_path: Path) -> None:
    folder = bert()
    (folder / "model.safetensors").rename(tmp_path / "secret.safetensors")
    for name in ("../secret.safetensors", "/etc/passwd", "nowhere.safetensors", "config.json"):
        (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": {"a": name}}))
        with pytest.raises(DataError, match="which is not a safetensors file of this folder"):
            load_published(folder)


def test_a_header_of_nothing() -> None:
    with pytest.raises(DataError):
        read_header(Path(os.devnull))
