"""Vectors seen in a plane: their first two principal components (Pearson 1901).

    X = U S Vᵀ, X centred        points U S of the first two columns        explained s_k² / Σ s²

The directions of a component are free up to sign, and two of equal variance up to rotation, so a plane is turned (and
mirrored) to fit another one of the same points: R = argmin ‖P R − Q‖ over orthogonal R, from the singular vectors of
Pᵀ Q (Schönemann 1966). That changes no distance.
"""

import numpy as np
from numpy.typing import NDArray

Rows = NDArray[np.float64]
_FLAT = 1e-6  # the largest spread of unit vectors that counts as none


def normalise(rows: Rows) -> Rows:
    """Rows of length one; a row of zeros stays as it is."""
    lengths = np.linalg.norm(rows, axis=1, keepdims=True)
    scaled: Rows = rows / np.where(lengths > 0, lengths, 1.0)
    return scaled


def find_plane(rows: Rows, fit: Rows | None = None) -> tuple[Rows, tuple[float, float]]:
    """The points of unit vectors in their plane, and the share of the variance in each of its two directions.

    `fit` are the points of the same vectors in another plane. Vectors that are all the same have all points at zero.
    """
    points = np.zeros((len(rows), 2))
    centred = rows - rows.mean(0)
    if np.abs(centred).max(initial=0.0) < _FLAT:
        return points, (0.0, 0.0)
    left, sizes, _ = np.linalg.svd(centred, full_matrices=False)
    found = min(2, len(sizes))
    points[:, :found] = left[:, :found] * sizes[:found]
    shares = np.zeros(2)
    shares[:found] = (sizes**2 / (sizes**2).sum())[:found]
    if fit is None:
        points *= np.where(points[np.abs(points).argmax(0), [0, 1]] < 0, -1.0, 1.0)
    else:
        one, _, other = np.linalg.svd(points.T @ fit)
        points = points @ one @ other
    return points, (float(shares[0]), float(shares[1]))
