"""The replicas of a server on a Ray cluster, as a deployment of Ray Serve (Moritz et al. 2018).

Ray starts the replicas, spreads them over the machines, starts others where some are lost, and sends each request to
the one of two replicas that has fewer. Its own HTTP proxies stay off: they know neither keys nor limits, and answer 500
where a machine is lost.
"""

import logging
import socket
import time
from collections.abc import AsyncGenerator, Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from seqloom.errors import RunError, import_extra
from seqloom.predict.ray import join_cluster, share_cores
from seqloom.predict.search import Precision
from seqloom.predict.storage import identify
from seqloom.runs.weights import find_weights
from seqloom.serve.faults import QueueFullError
from seqloom.serve.front import Front, LostError
from seqloom.serve.guard import Message
from seqloom.serve.limits import Limits
from seqloom.serve.metrics import Numbers
from seqloom.serve.replica import Asked, Replica, Settings

_NAME = "Replica"
_QUIET = {"log_level": "ERROR", "enable_access_log": False}
_PATIENCE = 300
"""Seconds in which the replicas must have started."""


@contextmanager
def open_front(
    models: Sequence[tuple[str, Path]],
    limits: Limits,
    port: int,
    *,
    workers: int | None = None,
    queue: int = 4096,
    precision: Precision = "float32",
    prepare: Callable[[], object] = int,
) -> Iterator[Front]:
    """Replicas on the cluster at RAY_ADDRESS, or else on this machine's cores, and the front before them.

    By default, each has as many cores as the smallest machine, and the cluster has as many replicas as fit.
    """
    import_extra("ray", "ray")
    serve = import_extra("ray.serve", "ray")
    named = tuple((name, folder.resolve()) for name, folder in models)
    with join_cluster() as (ray, cores):
        threads = share_cores(cores, workers) if workers else min((count for count in cores if count), default=0)
        if not threads:
            raise RunError("no machine of the Ray cluster has a core; start it with some")
        count = workers or sum(number // threads for number in cores)
        settings = Settings(named, precision, limits, queue, threads, prepare)
        replicas = _RayReplicas(ray, serve, f"seqloom-{socket.gethostname()}-{port}", settings, count)
        try:
            yield Front(replicas, limits)
        finally:
            replicas.end()


class _RayReplicas:
    """The replicas of one deployment."""

    def __init__(self, ray: Any, serve: Any, name: str, settings: Settings, count: int) -> None:
        self._ray, self._serve, self._name = ray, serve, name
        self._settings, self._count = settings, count
        self._deployment = serve.deployment(
            Replica,
            name=_NAME,
            num_replicas=count,
            ray_actor_options={"num_cpus": settings.threads},
            max_ongoing_requests=settings.queue,
            max_queued_requests=settings.queue,
            graceful_shutdown_timeout_s=settings.limits.seconds,
            max_constructor_retry_count=1,
            logging_config=_QUIET,
            health_check_period_s=1.0,
        )
        self._known = self._identify()
        logging.getLogger("ray.serve").setLevel(logging.CRITICAL)
        serve.start(proxy_location="Disabled", logging_config=_QUIET)
        self._deploy()
        try:
            self._wait()
            self._handle = serve.get_app_handle(name)
            self._answers = self._handle.options(method_name="answer", stream=True)
            if strangers := self.find_strangers():
                raise RunError(
                    f"some machines see another model than this one for {', '.join(strangers)}; every machine of a Ray "
                    "cluster must see the same runs under the same names"
                )
        except BaseException:  # also Ctrl-C: a cluster goes on without us
            self.end()
            raise

    def _identify(self) -> dict[str, str]:
        for _, folder in self._settings.models:
            if not folder.is_dir():
                find_weights(folder)  # says what is missing
        return {name: identify(folder) for name, folder in self._settings.models}

    def _deploy(self) -> None:
        target = self._serve.RunTarget(self._deployment.bind(self._settings), name=self._name, route_prefix=None)
        self._serve.run_many([target], wait_for_applications_running=False, wait_for_ingress_deployment_creation=False)

    def _wait(self) -> None:
        """Wait until every replica is there."""
        for _ in range(_PATIENCE):
            found = self._serve.status().applications.get(self._name)
            status, deployment = (None, None) if found is None else (found.status, found.deployments.get(_NAME))
            if status == "RUNNING":
                return
            if status == "DEPLOY_FAILED":
                *_, last = (deployment.message if deployment else found.message).strip().splitlines()
                raise RunError(last.removeprefix("seqloom.errors.RunError: "))
            time.sleep(1)
        raise RunError(
            f"the replicas did not start in {_PATIENCE} s; the cluster must have room for {self._count} of them, with "
            f"{self._settings.threads} free cores each; give fewer --workers"
        )

    def count(self) -> int:
        """How many replicas are running."""
        try:
            found = self._serve.status().applications[self._name].deployments[_NAME].replica_states
        except (KeyError, TimeoutError, self._ray.exceptions.RayError):
            return 0
        return int(found.get("RUNNING", 0)) + int(found.get("UPDATING", 0))

    async def ask(self, asked: Asked) -> AsyncGenerator[list[Message]]:
        """The messages of an answer; whoever stops listening cancels the request."""
        faults, parts = self._serve.exceptions, self._answers.remote(asked)
        try:
            async for messages in parts:
                yield messages
        except faults.BackPressureError:
            raise QueueFullError("too much is waiting already; try again in a moment", wait=2) from None
        except (faults.DeploymentUnavailableError, faults.ReplicaUnavailableError) as error:
            raise LostError from error
        except self._ray.exceptions.RayTaskError:  # a bug of ours
            raise
        except self._ray.exceptions.RayError as error:
            raise LostError from error
        finally:
            parts.cancel()

    def describe(self) -> list[str]:
        """What is served, as one replica says it."""
        said: list[str] = self._handle.describe.remote().result()
        return said

    def reload(self) -> list[str]:
        """Let all replicas load anew what has changed, and say so."""
        self._known = self._identify()
        return [line for said in self._broadcast("reload") for line in said]

    def find_strangers(self) -> list[str]:
        """The models that some replica has otherwise than they were here at the start, or at the last reload."""
        loaded = self._broadcast("identify")
        return [name for name, known in self._known.items() if any(own[name] != known for own in loaded)]

    def _broadcast(self, method: str) -> list[Any]:
        found = self._handle.broadcast(method).results(timeout_s=float(_PATIENCE), return_exceptions=True)
        return [one for one in found if not isinstance(one, BaseException)]

    async def read_numbers(self) -> dict[str, tuple[int, Numbers]]:
        """Of each replica, how many lines wait or are in work there, and what was counted."""
        found = await self._handle.broadcast("read_numbers").results_async(timeout_s=5.0, return_exceptions=True)
        return {one[0]: one[1:] for one in found if not isinstance(one, BaseException)}

    def end(self) -> None:
        """End the replicas; other deployments of the cluster go on."""
        self._serve.delete(self._name, _blocking=False)  # nothing is in work there any more
