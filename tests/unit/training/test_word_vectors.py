"""Skip-gram learns what its equations say, the same way every time, from text of any size."""

from collections.abc import Iterator

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from seqloom.errors import DataError
from seqloom.tasks.word_vectors import WordVectorsConfig
from seqloom.training.skip_gram import SkipGram, keep_probability, measure_reach
from seqloom.training.word_vectors import PIECE, WordVectorsProgress, train_word_vectors

END = -1


def expected_step(v: torch.Tensor, u: torch.Tensor, ids: list[int], window: int, k: int) -> list[torch.Tensor]:
    """The gradient of equation 4 over all pairs of a text, by autograd: chance of reach × (pair + k × noise)."""
    v, u = v.double().requires_grad_(), u.double().requires_grad_()
    words = [i for i in ids if i >= 0]
    noise = torch.bincount(torch.tensor(words)).double() ** 0.75
    noise /= noise.sum()
    likelihood = torch.zeros((), dtype=torch.double)
    for here, word in enumerate(ids):
        for distance in range(1, window + 1):
            for there in (here - distance, here + distance):
                between = ids[min(here, there) : max(here, there) + 1]
                if word < 0 or there < 0 or there >= len(ids) or END in between:
                    continue
                chance = (window - distance + 1) / window
                pair = torch.nn.functional.logsigmoid(u[ids[there]] @ v[word])
                against = k * (noise * torch.nn.functional.logsigmoid(-u @ v[word])).sum()
                likelihood = likelihood + chance * (pair + against)
    return list(torch.autograd.grad(likelihood, [v, u]))


def test_the_mean_step_is_the_gradient_of_the_papers_equation() -> None:
    random = np.random.default_rng(0)
    config = WordVectorsConfig(dim=4, window=3, negatives=2, subsample=0.0)
    ids = [END if i in (9, 30, 31) else int(random.integers(6)) for i in range(50)]  # three blocks, four sentences
    counts = np.bincount([i for i in ids if i >= 0])
    v, u = torch.randn(2, 6, 4, generator=torch.Generator().manual_seed(0)).unbind()
    rate, runs = 1e-3, 600
    steps = []
    for run in range(runs):
        model = SkipGram(counts, config)
        model.input.copy_(v)
        model.output.copy_(u)
        model.train(np.array(ids, dtype=np.int32), (rate, rate), np.random.default_rng(run))
        steps.append(torch.stack([model.input - v, model.output - u]).double() / rate)
    taken = torch.stack(steps)
    error = taken.std(dim=0) / runs**0.5
    expected = torch.stack(expected_step(v, u, ids, config.window, config.negatives))
    assert expected.abs().max() > 10
    assert ((taken.mean(dim=0) - expected).abs() < 4.5 * error + 0.01).all()


@given(st.lists(st.integers(-1, 5), min_size=1, max_size=40), st.integers(1, 6))
def test_reach_stays_in_the_sentence(ids: list[int], most: int) -> None:
    words = [place for place, i in enumerate(ids) if i >= 0]
    left, right = measure_reach(np.array(ids, dtype=np.int32), np.full(len(words), most))
    for n, place in enumerate(words):
        sentence_left = next((d for d in range(place + 1) if ids[place - d] < 0), place + 1) - 1
        sentence_right = next((d for d in range(len(ids) - place) if ids[place + d] < 0), len(ids) - place) - 1
        assert (left[n], right[n]) == (min(most, sentence_left), min(most, sentence_right))


def test_frequent_words_are_kept_less_often() -> None:
    keep = keep_probability(np.array([0.1, 0.01, 0.001, 0.0001]), 1e-3)
    assert keep.tolist() == pytest.approx([0.11, 0.1**0.5 + 0.1, 1, 1])
    assert keep_probability(np.array([0.9]), 0.0).tolist() == [1]


def topics(sentences: int, seed: int = 0) -> list[list[str]]:
    """Sentences about one of two subjects, each with words of its own and words that both use."""
    random = np.random.default_rng(seed)
    words = {s: [f"{s}{i}" for i in range(12)] + [f"both{i}" for i in range(4)] for s in ("sea", "sky")}
    return [list(random.choice(words["sea" if i % 2 else "sky"], 8)) for i in range(sentences)]


