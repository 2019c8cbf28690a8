"""Bulk jobs on Ray Data (Moritz et al. 2018; Luan et al. 2023): windows go out to many processes, and back in order.

A group of windows is a dataset, so that memory is bounded; a window is a task. The actors of a dataset end with it, but
a process that has run a task waits for the next one, with the model it has opened; and where it dies, another one runs
its window again. A worker opens the model itself, from the run, and is sent only what to verb of it.
"""

import logging
import os
import pickle
import socket
import warnings
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, redirect_stdout
from dataclasses import dataclass
from functools import lru_cache, partial
from importlib import import_module
from itertools import accumulate, islice
from pathlib import Path
from typing import Any

import torch

from seqloom import __version__
from seqloom.errors import ConfigError, RunError, SeqloomError
from seqloom.predict.bulk import Line, LineResult, Runner, Verb, apply_verb
from seqloom.predict.load import open_predictor
from seqloom.predict.predictor import Predictor
from seqloom.predict.storage import identify

_GROUP = 64  # the least windows sent at once
_RETRIES = 3  # a window that kills every worker it comes to would otherwise go round for ever
_SHARE = 16  # the least windows of a worker: some have their last while others wait, and this keeps that short


@contextmanager
def open_cluster(run: Path, verb: Verb, workers: int | None = None) -> Iterator[Runner]:
    """Answers on the cluster of RAY_ADDRESS, or else on one of this machine's cores; without `workers`, one a core."""
    ray = _import_ray()
    with ExitStack() as stack:
        # What Ray notices, such as the death of a worker, it prints where the answers go.
        stack.enter_context(redirect_stdout(stack.enter_context(open(os.devnull, "w", encoding="utf-8"))))
        if not ray.is_initialized():
            _connect(ray)
            stack.callback(ray.shutdown)
        cores = [int(node["Resources"].get("CPU", 0)) for node in ray.nodes() if node["Alive"]]
        threads = 1 if workers is None else share_cores(cores, workers)
        folder = run.resolve()
        task = _Task(str(folder), identify(folder), verb, threads, __version__)
        yield partial(_run_groups, ray, task, workers, max(_GROUP, _SHARE * (workers or sum(cores))))


def share_cores(cores: Sequence[int], workers: int) -> int:
    """The most cores for each of so many workers, on machines with these numbers of cores."""
    for share in range(max(cores, default=0), 0, -1):
        if sum(count // share for count in cores) >= workers:
            return share
    raise ConfigError(f"--workers {workers}: a worker needs a core, and the cluster has {sum(cores)}; give fewer")


@dataclass(frozen=True)
class _Task:
    """What a worker does with a window, to be sent to it."""

    run: str
    identity: str
    verb: Verb
    threads: int
    version: str

    def answer(self, row: dict[str, Any]) -> dict[str, Any]:
        """The results of a window, or why there are none: an error of Seqloom's own travels as such."""
        found: list[LineResult] | SeqloomError
        try:
            model = _open(self.run, self.identity, self.version)
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
def _open(run: str, identity: str, version: str) -> Predictor:
    """The model of a run; it stays open from one window to the next."""
    if version != __version__:
        raise RunError(f"it has Seqloom {__version__}, not {version}")
    model = open_predictor(Path(run))
    if identify(Path(run)) != identity:
        raise RunError(f"{run}: is another model there")
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
        with warnings.catch_warnings(action="ignore"):  # that max_retries will have to be said in another way
            answers = dataset.map(task.answer, compute=pool, num_cpus=task.threads, max_retries=_RETRIES)
        yield from zip(group, _read(ray, answers), strict=True)


def _read(ray: Any, answers: Any) -> Iterator[list[LineResult]]:
    rows = iter(answers.iter_rows())
    while (row := _next(ray, rows)) is not None:
        found = pickle.loads(row["found"])
        if isinstance(found, SeqloomError):
            raise found
        yield found


def _next(ray: Any, rows: Iterator[dict[str, Any]]) -> dict[str, Any] | None:
    try:
        return next(rows, None)
    except ray.exceptions.UserCodeException:  # a bug of ours, with its traceback
        raise
    except (ray.exceptions.RayError, ray.data.exceptions.ExecutionTimeoutError) as error:
        reason = (str(error).strip() or type(error).__name__).splitlines()[-1]
        raise RunError(
            f"Ray gave up ({reason}): if memory was short, give fewer --workers; if something is not there, install "
            "the same Seqloom on every machine; -o FILE --resume goes on where a job stopped"
        ) from None


def _import_ray() -> Any:
    """The library; it counts its users by default, but not ours."""
    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    try:
        ray = import_module("ray")
        import_module("ray.data")
    except ImportError:
        raise RunError("Ray is not installed; pip install 'seqloom[ray]'") from None
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
        raise RunError(
            f"there is no Ray cluster to be had{f' at RAY_ADDRESS={where}' if where else ''}: {error}"
        ) from None
