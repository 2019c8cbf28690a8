"""A word in many sentences: its vectors are those of `embed`, and the static ones do not see the sentence."""

import numpy as np
import pytest

from contracts.random_models import find_folder
from seqloom.errors import DataError
from seqloom.predict.contexts import Occurrence, WordInContext, find_contexts, find_occurrences
from seqloom.predict.load import load
from seqloom.predict.model import Model

TEXTS = ("w1 w2 w3", "w4 w2 w1 w9", "w2 w5 w2")
MODELS = (
    "translation/transformer",
    "tagging/recurrent",
    "classification/convolutional",
    "language-model/narrow",
    "masked-language-model/transformer",
    "bidirectional-language-model/recurrent",
)


@pytest.fixture(params=MODELS)
def model(request: pytest.FixtureRequest) -> Model:
    return load(find_folder(request.param))


def find(model: Model, word: str = "w2") -> WordInContext:
    return find_contexts(model._predictor, word, TEXTS)


def cosine(one: np.ndarray, other: np.ndarray) -> float:
    return float(one @ other / np.linalg.norm(one) / np.linalg.norm(other))


def test_layers_hold_the_vectors_of_embed(model: Model) -> None:
    found = find(model)
    assert found.occurrences == [Occurrence(0, 3, 5), Occurrence(1, 3, 5), Occurrence(2, 0, 2), Occurrence(2, 6, 8)]
    assert [layer.name for layer in found.layers] == ["static", "input", "after layer 0", "after layer 1"]
    for number, layer in enumerate(found.layers[1:]):
        vectors = [model.embed(text, level="token", layer=number).vectors for text in TEXTS]
        own = [vectors[text][token] for text, token in ((0, 1), (1, 1), (2, 0), (2, 2))]
        expected = [[cosine(one, other) for other in own] for one in own]
        assert np.array(layer.cosines) == pytest.approx(np.array(expected), abs=1e-5)
        apart = [expected[i][j] for i in range(4) for j in range(4) if i != j]
        assert layer.self_similarity == pytest.approx(np.mean(apart), abs=1e-5)


def test_points_are_as_far_apart_as_the_plane_explains(model: Model) -> None:
    for layer in find(model).layers[1:]:
        points, cosines = np.array(layer.points), np.array(layer.cosines)
        spread = (1 - cosines).sum() / len(cosines)  # Σ‖v − mean‖², of vectors of length one
        assert (points**2).sum() == pytest.approx(sum(layer.explained) * spread, rel=1e-6)


def test_a_static_vector_does_not_see_the_sentence(model: Model) -> None:
    static = find(model).layers[0]
    assert static.self_similarity == pytest.approx(1.0)
    assert not np.any(static.points)
    assert static.explained == (0.0, 0.0)
    for near in static.neighbours:
        assert [one.cosine for one in near] == sorted((one.cosine for one in near), reverse=True)
        assert "w2" not in [one.word for one in near]
        assert near == static.neighbours[0]


def test_neighbours_are_other_words_nearest_first(model: Model) -> None:
    for layer in find(model).layers[1:]:
        for near in layer.neighbours:
            assert sorted(one.word for one in near) == ["w1", "w1", "w3", "w4", "w5", "w9"]
            assert [one.cosine for one in near] == sorted((one.cosine for one in near), reverse=True)
            assert all(one.text is not None and one.word in TEXTS[one.text] for one in near)


def test_a_word_is_found_as_a_whole_and_else_as_a_part() -> None:
    found, notes = find_occurrences("apple", ["Apple pie", "an apple, pineapple"])
    assert found == [Occurrence(0, 0, 5), Occurrence(1, 3, 8)]
    assert not notes
    found, notes = find_occurrences("apple", ["pineapple"])
    assert found == [Occurrence(0, 4, 9)]
    assert "longer words" in notes[0]
    assert find_occurrences("(", ["a ( b"])[0] == [Occurrence(0, 2, 3)]


def test_a_word_that_is_not_there_is_refused(model: Model) -> None:
    with pytest.raises(DataError, match="'w7' stands in none of the 3 sentences"):
        find(model, "w7")
    with pytest.raises(DataError, match="give a word"):
        find(model, " ")


def test_one_occurrence_has_nothing_to_be_compared_with(model: Model) -> None:
    layer = find(model, "w9").layers[-1]
    assert layer.self_similarity is None
    assert layer.points == [[0.0, 0.0]]
