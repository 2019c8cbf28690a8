"""Which model answers: the one that is named, else that of the languages, else the only one; else a list."""

from collections.abc import Sequence
from pathlib import Path

import pytest

from seqloom.errors import ConfigError, RunError
from seqloom.predict.load import open_predictor
from seqloom.serve.faults import RefusalError, UnknownModelError
from seqloom.serve.models import Models, Served, read_names
from unit.serve.conftest import make_run


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_run(tmp_path_factory.mktemp("run") / "mt", "translation")


def serve(folder: Path, pairs: Sequence[tuple[str | None, str | None]]) -> Models:
    models = Models([])
    for source, target in pairs:
        name = f"{source}-{target}"
        languages = {"source_language": source, "target_language": target}
        models._models[name] = Served(name, folder, open_predictor(folder, languages=languages), ())
    return models


@pytest.mark.parametrize(
    ("pair", "found"),
    [
        (("de", "en"), "de-en"),
        (("DE", "EN-GB"), "de-en"),
        (("de_AT", "en"), "de-en"),
        (("fr", "en"), "fr-en"),
        (("auto", "de"), "en-de"),
        (("pt", "pt-BR"), None),
        (("auto", "en"), None),
        (("en", "fr"), None),
    ],
)
def test_languages_choose(folder: Path, pair: tuple[str, str], found: str | None) -> None:
    models = serve(folder, [("de", "en"), ("fr", "en"), ("en", "de")])
    if found is None:
        with pytest.raises(RefusalError, match=r"de-en \(translation de→en\)"):
            models.find("translate", None, pair)
    else:
        assert models.find("translate", None, pair).name == found


def test_a_run_without_languages_takes_any_codes(folder: Path) -> None:
    [model] = serve(folder, [(None, None)])
    assert model.languages == ("und", "und")
    assert model.translates("xx", "yy-ZZ")


def test_names_choose(folder: Path) -> None:
    models = serve(folder, [("de", "en"), ("fr", "en")])
    assert models.find("translate", "fr-en").name == "fr-en"
    with pytest.raises(UnknownModelError, match="there are: de-en"):
        models.find("translate", "nothing")
    with pytest.raises(RefusalError, match="several models can translate; name one of them"):
        models.find("translate")
    with pytest.raises(RunError, match="not tag"):
        models.find("tag", "de-en")
    with pytest.raises(RefusalError, match="no model here can tag"):
        models.find("tag")


def test_folders_and_names(folder: Path) -> None:
    assert read_names([str(folder), f"a={folder}"]) == [("mt", folder), ("a", folder)]
    with pytest.raises(ConfigError, match="two models have this name"):
        Models([("a", folder), ("a", folder)])
    with pytest.raises(ConfigError, match="NAME=FOLDER"):
        read_names(["=x"])
