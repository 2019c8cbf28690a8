"""The model a user holds. Every verb takes a text and gives an answer, or a list of texts and gives a list."""

# A text is itself a sequence of texts, so the two signatures of a verb overlap; the first is meant to win.
# mypy: disable-error-code="overload-overlap"

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Literal, TypeVar, Unpack, overload

import numpy as np
from numpy.typing import NDArray

from seqloom.errors import ConfigError
from seqloom.metrics.resampling import SAMPLES
from seqloom.predict import classify, embed, fill, generate, score, tag, translate
from seqloom.predict.alignment import Alignment, attend_source
from seqloom.predict.classify import Answer
from seqloom.predict.embed import Layer, Pooling
from seqloom.predict.evaluate import Advance, Wanted, check_comparable, check_metrics, list_metrics, measure
from seqloom.predict.loaded import Loaded
from seqloom.predict.records import Judged, open_records, read_records
from seqloom.predict.results import Filling, Generation, Score, Tagging, TokenVectors, Translation
from seqloom.predict.scorecard import Scorecard, draw_up
from seqloom.predict.search import SearchKeywords, read_search
from seqloom.predict.shots import Shots, classify_by_shots

R = TypeVar("R")
Shot = tuple[str, str]


class Model(Loaded):
    """A trained model, ready to be used; a verb it was not trained for is refused."""

    @overload
    def translate(self, texts: str, *, align: bool = True, **search: Unpack[SearchKeywords]) -> Translation: ...
    @overload
    def translate(
        self, texts: Sequence[str], *, align: bool = True, **search: Unpack[SearchKeywords]
    ) -> list[Translation]: ...
    def translate(self, texts: str | Sequence[str], *, align: bool = True, **search: Unpack[SearchKeywords]) -> Any:
        """Translate; `align` also says which source word each target word comes from."""
        wanted = read_search(search)
        return _each(
            texts, lambda many: translate.translate(self, many, wanted, align=align, numbers=range(1, len(many) + 1))
        )

    @overload
    def generate(self, prompts: str, **search: Unpack[SearchKeywords]) -> Generation: ...
    @overload
    def generate(self, prompts: Sequence[str], **search: Unpack[SearchKeywords]) -> list[Generation]: ...
    def generate(self, prompts: str | Sequence[str], **search: Unpack[SearchKeywords]) -> Any:
        """Continue texts."""
        wanted = read_search(search)
        return _each(prompts, lambda many: generate.generate(self, many, wanted, numbers=range(1, len(many) + 1)))

    def stream(self, prompt: str, **search: Unpack[SearchKeywords]) -> Iterator[str]:
        """Continue a text, handing out each bit as it is found."""
        return generate.stream_text(self, prompt, read_search(search))

    @overload
    def classify(
        self,
        texts: str,
        second: str | None = None,
        *,
        shots: Sequence[Shot] | None = None,
        labels: Sequence[str] = (),
        template: str = ...,
        separator: str = ...,
    ) -> Answer: ...
    @overload
    def classify(
        self,
        texts: Sequence[str],
        second: Sequence[str] | None = None,
        *,
        shots: Sequence[Shot] | None = None,
        labels: Sequence[str] = (),
        template: str = ...,
        separator: str = ...,
    ) -> list[Answer]: ...
    def classify(
        self,
        texts: str | Sequence[str],
        second: str | Sequence[str] | None = None,
        *,
        shots: Sequence[Shot] | None = None,
        labels: Sequence[str] = (),
        template: str = Shots.template,
        separator: str = Shots.separator,
    ) -> Any:
        """Label texts, or pairs of texts; a language model learns how from `shots`: examples of (text, label)."""
        if shots is None and not labels:
            seconds = () if second is None else [second] if isinstance(second, str) else second
            return _each(texts, lambda many: classify.classify(self, many, seconds))
        if second is not None:
            raise ConfigError("second goes with a model trained on pairs of texts, not with shots")
        given = Shots(tuple(shots or ()), tuple(labels), template, separator)
        return _each(texts, lambda many: classify_by_shots(self, many, given))

    @overload
    def tag(self, texts: str) -> Tagging: ...
    @overload
    def tag(self, texts: Sequence[str]) -> list[Tagging]: ...
    def tag(self, texts: str | Sequence[str]) -> Any:
        """Tag the words of texts; a word is what stands between white space."""
        return _each(texts, lambda many: tag.tag(self, many))

    @overload
    def embed(
        self,
        texts: str | Sequence[str],
        *,
        level: Literal["text"] = "text",
        pooling: Pooling | None = None,
        layer: Layer = -1,
        normalise: bool | None = None,
    ) -> NDArray[np.float32]: ...
    @overload
    def embed(
        self, texts: str, *, level: Literal["token"], layer: Layer = -1, normalise: bool = False
    ) -> TokenVectors: ...
    @overload
    def embed(
        self, texts: Sequence[str], *, level: Literal["token"], layer: Layer = -1, normalise: bool = False
    ) -> list[TokenVectors]: ...
    def embed(
        self,
        texts: str | Sequence[str],
        *,
        level: Literal["text", "token"] = "text",
        pooling: Pooling | None = None,
        layer: Layer = -1,
        normalise: bool | None = None,
    ) -> Any:
        """Texts as the rows of an array, a single text as a vector; `level="token"`: the vectors of their tokens."""
        if level == "token":
            return _each(texts, lambda many: embed.embed_tokens(self, many, layer=layer, normalise=bool(normalise)))
        many = [texts] if isinstance(texts, str) else list(texts)
        found = embed.embed_texts(self, many, pooling=pooling, layer=layer, normalise=normalise)
        if isinstance(texts, str):
            return found[0].vector
        return np.stack([one.vector for one in found]) if found else np.zeros((0, self.width(layer)), np.float32)

    def width(self, layer: Layer = -1) -> int:
        """How many coordinates a vector has."""
        return embed.measure_width(self, layer)

    @overload
    def fill(self, texts: str, *, top: int = 5) -> Filling: ...
    @overload
    def fill(self, texts: Sequence[str], *, top: int = 5) -> list[Filling]: ...
    def fill(self, texts: str | Sequence[str], *, top: int = 5) -> Any:
        """Fill the masks in texts, written [MASK] (or as the tokeniser writes it)."""
        return _each(texts, lambda many: fill.fill(self, many, top=top))

    @overload
    def score(self, texts: str, targets: str | None = None) -> Score: ...
    @overload
    def score(self, texts: Sequence[str], targets: Sequence[str] | None = None) -> list[Score]: ...
    def score(self, texts: str | Sequence[str], targets: str | Sequence[str] | None = None) -> Any:
        """How probable texts are; for a translation model, how probable `targets` are as their translations."""
        wanted = [targets] if isinstance(targets, str) else targets
        return _each(texts, lambda many: score.score(self, many, wanted))

    def evaluate(
        self,
        *files: str | Path,
        split: Judged = "valid",
        against: "Model | None" = None,
        metrics: Sequence[str] = (),
        tokenized: bool = False,
        samples: int = SAMPLES,
        advance: Advance = lambda done: None,
        **search: Unpack[SearchKeywords],
    ) -> Scorecard:
        """The metrics of the model's task on files with answers or, without any, on a split of its run's own data.

        `against` is a model to be compared with on the same records; `advance` is told of records as they are done.
        """
        if search and self.config.task != "translation":
            raise ConfigError(f"{', '.join(search)}: only translations are searched for; leave it out")
        check_metrics(metrics, list_metrics(self))
        if against is not None:
            check_comparable(self, against)
        wanted = Wanted(tuple(metrics), read_search(search), tokenized)
        corpora = open_records(self, [Path(file) for file in files], split)
        records = read_records(corpora)
        names = tuple(dict.fromkeys(record.path for record in records))
        found = measure(self, corpora, records, wanted, advance)
        other = None if against is None else measure(against, corpora, records, wanted, advance)
        return draw_up(self.config.task, names, len(records), found, other, samples=samples)

    def align(self, source: str, target: str) -> Alignment:
        """Where the model looks in the source while it writes the target."""
        read, written = self.tokenizer.encode(source), self.tokenizer.encode(target)
        (weights,) = attend_source(self, [read], [written])
        if weights is None:
            raise ConfigError("this model has no attention to its source: it knows it by model.decoder.context alone")
        names = [[self.tokenizer.decode([id]) for id in ids] for ids in (read.ids, written.ids)]
        return Alignment(names[0], names[1], weights)


def _each(texts: str | Sequence[str], verb: Callable[[Sequence[str]], Sequence[R]]) -> R | list[R]:
    return verb([texts])[0] if isinstance(texts, str) else list(verb(list(texts)))
