"""Reading files from people we do not know: sizes are checked before memory is allocated, and nothing is executed.

A safetensors file starts with the length of its header in eight bytes. The header, in JSON, maps names to dtype, shape
and [start, stop); the numbers follow. It is checked against the size of the file, so a small file cannot make us
allocate much memory.

Old checkpoints are pickles, and a pickle is a program: opening one may run whatever its author wrote. `convert_pickle`
is the only place in Seqloom that opens them. It uses torch's restricted unpickler, which can make tensors and plain
containers and refuses every other instruction, and it writes the tensors as safetensors.
"""

import json
import math
import re
import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from seqloom.errors import DataError

_MAX_JSON = 1 << 24  # bytes of a config.json
_MAX_HEADER = 1 << 26  # bytes; a model of a hundred thousand tensors needs a tenth of it
_WIDTHS = {"F64": 8, "F32": 4, "F16": 2, "BF16": 2, "I64": 8, "I32": 4, "I16": 2, "I8": 1, "U8": 1, "BOOL": 1}
_FLOATS = ("F64", "F32", "F16", "BF16")
_INDEX = "model.safetensors.index.json"
_MAX_INFLATION = 64  # how many times its own size a pickle may unpack to


def read_json(path: Path, limit: int = _MAX_JSON) -> dict[str, Any]:
    """A JSON object of a sensible size."""
    try:
        if path.stat().st_size > limit:
            raise DataError(f"{path}: has {path.stat().st_size} bytes, more than such a file needs")
        content = json.loads(path.read_bytes())
    except OSError as error:
        raise DataError(f"{path}: cannot be read: {error.strerror}") from None
    except (ValueError, RecursionError) as error:
        raise DataError(f"{path}: not JSON: {error}") from None
    if not isinstance(content, dict):
        raise DataError(f"{path}: expected a JSON object, not a {type(content).__name__}")
    return content


def read_lines(path: Path) -> list[str]:
    """The lines of a text file, such as a vocabulary, without their ends."""
    try:
        return [line.rstrip("\r") for line in path.read_text(encoding="utf-8").split("\n")]
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(f"{path}: cannot be read: {error}") from None


@dataclass(frozen=True)
class Entry:
    """A tensor in a safetensors file, read only when it is used."""

    file: Path
    name: str
    dtype: str
    shape: tuple[int, ...]

    def read(self) -> Tensor:
        """The data, as float32."""
        try:
            with safe_open(self.file, framework="pt") as file:
                tensor: Tensor = file.get_tensor(self.name)
        except (SafetensorError, OSError, RuntimeError) as error:
            raise DataError(f"{self.file}: {self.name} cannot be read: {error}") from None
        return tensor.float()

    def outline(self) -> Tensor:
        """A tensor of the same shape that has no data and takes no memory."""
        if self.dtype not in _FLOATS:
            raise DataError(f"{self.file}: {self.name} holds {self.dtype} (quantised?); import the full weights")
        return torch.empty(self.shape, device="meta")


def open_weights(folder: Path) -> dict[str, Entry]:
    """The tensors of `model.safetensors`, or of the parts that its index lists."""
    entries: dict[str, Entry] = {}
    for file in _find_parts(folder):
        for stored, entry in read_header(file).items():
            # Checkpoints that came from TensorFlow call the parameters of a norm gamma and beta.
            name = re.sub(r"LayerNorm\.gamma$", "LayerNorm.weight", stored)
            name = re.sub(r"LayerNorm\.beta$", "LayerNorm.bias", name)
            if name in entries:
                raise DataError(f"{file}: {name} is in {entries[name].file.name} as well")
            entries[name] = entry
    return entries


def _find_parts(folder: Path) -> list[Path]:
    single = folder / "model.safetensors"
    if single.is_file():
        return [single]
    if not (folder / _INDEX).is_file():
        pickles = find_pickles(folder)
        advice = f"; `seqloom unpickle {folder}` makes one from {pickles[0].name}" if pickles else ""
        raise DataError(f"{folder}: has no model.safetensors{advice}")
    listed = read_json(folder / _INDEX, _MAX_HEADER).get("weight_map")
    if not isinstance(listed, dict):
        raise DataError(f"{folder / _INDEX}: has no weight_map")
    names = {str(name) for name in listed.values()}
    for name in sorted(names):
        if Path(name).name != name or not name.endswith(".safetensors") or not (folder / name).is_file():
            raise DataError(f"{folder / _INDEX}: lists {name!r}, which is not a safetensors file of this folder")
    return [folder / name for name in sorted(names)]


