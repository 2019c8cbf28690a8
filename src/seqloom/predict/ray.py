"""Bulk jobs on Ray Data (Moritz et al. 2018; Luan et al. 2023): windows go out to many processes, and back in order.

A group of windows is a dataset, so that memory is bounded; a window is a task. A process that has run a task keeps its
model open for the next one; if it dies, another process runs its window again. Workers open the model themselves, from
the run, and receive only the verb and the lines.
"""

import logging
import os
import pickle
import socket
import warnings
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, redirect_stdout
from dataclasses import dataclass
from functools import lru_cache, partial
from itertools import accumulate, islice
from pathlib import Path
from typing import Any

import torch

from seqloom import __version__
from seqloom.data.encoding import ChunkEncoder, Spread
from seqloom.data.examples import Chunk
from seqloom.data.shards import ShardEntry
from seqloom.errors import ConfigError, RunError, SeqloomError, import_extra
from seqloom.predict.bulk import Line, LineResult, Runner, Verb, apply_verb
from seqloom.predict.load import open_predictor
from seqloom.predict.predictor import Predictor
from seqloom.predict.search import Precision
from seqloom.predict.storage import identify

_GROUP = 64  # the fewest windows in a group
_RETRIES = 3  # a window that kills every worker would otherwise be tried for ever
_SHARE = 16  # the fewest windows per worker in a group, so that few workers wait for the last ones


@contextmanager
def open_cluster(
    run: Path, verb: Verb, workers: int | None = None, precision: Precision = "float32"
) -> Iterator[Runner]:
    """A runner on the cluster at RAY_ADDRESS, or else on this machine's cores; by default one worker for each core."""
    with join_cluster() as (ray, cores):
        threads = 1 if workers is None else share_cores(cores, workers)
        folder = run.resolve()
        task = _Task(str(folder), identify(folder), verb, threads, precision, __version__)
        yield partial(_run_groups, ray, task, workers, max(_GROUP, _SHARE * (workers or sum(cores))))


@contextmanager
def join_cluster() -> Iterator[tuple[Any, list[int]]]:
    """Ray, and the cores of each machine of the cluster at RAY_ADDRESS, or else of this one."""
    ray = _import_ray()
    with ExitStack() as stack:
        # Ray prints its notices, such as the death of a worker, to standard output, where the answers go.
        stack.enter_context(redirect_stdout(stack.enter_context(open(os.devnull, "w", encoding="utf-8"))))
        if not ray.is_initialized():
            _connect(ray)
            stack.callback(ray.shutdown)
        yield ray, [int(node["Resources"].get("CPU", 0)) for node in ray.nodes() if node["Alive"]]


