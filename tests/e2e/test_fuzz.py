"""Random configurations from end to end: the short form of `make fuzz`, with seeds of its own."""

from pathlib import Path

import pytest

from fuzzing.corpora import write_corpora
from fuzzing.trial import try_configuration

PARTS = 4
SHARE = 6


@pytest.fixture(scope="session")
def fuzz_corpora(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("fuzz")
    write_corpora(folder)
    return folder


@pytest.mark.parametrize("part", [0, *(pytest.param(part, marks=pytest.mark.long) for part in range(1, PARTS))])
def test_a_random_configuration_works_from_end_to_end_or_is_refused_with_a_sentence(
    part: int, fuzz_corpora: Path, tmp_path: Path
) -> None:
    for seed in range(1_000_000 + part * SHARE, 1_000_000 + (part + 1) * SHARE):
        outcome = try_configuration(seed, fuzz_corpora, tmp_path / str(seed))
        assert outcome.kind in ("ok", "refused"), outcome
