"""Which records and columns a verb reads, by the name of a file and the data of the run."""

from pathlib import Path
from typing import Any

import pytest

from seqloom.config.data import DelimitedLabels, LabelColumns, LabelFirstFiles
from seqloom.errors import ConfigError, DataError
from seqloom.predict.inputs import find_records
from seqloom.predict.load import open_predictor
from seqloom.predict.predictor import Predictor
from small_runs import Runs


@pytest.fixture(scope="module")
def classifier(runs: Runs) -> Predictor:
    return open_predictor(runs("classification"))


def trained_on(model: Predictor, section: Any) -> Predictor:
    """The same model, as if it had been trained on another corpus."""
    data = model.config.data.model_copy(update={"train": (section,)})
    other = open_predictor(model.folder or Path())
    other.config = model.config.model_copy(update={"data": data})
    return other


def texts(model: Predictor, path: Path, **options: Any) -> list[Any]:
    found = find_records(model, str(path), 1, **options)
    assert found is not None
    return [line.texts[0] for block in found.read() for line in block]


def test_lines_that_begin_with_labels_are_not_taken_for_text(classifier: Predictor, tmp_path: Path) -> None:
    path = tmp_path / "test.txt"
    label = classifier.labels[0]
    path.write_text(f"{label} the cat\n\n{label} a dog\n", encoding="utf-8")
    assert find_records(classifier, str(path), 1) is None
    model = trained_on(classifier, LabelFirstFiles(files=("train.txt",)))
    with pytest.raises(
        DataError, match="every line begins with a label, as in the training data; --format label-first"
    ):
        find_records(model, str(path), 1)
    assert find_records(model, str(path), 1, format="text") is None
    assert texts(model, path, format="label-first") == ["the cat", "", "a dog"]
    path.write_text(f"{label} the cat\na dog\n", encoding="utf-8")
    assert find_records(model, str(path), 1) is None


def test_numbers_of_columns_and_headers_are_those_of_the_training(classifier: Predictor, tmp_path: Path) -> None:
    path = tmp_path / "a.CSV"
    path.write_text("pos,the cat\nneg,a dog\n", encoding="utf-8")
    columns = LabelColumns(text=2, label=1)
    model = trained_on(classifier, DelimitedLabels(format="csv", files=("t.csv",), columns=columns))
    assert texts(model, path) == ["the cat", "a dog"]
    model = trained_on(classifier, DelimitedLabels(format="csv", files=("t.csv",), columns=columns, header=True))
    assert texts(model, path) == ["a dog"]
    assert texts(model, path, columns=["1"]) == ["neg"]
    assert texts(model, path, columns=["the cat"]) == ["a dog"]
    with pytest.raises(ConfigError, match="not trained on such a table"):
        find_records(model, str(tmp_path / "a.jsonl"), 1)


def test_compressed_files_are_named_after_what_they_hold(classifier: Predictor, tmp_path: Path) -> None:
    for name in ("a.tsv.gz", "a.jsonl.xz", "a.csv"):
        assert find_records(classifier, str(tmp_path / name), 1) is not None
    for name in ("a.txt.gz", "a.gz", "a", "-"):
        assert find_records(classifier, name, 1) is None
    with pytest.raises(ConfigError, match="classification does not read conllu"):
        find_records(classifier, "a.conllu", 1)
