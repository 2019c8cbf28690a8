"""PyTorch's attention of packed sequences is for GPUs alone; tests/e2e/test_gpu.py rehearses it."""

import pytest
import torch

from seqloom.nn import varlen_attention
from seqloom.nn.packing import Packing

PACKING = Packing(torch.tensor([[True, True, True], [True, False, False]]))


@pytest.mark.parametrize("kind", [torch.bfloat16, torch.float16, torch.float32])
def test_a_processor_never_takes_it(kind: torch.dtype) -> None:
    assert varlen_attention.find_kernel(torch.device("cpu")) is None
    assert not varlen_attention.serves(torch.zeros(4, 48, dtype=kind), 16, PACKING, PACKING)


def test_what_it_takes_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(varlen_attention, "find_kernel", lambda device: torch.add)
    empty = Packing(torch.tensor([[True, True, True], [False, False, False]]))
    rows = torch.zeros(4, 48, dtype=torch.bfloat16)
    assert varlen_attention.serves(rows, 16, PACKING, PACKING)
    assert not varlen_attention.serves(rows.float(), 16, PACKING, PACKING)
    assert not varlen_attention.serves(rows, 12, PACKING, PACKING)
    assert not varlen_attention.serves(rows, 264, PACKING, PACKING)
    assert not varlen_attention.serves(rows, 16, PACKING, empty)  # a target whose source says nothing


def test_a_packing_says_where_sequences_begin() -> None:
    assert PACKING.bounds.tolist() == [0, 3, 4]
    assert PACKING.bounds.dtype is torch.int32
    assert PACKING.longest == 3
