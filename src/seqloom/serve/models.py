"""The models of a server: loaded, named, found by name, language pair or verb, and loaded anew when they changed."""

import threading
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from seqloom.config.data import ParallelData
from seqloom.errors import ConfigError, SeqloomError
from seqloom.predict.load import open_predictor
from seqloom.predict.predictor import Predictor
from seqloom.predict.search import EngineName, Precision
from seqloom.runs.weights import find_weights
from seqloom.serve.faults import RefusalError, UnknownModelError
from seqloom.serve.traces import listen

UNKNOWN = "und"
"""The code of a language that nobody named (ISO 639-2)."""
ANY = ("", "auto", UNKNOWN)
"""What a client says where it leaves the language to the server."""


@dataclass(frozen=True)
class Served:
    """A model behind an address."""

    name: str
    folder: Path
    predictor: Predictor
    stamp: tuple[object, ...]
    """What changes when the folder's weights do."""
    notes: tuple[str, ...] = ()
    """What an operator should know about it."""

    @property
    def verbs(self) -> tuple[str, ...]:
        """What it can do."""
        if getattr(self.predictor.peek(), "output", self) is None:
            return ("embed",)
        return tuple(verb.split()[0] for verb in self.predictor.config.verbs)

    @property
    def languages(self) -> tuple[str, str] | None:
        """The languages of a translation model; `und` where its configuration does not say."""
        data = self.predictor.config.data
        if not isinstance(data, ParallelData):
            return None
        return data.source_language or UNKNOWN, data.target_language or UNKNOWN

    def __str__(self) -> str:
        pair = "" if self.languages is None else f" {self.languages[0]}→{self.languages[1]}"
        return f"{self.name} ({self.predictor.config.task}{pair})"

    def translates(self, source: str, target: str) -> bool:
        """Whether it translates between two languages, given by their codes."""
        if self.languages is None:
            return False
        return _fits(self.languages[0], source) and _fits(self.languages[1], target)


def _fits(own: str, wanted: str) -> bool:
    """Whether a language is the one that is wanted; a region that only one of them names makes no difference."""
    own, wanted = own.lower().replace("_", "-"), wanted.lower().replace("_", "-")
    if own == UNKNOWN or wanted in ANY:
        return True
    return own == wanted or (own.partition("-")[0] == wanted.partition("-")[0] and not ("-" in own and "-" in wanted))


class Models:
    """All models of a server; they may be replaced while it answers."""

    def __init__(
        self, named: Iterable[tuple[str, Path]], engine: EngineName = "compiled", precision: Precision = "float32"
    ) -> None:
        self._engine, self._precision, self._lock = engine, precision, threading.Lock()
        self._models: dict[str, Served] = {}
        for name, folder in named:
            if name in self._models:
                raise ConfigError(f"{name}: two models have this name; give one another, as in other={folder}")
            self._models[name] = _load(name, folder, engine, precision)

    def __iter__(self) -> Iterator[Served]:
        return iter(list(self._models.values()))

    def reload(self) -> list[str]:
        """Load the models whose folders have changed, and say so; those that cannot be loaded stay as they are."""
        said = []
        with self._lock:
            for name, model in list(self._models.items()):
                try:
                    if _stamp(model.folder) == model.stamp:
                        continue
                    self._models[name] = _load(name, model.folder, self._engine, self._precision)
                    said.append(f"{name}: loaded anew")
                except (SeqloomError, OSError) as error:
                    said.append(f"{name}: stays as it was: {error}")
        return said

    def find(self, verb: str, name: str | None = None, pair: tuple[str, str] | None = None) -> Served:
        """The model for a verb: the one of this name, else of this pair of languages, else the only one."""
        if name is not None:
            if name not in self._models:
                raise UnknownModelError(f"there is no model {name!r} here; {self._list(self)}")
            found = self._models[name]
            if verb not in found.verbs:
                found.predictor.refuse(verb)
            return found
        able = [model for model in self if verb in model.verbs]
        if pair is not None and able:
            fitting = [model for model in able if model.translates(*pair)]
            if not fitting:
                raise RefusalError(f"no model here translates {pair[0]} to {pair[1]}; {self._list(able)}")
            exact = [model for model in fitting if model.languages == pair]
            able = exact or fitting
        if len(able) == 1:
            return able[0]
        if not able:
            raise RefusalError(f"no model here can {verb}; {self._list(self)}")
        raise RefusalError(f"several models can {verb}; name one of them. {self._list(able)}")

    def _list(self, models: Iterable[Served]) -> str:
        return f"there are: {', '.join(map(str, models))}"


def read_names(given: Sequence[str]) -> list[tuple[str, Path]]:
    """Names and folders: NAME=FOLDER, or a folder, whose name it then has."""
    named = []
    for one in given:
        name, equals, folder = one.partition("=")
        if not equals or Path(one).exists():
            name, folder = Path(one).resolve().name, one
        if not name or not folder:
            raise ConfigError(f"{one}: give the folder of a run, or NAME=FOLDER")
        named.append((name, Path(folder)))
    return named


def _stamp(folder: Path) -> tuple[object, ...]:
    """What tells the weights of a folder from those that were there before."""
    if (folder / "config.toml").exists():
        folder = find_weights(folder).weights
    files = sorted(path for path in folder.iterdir() if path.is_file())
    return folder, *((path.name, path.stat().st_size, path.stat().st_mtime_ns) for path in files)


def _load(name: str, folder: Path, engine: EngineName, precision: Precision) -> Served:
    with listen() as notes:
        stamp = _stamp(folder) if folder.is_dir() else ()
        predictor = open_predictor(folder, engine, precision=precision)
        predictor.compile()  # now, not at the first request
    return Served(name, folder, predictor, stamp, tuple(notes))
