"""Tiny trained runs of every family and task, each explored by a server in this process, on a free port."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from urllib.parse import urlencode

import uvicorn
from rich.console import Console

from seqloom.predict.load import load
from seqloom.predict.model import Model
from seqloom.serve.explore import make_app
from seqloom.serve.start import bind
from seqloom.serve.subject import Subject
from seqloom.training.job import train
from seqloom.training.monitor import PlainMonitor
from small_corpora import write_config

FAMILIES = ("transformer", "recurrent", "convolutional")
TASKS = ("translation", "tagging", "classification", "language-model")
TOKEN = "a-token-for-tests"
STEPS = "steps = 40\nlabel_smoothing = 0.0\noptimizer.learning_rate = 0.01"


HOSTILE = "<script>alert(1)</script>"


def spoil(corpora: Path, folder: Path) -> Path:
    """The corpora with markup in place of a noun, so that it is a token of the source and of the target."""
    folder.mkdir()
    for file in corpora.iterdir():
        text = file.read_text(encoding="utf-8").replace("cat", HOSTILE).replace("CAT", HOSTILE)
        (folder / file.name).write_text(text, encoding="utf-8")
    return folder


def train_run(folder: Path, corpora: Path, task: str, family: str) -> Path:
    """A run of two layers, trained for a second; its tokens are what stands between spaces."""
    stack = "decoder" if task == "language-model" else "encoder"
    path = write_config(folder, corpora, task, family, STEPS)
    heads = [f"model.{stack}.num_heads=2"] if family == "transformer" else []
    done = train(
        path,
        [f"model.{stack}.num_layers=2", "tokenizer.punctuation=keep", *heads],
        out=folder / "run",
        monitor=PlainMonitor(Console(quiet=True)),
    )
    return done.folder


@dataclass(frozen=True)
class Explored:
    """A model that is being explored."""

    folder: Path
    origin: str

    @cached_property
    def model(self) -> Model:
        """The same model in Python."""
        return load(self.folder)

    def url(self, **state: str | int) -> str:
        """The address of a view."""
        return f"{self.origin}/#{urlencode({'token': TOKEN, **state})}"


@contextmanager
def explore(folder: Path) -> Iterator[Explored]:
    """Serve a folder as `seqloom explore` does."""
    with bind(0) as listening:
        port = listening.getsockname()[1]
        app = make_app(Subject(folder), port=port, token=TOKEN)
        server = uvicorn.Server(uvicorn.Config(app, log_level="warning", access_log=False, lifespan="off"))
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]}, daemon=True)
        thread.start()
        try:
            yield Explored(folder, f"http://127.0.0.1:{port}")
        finally:
            server.should_exit = True
            thread.join(10)
