"""Random numbers with an address instead of a history.

A stateful generator must be wound forward to be resumed. Here every random word is a pure function of where it is
used: `Philox(seed, stream, index, position)`, the counter-based generator Philox4x32-10 of Salmon et al., "Parallel
Random Numbers: As Easy as 1, 2, 3" (SC 2011), written over arrays. Nothing needs saving, and the noise of step
1,000,000 costs what that of step 0 costs.

From it comes a shuffle that is never written down: a Feistel network, whose rounds (left, right) → (right, left ⊕
F(right)) can be undone whatever F is, so it permutes the numbers of a given count of bits. A result outside [0, size)
is sent through again ("cycle walking", Black and Rogaway, CT-RSA 2002), which permutes exactly [0, size).
"""

from enum import IntEnum

import numpy as np
from numpy.typing import ArrayLike, NDArray

Words = NDArray[np.uint64]

_MULTIPLIERS = np.uint64(0xD2511F53), np.uint64(0xCD9E8D57)
_KEY_STEPS = 0x9E3779B9, 0xBB67AE85
_LOW = np.uint64(0xFFFFFFFF)
_HALF = np.uint64(32)
_FEISTEL_ROUNDS = 12
_MIXERS = np.uint64(0x9E3779B97F4A7C15), np.uint64(0xD6E8FEB86659FD93)


class Stream(IntEnum):
    """What a random number is for: two uses never share one."""

    EPOCH = 0
    CORPUS = 1
    BATCHES = 2
    PHASE = 3
    MASK_UNITS = 4
    MASK_PRIORITY = 5
    MASK_LAST = 6
    MASK_ACTION = 7
    MASK_TOKEN = 8


def generate_words(key: int, counter: tuple[ArrayLike, ArrayLike, ArrayLike, ArrayLike]) -> tuple[Words, ...]:
    """Philox4x32-10: four 32-bit words for a 64-bit key and a counter of four 32-bit words (arrays broadcast)."""
    c0, c1, c2, c3 = (np.asarray(word, np.uint64) for word in counter)
    k0, k1 = key & 0xFFFFFFFF, key >> 32 & 0xFFFFFFFF
    for _ in range(10):
        p0, p1 = _MULTIPLIERS[0] * c0, _MULTIPLIERS[1] * c2
        c0, c1, c2, c3 = (p1 >> _HALF) ^ c1 ^ np.uint64(k0), p1 & _LOW, (p0 >> _HALF) ^ c3 ^ np.uint64(k1), p0 & _LOW
        k0, k1 = k0 + _KEY_STEPS[0] & 0xFFFFFFFF, k1 + _KEY_STEPS[1] & 0xFFFFFFFF
    return c0, c1, c2, c3


def draw_uniform(seed: int, stream: Stream, index: ArrayLike, count: int) -> NDArray[np.float64]:
    """Row i: `count` numbers in [0, 1) addressed by index[i]; asking for more of them does not change the first."""
    rows = np.asarray(index, np.uint64).reshape(-1, 1)
    blocks = np.arange(-(-count // 4), dtype=np.uint64)
    words = np.stack(generate_words(seed, (blocks, rows & _LOW, rows >> _HALF, int(stream))), axis=-1)
    numbers = words.reshape(len(rows), 4 * len(blocks))[:, :count]
    return numbers.astype(np.float64) / 2**32


def permute(index: ArrayLike, size: int, seed: int, stream: Stream, number: int = 0) -> NDArray[np.int64]:
    """Where shuffle `number` of [0, size) sends each index; no table is made, so any index costs the same."""
    bits = max(2, (size - 1).bit_length())
    words = generate_words(seed, (np.arange(_FEISTEL_ROUNDS), number & 0xFFFFFFFF, number >> 32, int(stream)))
    keys = words[0] | words[1] << _HALF
    values = np.array(index, np.uint64)
    outside = np.ones(values.shape, bool)
    while outside.any():
        values[outside] = _encipher(values[outside], bits, keys)
        outside = values >= np.uint64(size)
    return values.astype(np.int64)


def _encipher(values: Words, bits: int, keys: Words) -> Words:
    """An even number of Feistel rounds over `bits` bits; the halves may differ by one bit and change places."""
    left_bits, right_bits = bits - bits // 2, bits // 2
    left, right = values >> np.uint64(right_bits), values & _ones(right_bits)
    for key in keys:
        left, right = right, left ^ (_scramble(right ^ key) & _ones(left_bits))
        left_bits, right_bits = right_bits, left_bits
    return left << np.uint64(right_bits) | right


def _scramble(values: Words) -> Words:
    """Each input bit moves each output bit: odd multiplications carry upwards, shifts bring the top down."""
    for multiplier in _MIXERS:
        values = values * multiplier
        values ^= values >> _HALF
    return values


def _ones(bits: int) -> np.uint64:
    return np.uint64((1 << bits) - 1)
