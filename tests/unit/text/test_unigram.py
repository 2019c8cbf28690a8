"""The unigram trainer: its sums against counting by hand, its vocabulary against SentencePiece's."""

import io
import math
from collections import Counter
from collections.abc import Iterator

import pytest

from seqloom.text.training import read_lines
from seqloom.text.unigram import _Lattice, learn_pieces
from shared_data import corpus


def cuts(word: str, scores: dict[str, float]) -> Iterator[list[str]]:
    """All ways to cut a word into pieces."""
    if not word:
        yield []
    for end in range(1, len(word) + 1):
        if word[:end] in scores:
            for rest in cuts(word[end:], scores):
                yield [word[:end], *rest]


def count_by_hand(words: dict[str, int], scores: dict[str, float]) -> Counter[str]:
    """Expected count of each piece: over all cuts of all words, in proportion to their probability."""
    counts: Counter[str] = Counter()
    for word, count in words.items():
        chances = {tuple(cut): math.exp(sum(scores[piece] for piece in cut)) for cut in cuts(word, scores)}
        for cut, chance in chances.items():
            for piece in cut:
                counts[piece] += count * chance / sum(chances.values())
    return counts


def test_a_step_of_maximisation_counts_all_cuts() -> None:
    words = {"banana": 5, "ana": 3, "band": 2, "na": 7}
    lattice = _Lattice(words)
    lattice.seed(100, 2)
    before = dict(lattice.pieces())
    assert set(before) >= {"a", "an", "ana", "na", "nan", "ban"}
    expected = count_by_hand(words, before)
    lattice.maximise(0)
    after = dict(lattice.pieces())
    assert set(after) == {piece for piece, count in expected.items() if count >= 0.5 or len(piece) == 1}
    counts = {piece: max(expected[piece], 0.5) for piece in after}
    for piece, score in after.items():
        assert score == pytest.approx(math.log(counts[piece] / sum(counts.values())), abs=1e-5)


def test_the_best_alternative_is_the_best_cut_into_other_pieces() -> None:
    lattice = _Lattice({"banana": 5, "ana": 3, "band": 2, "na": 7})
    lattice.seed(100, 2)
    scores = {
        lattice.text[first : first + size]: float(score)
        for first, size, score in zip(lattice.first, lattice.sizes, lattice.scores, strict=True)
    }
    for piece, alternative in zip(scores, lattice._best_alternatives(), strict=True):
        others = [sum(scores[part] for part in cut) for cut in cuts(piece, scores) if len(cut) > 1]
        assert alternative == pytest.approx(max(others, default=-math.inf))


def test_pieces_are_what_recurs_and_every_character() -> None:
    words = {"▁unhappy": 9, "▁happy": 9, "▁unkind": 9, "▁kind": 9}
    pieces = [piece for piece, _ in learn_pieces(words, 14, 2)]
    assert set(pieces[:4]) == set(words)
    assert set(pieces[4:]) == set("▁unhapykid")


def test_the_vocabulary_explains_unseen_text_as_well_as_sentencepieces() -> None:
    sentencepiece = pytest.importorskip("sentencepiece")
    lines = list(read_lines(corpus("multi30k/train.de.gz")))[:6000]
    held_out = list(read_lines(corpus("multi30k/val.de.gz")))
    words: Counter[str] = Counter(f"▁{word}" for line in lines for word in line.split(" "))
    ours = dict(learn_pieces(words, 2000, 2))
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(lines), model_writer=model, vocab_size=2003, model_type="unigram", minloglevel=2,
        normalization_rule_name="identity", character_coverage=1.0, split_by_number=False,
        split_by_unicode_script=False, num_threads=1,
    )  # fmt: skip
    peer = sentencepiece.SentencePieceProcessor(model_proto=model.getvalue())
    theirs = {peer.id_to_piece(id): peer.get_score(id) for id in range(3, peer.get_piece_size())}
    assert len(ours) == len(theirs) == 2000
    assert score_text(held_out, ours) > score_text(held_out, theirs)


def score_text(lines: list[str], scores: dict[str, float]) -> float:
    """The log-probability of the likeliest cut; a character that is no piece costs 20."""
    total = 0.0
    for word, count in Counter(f"▁{word}" for line in lines for word in line.split(" ")).items():
        best = [0.0]
        for end in range(1, len(word) + 1):
            best.append(
                max(
                    best[start] + scores.get(word[start:end], -20.0 if end - start == 1 else -math.inf)
                    for start in range(max(0, end - 16), end)
                )
            )
        total += count * best[-1]
    return total
