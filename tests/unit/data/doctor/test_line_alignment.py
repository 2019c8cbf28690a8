"""Where parallel files get out of step, on real translations."""

import numpy as np
import pytest

from seqloom.data.doctor.alignment import find_changes, fits_to_the_end, line_lengths
from seqloom.data.doctor.characters import Integers
from shared_data import corpus


@pytest.fixture(scope="module")
def lengths() -> tuple[Integers, Integers]:
    source, target = corpus("multi30k/train.de.gz"), corpus("multi30k/train.en.gz")
    return line_lengths(str(source), 1 << 20), line_lengths(str(target), 1 << 20)


def test_files_that_fit_stay_in_step(lengths: tuple[Integers, Integers]) -> None:
    assert find_changes(*lengths) == []


@pytest.mark.parametrize("change", ["target loses", "target gains", "source loses", "source gains"])
def test_a_line_more_or_less_is_found_within_a_few_lines(change: str, lengths: tuple[Integers, Integers]) -> None:
    source, target = lengths
    rng = np.random.default_rng(7)
    distances = []
    for at in rng.integers(100, len(source) - 100, size=15).tolist():
        s, t = source, target
        side = target if "target" in change else source
        edited = np.delete(side, at) if "loses" in change else np.insert(side, at, rng.choice(side))
        s, t = (source, edited) if "target" in change else (edited, target)
        found = find_changes(s, t)
        assert [(c.before, c.offset) for c in found] == [(0, len(t) - len(s))]
        distances.append(abs(found[0].line - 1 - at))
    assert np.median(distances) <= 1
    assert max(distances) <= 12


def test_an_empty_line_is_found_at_once(lengths: tuple[Integers, Integers]) -> None:
    source, target = lengths
    found = find_changes(source, np.insert(target, 20_000, 0))
    assert abs(found[0].line - 20_001) <= 1


@pytest.mark.parametrize("size", [40, 500, 3000])
def test_many_lines_lost_at_once(size: int, lengths: tuple[Integers, Integers]) -> None:
    source, target = lengths
    [change] = find_changes(source, np.delete(target, slice(10_000, 10_000 + size)))
    assert change.offset == -size
    assert abs(change.line - 10_001) <= 8
    [change] = find_changes(np.delete(source, slice(10_000, 10_000 + size)), target)
    assert change.offset == size
    assert abs(change.line - 10_001) <= 8


def test_several_places(lengths: tuple[Integers, Integers]) -> None:
    source, target = lengths
    found = find_changes(source, np.delete(target, [3_000, 9_000, 9_500, 25_000]))
    assert [c.offset for c in found] == [-1, -2, -3, -4]
    assert all(abs(c.line - 1 - at) <= 8 for c, at in zip(found, [3_000, 9_000, 9_500, 25_000], strict=True))


def test_a_stretch_between_two_places_of_equal_files(lengths: tuple[Integers, Integers]) -> None:
    source, target = lengths
    found = find_changes(source, np.delete(np.insert(target, 5_000, 60), 9_000))
    assert [c.offset for c in found] == [1, 0]


def test_a_missing_end_is_not_a_shift(lengths: tuple[Integers, Integers]) -> None:
    source, target = lengths
    assert find_changes(source, target[:20_000]) == []
    assert fits_to_the_end(source, target[:20_000])
    assert not fits_to_the_end(source, np.roll(target, 5)[:20_000])


def test_lengths_that_tell_nothing_claim_nothing() -> None:
    same = np.full(1000, 40)
    assert find_changes(same, same[:-1]) == []
    assert not fits_to_the_end(same, same[:-1])