def share_cores(cores: Sequence[int], workers: int) -> int:
    """The most cores that each worker can have, on machines with these numbers of cores."""
    for share in range(max(cores, default=0), 0, -1):
        if sum(count // share for count in cores) >= workers:
            return share
    raise ConfigError(f"--workers {workers}: a worker needs a core, and the cluster has {sum(cores)}; give fewer")


@dataclass(frozen=True)
class _Task:
    """What a worker needs to answer a window."""

    run: str
    identity: str
    verb: Verb
    threads: int
    precision: Precision
    version: str

    def answer(self, row: dict[str, Any]) -> dict[str, Any]:
        """The results of a window, or the error, pickled."""
        found: list[LineResult] | SeqloomError
        try:
            model = _open(self.run, self.identity, self.precision, self.version)
        except (SeqloomError, OSError) as error:
            found = RunError(
                f"a worker on {socket.gethostname()} cannot open the run ({error}); every machine of a Ray cluster "
                "needs the same Seqloom, and must see the same run under the same name"
            )
        else:
            torch.set_num_threads(self.threads)
            found = apply_verb(pickle.loads(row["lines"]), partial(self.verb, model), row["first"])
        return {"found": pickle.dumps(found)}


@lru_cache(maxsize=1)
def _open(run: str, identity: str, precision: Precision, version: str) -> Predictor:
    """The model of a run, kept open from one window to the next."""
    if version != __version__:
        raise RunError(f"it has Seqloom {__version__}, not {version}")
    model = open_predictor(Path(run), precision=precision)
    if identify(Path(run)) != identity:
        raise RunError(f"{run}: holds another model on that machine")
    return model


def _run_groups(
    ray: Any, task: _Task, workers: int | None, size: int, windows: Iterable[list[Line]], first: int
) -> Iterator[tuple[list[Line], list[LineResult]]]:
    rest = iter(windows)
    pool = ray.data.TaskPoolStrategy(size=workers)
    while group := list(islice(rest, size)):
        *firsts, first = accumulate(map(len, group), initial=first)
        rows = [{"first": n, "lines": pickle.dumps(window)} for n, window in zip(firsts, group, strict=True)]
        dataset = ray.data.from_items(rows, override_num_blocks=len(rows))
        with warnings.catch_warnings(action="ignore"):  # about the future of max_retries
            answers = dataset.map(task.answer, compute=pool, num_cpus=task.threads, max_retries=_RETRIES)
        yield from zip(group, _read(ray, answers), strict=True)


@contextmanager
def spread_encoding(workers: int | None = None) -> Iterator[Spread]:
    """Where the chunks of a corpus are encoded: on the cluster, by default in a process for each core.

    Workers write the shards themselves; all they send back is what the manifest says of them. Each process keeps its
    tokeniser, and what it has met, from one chunk to the next.
    """
    with join_cluster() as (ray, cores):
        count = sum(cores) if workers is None else workers
        share_cores(cores, count)
        yield partial(_spread_chunks, ray, count)


def _spread_chunks(
    ray: Any, workers: int, encoder: ChunkEncoder, chunks: Iterable[Chunk]
) -> Iterator[tuple[ShardEntry, bool]]:
    task = ray.remote(num_cpus=1, max_retries=_RETRIES)(_encode_chunk)
    sent, waiting = ray.put(pickle.dumps((__version__, encoder))), deque[Any]()

    def settle() -> tuple[ShardEntry, bool]:
        with _explain_loss(ray):
            found = ray.get(waiting.popleft())
        if isinstance(found, SeqloomError):
            raise found
        entry, new, host = found
        if not (encoder.folder / entry.file).exists():
            raise RunError(
                f"{host} has written a shard to {encoder.folder}, and it is not there; every machine of a Ray cluster "
                "must see the folder of the run under the same name"
            )
        return entry, new

    for chunk in chunks:
        if len(waiting) == 2 * workers:  # so that no worker waits, and memory is bounded
            yield settle()
        waiting.append(task.remote(sent, chunk))
    while waiting:
        yield settle()


def _encode_chunk(sent: bytes, chunk: Chunk) -> tuple[ShardEntry, bool, str] | SeqloomError:
    """What happens on some machine."""
    try:
        return *_open_encoder(sent)(chunk), socket.gethostname()
    except SeqloomError as error:
        return error


@lru_cache(maxsize=1)
def _open_encoder(sent: bytes) -> ChunkEncoder:
    version, encoder = pickle.loads(sent)
    if version != __version__:
        raise RunError(f"a worker on {socket.gethostname()} has Seqloom {__version__}, not {version}")
    found: ChunkEncoder = encoder
    return found


def _read(ray: Any, answers: Any) -> Iterator[list[LineResult]]:
    with _explain_loss(ray):
        for row in answers.iter_rows():
            found = pickle.loads(row["found"])
            if isinstance(found, SeqloomError):
                raise found
            yield found


@contextmanager
def _explain_loss(ray: Any) -> Iterator[None]:
    try:
        yield
    except ray.exceptions.UserCodeException:  # a bug of ours, with its traceback
        raise
    except (ray.exceptions.RayError, ray.data.exceptions.ExecutionTimeoutError) as error:
        reason = (str(error).strip() or type(error).__name__).splitlines()[-1]
        raise RunError(
            f"Ray gave up ({reason}): if memory was short, give fewer --workers; if a module is missing, install the "
            "same Seqloom on every machine; -o FILE --resume resumes a job that stopped"
        ) from None


def _import_ray() -> Any:
    """The library, without its usage statistics and progress bars."""
    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    ray = import_extra("ray", "ray")
    import_extra("ray.data", "ray")
    logging.getLogger("ray.data").setLevel(logging.CRITICAL)
    context = ray.data.DataContext.get_current()
    context.execution_options.preserve_order = True
    context.enable_progress_bars = False
    return ray


def _connect(ray: Any) -> None:
    where = os.environ.get("RAY_ADDRESS")
    try:
        # Without an address Ray would join the cluster that was last started on this machine, even one that is ending.
        address = None if where else "local"
        ray.init(address, include_dashboard=False, log_to_driver=False, logging_level=logging.CRITICAL)
    except (ConnectionError, RuntimeError, ValueError) as error:
        raise RunError(f"cannot use Ray{f' at RAY_ADDRESS={where}' if where else ''}: {error}") from None
