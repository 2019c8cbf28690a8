"""Questions to word vectors, their use as first embeddings, and the two public tests of their quality."""

import gzip
from pathlib import Path

import numpy as np
import pytest
import torch

from seqloom.errors import DataError, SeqloomError, ShapeError
from seqloom.models.word_vectors import (
    Question,
    Rating,
    UnknownWordError,
    WordVectors,
    evaluate_analogies,
    evaluate_similarity,
    read_questions,
    read_ratings,
)
from shared_data import corpus


def compass() -> WordVectors:
    """Words around a circle, by degrees, at different lengths: only the angle may matter."""
    degrees = {"east": 0, "north": 90, "northeast": 45, "west": 180, "south": 260, "almost-east": 5}
    angles = torch.deg2rad(torch.tensor(list(degrees.values()), dtype=torch.float32))
    lengths = torch.arange(1.0, 1 + len(angles))[:, None]
    return WordVectors(list(degrees), torch.stack([angles.cos(), angles.sin()], dim=1) * lengths)


def royal() -> WordVectors:
    """Royalty along one axis, gender along another, and a word that is near the goal but in the question."""
    words = {"man": (0, 1, 1), "woman": (0, -1, 1), "king": (1, 1, 1), "queen": (1, -1, 1), "apple": (-1, 0, -1)}
    return WordVectors(list(words), torch.tensor(list(words.values()), dtype=torch.float32))


def test_nearest_is_by_angle_and_leaves_out_the_word_itself() -> None:
    found = compass().nearest("east", k=3)
    assert [n.word for n in found] == ["almost-east", "northeast", "north"]
    assert [n.similarity for n in found] == pytest.approx([np.cos(np.deg2rad(5)), np.sqrt(0.5), 0.0], abs=1e-6)


def test_nearest_to_a_vector_leaves_out_nothing() -> None:
    vectors = compass()
    assert vectors.nearest(vectors["east"] * 7, k=1)[0].word == "east"


def test_asking_for_more_than_there_is_gives_all() -> None:
    assert len(compass().nearest("east", k=100)) == 5
    assert len(royal().analogy("man", "king", "woman", k=100)) == 2


def test_analogy() -> None:
    assert royal().analogy("man", "king", "woman", k=1)[0].word == "queen"
    assert royal().analogy("king", "queen", "man", k=1)[0].word == "woman"


def test_similarity_is_the_cosine() -> None:
    assert compass().similarity("east", "west") == pytest.approx(-1)
    assert compass().similarity("north", "northeast") == pytest.approx(np.sqrt(0.5))


def test_a_zero_vector_is_near_nothing_and_breaks_nothing() -> None:
    vectors = WordVectors(["a", "b", "zero"], torch.tensor([[1.0, 0], [1, 1], [0, 0]]))
    assert vectors.similarity("zero", "a") == 0
    assert [n.word for n in vectors.nearest("a")] == ["b", "zero"]


def test_membership_and_lookup() -> None:
    vectors = royal()
    assert "king" in vectors
    assert "duke" not in vectors
    assert (len(vectors), vectors.dim) == (5, 3)
    assert vectors["queen"].tolist() == [1, -1, 1]


def test_an_unknown_word_is_said_by_name_and_is_a_key_error_too() -> None:
    with pytest.raises(KeyError):
        royal()["duke"]
    with pytest.raises(UnknownWordError, match=r'^"King" is not among the 5 words with a vector; "king" is$'):
        royal().nearest("King")


@pytest.mark.parametrize(
    ("words", "shape", "error"),
    [(["a", "b"], (3, 2), ShapeError), (["a", "b"], (2,), ShapeError), (["a", "a"], (2, 2), DataError)],
)
def test_words_and_vectors_must_fit(words: list[str], shape: tuple[int, ...], error: type[SeqloomError]) -> None:
    with pytest.raises(error):
        WordVectors(words, torch.ones(shape))


