"""How the ranks of a team find each other in a store that an earlier start has written to."""

from concurrent.futures import ThreadPoolExecutor

from torch.distributed import HashStore

from seqloom.training.distributed import meet


def start(store: HashStore, ranks: list[int]) -> set[str]:
    with ThreadPoolExecutor(len(ranks)) as pool:
        return set(pool.map(lambda rank: meet(store, rank, len(ranks)), ranks))


def test_every_start_has_a_name_of_its_own_whoever_comes_first() -> None:
    store = HashStore()
    names = [start(store, ranks) for ranks in ([0, 1, 2], [2, 1, 0], [1, 2, 0], [0, 1])]
    assert [len(name) for name in names] == [1, 1, 1, 1]
    assert len(set.union(*names)) == 4


def test_what_a_rank_that_was_killed_left_in_the_store_misleads_nobody() -> None:
    store = HashStore()
    store.set("asks/1", "killed before it was answered")
    killed_lead = start(store, [0, 1]).pop()
    store.set("answer/nobody reads this", killed_lead)
    (name,) = start(store, [1, 0])
    assert name != killed_lead
