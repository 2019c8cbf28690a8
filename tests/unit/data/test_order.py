import gzip
import tracemalloc

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from seqloom.data.order import LARGEST_BATCH, SMALLEST_BATCH, Mixture, Order, group_by_length
from seqloom.errors import ConfigError, DataError
from shared_data import corpus

LENGTHS = arrays.arrays(np.int32, st.tuples(st.integers(1, 150), st.integers(1, 2)), elements=st.integers(1, 30))


def order_of(lengths, *, weights=(1.0,), sizes=None, **options):
    return Order(lengths, Mixture.weigh(sizes or [len(lengths)], weights), **({"tokens": 200, "seed": 0} | options))


def epoch_of(order, epoch, world_size=1):
    """All samples of an epoch, in the order in which they are drawn."""
    steps = range(epoch * order.batches_per_epoch, (epoch + 1) * order.batches_per_epoch)
    return np.concatenate([order.draw(s, rank, world_size).samples for s in steps for rank in range(world_size)])


@settings(deadline=None)
@given(
    lengths=LENGTHS,
    world_size=st.sampled_from([1, 2, 7]),
    tokens=st.none() | st.integers(60, 500),
    pool=st.integers(1, 5),
    seed=st.integers(0, 2**64 - 1),
    epoch=st.sampled_from([0, 1, 10**9]),
)
def test_every_sample_is_seen_exactly_once_per_epoch(lengths, world_size, tokens, pool, seed, epoch):
    order = order_of(lengths, tokens=tokens, pool=pool, seed=seed)
    assert sorted(epoch_of(order, epoch, world_size)) == list(range(len(lengths)))


@settings(deadline=None)
@given(lengths=LENGTHS, world_size=st.sampled_from([2, 7]), step=st.integers(0, 10**12))
def test_the_ranks_share_the_batch_of_one_process(lengths, world_size, step):
    order = order_of(lengths, pool=3)
    alone = order.draw(step)
    shares = [order.draw(step, rank, world_size) for rank in range(world_size)]
    for name in ("samples", "keys"):
        assert sorted(np.concatenate([getattr(share, name) for share in shares])) == sorted(getattr(alone, name))
    sizes = [len(share.samples) for share in shares]
    assert max(sizes) - min(sizes) <= 1


@settings(deadline=None)
@given(lengths=LENGTHS, steps=st.lists(st.integers(0, 10**7), min_size=1, max_size=6))
def test_a_step_does_not_depend_on_the_steps_taken_before(lengths, steps):
    wandering = order_of(lengths, pool=2)
    for step in steps:
        straight = order_of(lengths, pool=2)
        assert np.array_equal(wandering.draw(step).samples, straight.draw(step).samples)
        assert np.array_equal(wandering.draw(step).keys, straight.draw(step).keys)


@settings(deadline=None)
@given(lengths=LENGTHS, batches=st.integers(1, 20))
def test_groups_hold_nearly_equal_tokens(lengths, batches):
    batches = min(batches, len(lengths))
    groups = group_by_length(lengths, batches)
    assert len(groups) == batches
    assert all(len(group) for group in groups)
    assert sorted(np.concatenate(groups)) == list(range(len(lengths)))
    totals = lengths.sum(axis=1)
    if totals.max() * batches <= totals.sum():
        deviations = [abs(totals[group].sum() - totals.sum() / batches) for group in groups]
        assert max(deviations) <= 1.25 * totals.max()


def test_epochs_differ_and_so_do_seeds():
    lengths = np.full((500, 1), 10)
    order = order_of(lengths)
    first = epoch_of(order, 0)
    for other in (epoch_of(order, 1), epoch_of(order_of(lengths, seed=1), 0), np.arange(500)):
        assert (first == other).mean() < 0.05


def test_keys_are_never_used_twice():
    order = order_of(np.full((50, 1), 10))
    keys = np.concatenate([order.draw(step).keys for step in range(5 * order.batches_per_epoch)])
    assert len(set(keys.tolist())) == 250


@pytest.mark.parametrize(("weight", "seen"), [(2.0, 2), (1.0, 1), (3.0, 3)])
def test_a_whole_weight_repeats_each_sample(weight, seen):
    order = order_of(np.full((90, 1), 10), sizes=[60, 30], weights=[1.0, weight])
    assert np.bincount(epoch_of(order, 4)).tolist() == [1] * 60 + [seen] * 30


