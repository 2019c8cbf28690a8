"""Vectors seen in a plane."""

import numpy as np
import pytest

from seqloom.predict.plane import find_plane, normalise


def distances(points: np.ndarray) -> np.ndarray:
    return np.linalg.norm(points[:, None] - points, axis=-1)


def test_vectors_that_lie_in_a_plane_keep_their_distances() -> None:
    rng = np.random.default_rng(0)
    flat = rng.normal(size=(7, 2)) @ rng.normal(size=(2, 12)) + rng.normal(size=12)
    points, explained = find_plane(flat)
    assert distances(points) == pytest.approx(distances(flat), abs=1e-12)
    assert sum(explained) == pytest.approx(1.0)
    assert explained[0] >= explained[1] > 0


def test_the_plane_is_that_of_the_eigenvectors_of_the_covariance() -> None:
    rows = normalise(np.random.default_rng(1).normal(size=(20, 6)))
    points, explained = find_plane(rows)
    values, vectors = np.linalg.eigh(np.cov(rows.T, bias=True))
    assert explained == pytest.approx(tuple(values[::-1][:2] / values.sum()))
    projected = (rows - rows.mean(0)) @ vectors[:, ::-1][:, :2]
    assert np.abs(points) == pytest.approx(np.abs(projected))


def test_a_plane_is_turned_to_fit_another_and_keeps_its_distances() -> None:
    rng = np.random.default_rng(2)
    rows = rng.normal(size=(9, 5))
    alone, _ = find_plane(rows)
    turn = np.array([[0.0, 1.0], [-1.0, 0.0]])
    fitted, explained = find_plane(rows, alone @ turn)
    assert fitted == pytest.approx(alone @ turn)
    assert distances(fitted) == pytest.approx(distances(alone))
    assert explained == find_plane(rows)[1]


@pytest.mark.parametrize("rows", [np.ones((4, 3)), np.ones((1, 3))])
def test_equal_vectors_have_one_point_and_no_variance(rows: np.ndarray) -> None:
    points, explained = find_plane(rows)
    assert not points.any()
    assert explained == (0.0, 0.0)


def test_rows_of_zeros_stay() -> None:
    assert normalise(np.array([[3.0, 4.0], [0.0, 0.0]])).tolist() == [[0.6, 0.8], [0.0, 0.0]]
