"""None of the broken inputs crashes anything, none passes unseen, and what can be repaired is."""

import tomllib
from contextlib import nullcontext
from pathlib import Path

import pytest

import broken_inputs
from broken_inputs import CATALOGUE, Broken
from seqloom.data.corpus import SPLITS, open_split
from seqloom.data.doctor.repair import repair
from seqloom.data.examples import KINDS, UNREADABLE
from seqloom.errors import DataError

BEYOND_REPAIR = {
    *("unreadable_file", "empty_file", "no_records", "not_text", "truncated_file", "unknown_column", "single_label"),
    *("missing_file", "unequal_files", "same_sides", "swapped_sides"),
}
"""Where these are found, nothing may be left to train on."""


def named(broken: Broken) -> str:
    return broken.title


@pytest.mark.parametrize("broken", CATALOGUE, ids=named)
def test_the_doctor_sees_it(broken: Broken, tmp_path: Path) -> None:
    report = broken.examine_in(tmp_path)
    found = {finding.kind for finding in report.findings}
    assert set(broken.expected) <= found
    assert bool(report.errors) == broken.fatal
    if broken.fatal:
        with pytest.raises(DataError, match=r"training refuses this data"):
            report.refuse()
    else:
        report.refuse()


@pytest.mark.parametrize("broken", CATALOGUE, ids=named)
def test_reading_it_for_training_gives_records_or_a_data_error(broken: Broken, tmp_path: Path) -> None:
    data = broken.write(tmp_path)
    unreadable = set(broken.expected) & (UNREADABLE.keys() - {"no_records"})
    with pytest.raises(DataError) if unreadable else nullcontext():
        for split in SPLITS:
            for corpus in open_split(data, split, tmp_path):
                assert all(example.line >= 1 for example in corpus)


@pytest.mark.parametrize("broken", CATALOGUE, ids=named)
def test_a_repaired_copy_has_no_errors_left(broken: Broken, tmp_path: Path) -> None:
    data = broken.write(tmp_path)
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    try:
        done = repair(data, tmp_path, tmp_path / "repaired")
    except DataError:
        assert {"missing_file", "unequal_files"} & set(broken.expected)
        return
    assert before == {path: path.read_bytes() for path in before}, "the originals are as they were"
    left = {error.kind for error in done.report.errors}
    assert left <= BEYOND_REPAIR
    if left:
        assert BEYOND_REPAIR & set(broken.expected) or any(split.compared == 0 for split in done.report.splits)
    elif broken.kind == "parallel":
        for corpus in open_split(done.data, "train", tmp_path):
            assert len({Path(file).read_bytes().count(b"\n") for file in corpus.files()}) == 1, "still aligned"


def test_every_kind_of_finding_is_in_the_catalogue() -> None:
    shown = {kind for broken in CATALOGUE for kind in broken.expected}
    assert KINDS.keys() - shown == {"missing_extra"}, "tested without its library in test_readers_formats"
    assert len(CATALOGUE) >= 40


def test_the_page_is_what_the_doctor_says() -> None:
    written = broken_inputs.DOCUMENT.read_text(encoding="utf-8")
    assert written == broken_inputs.document(), "run: python tests/broken_inputs.py"


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind not in UNREADABLE])
def test_a_finding_can_be_made_an_error_or_switched_off(kind: str, tmp_path: Path) -> None:
    broken = next(b for b in CATALOGUE if kind in b.expected)
    for severity, found in (("error", True), ("off", False)):
        changed = Broken(
            broken.title,
            broken.kind,
            broken.files,
            f'checks = {{{kind} = "{severity}"}}\n{broken.config}',
            broken.expected,
            broken.fatal,
        )
        assert tomllib.loads(changed.config)["checks"] == {kind: severity}
        folder = tmp_path / severity
        folder.mkdir()
        assert (kind in {f.kind for f in changed.examine_in(folder).errors}) == found
