"""`seqloom info`: the versions, kernels and devices of this installation."""

import json
import os
import platform
from importlib import metadata
from pathlib import Path
from typing import Annotated, Any

import typer

from seqloom import __version__

_NEEDED = ("torch", "numpy", "tokenizers", "safetensors", "pydantic", "sacrebleu")
_OPTIONAL = ("babel", "ctranslate2", "h5py", "onnx", "onnxruntime", "pyarrow", "ray", "tensorboard", "transformers")
_X86 = ("avx2", "fma", "avx512f", "avx512bw", "avx512vl", "avx512_vnni", "avx512_bf16", "amx_tile")
_FLAGS = (*_X86, "asimd", "sve", "bf16")


def info(
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Print versions, kernels and devices, as a bug report should have them.

    Example: seqloom info --json | jq .kernels
    """
    found = _collect()
    if as_json:
        typer.echo(json.dumps(found, indent=2))
        return
    kernels, processor, memory, versions = (found[key] for key in ("kernels", "processor", "memory", "versions"))
    missing = [name for name, version in versions.items() if not version]
    lines = {
        "seqloom": f"{found['seqloom']}, Python {found['python']}, {found['system']}",
        "packages": ", ".join(f"{name} {version}" for name, version in versions.items() if version),
        "optional, missing": ", ".join(missing) or "none",
        "kernels": kernels["reason"],
        "text to ids": found["text_to_ids"],
        "precisions": "; ".join(f"{name}: {how}" for name, how in kernels["precisions"].items()),
        "auto precision": f'with train.precision = "auto", training takes {found["auto_precision"]}',
        "levels built": ", ".join(kernels["levels"]) or "none",
        "threads": f"PyTorch uses {found['threads']}; kernels: {kernels['threading']}",
        "processor": f"{processor['name']}, {processor['cores']} cores; {' '.join(processor['flags'])}",
        "memory": "unknown" if memory is None else f"{memory / 2**30:.1f} GiB",
        "devices": "; ".join(f"{device['device']} ({device['name']})" for device in found["devices"]),
    }
    width = max(map(len, lines))
    for name, text in lines.items():
        typer.echo(f"{name:<{width}}  {text}")


def _collect() -> dict[str, Any]:
    import torch

    from seqloom.native import words
    from seqloom.native.library import describe
    from seqloom.runs.machine import explain_precision

    return {
        "seqloom": __version__,
        "python": platform.python_version(),
        "system": platform.platform(),
        "versions": {name: _find_version(name) for name in (*_NEEDED, *_OPTIONAL)},
        "kernels": describe()._asdict(),
        "auto_precision": explain_precision(torch.device("cpu")),
        "text_to_ids": words.describe(),
        "threads": torch.get_num_threads(),
        "processor": _describe_processor(),
        "memory": _measure_memory(),
        "devices": _list_devices(),
    }


def _find_version(name: str) -> str | None:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


def _describe_processor() -> dict[str, Any]:
    """The name and instruction sets of the processor, from /proc/cpuinfo where it exists, else from Python."""
    name, flags = platform.processor() or platform.machine(), set[str]()
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        lines = []
    for line in lines:
        key, _, value = (part.strip() for part in line.partition(":"))
        if key == "model name":
            name = value
        elif key in ("flags", "Features"):
            flags |= set(value.split())
    usable = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return {"name": name, "cores": usable, "flags": [flag for flag in _FLAGS if flag in flags]}


def _measure_memory() -> int | None:
    """The bytes of memory of this machine."""
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError, OSError):
        return None


def _list_devices() -> list[dict[str, Any]]:
    import torch

    devices: list[dict[str, Any]] = [{"device": "cpu", "name": "this processor", "memory": _measure_memory()}]
    for number in range(torch.cuda.device_count()):
        about = torch.cuda.get_device_properties(number)
        name = f"{about.name}, {about.total_memory / 2**30:.1f} GiB"
        devices.append({"device": f"cuda:{number}", "name": name, "memory": about.total_memory})
    if torch.backends.mps.is_available():
        devices.append({"device": "mps", "name": "Apple's graphics processor", "memory": None})
    return devices
