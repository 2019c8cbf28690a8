"""The parts written in C: compiled for this processor when they are first needed, kept in the user's cache.

Where there is no C compiler, PyTorch does what they do; the numbers are the same up to rounding. They use the threads
of PyTorch, as many as it does: its OpenMP is what their calls find, so no second crowd of threads waits beside it.
"""

import ctypes
import hashlib
import os
import platform
import shutil
import subprocess
import tempfile
from functools import cache
from pathlib import Path

_FLAGS = (
    *("-std=gnu11", "-O3", "-march=native", "-fPIC"),
    *("-fno-math-errno", "-fno-trapping-math", "-fno-signed-zeros", "-fassociative-math"),  # sums in any order
)


@cache
def load_library(name: str) -> ctypes.CDLL | None:
    """The functions of `name`.c, or None where they cannot be had."""
    compiler = shutil.which(os.environ.get("CC", "cc"))
    if compiler is None:
        return None
    for threads in (("-fopenmp",), ()):  # without, where the compiler or PyTorch knows no OpenMP
        try:
            return ctypes.CDLL(str(_compile(compiler, name, (*_FLAGS, *threads))))
        except (OSError, subprocess.SubprocessError):
            continue
    return None


def _compile(compiler: str, name: str, flags: tuple[str, ...]) -> Path:
    here = Path(__file__).parent
    source = here / f"{name}.c"
    headers = [header.read_bytes() for header in sorted(here.glob("*.h"))]
    about = (*headers, source.read_bytes(), " ".join(flags).encode(), _name_processor())
    folder = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "seqloom"
    path = folder / f"{name}-{hashlib.sha256(b'|'.join(about)).hexdigest()[:16]}.so"
    if path.exists():
        return path
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder) as beside:
        compiled, linked = Path(beside) / f"{name}.o", Path(beside) / path.name
        # Linked without OpenMP: its functions are looked up when the library is loaded, and found in PyTorch.
        commands = (
            [compiler, *flags, "-c", "-o", str(compiled), str(source)],
            [compiler, "-shared", "-o", str(linked), str(compiled), "-lm"],
        )
        for command in commands:
            subprocess.run(command, check=True, capture_output=True, timeout=60)
        linked.replace(path)
    return path


def _name_processor() -> bytes:
    """What `-march=native` depends on."""
    try:
        lines = Path("/proc/cpuinfo").read_bytes().splitlines()
        return next(line for line in lines if line.startswith((b"flags", b"Features")))
    except (OSError, StopIteration):
        return f"{platform.machine()} {platform.processor()}".encode()
