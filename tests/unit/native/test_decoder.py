"""A step of a whole decoder in one call: the parts one after the other, and each line the same bits as alone."""

import numpy as np
import pytest
import torch
from torch import Tensor

from blocks import make_weights
from seqloom.errors import ShapeError
from seqloom.native.block import NormWeights, PackedBlock, PackedLinear, PackedStack
from seqloom.native.decoder import PackedDecoder
from seqloom.native.structures import PRECISIONS

WIDTH, VOCABULARY, ROOM, POSITIONS = 24, 83, 9, (3, 0, 5)
pytestmark = pytest.mark.usefixtures("kernels")


class Case:
    """A decoder, its parts, and lines in the midst of decoding."""

    def __init__(self, beams: int, precision: str, *, source: bool = True, normed: bool = True) -> None:
        torch.manual_seed(3)
        blocks = [PackedBlock(make_weights(source=source, precision=precision)) for _ in range(2)]
        self.stack, self.beams = PackedStack(blocks), beams
        self.table, self.factor = torch.randn(VOCABULARY, WIDTH), 4.9
        self.norm = NormWeights(torch.rand(WIDTH) + 0.5, torch.randn(WIDTH), 1e-5) if normed else None
        self.output = PackedLinear(torch.randn(VOCABULARY, WIDTH), torch.randn(VOCABULARY), precision)
        self.decoder = PackedDecoder(self.table, self.factor, self.norm, self.stack, self.norm, self.output)
        lines = len(POSITIONS)
        self.caches = tuple(torch.randn(lines, 4, ROOM, beams, 6) for _ in blocks)
        self.slots = torch.randint(beams, (lines, beams, ROOM), dtype=torch.int32) if beams > 1 else None
        keys = [(torch.randn(lines, 4, 7, 6), torch.randn(lines, 4, 7, 6)) for _ in blocks]
        self.sources, self.vectors = (tuple(keys) if source else None), torch.randn(ROOM - 1, WIDTH - 4)

    def step(self, ids: Tensor, line: int | None = None) -> Tensor:
        """The scores of all lines, or of one alone, from copies of what is written to."""
        own = slice(None) if line is None else slice(line, line + 1)
        caches = tuple(cache[own].clone() for cache in self.caches)
        slots = None if self.slots is None else self.slots[own].clone()
        sources = None if self.sources is None else tuple((k[own].clone(), v[own].clone()) for k, v in self.sources)
        prepared = self.decoder.prepare(caches, sources, None, self.vectors)
        rows = ids.unflatten(0, (-1, self.beams))[own].flatten(0, 1)
        return self.decoder.step(rows, prepared, POSITIONS[own], slots)

    def step_by_parts(self, ids: Tensor) -> Tensor:
        """The same, a part at a time."""
        (rows, tokens), slots = ids.shape, None if self.slots is None else self.slots.clone()
        x = self.table[ids] * self.factor
        for row in range(rows):
            first = POSITIONS[row // self.beams]
            x[row, :, : WIDTH - 4] += self.vectors[first : first + tokens]
            if slots is not None:
                slots[row // self.beams, row % self.beams, first : first + tokens] = row % self.beams
        caches, positions = [cache.clone() for cache in self.caches], np.array(POSITIONS, np.int32)
        x = self.stack.step(self.normalise(x), caches, positions, slots, self.sources)
        return self.output(self.normalise(x[:, -1]))

    def normalise(self, x: Tensor) -> Tensor:
        if self.norm is None:
            return x
        return torch.nn.functional.layer_norm(x, (WIDTH,), self.norm.gain, self.norm.shift, self.norm.epsilon)


@pytest.mark.parametrize("precision", PRECISIONS)
@pytest.mark.parametrize(("beams", "tokens", "source"), [(1, 1, True), (3, 1, True), (3, 1, False), (1, 3, False)])
def test_it_is_its_parts_one_after_the_other(beams: int, tokens: int, source: bool, precision: str, level: str) -> None:
    case = Case(beams, precision, source=source, normed=False)
    ids = torch.randint(VOCABULARY, (len(POSITIONS) * beams, tokens))
    assert torch.equal(case.step(ids), case.step_by_parts(ids))


def test_norms_before_and_after() -> None:
    case = Case(2, "float32")
    ids = torch.randint(VOCABULARY, (len(POSITIONS) * 2, 1))
    torch.testing.assert_close(case.step(ids), case.step_by_parts(ids), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("precision", PRECISIONS)
def test_a_line_is_the_same_among_others(precision: str, two_threads: None) -> None:
    case = Case(3, precision)
    ids = torch.randint(VOCABULARY, (len(POSITIONS) * 3, 1))
    together = case.step(ids).unflatten(0, (-1, 3))
    for line in range(len(POSITIONS)):
        assert torch.equal(case.step(ids, line), together[line])


def test_scores_do_not_depend_on_the_default_type() -> None:
    case, ids = Case(1, "float32"), torch.zeros(3, 1, dtype=torch.long)
    expected = case.step(ids)
    torch.set_default_dtype(torch.float64)
    try:
        assert torch.equal(case.step(ids), expected)
    finally:
        torch.set_default_dtype(torch.float32)


def test_what_does_not_fit_is_refused() -> None:
    case = Case(1, "float32")
    prepared = case.decoder.prepare(case.caches, case.sources, None, case.vectors)
    with pytest.raises(IndexError, match="outside the vocabulary"):
        case.step(torch.tensor([[0], [VOCABULARY], [0]]))
    with pytest.raises(IndexError, match="position lies outside"):
        case.decoder.step(torch.zeros(3, 1, dtype=torch.long), prepared, (0, 8, 0), None)
    with pytest.raises(ShapeError, match="there are 3 rows"):
        case.decoder.step(torch.zeros(2, 1, dtype=torch.long), prepared, POSITIONS, None)
    with pytest.raises(ShapeError, match="2 positions for 3 lines"):
        case.decoder.step(torch.zeros(3, 1, dtype=torch.long), prepared, (0, 0), None)
    with pytest.raises(ShapeError, match="are 25 wide, more than 24"):
        case.decoder.prepare(case.caches, case.sources, None, torch.zeros(9, WIDTH + 1))
    with pytest.raises(ShapeError, match="a source is given"):
        case.decoder.prepare(case.caches)
