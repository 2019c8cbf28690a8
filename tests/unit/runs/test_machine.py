"""What a training says of the machine it runs on."""

import platform

import pytest
import torch

import seqloom
from seqloom.config.train import TrainConfig
from seqloom.errors import ConfigError
from seqloom.native.library import KernelInfo
from seqloom.runs import machine
from seqloom.runs.machine import (
    choose_device,
    choose_precision,
    describe_machine,
    describe_training,
    explain_difference,
    explain_kernels,
    explain_precision,
)

CPU = torch.device("cpu")


def have_kernels(monkeypatch: pytest.MonkeyPatch, level: str | None, reason: str) -> None:
    monkeypatch.setattr(machine, "describe", lambda: KernelInfo(level, reason, (), "", {}))


def test_each_process_of_a_machine_has_a_gpu_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    assert [choose_device("auto", number) for number in range(2)] == [torch.device("cuda", 0), torch.device("cuda", 1)]
    with pytest.raises(ConfigError, match="process 3 of this machine has no GPU; start at most 2, one for each"):
        choose_device("auto", 2)


def test_a_machine_is_described_by_what_its_sums_depend_on(monkeypatch: pytest.MonkeyPatch) -> None:
    have_kernels(monkeypatch, "x86-64-v4", "")
    described = describe_machine()
    assert described["seqloom"] == seqloom.__version__
    assert described["torch"] == torch.__version__
    assert described["kernels"] == "x86-64-v4"
    assert described["threads"] == torch.get_num_threads()
    assert str(described["instructions"]).split() == [platform.machine(), torch.backends.cpu.get_cpu_capability()]
    training = describe_training(TrainConfig(precision="bfloat16"), 2, CPU)
    assert training.items() >= {**described, "precision": "bfloat16", "device": "cpu", "processes": 2}.items()


@pytest.mark.parametrize("has", [True, False])
def test_auto_follows_the_processor(monkeypatch: pytest.MonkeyPatch, has: bool) -> None:
    have_kernels(monkeypatch, "x86-64-v3", "The kernels of level x86-64-v3 are used: it is the highest.")
    monkeypatch.setattr(machine, "has_bfloat16", lambda: has)
    assert choose_precision("auto", CPU) == ("bfloat16" if has else "float32")
    assert choose_precision("auto", torch.device("cuda")) == "float32"
    assert [choose_precision(name, CPU) for name in ("float32", "float16")] == ["float32", "float16"]
    assert choose_precision("bfloat16", torch.device("mps")) == "bfloat16"
    if has:
        assert choose_precision("bfloat16", CPU) == "bfloat16"
        assert explain_precision(CPU) == "bfloat16, because the processor and the kernels have it"
        return
    assert explain_precision(CPU) == (
        "float32, because the kernels of level x86-64-v3 are used: it is the highest, and they do without it"
    )
    with pytest.raises(ConfigError, match=r"level x86-64-v3 are used.*train\.precision=float32 computes everywhere"):
        choose_precision("bfloat16", CPU)


def test_kernels_are_named_and_explained(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch, "get_num_threads", lambda: 2)
    have_kernels(monkeypatch, "x86-64-v4", "It is the highest level of this processor.")
    assert explain_kernels(CPU) == "x86-64-v4, 2 threads. It is the highest level of this processor."
    have_kernels(monkeypatch, None, "There was no C compiler.")
    assert explain_kernels(CPU) == "none, 2 threads. There was no C compiler. Everything works, more slowly."
    assert explain_kernels(torch.device("mps")).startswith("none, because they are for processors")


def test_one_sentence_says_all_that_differs() -> None:
    now = {"seqloom": "0.2.0", "torch": "2.13.0", "kernels": "none", "threads": 1}
    assert explain_difference(dict(now), now) is None
    assert explain_difference({**now, "kernels": "x86-64-v4"}, now) == (
        "not bit-identical from here, because the checkpoint was written with kernels x86-64-v4, "
        "and this is kernels none"
    )
    assert explain_difference({**now, "seqloom": "0.1.0", "threads": 4}, now) == (
        "not bit-identical from here, because the checkpoint was written with Seqloom 0.1.0 and threads 4, "
        "and this is Seqloom 0.2.0 and threads 1"
    )
