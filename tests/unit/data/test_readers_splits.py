"""Mixing corpora by weight, and holding records out."""

from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from seqloom.config.data import LabelledData, TextData
from seqloom.data.corpus import open_split
from seqloom.data.order import Mixture

parts = st.lists(
    st.tuples(st.integers(0, 30), st.sampled_from([0.1, 0.25, 0.5, 1.0, 1.5, 2.0, 3.0])), min_size=1, max_size=4
)


@given(parts=parts, epochs=st.integers(1, 9))
def test_every_record_is_seen_as_often_as_its_weight_says(parts: list[tuple[int, float]], epochs: int) -> None:
    sizes, weights = zip(*parts, strict=True)
    mixture = Mixture.weigh(sizes, weights)
    seen: Counter[tuple[int, int]] = Counter()
    for epoch in range(epochs):
        corpus, record = mixture.locate(epoch, np.arange(mixture.total))
        seen.update(zip(corpus.tolist(), record.tolist(), strict=True))
    for index, (size, weight) in enumerate(parts):
        times = [seen[index, record] for record in range(size)]
        assert sum(times) == sum(n for (c, _), n in seen.items() if c == index), "no record outside the corpus"
        if size:
            assert max(times) - min(times) <= 1
            assert abs(sum(times) / epochs - size * weight) <= max(1.0, 0.5)


def test_any_part_of_an_epoch_is_found_alone() -> None:
    mixture = Mixture.weigh([5, 7], [2.0, 0.5])
    whole = mixture.locate(3, np.arange(mixture.total))
    part = mixture.locate(3, np.array([11, 2, 4]))
    assert mixture.total == 10 + 4
    assert all((w[[11, 2, 4]] == p).all() for w, p in zip(whole, part, strict=True))


def texts_of(data: TextData | LabelledData, split: str, base: Path) -> list[str]:
    return [str(e.values["text"]) for corpus in open_split(data, split, base) for e in corpus]  # type: ignore[arg-type]


@pytest.mark.parametrize("fraction", [0.01, 0.1, 0.5])
def test_held_out_records_and_the_rest_are_all_of_them(fraction: float, tmp_path: Path) -> None:
    rows = [f"text {i % 1500}\t{i % 3}" for i in range(2000)]
    (tmp_path / "t").write_text("\n".join(rows))
    data = LabelledData.model_validate(
        {"valid_fraction": fraction, "train": {"files": "t", "columns": {"text": 1, "label": 2}}}
    )
    train, valid = texts_of(data, "train", tmp_path), texts_of(data, "valid", tmp_path)
    assert sorted(train + valid) == sorted(row.split("\t")[0] for row in rows)
    assert not set(train) & set(valid), "no text stands on both sides, whatever its label"
    assert abs(len(valid) / 2000 - fraction) < 0.05
    assert valid == texts_of(data, "valid", tmp_path)


def test_running_text_is_held_out_in_stretches(tmp_path: Path) -> None:
    (tmp_path / "t").write_text("\n".join(str(i) for i in range(10_000)))
    data = TextData.model_validate({"valid_fraction": 0.1, "train": {"files": "t"}})
    train, valid = texts_of(data, "train", tmp_path), texts_of(data, "valid", tmp_path)
    assert len(valid) == 1000
    assert sorted(map(int, train + valid)) == list(range(10_000))
    steps = np.diff(np.array(valid, int))
    assert (steps == 1).sum() >= 0.95 * len(steps)
    assert max(int(v) for v in valid) > 9000
    assert min(int(v) for v in valid) < 1000


def test_a_line_too_long_for_memory_is_refused_while_reading(tmp_path: Path) -> None:
    (tmp_path / "t").write_text("short\n" + "x" * 100)
    data = TextData.model_validate({"max_line_bytes": 50, "train": {"files": "t"}})
    with pytest.raises(ValueError, match="t:2: the line has 100 bytes"):
        texts_of(data, "train", tmp_path)
