"""Memory that is freed is kept."""

import platform
import subprocess
import sys

import pytest


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="only glibc is told to keep memory")
def test_the_c_library_takes_every_setting() -> None:
    program = "from seqloom.nn.memory import keep_memory; print(keep_memory())"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == "True\n"