def read_header(path: Path) -> dict[str, Entry]:
    """What a safetensors file claims to hold, checked against its size."""
    size = path.stat().st_size
    with path.open("rb") as file:
        first = file.read(8)
        length = int.from_bytes(first, "little")
        if size < 8 or length > min(size - 8, _MAX_HEADER):
            pickled = first.startswith((b"PK", b"\x80"))
            reason = "it is a pickle, which could run code when opened" if pickled else "its length does not fit"
            raise DataError(f"{path}: is not a safetensors file: {reason}; nothing was read")
        try:
            header = json.loads(file.read(length))
        except (ValueError, RecursionError):
            raise DataError(f"{path}: is not a safetensors file: its header is not JSON") from None
    if not isinstance(header, dict):
        raise DataError(f"{path}: is not a safetensors file: its header is not an object")
    header.pop("__metadata__", None)
    found = {name: _read_entry(path, name, described) for name, described in header.items()}
    end = 0
    for start, stop in sorted(span for _, span in found.values()):
        if start != end:
            raise DataError(f"{path}: its tensors overlap or leave gaps")
        end = stop
    if end != size - 8 - length:
        raise DataError(f"{path}: holds {size - 8 - length} bytes of data, but its header describes {end}")
    return {name: entry for name, (entry, _) in found.items()}


def _read_entry(path: Path, name: str, described: Any) -> tuple[Entry, tuple[int, int]]:
    """A tensor, and the span of its bytes."""
    match described:
        case {"dtype": str(dtype), "shape": list(shape), "data_offsets": [int(start), int(stop)]}:
            pass
        case _:
            raise DataError(f"{path}: {name}: its header entry is malformed")
    if not all(type(side) is int and 0 < side < 1 << 48 for side in shape) or len(shape) > 8:
        raise DataError(f"{path}: {name}: {str(shape)[:60]} is not a shape")
    if dtype not in _WIDTHS:
        raise DataError(f"{path}: {name}: data of type {dtype[:20]} (quantised?) cannot be imported")
    if start < 0 or stop - start != math.prod(shape) * _WIDTHS[dtype]:
        raise DataError(f"{path}: {name}: {stop - start} bytes do not hold the shape {shape}")
    return Entry(path, name, dtype, tuple(shape)), (start, stop)


def convert_pickle(folder: Path) -> Path:
    """Write `model.safetensors` beside `pytorch_model.bin`, or its parts; the pickles are left as they are."""
    target = folder / "model.safetensors"
    if target.exists():
        raise DataError(f"{target}: exists already; nothing was done")
    content: dict[str, Tensor] = {}
    for source in find_pickles(folder) or [folder / "pytorch_model.bin"]:
        content |= _open_pickle(source)
    save_file({str(name): tensor.detach().clone().contiguous() for name, tensor in content.items()}, target)
    return target


def find_pickles(folder: Path) -> list[Path]:
    """An old checkpoint: one file, or several parts."""
    single = folder / "pytorch_model.bin"
    return [single] if single.is_file() else sorted(folder.glob("pytorch_model-*-of-*.bin"))


def _open_pickle(source: Path) -> dict[str, Tensor]:
    if not source.is_file():
        raise DataError(f"{source}: there is no such file")
    if not zipfile.is_zipfile(source):
        raise DataError(
            f"{source}: is not in the format that torch has written since 1.6; save it again with torch.save"
        )
    with zipfile.ZipFile(source) as archive:
        unpacked = sum(entry.file_size for entry in archive.infolist())
    if unpacked > _MAX_INFLATION * source.stat().st_size:
        raise DataError(f"{source}: would unpack to {unpacked} bytes, which no checkpoint of its size does")
    try:
        content = torch.load(source, map_location="cpu", weights_only=True)
    except Exception as error:  # a hostile pickle may fail in any way
        raise DataError(f"{source}: is not a checkpoint of tensors alone: {str(error).splitlines()[0]}") from None
    if not isinstance(content, dict) or not all(isinstance(v, Tensor) for v in content.values()):
        raise DataError(f"{source}: holds more than tensors by name; it cannot be converted")
    return content
