"""Several processes on one machine, started and watched over: what torchrun does, in one call.

A rank that is killed takes the others with it, and all start again from the last checkpoint. A rank that ends with an
error has said why; starting again would not help.
"""

import logging
import os
import sys
import uuid
from collections.abc import Callable, Sequence

from torch.distributed.elastic.multiprocessing import SignalException
from torch.distributed.elastic.multiprocessing.errors import ChildFailedError
from torch.distributed.launcher.api import LaunchConfig, elastic_launch

_RESTARTS = 3


def launch(arguments: Sequence[str], processes: int, tell: Callable[[str], None]) -> int:
    """Run `seqloom ARGUMENTS` in each of the processes; returns the exit code of the whole."""
    config = LaunchConfig(
        min_nodes=1,
        max_nodes=1,
        nproc_per_node=processes,
        rdzv_backend="c10d",
        rdzv_endpoint="localhost:0",
        max_restarts=0,
        monitor_interval=0.1,
        run_id=uuid.uuid4().hex,
    )
    logging.getLogger("torch.distributed.elastic").setLevel(logging.CRITICAL)  # what matters is told below
    os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "ERROR")  # each rank would warn of what was chosen on purpose
    for attempt in range(1 + _RESTARTS):
        try:
            elastic_launch(config, sys.executable)("-m", "seqloom", *arguments)
            return 0
        except SignalException as stopped:
            return 128 + stopped.sigval
        except ChildFailedError as failed:
            # The neighbour of a killed rank ends with an error so soon that both may be found at once.
            rank, failure = min(failed.failures.items(), key=lambda found: (found[1].exitcode >= 0, found[1].timestamp))
            if failure.exitcode >= 0:
                return failure.exitcode
            if attempt < _RESTARTS:
                tell(f"rank {rank} was killed by signal {-failure.exitcode}; all start again from the last checkpoint")
    tell(f"a rank was killed {1 + _RESTARTS} times; the same command tries again")
    return 1