def test_half_a_weight_shows_one_half_and_then_the_other():
    order = order_of(np.full((90, 1), 10), sizes=[60, 30], weights=[1.0, 0.5])
    halves = [set(epoch_of(order, epoch)[epoch_of(order, epoch) >= 60].tolist()) for epoch in range(2)]
    assert [len(half) for half in halves] == [15, 15]
    assert halves[0] | halves[1] == set(range(60, 90))
    assert halves[0] != set(range(60, 75)), "the half is a random one"


def test_any_weight_is_fair_over_the_epochs():
    order = order_of(np.full((37, 1), 10), weights=[0.3])
    seen = np.bincount(np.concatenate([epoch_of(order, epoch) for epoch in range(37)]), minlength=37)
    assert seen.tolist() == [11] * 37  # round(0.3 * 37) = 11 of 37 samples, 37 times


def test_padding_on_real_pairs_is_below_three_percent():
    files = [corpus(f"multi30k/train.lc.norm.tok.{side}.gz") for side in ("de", "en")]
    sides = [gzip.decompress(file.read_bytes()).decode().splitlines() for file in files]
    lengths = np.array([[len(line.split()) + 1 for line in side] for side in sides]).T
    order = order_of(lengths, tokens=4096)
    batches = [lengths[order.draw(step).samples] for step in range(order.batches_per_epoch)]
    padded = sum(len(batch) * batch.max(axis=0).sum() for batch in batches)
    assert 1 - lengths.sum() / padded < 0.03
    totals = [batch.sum() for batch in batches]
    assert max(totals) < 4096 * 1.02


def test_a_far_step_of_a_large_corpus_takes_no_more_memory_than_a_pool():
    lengths = np.random.default_rng(0).integers(5, 40, (1_000_000, 1), np.int32)
    order = order_of(lengths, tokens=4096, pool=64)
    tracemalloc.start()
    order.draw(10**15 + 1)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < lengths.nbytes, "one pool is some 12,000 of 1,000,000 samples"


def test_a_sample_larger_than_a_batch_is_refused():
    with pytest.raises(ConfigError, match=r"batch\.tokens = 200 is less than the longest sample, which has 300"):
        order_of(np.array([[10], [300]]))


def test_nothing_to_draw_is_refused():
    with pytest.raises(DataError, match="no sample is left"):
        order_of(np.empty((0, 1), np.int32), sizes=[0])


@settings(deadline=None)
@given(lengths=LENGTHS, count=st.integers(1, 200), tokens=st.integers(60, 500))
def test_a_sample_of_all_is_spread_evenly(lengths, count, tokens):
    draws = list(order_of(lengths, tokens=tokens).spread(count))
    chosen = sorted(np.concatenate([draw.samples for draw in draws]).tolist())
    assert len(chosen) == min(count, len(lengths))
    gaps = np.diff([*chosen, len(lengths) + chosen[0]])
    assert gaps.max() - gaps.min() <= 1
    assert all(len(draw.samples) for draw in draws)


@settings(deadline=None)
@given(records=st.integers(1, 30_000), length=st.integers(1, 60), weight=st.sampled_from([0.5, 1.0, 3.0]))
def test_a_batch_that_is_not_given_follows_the_tokens_of_an_epoch(records, length, weight):
    order = order_of(np.full((records, 1), length), weights=[weight], tokens=None)
    epoch = max(1, round(records * weight)) * length
    bounded = min(max(5.0 * epoch**0.5, SMALLEST_BATCH), LARGEST_BATCH)
    assert abs(order.tokens - bounded) <= 0.5
    assert order.batches_per_epoch == -(-epoch // order.tokens)
    assert order.describe_batches() == f"batches of {order.tokens:,} tokens, because an epoch has {epoch:,}"


def test_a_batch_that_is_not_given_holds_the_longest_sample():
    lengths = np.array([[3], [5000]])
    assert order_of(lengths, tokens=None).tokens == 5000
    with pytest.raises(ConfigError, match=r"batch.tokens = 4096 is less than the longest sample"):
        order_of(lengths, tokens=4096)
    said = "batches of 100 tokens, as batch.tokens says; an epoch has 3"
    assert order_of(lengths[:1], tokens=100).describe_batches() == said
