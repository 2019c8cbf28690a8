"""Which kernels are used and who may use them; all levels, threads and processes give the same bits."""

import multiprocessing
import os
import signal
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.autograd import forward_ad
from torch.utils.flop_counter import FlopCounterMode

from seqloom.errors import ConfigError
from seqloom.native import library, structures
from seqloom.native.attention import AttentionPlan, attend, differentiate
from seqloom.native.block import PackedLinear
from seqloom.native.library import (
    activate,
    add_dropped,
    checksum,
    cross_entropy_,
    describe,
    differentiate_activation_,
    differentiate_norm,
    drop,
    drop_short,
    normalise,
    normalise_rows,
    serves,
    threads,
)


def compute_everything(scale: int = 1) -> list[Tensor]:
    """What each kernel gives for numbers that are always the same; `scale` makes it worth the threads."""
    torch.manual_seed(7)
    rows, results = 37 * scale, list[Tensor]()
    layer, x = PackedLinear(torch.randn(300, 77), torch.randn(300)), torch.randn(rows, 77)
    results += [layer(x), layer(x[:1]), drop(x, 0.3, 12345)]
    tiny = torch.randn(300, 77) * 10.0 ** torch.randint(-40, 3, (300, 77))
    for precision in structures.PRECISIONS:
        layer = PackedLinear(tiny, torch.randn(300), precision)
        results += [layer(x), layer(x[:1]), layer(x * 1e-20)]
    for kind in structures.ACTIVATIONS:
        h, bias, grad = 3.0 * torch.randn(rows, 101), torch.randn(101), torch.randn(rows, 101)
        for dtype in (torch.float32, torch.bfloat16):
            inner, change = h.to(dtype), grad.to(dtype, copy=True)
            results += [activate(inner, bias, kind, 0.2, 99)]
            results += [*differentiate_activation_(inner, bias, change, kind, 0.2, 99), change]
    for size in (5, 1000):
        scores, bias = 5.0 * torch.randn(rows, size), torch.randn(size)
        short, targets = scores.bfloat16(), torch.randint(size, (rows,))
        results += [*normalise(scores), cross_entropy_(scores, bias, targets, 0.1), scores]
        results += [cross_entropy_(short, bias, targets, 0.1), short]
    for sees in structures.SEEN:
        counts = np.array([17, 1, 40, 0, 9] * scale)
        starts, angles = np.concatenate([[0], counts.cumsum()[:-1]]), torch.randn(40, 9)
        plan = AttentionPlan(
            *(starts, counts, starts, counts, 4, 2, 18, sees, True, (angles.cos(), angles.sin()), 0.1, 5)
        )
        query = torch.randn(int(counts.sum()), 8 * 18)
        out, normalisers = attend(query, None, plan)
        results += [out, normalisers, differentiate(query, None, normalisers, torch.randn_like(out), plan)[0]]
        short, normalisers = attend(query.bfloat16(), None, plan)
        results += [short, differentiate(query.bfloat16(), None, normalisers, torch.randn_like(short), plan)[0]]
    gain, shift, short = torch.randn(77), torch.randn(77), torch.randn(rows, 77).bfloat16()
    results += [add_dropped(x, short, 0.3, 5), drop_short(x, 0.3, 5)]
    for added in (shift, None):
        grads = differentiate_norm(x, gain, added, 1e-5, short)
        results += [normalise_rows(x, gain, added, 1e-5), *(grad for grad in grads if grad is not None)]
    return results


def assert_same(first: list[Tensor], second: list[Tensor]) -> None:
    for number, (a, b) in enumerate(zip(first, second, strict=True)):
        assert torch.equal(a, b), f"result {number} differs by {(a - b).abs().max()}"


def test_every_level_gives_the_same_bits(level: str, monkeypatch: pytest.MonkeyPatch) -> None:
    found = compute_everything()
    monkeypatch.setattr(library._State, "found", library.choose(describe().levels[0]))
    assert_same(compute_everything(), found)


