"""A Ray cluster of two machines with a core each, and a program connected to it, in a process that is told what to do.

The tests' own process forks, which Ray's threads do not survive; so it talks to this one, a line of JSON at a time.
Words are a command line of seqloom, answered with how it ended. `{"killed": N, …}` translates a file, and a worker that
comes to line N is killed, the first time; `{"hidden": RUN}` asks workers for a run that they cannot see; `{"lost":
WORDS, "when": FILES}` runs a command line, and one of the two machines is lost once all the files are there;
`{"remove": null}` loses it at once.
"""

import io
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from pathlib import Path
from threading import Thread
from typing import Any


class Cluster:
    """The process, seen from the tests."""

    def __init__(self, process: "subprocess.Popen[str]") -> None:
        self.process = process
        self.address = self._read()

    def seqloom(self, *words: object) -> tuple[int, str, str]:
        """Run a command line on the cluster: its exit code and what it printed."""
        code, out, err = self.ask([str(word) for word in words])
        return code, out, err

    def ask(self, request: Any) -> Any:
        """Its answer to a request."""
        assert self.process.stdin is not None
        print(json.dumps(request), file=self.process.stdin, flush=True)
        return self._read()

    def _read(self) -> Any:
        assert self.process.stdout is not None
        return json.loads(self.process.stdout.readline())


@contextmanager
def start_cluster(log: Path) -> Iterator[Cluster]:
    """Start the process, and end it."""
    with log.open("w") as errors:
        pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": errors}
        with subprocess.Popen([sys.executable, __file__], text=True, **pipes) as process:
            yield Cluster(process)
            process.communicate()  # the end of its input is its end


def _serve() -> None:
    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    import ray
    from ray import cluster_utils

    replies, sys.stdout = sys.stdout, sys.stderr  # whatever else is printed is no reply
    small = {"num_cpus": 1, "object_store_memory": 100 << 20}
    cluster = cluster_utils.Cluster(initialize_head=True, head_node_args={**small, "include_dashboard": False})
    second = cluster.add_node(**small)
    ray.init(cluster.address, log_to_driver=False)
    print(json.dumps(cluster.address), file=replies, flush=True)
    for line in sys.stdin:
        match json.loads(line):
            case list(words):
                reply: Any = _run(words)
            case {"killed": number, "run": run, "file": file}:
                reply = _translate(Path(run), file, number)
            case {"hidden": run}:
                reply = _hide(Path(run))
            case {"lost": words, "when": files}:
                loss = Thread(target=_lose, args=(cluster, second, [Path(file) for file in files]), daemon=True)
                loss.start()
                reply = (*_run(words), not loss.is_alive())
            case {"remove": _}:
                reply = cluster.remove_node(second, allow_graceful=False)
        print(json.dumps(reply), file=replies, flush=True)
    ray.shutdown()
    cluster.shutdown()


def _run(words: list[str]) -> tuple[int, str, str]:
    from seqloom.cli.main import run

    sys.argv = ["seqloom", *words]
    code: Any = 0
    out, err = (io.TextIOWrapper(io.BytesIO(), encoding="utf-8", write_through=True) for _ in range(2))
    with redirect_stdout(out), redirect_stderr(err):
        try:
            run()
        except SystemExit as end:
            code = end.code
    return code, *(stream.buffer.getvalue().decode() for stream in (out, err))  # type: ignore[attr-defined]


def _translate(run: Path, file: str, number: int) -> tuple[list[str], str]:
    from seqloom.decode.options import Search
    from seqloom.predict import ray as cluster
    from seqloom.predict.bulk import close_windows, read_lines
    from seqloom.predict.results import Translation
    from seqloom.predict.translate import translate

    died = run / "died"
    vars(cluster)["_GROUP"], vars(cluster)["_SHARE"] = 2, 1  # so few windows at a time that there are several groups

    def ask(model: Any, numbers: list[int], texts: list[str]) -> list[Translation]:
        if number in numbers and not died.exists():
            died.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return translate(model, texts, Search(), align=False, numbers=numbers)

    printed = io.StringIO()
    with redirect_stdout(printed), cluster.open_cluster(run, ask) as run_windows:
        windows = close_windows(read_lines(file), wait=True)
        found = [result for _, results in run_windows(windows, 1) for result in results]
    assert died.exists()
    texts = [one.text if isinstance(one, Translation) else f"[failed: {one.kind}]" for one in found]  # type: ignore[union-attr]
    return texts, printed.getvalue()


def _lose(cluster: Any, node: Any, files: list[Path]) -> None:
    """Wait for some files, then end all processes of a machine at once."""
    while not all(file.exists() for file in files):
        time.sleep(0.01)
    cluster.remove_node(node, allow_graceful=False)


def _hide(run: Path) -> str:
    from seqloom.errors import RunError
    from seqloom.predict.bulk import Line
    from seqloom.predict.ray import open_cluster

    with open_cluster(run, lambda model, numbers, texts: []) as run_windows:
        run.rename(run.with_name("elsewhere"))
        try:
            list(run_windows([[Line(("the cat",))]], 1))
        except RunError as error:
            return str(error)
    return ""


if __name__ == "__main__":
    _serve()
