"""Packing: nothing is lost, nothing is added, and the groups are the cheapest there are."""

import itertools

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from seqloom.errors import ShapeError
from seqloom.nn.packing import _GROUP_COST, _TOKEN_COST, Packing, Pairing, group_by_length


@st.composite
def batches(draw: st.DrawFn) -> tuple[Tensor, Tensor | None]:
    """Any mask, with and without documents that share a row."""
    torch.manual_seed(draw(st.integers(0, 2**32)))
    batch, width = draw(st.integers(1, 5)), draw(st.integers(1, 7))
    mask = torch.rand(batch, width) < draw(st.sampled_from([0.0, 0.5, 0.9, 1.0]))
    return mask, (torch.rand(batch, width) < 0.3).cumsum(1) if draw(st.booleans()) else None


def sequences_of(packing: Packing, x: Tensor) -> list[Tensor]:
    return list(x.split(packing.lengths))


@given(batches())
def test_unpacking_puts_every_token_back(batch):
    packing = Packing(*batch)
    x = torch.randn(*packing.mask.shape, 3)
    packed = packing.pack(x)
    assert packed.shape == (packing.num_tokens, 3)
    torch.testing.assert_close(packing.unpack(packed), x * packing.mask[:, :, None])


@given(batches())
def test_a_token_knows_its_place(batch):
    packing = Packing(*batch)
    places = [place for length in packing.lengths for place in range(length)]
    lengths = [length for length in packing.lengths for _ in range(length)]
    assert packing.positions.tolist() == places
    assert packing.token_lengths.tolist() == lengths


def test_documents_are_sequences():
    mask = torch.tensor([[True, True, False, True, True, True], [False, False, False, False, False, False]])
    documents = torch.tensor([[3, 3, 3, 3, 4, 4], [0, 0, 0, 1, 1, 1]])
    assert Packing(mask, documents).lengths == [3, 2]


@given(batches(), st.integers(-4, 4))
def test_shifting_stays_inside_a_sequence(batch, offset):
    packing = Packing(*batch)
    x = torch.randn(packing.num_tokens, 2)
    expected = []
    for sequence in sequences_of(packing, x):
        for place in range(len(sequence)):
            inside = 0 <= place + offset < len(sequence)
            expected.append(sequence[place + offset] if inside else torch.zeros(2))
    assert torch.equal(packing.shift(x, offset), torch.stack(expected) if expected else x)


@given(batches(), st.booleans(), st.integers(1, 4), st.sampled_from([0, 4096]))
def test_spread_and_collect_are_each_other_reversed(batch, reverse, max_groups, group_cost):
    packing = Packing(*batch)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("seqloom.nn.packing._GROUP_COST", group_cost)
        groups = packing.groups(max_groups=max_groups, reverse=reverse)
    x = torch.randn(packing.num_tokens, 2, dtype=torch.float64, requires_grad=True)
    parts, sequences = groups.spread(x), sequences_of(packing, x)
    spoilt = []
    for part, members, mask in zip(parts, groups.members, groups.masks, strict=True):
        real = torch.ones(part.shape[:2], dtype=torch.bool) if mask is None else mask
        for row, own, member in zip(part, real, members, strict=True):
            expected = sequences[member].flip(0) if reverse else sequences[member]
            assert torch.equal(row[own], expected)
            assert own.sum() == len(expected)
        spoilt.append(part.masked_fill(~real[:, :, None], torch.nan))
    assert sorted(itertools.chain(*groups.members)) == [i for i, length in enumerate(packing.lengths) if length]
    assert torch.equal(groups.collect(parts), x)
    assert torch.equal(groups.collect(spoilt), x)

    probe = torch.randn_like(x)
    if packing.num_tokens:
        (grad,) = torch.autograd.grad((groups.collect([part * 2 for part in parts]) * probe).sum(), x)
        torch.testing.assert_close(grad, 2 * probe)


@given(batches(), st.sampled_from([0.1, 0.6]))
def test_a_pairing_gives_the_source_its_gradient(batch, density):
    """Also where a source is empty, and where the target of a source is."""
    source = Packing(batch[0])
    target = Packing(torch.rand(len(source.lengths), 3) < density)
    pairing = Pairing.of(target, source)
    memory = torch.randn(source.num_tokens, 2, dtype=torch.float64, requires_grad=True)
    total = torch.zeros((), dtype=torch.float64)
    for part, mask in zip(pairing.source.spread(memory), pairing.source.masks, strict=True):
        total = total + (part if mask is None else part * mask[:, :, None]).sum()
    used = [length > 0 for length, own in zip(target.lengths, source.lengths, strict=True) for _ in range(own)]
    if any(used):
        (grad,) = torch.autograd.grad(total, memory)
        assert torch.equal(grad, torch.tensor(used, dtype=torch.float64)[:, None].expand(-1, 2))


def cost_of(groups: list[list[int]]) -> float:
    """What `group_by_length` says it makes little: squares of padded lengths, padded tokens, and groups."""
    return sum(len(group) * (max(group) ** 2 + _TOKEN_COST * max(group)) + _GROUP_COST for group in groups)


@given(st.lists(st.one_of(st.integers(0, 5), st.integers(0, 300)), max_size=9), st.integers(1, 5))
def test_groups_are_the_cheapest(lengths, max_groups):
    groups = group_by_length(lengths, max_groups)
    assert sorted(itertools.chain(*groups)) == [index for index, length in enumerate(lengths) if length]
    assert len(groups) <= max_groups
    ordered = sorted(length for length in lengths if length)
    cheapest = (
        min(
            cost_of([ordered[a:b] for a, b in itertools.pairwise((0, *cuts, len(ordered)))])
            for count in range(min(max_groups, len(ordered)))
            for cuts in itertools.combinations(range(1, len(ordered)), count)
        )
        if ordered
        else 0
    )
    assert cost_of([[lengths[index] for index in group] for group in groups]) == cheapest


@pytest.mark.usefixtures("as_users_run")
class TestWrongSizes:
    def test_pack(self):
        with pytest.raises(ShapeError, match=r"mask has shape \(2, 3\) but x has \(2, 4\)"):
            Packing(torch.ones(2, 3, dtype=torch.bool)).pack(torch.randn(2, 4, 5))

    def test_documents(self):
        with pytest.raises(ShapeError, match=r"documents has shape \(2, 4\) but mask has \(2, 3\)"):
            Packing(torch.ones(2, 3, dtype=torch.bool), torch.zeros(2, 4, dtype=torch.long))

    def test_pairing(self):
        with pytest.raises(ShapeError, match="target has 2 rows but source has 3"):
            Pairing.of(Packing(torch.ones(2, 3, dtype=torch.bool)), Packing(torch.ones(3, 3, dtype=torch.bool)))
