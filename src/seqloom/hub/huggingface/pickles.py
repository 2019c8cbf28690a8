"""Old checkpoints are pickles, and a pickle is a program: opening one may run whatever its author wrote.

This conversion is the only place in Seqloom that opens them. It uses torch's restricted unpickler, which knows how to
make tensors and plain containers and refuses every other instruction, and writes the tensors down as safetensors.
"""

import zipfile
from pathlib import Path

import torch
from safetensors.torch import save_file
from torch import Tensor

from seqloom.errors import DataError

_NAME = "pytorch_model.bin"
_MOST = 64  # times the size of the file that its contents may unpack to


def convert_pickle(folder: Path) -> Path:
    """Write `model.safetensors` beside `pytorch_model.bin`; the pickle is left as it is."""
    source, target = folder / _NAME, folder / "model.safetensors"
    if not source.is_file():
        raise DataError(f"{source}: there is no such file")
    if target.exists():
        raise DataError(f"{target}: exists already; nothing was done")
    _check_archive(source)
    try:
        content = torch.load(source, map_location="cpu", weights_only=True)
    except Exception as error:  # a hostile pickle may fail in any way
        raise DataError(f"{source}: is not a checkpoint of tensors alone: {str(error).splitlines()[0]}") from None
    if not isinstance(content, dict) or not all(isinstance(v, Tensor) for v in content.values()):
        raise DataError(f"{source}: holds more than tensors by name; it cannot be converted")
    save_file({str(name): tensor.detach().clone().contiguous() for name, tensor in content.items()}, target)
    return target


def _check_archive(path: Path) -> None:
    """Refuse an archive that would unpack to far more than it is, and files of the oldest format."""
    if not zipfile.is_zipfile(path):
        raise DataError(f"{path}: is not in the format that torch has written since 1.6; save it anew with torch.save")
    with zipfile.ZipFile(path) as archive:
        unpacked = sum(entry.file_size for entry in archive.infolist())
    if unpacked > _MOST * path.stat().st_size:
        raise DataError(f"{path}: would unpack to {unpacked} bytes, which no checkpoint of its size does")