SMALL = WordVectorsConfig(dim=16, window=3, min_count=1, subsample=0.0, epochs=3, learning_rate=0.05)


def test_words_that_share_contexts_come_to_lie_together() -> None:
    text = topics(1500)
    vectors = train_word_vectors(SMALL, lambda: text)
    for subject in ("sea", "sky"):
        for i in range(12):
            found = [n.word[:3] for n in vectors.nearest(f"{subject}{i}", 8)]
            assert found.count(subject) >= 7, (subject, i, found)


def test_the_same_seed_gives_the_same_bits_on_any_number_of_threads_and_another_seed_does_not() -> None:
    text = topics(300)
    first = train_word_vectors(SMALL, lambda: text)
    threads = torch.get_num_threads()
    torch.set_num_threads(2)
    second = train_word_vectors(SMALL, lambda: text)
    assert torch.get_num_threads() == 2  # as it was left
    torch.set_num_threads(threads)
    other = train_word_vectors(SMALL.model_copy(update={"seed": 1}), lambda: text)
    assert first.words == second.words
    assert torch.equal(first.vectors, second.vectors)
    assert not torch.equal(first.vectors, other.vectors)


def tiny(size: int) -> list[list[str]]:
    random = np.random.default_rng(0)
    return [[f"w{i}" for i in random.integers(size, size=20)] for _ in range(1000)]


HARD = {
    "two words": tiny(2),
    "ten words": tiny(10),
    "one word over and over": [["a"] * 20, ["b"] * 3] * 500,
    "a form filled in": [
        ["in", "the", "town", "of", f"t{i % 40}", "there", "were", f"n{i % 7}", "men"] for i in range(3000)
    ],
}


@pytest.mark.parametrize("kind", HARD)
def test_text_that_repeats_itself_does_not_blow_the_vectors_up(kind: str) -> None:
    config = WordVectorsConfig(dim=20, subsample=0.0, learning_rate=0.1)
    vectors = train_word_vectors(config, lambda: HARD[kind]).vectors
    assert vectors.isfinite().all()
    assert vectors.norm(dim=1).max() < 10


def test_progress_tells_what_is_left_out_and_the_rate_falls_to_zero_as_the_loss_falls() -> None:
    text = [*topics(600), ["rare"], ["rarer", "rarest"]]
    seen: list[WordVectorsProgress] = []
    vectors = train_word_vectors(SMALL.model_copy(update={"min_count": 2}), lambda: text, seen.append)
    assert "rare" not in vectors
    assert [p.phase for p in seen] == ["counted", "written", "training", "training", "training"]
    assert {(p.vocabulary, p.rare) for p in seen} == {(28, 3)}
    assert seen[-1].done == seen[-1].total == 3 * (600 * 8 + 602)  # the end of a sentence counts as a word
    assert [p.learning_rate for p in seen[2:]] == pytest.approx([0.05 * 2 / 3, 0.05 / 3, 0])
    assert seen[2].loss > seen[-1].loss > 0


def test_text_may_be_longer_than_a_piece_and_is_read_as_a_stream() -> None:
    opened = []

    def sentences() -> Iterator[list[str]]:
        opened.append(True)
        for _ in range(PIECE // 5):
            yield ["sun", "moon", "star", "day", "night", "dawn"]

    seen: list[WordVectorsProgress] = []
    config = WordVectorsConfig(dim=4, window=2, epochs=1)
    vectors = train_word_vectors(config, sentences, seen.append)
    assert len(opened) == 2
    assert len([p for p in seen if p.phase == "training"]) == 2
    assert sorted(vectors.words) == ["dawn", "day", "moon", "night", "star", "sun"]
    assert vectors.vectors.isfinite().all()


def test_words_come_by_frequency_then_by_name() -> None:
    text = [["b", "a", "c", "c"], ["a", "b", "c"]]
    assert train_word_vectors(SMALL, lambda: text).words == ("c", "a", "b")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ([], "no word occurs 5 times or more among 0 words"),
        ([["a", "b"]] * 4, "the most frequent one: 4 times.*lower min_count"),
        ([["a"], ["b"]] * 9, "no sentence holds two words"),
    ],
)
def test_text_that_teaches_nothing_is_refused(text: list[list[str]], message: str) -> None:
    with pytest.raises(DataError, match=message):
        train_word_vectors(WordVectorsConfig(), lambda: text)
