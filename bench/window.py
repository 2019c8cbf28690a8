"""Restricted self-attention costs what it should: `python bench/window.py [--write]`

One self-attention layer (projections and all), d = 256, 4 heads, r = 128. Twice the tokens must take less than 2.3
times the time and the memory, and at 8,192 tokens the blocks must be at least 5 times as fast as the n × n window mask.
Time: turns in one process. Memory: the peak of the resident set above what it was before, each in a process of its own.
"""

import argparse
import statistics
import subprocess
import sys
from collections.abc import Callable

import torch
from results import draw_table, write_section
from timing import interleave
from torch import Tensor

from weft.nn.attention import attend
from weft.nn.masks import window_mask
from weft.nn.multihead import SelfAttention
from weft.nn.packing import Packing

DIM, HEADS, WINDOW, SHORT, LONG = 256, 4, 128, 4096, 8192
PASSES = ("forward", "forward + backward")


class MaskedAttention(SelfAttention):
    """The same layer and the same numbers, by an n × n mask."""

    def _attend(self, query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None) -> Tensor:
        assert self.window is not None
        return attend(query, key, value, window_mask(query.shape[2], self.window, causal=self.causal))


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
    return statistics.median(float(subprocess.check_output(command)) for _ in range(3))


def print_peak(kind: str, length: int, which: str) -> None:
    """The kernel keeps the high-water mark of the resident set; 5 resets it (proc(5), clear_refs)."""
    cls = {"blocks": SelfAttention, "mask": MaskedAttention}[kind]
    prepare(cls, 2 * WINDOW, which)()  # threads, buffers of the matrix library
    run = prepare(cls, length, which)
    with open("/proc/self/clear_refs", "w") as refs:
        refs.write("5")
    before = _status("VmRSS")
    run()
    print((_status("VmHWM") - before) / 1024)


def _status(key: str) -> int:
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) for line in status if line.startswith(key))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", action="store_true", help="renew the section of docs/results.md")
    parser.add_argument("--peak", nargs=3, metavar=("KIND", "LENGTH", "PASS"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.peak:
        print_peak(options.peak[0], int(options.peak[1]), options.peak[2])
        return
    rows, verdicts = [], []
    for which in PASSES:
        times = interleave(
            {
                "short": prepare(SelfAttention, SHORT, which),
                "long": prepare(SelfAttention, LONG, which),
                "mask": prepare(MaskedAttention, LONG, which),
            }
        )
        memory = {
            name: peak_memory(kind, length, which)
            for name, kind, length in (("short", "blocks", SHORT), ("long", "blocks", LONG), ("mask", "mask", LONG))
        }
        time_ratio = times["long"].seconds / times["short"].seconds
        memory_ratio = memory["long"] / memory["short"]
        speedup = times["mask"].seconds / times["long"].seconds
        for name, label in (
            ("short", f"blocks, n = {SHORT:,}"),
            ("long", f"blocks, n = {LONG:,}"),
            ("mask", f"mask, n = {LONG:,}"),
        ):
            rows.append(
                [
                    which,
                    label,
                    f"{times[name].seconds * 1000:.0f} ms",
                    f"{memory[name]:.0f} MiB",
                    f"{times[name].foreign:.0%}",
                ]
            )
        verdicts.append(
            [
                which,
                f"{time_ratio:.2f}",
                f"{memory_ratio:.2f}",
                f"{speedup:.1f}",
                f"{memory['mask'] / memory['long']:.1f}",
            ]
        )
    text = "\n\n".join(
        [
            f"## Restricted self-attention\n\nOne layer, d = {DIM}, {HEADS} heads, r = {WINDOW}, float32, "
            f"{torch.get_num_threads()} threads, PyTorch {torch.__version__}.",
            draw_table(["pass", "how", "time", "peak memory", "CPU used by others"], rows),
            draw_table(
                [
                    "pass",
                    "time, n → 2n (< 2.3)",
                    "memory, n → 2n (< 2.3)",
                    "times faster than the mask (≥ 5)",
                    "times less memory",
                ],
                verdicts,
            ),
        ]
    )
    print(text)
    if options.write:
        write_section("bench/window.py", text)


if __name__ == "__main__":
    main()