@pytest.mark.usefixtures("kernels")
def test_every_number_of_threads_gives_the_same_bits(two_threads: None) -> None:
    assert threads() == (2 if library.find_kernels().threaded else 1)
    found = compute_everything(20)
    torch.set_num_threads(1)
    assert_same(compute_everything(20), found)


@pytest.mark.usefixtures("kernels", "two_threads")
def test_several_threads_of_python_at_once() -> None:
    layer = PackedLinear(torch.randn(1500, 300), torch.randn(1500))
    rows = [torch.randn(64, 300) for _ in range(40)]
    expected = [layer(x) for x in rows]
    with ThreadPoolExecutor(4) as pool:
        assert_same(list(pool.map(layer, rows)), expected)


@pytest.mark.usefixtures("kernels", "two_threads")
def test_a_forked_child_computes_the_same_on_one_thread() -> None:
    """The parent's threads, which have worked, do not exist in the child."""
    layer, x = PackedLinear(torch.randn(1500, 300), None), torch.randn(700, 300)
    expected = [layer(part).numpy() for part in (x, x[:50], x[:1])]
    child = os.fork()
    if child == 0:
        signal.alarm(20)  # where it hangs, it dies
        found = [layer(part).numpy() for part in (x, x[:50], x[:1])]  # compared by numpy: PyTorch itself would hang
        os._exit(0 if all(map(np.array_equal, found, expected)) and threads() == 1 else 3)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert threads() > 1 or not library.find_kernels().threaded


@pytest.mark.usefixtures("kernels")
def test_two_processes_at_once() -> None:
    context = multiprocessing.get_context("fork")
    with context.Pool(2) as pool:
        sums = pool.map(_sum_up, range(2))
    assert sums[0] == sums[1] == _sum_up(0)


def _sum_up(_: int) -> int:
    return checksum(compute_everything(2))


