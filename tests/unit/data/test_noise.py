from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from seqloom.data.noise import Stream, draw_uniform, generate_words, permute


@pytest.mark.parametrize(
    ("key", "counter", "words"),
    [
        (0, (0, 0, 0, 0), "6627e8d5 e169c58d bc57ac4c 9b00dbd8"),
        (2**64 - 1, (2**32 - 1,) * 4, "408f276d 41c83b0e a20bc7c6 6d5451fd"),
        (
            0x299F31D0A4093822,
            (0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344),
            "d16cfe09 94fdcceb 5001e420 24126ea1",
        ),
    ],
)
def test_philox_gives_the_published_answers(key, counter, words):
    """The known-answer vectors of Random123, the authors' own library."""
    assert " ".join(f"{int(word):08x}" for word in generate_words(key, counter)) == words


@given(
    st.integers(1, 3000), st.integers(0, 2**64 - 1), st.sampled_from([Stream.EPOCH, Stream.CORPUS]), st.integers(0, 99)
)
def test_permute_sends_every_index_to_a_place_of_its_own(size, seed, stream, number):
    assert sorted(permute(np.arange(size), size, seed, stream, number)) == list(range(size))


@given(st.integers(1, 2**62), st.data())
def test_permute_stays_inside_any_size(size, data):
    index = data.draw(st.lists(st.integers(0, size - 1), min_size=1, max_size=20, unique=True))
    places = permute(index, size, 1, Stream.EPOCH)
    assert len(set(places.tolist())) == len(index)
    assert places.min() >= 0
    assert places.max() < size


def test_every_order_of_four_is_equally_likely():
    orders = [tuple(permute(np.arange(4), 4, seed, Stream.EPOCH)) for seed in range(1200)]
    counts = np.array(list(Counter(orders).values()))
    assert len(counts) == 24
    assert ((counts - 50) ** 2 / 50).sum() < 50  # chi-squared with 23 degrees of freedom: p = 0.999


def test_uniform_numbers_have_an_address():
    many = draw_uniform(7, Stream.MASK_ACTION, [3, 4, 5], 1000)
    assert np.array_equal(draw_uniform(7, Stream.MASK_ACTION, [4], 10)[0], many[1, :10])
    assert abs(many.mean() - 0.5) < 0.03
    assert many.min() >= 0
    assert many.max() < 1
    for other in (
        draw_uniform(8, Stream.MASK_ACTION, [3], 1000),
        draw_uniform(7, Stream.MASK_TOKEN, [3], 1000),
        draw_uniform(7, Stream.MASK_ACTION, [3 + 2**32], 1000),
    ):
        assert abs(np.corrcoef(many[0], other[0])[0, 1]) < 0.15