def test_a_query_of_the_wrong_width_is_refused() -> None:
    with pytest.raises(ShapeError, match=r"\(3,\).*\(2,\)"):
        compass().nearest(torch.ones(3))


def test_first_embeddings_keep_known_vectors_and_fill_the_rest_at_their_scale() -> None:
    torch.manual_seed(0)
    vectors = WordVectors([f"w{i}" for i in range(500)], torch.randn(500, 40) * 0.3)
    vocabulary = ["[PAD]", *(f"w{i}" for i in range(250)), *(f"new{i}" for i in range(249))]
    matrix, coverage = vectors.matrix_for(vocabulary, torch.Generator().manual_seed(1))
    assert matrix.shape == (500, 40)
    assert coverage == 0.5
    assert torch.equal(matrix[1:251], vectors.vectors[:250])
    assert matrix[251:].std().item() == pytest.approx(0.3, rel=0.05)
    again = vectors.matrix_for(vocabulary, torch.Generator().manual_seed(1)).matrix
    assert torch.equal(matrix, again)
    matrix[1] = 0  # a copy: training a model must not change the vectors
    assert vectors["w0"].abs().sum() > 0


def test_similarity_score_is_one_for_the_right_order_and_counts_what_is_missing() -> None:
    ratings = [Rating("east", "almost-east", 9), Rating("East", "northeast", 7), Rating("east", "north", 3)]
    ratings += [Rating("east", "west", 1), Rating("east", "zenith", 5)]
    result = evaluate_similarity(compass(), ratings)
    assert (result.spearman, result.asked, result.left_out) == (pytest.approx(1), 4, 1)
    backwards = [Rating(a, b, -score) for a, b, score in ratings]
    assert evaluate_similarity(compass(), backwards).spearman == pytest.approx(-1)


def test_analogy_accuracy_by_section() -> None:
    questions = [
        Question("royal", "man", "king", "woman", "queen"),
        Question("royal", "Man", "King", "Woman", "apple"),
        Question("fruit", "man", "king", "apple", "pear"),
        Question("other", "king", "queen", "man", "woman"),
    ]
    result = evaluate_analogies(royal(), questions)
    assert (result.asked, result.left_out) == (3, 1)
    assert result.accuracy == pytest.approx(2 / 3)
    assert result.sections == {"royal": 0.5, "other": 1.0}


def test_nothing_to_ask_is_said() -> None:
    with pytest.raises(DataError, match="0 of 1"):
        evaluate_similarity(royal(), [Rating("x", "y", 1)])
    with pytest.raises(DataError, match="none of the 1"):
        evaluate_analogies(royal(), [Question("", "x", "y", "z", "w")])


def test_the_public_tests_are_read_whole() -> None:
    ratings = read_ratings(corpus("word-similarity/wordsim353.tsv.gz"))
    questions = read_questions(corpus("word-similarity/questions-words.txt.gz"))
    assert (len(ratings), ratings[1]) == (353, Rating("tiger", "cat", 7.35))
    assert len(questions) == 19544
    assert questions[0] == Question("capital-common-countries", "Athens", "Greece", "Baghdad", "Iraq")
    assert len({q.section for q in questions}) == 14


@pytest.mark.parametrize(
    ("read", "text", "message"),
    [
        (read_ratings, "a\tb\t1\na b 2\n", r"ratings:2: expected word<TAB>word<TAB>score, not 'a b 2'"),
        (read_ratings, "a\tb\tmuch\n", r"ratings:1: expected"),
        (read_questions, ": s\na b c d\n\na b c\n", r"ratings:4: expected four words"),
        (read_questions, "", "empty"),
    ],
)
def test_a_broken_test_file_is_said_with_its_line(read, text: str, message: str, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    path = tmp_path / "ratings"
    path.write_bytes(gzip.compress(text.encode()) if text else b"")
    with pytest.raises(DataError, match=message):
        read(path)