def test_the_environment_pins_the_level(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(library._State, "found", None)
    monkeypatch.setenv("SEQLOOM_KERNELS", "none")
    assert describe()[:2] == (None, "PyTorch computes everything: SEQLOOM_KERNELS=none asks for it.")
    assert not serves(torch.zeros(1))
    for level in describe().levels[:1]:
        monkeypatch.setattr(library._State, "found", None)
        monkeypatch.setenv("SEQLOOM_KERNELS", level)
        assert describe()[:2] == (level, f"The kernels of level {level} are used: SEQLOOM_KERNELS asks for it.")
    monkeypatch.setattr(library._State, "found", None)
    monkeypatch.setenv("SEQLOOM_KERNELS", "fast")
    with pytest.raises(
        ConfigError, match=r"^SEQLOOM_KERNELS=fast: this level of kernels is not there; there is: .*none$"
    ):
        describe()
    with pytest.raises(ConfigError):
        serves(torch.zeros(1))


def test_a_level_that_the_processor_lacks(monkeypatch: pytest.MonkeyPatch) -> None:
    class Library:
        def seqloom_levels(self) -> bytes:
            return b"one two"

        def seqloom_supports(self, name: bytes) -> int:
            return name == b"none of them"

    monkeypatch.setattr(library, "_load", lambda: (Library(), ""))
    assert library.choose(None).info.reason == (
        "PyTorch computes everything: the plainest level that was built is one, which this processor cannot run."
    )
    with pytest.raises(ConfigError, match="was built, but this processor cannot run it; there is: none"):
        library.choose("two")


def test_a_kernel_without_memory_raises() -> None:
    structures.check(0)
    with pytest.raises(MemoryError, match="not enough memory"):
        structures.check(1)


@pytest.mark.usefixtures("kernels")
def test_a_library_of_other_sources_is_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(structures, "ABI", 10**6)
    info = library.choose(None).info
    assert info.level is None
    assert "was built from other sources than the package (ABI is" in info.reason


def test_why_there_is_no_library(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(library, "_FOLDER", tmp_path)
    assert "is missing; install the package again" in library.choose(None).info.reason
    (tmp_path / "build.json").write_text('{"reason": "the package was built without a C compiler"}')
    reason = library.choose(None).info.reason
    assert reason == "PyTorch computes everything: the package was built without a C compiler."
    (tmp_path / "libseqloom_kernels.so").write_text("no library")
    assert "cannot be loaded" in library.choose(None).info.reason


def test_without_kernels_a_packed_layer_cannot_be_made(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(library._State, "found", library.choose("none"))
    assert not serves(torch.zeros(1))
    with pytest.raises(RuntimeError, match="SEQLOOM_KERNELS=none asks for it"):
        PackedLinear(torch.zeros(2, 2), None)


class Subclass(Tensor):
    """Somebody's own kind of tensor."""


@pytest.mark.usefixtures("kernels")
def test_ordinary_tensors_are_served() -> None:
    x = torch.zeros(2, 3)
    assert serves()
    assert serves(x, None, nn.Parameter(x), x.t(), x[:, 1], torch.zeros(0))
    assert serves(x.clone().requires_grad_() * 2)
    with torch.inference_mode():
        assert serves(x, torch.zeros(2))


@pytest.mark.usefixtures("kernels")
@pytest.mark.parametrize(
    "tensor",
    [
        torch.zeros(2, dtype=torch.float64),
        torch.zeros(2, dtype=torch.bfloat16),
        torch.zeros(2, device="meta"),
        torch.zeros(2, 2).to_sparse(),
        torch.zeros(2, 2).to_mkldnn(),
        torch._neg_view(torch.ones(2)),
        torch.zeros(2).as_subclass(Subclass),
        torch.zeros(2, dtype=torch.complex64).conj().imag,
    ],
    ids=lambda t: f"{t.dtype}, {t.device}, {t.layout}, {type(t).__name__}",
)
def test_other_tensors_are_not_served(tensor: Tensor) -> None:
    assert not serves(tensor)
    assert not serves(torch.zeros(1), tensor)


@pytest.mark.usefixtures("kernels")
@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of tracing
def test_nobody_who_watches_is_served() -> None:
    x, asked = torch.zeros(2, 3), list[bool]()

    def ask(given: Tensor) -> Tensor:
        asked.append(serves(given))
        return given.sum()

    torch.func.vmap(ask)(x)
    torch.func.grad(ask)(x)
    torch.jit.trace(ask, x, check_trace=False)
    modes: list[Any] = [
        torch.autocast("cpu"),
        FlopCounterMode(display=False),
        torch.device("cpu"),
        forward_ad.dual_level(),
    ]
    for mode in modes:
        with mode:
            ask(x)
    assert asked == [False] * 7
    assert serves(x)


@pytest.mark.parametrize("wanted", [None, "none"])
def test_a_checksum_notices_every_change(wanted: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(library._State, "found", library.choose(wanted))
    tensors = [torch.randn(40_000), torch.randn(3, 5).bfloat16(), torch.zeros(0), torch.arange(7)]
    before = checksum(tensors)
    assert 0 <= before < 2**64
    assert checksum(iter(tensors)) == before == checksum([t.clone() for t in tensors])
    seen = {
        before,
        checksum(tensors[::-1]),
        checksum(tensors[1:]),
        checksum([]),
        checksum([tensors[0].view(2, -1), *tensors[1:]]),
    }
    assert len(seen) == 5
    for place in (0, 1, 7, 8, 31_000, 39_999):
        old = tensors[0][place].clone()
        tensors[0][place] *= -1.0
        seen.add(checksum(tensors))
        tensors[0][place] = old
    tensors[1][2, 4] += 1.0
    seen.add(checksum(tensors))
    assert len(seen) == 12
    swapped = torch.randn(4, 3)
    assert checksum([swapped]) == checksum([swapped.t().contiguous().t()])
    for first, second in [(0, 16), (3, 19), (5, 5 + 2**14)]:  # two signs in one stream of words
        other = tensors[0].clone()
        other[[first, second]] *= -1.0
        assert checksum([other]) != checksum([tensors[0]])
