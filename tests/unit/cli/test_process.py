"""Memory that is freed is kept by the processes of the command line, and by nobody else's."""

import gc
import platform
import subprocess
import sys
from pathlib import Path

import pytest

from seqloom.cli.process import resume_collection, starts_quickly
from small_corpora import corpora
from small_runs import Runs, runs

__all__ = ["corpora", "runs"]
needs_glibc = pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="only glibc can be asked to keep memory")

FREE = """
def free_some():
    '''How many of 320 MB go back to the system when they are freed.'''
    def resident():
        with open("/proc/self/status") as file:
            return next(int(line.split()[1]) / 1024 for line in file if line.startswith("VmRSS"))
    blocks = [b"x" * (64 << 20) for _ in range(5)]
    before = resident()
    del blocks
    return before - resident()
"""
LIBRARY = FREE + "import seqloom; seqloom.load(RUN).tag(['the cat sees the dog .'])"
TRAINING = FREE + "import seqloom; seqloom.train(CONFIG, ['train.steps=2'], out=OUT)"
COMMAND = FREE + "from seqloom.cli.main import app; app(['tag', RUN, LINES], standalone_mode=False)"
TRAIN_COMMAND = (
    FREE
    + "from seqloom.cli.main import app; app(['train', CONFIG, 'train.steps=2', '--out', OUT], standalone_mode=False)"
)


def measure(program: str, **names: Path) -> float:
    """The megabytes that go back to the system at the end of a program."""
    given = "".join(f"{name} = {str(path)!r}\n" for name, path in names.items())
    done = subprocess.run(
        [sys.executable, "-c", f"{given}{program}\nprint(free_some())"], capture_output=True, text=True, check=True
    )
    return float(done.stdout.splitlines()[-1])


@needs_glibc
def test_the_c_library_takes_every_setting() -> None:
    program = "from seqloom.cli.process import disable_trimming; print(disable_trimming())"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == "True\n"


@pytest.mark.long
@needs_glibc
def test_a_program_that_uses_seqloom_gives_its_memory_back(runs: Runs, tmp_path: Path) -> None:
    run = runs("tagging")
    assert measure(LIBRARY, RUN=run) > 300
    assert measure(TRAINING, CONFIG=next(run.parent.glob("*.toml")), OUT=tmp_path / "run") > 300


@pytest.mark.long
@needs_glibc
def test_the_command_line_keeps_it(runs: Runs, tmp_path: Path) -> None:
    run, lines = runs("tagging"), tmp_path / "lines.txt"
    lines.write_text("the cat sees the dog .\n")
    assert measure(COMMAND, RUN=run, LINES=lines) < 100
    assert measure(TRAIN_COMMAND, CONFIG=next(run.parent.glob("*.toml")), OUT=tmp_path / "run") < 100


def test_other_c_libraries_and_systems_are_left_alone() -> None:
    program = """
import ctypes, os, sys
sys.modules["resource"] = sys.modules["fcntl"] = None  # as on Windows
ctypes.CDLL = lambda name: object()  # a C library without mallopt
del os.sysconf
from seqloom.cli import info, process
print(process.disable_trimming(), info._measure_memory(), info._describe_processor()["cores"] > 0)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == "False None True\n"


def test_garbage_is_looked_for_once_the_start_is_over() -> None:
    seen: list[bool] = []

    @starts_quickly
    def command(fails: bool) -> None:
        seen.append(gc.isenabled())
        if fails:
            raise ValueError("it fails")
        resume_collection()
        seen.append(gc.isenabled())

    command(fails=False)
    assert gc.isenabled()
    with pytest.raises(ValueError, match="it fails"):
        command(fails=True)
    assert gc.isenabled()
    assert seen == [False, True, False]
    gc.unfreeze()


@pytest.mark.long
def test_a_verb_computes_with_garbage_looked_for(runs: Runs, tmp_path: Path) -> None:
    program = (
        "import gc, seqloom.predict.tag as room; tag = room.tag; seen = []\n"
        "room.tag = lambda *given, **more: seen.append(gc.isenabled()) or tag(*given, **more)\n"
        f"from seqloom.cli.main import app; app(['tag', {str(runs('tagging'))!r}, {str(tmp_path / 'lines')!r}], "
        "standalone_mode=False)\nprint(seen[-1])"
    )
    (tmp_path / "lines").write_text("the cat sees the dog .\n")
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "True"
