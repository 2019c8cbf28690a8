"""A few lines to try a model on: of the data it was judged by, or of any English."""

from collections.abc import Sequence
from pathlib import Path
from typing import TypeVar

import numpy as np

from seqloom.data.shards import Records
from seqloom.errors import DataError
from seqloom.predict.bulk import read_lines
from seqloom.predict.predictor import Predictor

ENGLISH = (
    "The cat sat on the mat.",
    "It rained all night, and in the morning the river stood above the bridge.",
    "Why?",
    "She had never been to the sea before.",
    "Two plus two is four; three times three is nine, and so it goes on and on and on.",
    "He opened the door slowly.",
    "No one knows where the old road begins, who built it, or whether it ever led anywhere at all.",
    "Good morning!",
    "A dog barked.",
    "They bought bread, cheese, apples and a bottle of wine at the market on the corner.",
)
"""Of different lengths, for a run whose data are gone."""
T = TypeVar("T")
_COUNT = 24
_TOKENS = 48  # of a line, at most


def find_lines(folder: Path, loaded: Predictor, file: Path | None = None) -> tuple[str, Sequence[str]]:
    """Where lines were found, and their beginnings: of a file, of the run's validation or training data, or English."""
    if file is not None:
        lines = [line.texts[0] for block in read_lines(str(file)) for line in block if not line.fault]
        return str(file), _shorten(loaded, _spread([line for line in lines if line.strip()]))
    role = next(iter(loaded.frames))
    for split in ("valid", "train"):
        try:
            records = Records(sorted((folder / "data").glob(f"{split}-*")))
        except DataError:  # damaged, which is no fault of the model
            continue
        rows = [records.read(role, record)[:_TOKENS].tolist() for record in _spread(range(len(records)))]
        lines = [line for line in loaded.tokenizer.decode_batch(rows) if line.strip()]
        if lines:
            return f"the {split} data", lines
    return "plain English, for the data of the run are gone", ENGLISH


def _spread(items: Sequence[T]) -> list[T]:
    """Some of the items, evenly spread."""
    return [items[index] for index in np.unique(np.linspace(0, len(items) - 1, min(_COUNT, len(items))).astype(int))]


def _shorten(loaded: Predictor, lines: Sequence[str]) -> list[str]:
    offsets = [loaded.tokenizer.encode(line).offsets[:_TOKENS] for line in lines]
    return [line[: own[-1][1]] for line, own in zip(lines, offsets, strict=True) if own]
