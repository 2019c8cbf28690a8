"""In main memory, sending and reading do nothing; tests/e2e/test_gpu.py has another device."""

import torch

from seqloom.devices import choose_precise, read, send
from seqloom.types import PairBatch, TokenBatch, move

CPU = torch.device("cpu")


def test_what_is_in_main_memory_stays_where_it_is():
    tensor, batch = torch.arange(3), TokenBatch.pad([[1, 2], [3]], 0)
    assert send(tensor, CPU) is tensor
    assert move(batch, CPU) is batch
    assert batch.known is batch
    assert choose_precise(CPU) is torch.float64


def test_numbers_of_any_type_are_read_together():
    parts = torch.tensor([[1, 2], [3, 4]]), torch.tensor(0.5), torch.tensor([True, False]), torch.zeros(0)
    assert read(*parts) == [[[1, 2], [3, 4]], 0.5, [True, False], []]


def test_a_batch_elsewhere_keeps_what_it_was():
    source, target = TokenBatch.pad([[1, 2], [3]], 0), TokenBatch.pad([[4], [5, 6]], 0)
    moved = move(PairBatch(source, target), torch.device("meta"))
    assert moved.source.ids.is_meta
    assert moved.source.known is source
    again = move(moved, torch.device("meta"))
    assert again.target.known is target


def test_what_is_derived_of_a_batch_is_known_as_well():
    moved = move(TokenBatch.pad([[1, 2, 3], [4]], 0), torch.device("meta"))
    derived = moved.derive(lambda batch: TokenBatch(batch.ids[:, 1:], batch.mask[:, 1:]))
    assert derived.ids.shape == (2, 2)
    assert derived.known.ids.tolist() == [[2, 3], [0, 0]]
