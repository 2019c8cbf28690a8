"""The trainings of a comparison on a Ray cluster (Moritz et al. 2018): each is a task, on one machine at a time.

Every machine must see the folder of the comparison and the data under the same names. A training whose machine is lost
is started again on another one, and resumes from its last checkpoint. All use as many threads as the smallest machine
has cores, unless `train.threads` says otherwise, so that their numbers do not depend on where they ran.
"""

import socket
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from seqloom.errors import RunError
from seqloom.lab.compare.campaign import PAUSE, Engine, Work
from seqloom.lab.compare.plan import Trial, use_threads
from seqloom.lab.compare.trial import ShouldStop, fail, read_outcome, run_trial
from seqloom.predict.ray import join_cluster

_RETRIES = 3


def train_on_cluster(threads: int = 0, work: Work = run_trial) -> Engine:
    """An engine that spreads trainings over the machines of a cluster; `threads` of each, or 0 for the smallest's."""

    def engine(trials: Sequence[Trial], should_stop: ShouldStop) -> Iterator[Sequence[Trial]]:
        with join_cluster() as (ray, cores):
            count = threads or min((count for count in cores if count), default=0)
            if not any(number >= count > 0 for number in cores):
                raise RunError(f"no machine of the cluster has {count} free cores for train.threads; give fewer")
            yield from _run(ray, [use_threads(trial, count) for trial in trials], count, work, should_stop)

    return engine


def _run(
    ray: Any, trials: Sequence[Trial], threads: int, work: Work, should_stop: ShouldStop
) -> Iterator[Sequence[Trial]]:
    # A process trains once: the most memory it held is then that of one training.
    task = ray.remote(num_cpus=threads, max_retries=_RETRIES, max_calls=1)(_visit)
    waiting = {task.remote(work, trial): trial for trial in trials}
    try:
        while waiting and not should_stop():
            done, _ = ray.wait(list(waiting), num_returns=1, timeout=PAUSE)
            for one in done:
                _settle(ray, one, waiting.pop(one))
            yield [trial for trial in waiting.values() if Path(trial.folder, "speed.jsonl").exists()]
    finally:
        for one in waiting:
            ray.cancel(one, force=True)


def _settle(ray: Any, done: Any, trial: Trial) -> None:
    """Make sure that there is a result, or a reason."""
    try:
        ray.get(done)
    except ray.exceptions.RayError as error:
        reason = (str(error).strip() or type(error).__name__).splitlines()[-1]
        fail(trial, f"Ray gave up: {reason}")
    if read_outcome(trial) is None:
        fail(trial, "its process ended without a result")


def _visit(work: Work, trial: Trial) -> None:
    """What happens on some machine."""
    if not Path(trial.prepared).exists():
        raise RunError(
            f"{socket.gethostname()} does not see {trial.prepared}; every machine of a Ray cluster must see the folder "
            "of the comparison and the data under the same names"
        )
    work(trial)
