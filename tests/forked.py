"""The command line in a process of its own that need not start Python: it is forked off the tests' own."""

import gc
import io
import os
import sys
import tempfile
import traceback
from dataclasses import dataclass, field
from typing import IO

from seqloom.cli.main import run


@dataclass
class Command:
    """A running `seqloom`; what it prints is kept in files."""

    pid: int
    files: dict[str, IO[bytes]] = field(repr=False)

    def wait(self) -> "Done":
        _, status = os.waitpid(self.pid, 0)
        out, err = (self._read(name) for name in ("stdout", "stderr"))
        return Done(os.waitstatus_to_exitcode(status), out, err)

    def _read(self, name: str) -> bytes:
        with self.files[name] as file:
            file.seek(0)
            return file.read()


@dataclass(frozen=True)
class Done:
    """How a command ended; a negative code is the signal that killed it."""

    returncode: int
    stdout: bytes
    stderr: bytes


def start(*arguments: object, stdin: bytes = b"") -> Command:
    """Start `seqloom ARGUMENTS`, as a user does."""
    names = ("stdin", "stdout", "stderr")
    files: dict[str, IO[bytes]] = {name: tempfile.TemporaryFile() for name in names}  # noqa: SIM115 - read after the end
    files["stdin"].write(stdin)
    files["stdin"].seek(0)
    pid = os.fork()
    if pid:
        files["stdin"].close()
        return Command(pid, files)
    os._exit(run_on([str(argument) for argument in arguments], [file.fileno() for file in files.values()]))


def seqloom(*arguments: object, stdin: bytes = b"") -> Done:
    """Run `seqloom ARGUMENTS` to its end."""
    return start(*arguments, stdin=stdin).wait()


def run_on(arguments: list[str], descriptors: list[int]) -> int:
    """`seqloom ARGUMENTS` in this process, which was forked for it, on other files; its exit code."""
    gc.freeze()  # what the parent made is not taken down here: objects with threads would wait for them for ever
    try:
        os.environ["TOKENIZERS_PARALLELISM"] = "false"  # its threads do not survive a fork
        for number, descriptor in enumerate(descriptors):
            os.dup2(descriptor, number)
        sys.stdin, sys.stdout, sys.stderr = (
            io.TextIOWrapper(os.fdopen(n, mode, closefd=False), write_through=True)  # type: ignore[arg-type]
            for n, mode in enumerate(("rb", "wb", "wb"))
        )
        sys.argv = ["seqloom", *arguments]
        run()
    except SystemExit as end:
        sys.stdout.flush()
        sys.stderr.flush()
        return end.code if isinstance(end.code, int) else 0 if end.code is None else 1
    except BaseException:
        traceback.print_exc()
        sys.stderr.flush()
        return 70
    return 0
