"""Restricted self-attention costs what it should: `python bench/window.py [--threads 1] [--write]`

One self-attention layer (projections and all), d = 256, 4 heads, r = 128. Twice the tokens must take less than 2.3
times the time and the memory, and at 8,192 tokens the blocks must be at least 5 times as fast as the n × n window mask.
Time: turns in one process. Memory: the peak of the resident set above what it was before, each in a process of its own.
"""

import argparse
import os
import statistics
import subprocess
import sys
from collections.abc import Callable

import torch
from results import draw_table, write_section
from timing import interleave
from torch import Tensor

from seqloom.nn.attention import attend
from seqloom.nn.efficient_attention import window_mask
from seqloom.nn.multihead import SelfAttention
from seqloom.nn.packing import Packing

DIM, HEADS, WINDOW, SHORT, LONG = 256, 4, 128, 4096, 8192
PASSES = ("forward", "forward + backward")


class MaskedAttention(SelfAttention):
    """The same layer and the same numbers, by an n × n mask."""

    def _attend(self, query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None) -> Tensor:
        assert self.window is not None
        return attend(query, key, value, window_mask(query.shape[2], self.window, causal=self.causal))


KINDS: dict[str, type[SelfAttention]] = {"blocks": SelfAttention, "mask": MaskedAttention}


def prepare(kind: type[SelfAttention], length: int, which: str) -> Callable[[], None]:
    torch.manual_seed(0)
    layer, packing = kind(DIM, HEADS, window=WINDOW), Packing(torch.ones(1, length, dtype=torch.bool))
    x = torch.randn(length, DIM, requires_grad=which != "forward")

    def forward() -> None:
        with torch.no_grad():
            layer(x, packing)

    def both() -> None:
        layer(x, packing).sum().backward()

    return forward if which == "forward" else both


def peak_memory(kind: str, length: int, which: str) -> float:
    """MiB above the resident set before the pass, in a new process; the median of three."""
    command = [sys.executable, __file__, "--peak", kind, str(length), which]
    tidy = os.environ | {"MALLOC_MMAP_THRESHOLD_": "65536"}  # what is freed leaves the resident set at once
    return statistics.median(float(subprocess.check_output(command, env=tidy)) for _ in range(3))


def print_peak(kind: str, length: int, which: str) -> None:
    """The kernel keeps the high-water mark of the resident set; 5 resets it (proc(5), clear_refs)."""
    prepare(KINDS[kind], 2 * WINDOW, which)()  # threads, buffers of the matrix library
    run = prepare(KINDS[kind], length, which)
    with open("/proc/self/clear_refs", "w") as refs:
        refs.write("5")
    before = _status("VmRSS")
    run()
    print((_status("VmHWM") - before) / 1024)


def _status(key: str) -> int:
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) for line in status if line.startswith(key))


CONTENDERS = {
    f"blocks, n = {SHORT:,}": ("blocks", SHORT),
    f"blocks, n = {LONG:,}": ("blocks", LONG),
    f"mask, n = {LONG:,}": ("mask", LONG),
}


def measure(which: str) -> tuple[list[list[str]], list[str]]:
    """A row for each contender, and the row of what they come to."""
    times = interleave({name: prepare(KINDS[kind], length, which) for name, (kind, length) in CONTENDERS.items()})
    memory = {name: peak_memory(kind, length, which) for name, (kind, length) in CONTENDERS.items()}
    rows = [
        [which, name, str(times[name]), f"{memory[name]:.0f} MiB", f"{times[name].foreign:.0%}"] for name in CONTENDERS
    ]
    short, long, mask = CONTENDERS
    ratios = [
        times[long].seconds / times[short].seconds,
        memory[long] / memory[short],
        times[mask].seconds / times[long].seconds,
        memory[mask] / memory[long],
    ]
    return rows, [which, *(f"{ratio:.2f}" for ratio in ratios)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", action="store_true", help="renew the section of docs/results.md")
    parser.add_argument("--threads", type=int, default=1, help="more than one only on a quiet machine")
    parser.add_argument("--peak", nargs=3, metavar=("KIND", "LENGTH", "PASS"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    if options.peak:
        print_peak(options.peak[0], int(options.peak[1]), options.peak[2])
        return
    details, sums = zip(*(measure(which) for which in PASSES), strict=True)
    promises = ["pass", "time, n → 2n (< 2.3)", "memory, n → 2n (< 2.3)", "mask / blocks, time (≥ 5)", "memory"]
    text = "\n\n".join(
        [
            f"## Restricted self-attention\n\nOne layer, d = {DIM}, {HEADS} heads, r = {WINDOW}, float32, "
            f"threads: {torch.get_num_threads()}, PyTorch {torch.__version__}.",
            draw_table(
                ["pass", "how", "time", "peak memory", "CPU used by others"], [row for rows in details for row in rows]
            ),
            draw_table(promises, list(sums)),
        ]
    )
    print(text)
    if options.write:
        write_section("bench/window.py", text)


if __name__ == "__main__":
    main()
