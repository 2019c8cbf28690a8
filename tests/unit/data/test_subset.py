"""A share of the training data: nested, random, of the training data only."""

from itertools import pairwise
from pathlib import Path

import pytest

from seqloom.config.data import LabelledData, TextData
from seqloom.data.corpus import open_split
from seqloom.data.subset import choose_share
from seqloom.errors import DataError
from seqloom.tasks.configuration import parse
from seqloom.training.prepare import prepare

SHARES = (0.02, 0.1, 0.5, 1.0)


def take(folder: Path, share: float, seed: int = 1) -> list[str]:
    data = LabelledData.model_validate({"train": {"files": ["t.tsv"]}, "train_share": share})
    (corpus,) = choose_share(data, open_split(data, "train", folder), seed)
    return [str(example.values["text"]) for example in corpus]


@pytest.fixture
def table(tmp_path: Path) -> Path:
    rows = [f"text {number}\t{'a' if number % 50 else 'rare'}" for number in range(2000)]
    (tmp_path / "t.tsv").write_text("\n".join(["text\tlabel", *rows]) + "\n")
    return tmp_path


def test_larger_shares_contain_smaller_ones(table: Path) -> None:
    taken = [take(table, share) for share in SHARES]
    for smaller, larger in pairwise(taken):
        assert set(smaller) < set(larger)
    for share, texts in zip(SHARES, taken, strict=True):
        assert abs(len(texts) - 2000 * share) <= 4 * (2000 * share * (1 - share)) ** 0.5, "a binomial number of them"


def test_seeds_choose_others_and_the_same_again(table: Path) -> None:
    assert take(table, 0.1) == take(table, 0.1)
    both = set(take(table, 0.5)) & set(take(table, 0.5, seed=2))
    assert 400 < len(both) < 600, "two halves have a quarter in common"


def test_running_text_stays_together(tmp_path: Path) -> None:
    (tmp_path / "t.txt").write_text("".join(f"line {number}\n" for number in range(10_000)))
    data = TextData.model_validate({"train": {"files": ["t.txt"]}, "train_share": 0.3})
    (corpus,) = choose_share(data, open_split(data, "train", tmp_path), 1)
    runs = [(example.line - 1) // 50 for example in corpus]
    assert all(runs.count(run) == 50 for run in set(runs))
    assert 30 < len(set(runs)) < 90


def test_only_the_training_data_are_fewer(table: Path) -> None:
    def make(share: float) -> tuple[int, int, int, tuple[str, ...]]:
        text = 'task = "classification"\ndata = {train = {files = "t.tsv"}, valid_fraction = 0.1}'
        config = parse(text, [f"data.train_share={share}"])
        prepared = prepare(config, table, table / f"run-{share}", lambda _: None)  # type: ignore[arg-type]
        records = prepared.records
        return len(records["train"]), len(records["valid"]), prepared.tokenizer.vocab_size, prepared.labels

    few, valid, vocabulary, labels = make(0.01)
    assert (valid, vocabulary, labels) == make(1.0)[1:], "tokeniser and labels follow all records"
    assert 0 < few < 50
    with pytest.raises(DataError, match=r"data\.train_share = 1e-09 leaves no record to train on"):
        make(1e-9)
