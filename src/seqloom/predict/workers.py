"""Work on all cores: each worker takes a part, such as a batch of lines, and computes it on one core.

The threads of one product wait for each other after each of thousands of products; workers that compute different lines
wait for nobody. They are threads of this process: kernels and torch let go of Python's lock while they compute.
"""

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

import torch

T = TypeVar("T")
R = TypeVar("R")


def share(parts: Sequence[T], compute: Callable[[T], R], workers: int) -> Iterator[R]:
    """What `compute` makes of each part, in order; of one part or by one worker, it is computed here."""
    if workers == 1 or len(parts) < 2:
        yield from map(compute, parts)
        return
    threads, inference = torch.get_num_threads(), torch.is_inference_mode_enabled()

    def compute_alone(part: T) -> R:
        with torch.inference_mode(inference):  # a mode is a thread's own
            return compute(part)

    pool = ThreadPoolExecutor(min(workers, len(parts)), "seqloom", torch.set_num_threads, (1,))
    try:
        yield from pool.map(compute_alone, parts)
    finally:
        pool.shutdown(cancel_futures=True)
        torch.set_num_threads(threads)  # new threads take over what was set last, wherever that was
