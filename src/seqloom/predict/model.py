"""The model a user holds. Each verb takes a text and returns an answer, or takes a list and returns a list."""

# A str is itself a sequence of str, so the two signatures of a verb overlap; the first one is meant to win.
# mypy: disable-error-code="overload-overlap"

import copy
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, Literal, Self, TypeVar, Unpack, overload

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from seqloom.config.data import SourceUnit
from seqloom.data.files import Advance, ignore
from seqloom.errors import ConfigError, DataError
from seqloom.lens.cache import make_cache
from seqloom.lens.roles import HeadRoles
from seqloom.lens.trace import Trace
from seqloom.metrics.resampling import SAMPLES
from seqloom.predict import classify, embed, evaluate, fill, generate, score, tag, translate
from seqloom.predict import trace as tracing
from seqloom.predict.description import describe
from seqloom.predict.embed import Layer, Pooling
from seqloom.predict.evaluate import Split
from seqloom.predict.heads import describe_heads
from seqloom.predict.predictor import Predictor
from seqloom.predict.reading import Asked
from seqloom.predict.results import (
    Classification,
    Filling,
    Generation,
    Quantity,
    Score,
    Tagging,
    TokenVectors,
    Translation,
)
from seqloom.predict.scorecard import Scorecard, make_scorecard
from seqloom.predict.search import EngineName, Precision, SearchKeywords, check_keywords, read_search
from seqloom.predict.storage import save_model
from seqloom.predict.translate import Alignment
from seqloom.tasks import Task
from seqloom.text import Tokenizer

R = TypeVar("R")


class Model:
    """A trained model, ready to be used; `seqloom.load` and `seqloom.assemble` return one.

    A verb takes a text and returns an answer, or takes a list of texts and returns a list of answers. A verb that the
    model was not trained for is refused.
    """

    def __init__(self, predictor: Predictor) -> None:
        self._predictor = predictor

    def __repr__(self) -> str:
        return describe(self._predictor)

    def __copy__(self) -> Self:
        """Another model with the same network."""
        return type(self)(copy.copy(self._predictor))

    @property
    def network(self) -> nn.Module:
        """The network, an ordinary PyTorch module, which decides every answer.

        It can be changed or replaced. Once this property has been read, every verb checks whether the network has
        changed, down to the last number.
        """
        return self._predictor.network

    @network.setter
    def network(self, network: nn.Module) -> None:
        self._predictor.network = network

    @property
    def tokenizer(self) -> Tokenizer:
        """Text to token ids and back."""
        return self._predictor.tokenizer

    @property
    def config(self) -> Task:
        """The whole configuration, with every default."""
        return self._predictor.config

    @property
    def labels(self) -> tuple[str, ...]:
        """The labels or tags that the model chooses from; empty if it has none."""
        return self._predictor.labels

    @property
    def folder(self) -> Path | None:
        """The folder that the model was loaded from or last saved to."""
        return self._predictor.folder

    @property
    def engine(self) -> EngineName:
        """What computes: "compiled", "open", "ctranslate2" or "ctranslate2-int8"."""
        return self._predictor.engine_name

    @property
    def precision(self) -> Precision:
        """The precision of the compiled copy that computes: "float32", "bfloat16" or "int8"."""
        return self._predictor.precision

    @property
    def device(self) -> torch.device:
        """The device that the network is on."""
        return self._predictor.device

    @check_keywords
    def save(self, folder: str | Path) -> Path:
        """Write a run folder with the current weights of the network, for `seqloom.load`.

        The folder must be new or empty, or the model's own if it holds only a saved model.
        """
        return save_model(self._predictor, Path(folder))

    @overload
    def translate(
        self, texts: str, *, align: bool = True, split: SourceUnit | None = None, **search: Unpack[SearchKeywords]
    ) -> Translation: ...
    @overload
    def translate(
        self,
        texts: Sequence[str],
        *,
        align: bool = True,
        split: SourceUnit | None = None,
        **search: Unpack[SearchKeywords],
    ) -> list[Translation]: ...
    @check_keywords
    def translate(
        self,
        texts: str | Sequence[str],
        *,
        align: bool = True,
        split: SourceUnit | None = None,
        **search: Unpack[SearchKeywords],
    ) -> Any:
        """Translate texts; `align` also finds which source word each target word comes from.

        `split="sentence"` translates each sentence by itself, `split="line"` each text as a whole. By default, a model
        that was trained on sentences splits.
        """
        wanted, splitting = read_search(search), translate.plan_splitting(self._predictor, split)
        return _each(
            texts,
            lambda many: translate.translate(self._predictor, many, wanted, align=align, splitting=splitting),
        )

    @overload
    def generate(
        self, prompts: str, *, special_tokens: bool = False, **search: Unpack[SearchKeywords]
    ) -> Generation: ...
    @overload
    def generate(
        self, prompts: Sequence[str], *, special_tokens: bool = False, **search: Unpack[SearchKeywords]
    ) -> list[Generation]: ...
    @overload
    def generate(self, *, count: int, **search: Unpack[SearchKeywords]) -> list[Generation]: ...
    @check_keywords
    def generate(
        self,
        prompts: str | Sequence[str] | None = None,
        *,
        count: int | None = None,
        special_tokens: bool = False,
        **search: Unpack[SearchKeywords],
    ) -> Any:
        """Continue texts, or draw `count` texts that begin with nothing.

        A text whose prompt is blank begins with nothing, too. With `special_tokens`, their names in a prompt, such as
        `<s>`, stand for them; otherwise they are plain text.
        """
        if (prompts is None) == (count is None):
            raise ConfigError("generate: give prompts to continue, or the count of texts to draw from nothing")
        if count is not None:
            if count < 1:
                raise ConfigError(f"count: must be at least 1, not {count}")
            search = {"sample": True, **search}
        wanted, given = read_search(search), [""] * count if count is not None else prompts
        assert given is not None
        return _each(given, lambda many: generate.generate(self._predictor, many, wanted, special=special_tokens))

    @check_keywords
    def stream(
        self, prompt: str = "", *, special_tokens: bool = False, **search: Unpack[SearchKeywords]
    ) -> Iterator[str]:
        """Continue a text, and yield each part as it is found."""
        return generate.stream_text(self._predictor, prompt, read_search(search), special=special_tokens)

    @overload
    def classify(
        self,
        texts: str,
        second: str | None = None,
        *,
        shots: Sequence[tuple[str, str]] | None = None,
        labels: Sequence[str] = (),
        template: str | None = None,
        separator: str | None = None,
    ) -> Classification | Quantity: ...
    @overload
    def classify(
        self,
        texts: Sequence[str] | Sequence[tuple[str, str]],
        second: Sequence[str] | None = None,
        *,
        shots: Sequence[tuple[str, str]] | None = None,
        labels: Sequence[str] = (),
        template: str | None = None,
        separator: str | None = None,
    ) -> list[Classification | Quantity]: ...
    @check_keywords
    def classify(
        self,
        texts: str | Sequence[str] | Sequence[tuple[str, str]],
        second: str | Sequence[str] | None = None,
        *,
        shots: Sequence[tuple[str, str]] | None = None,
        labels: Sequence[str] = (),
        template: str | None = None,
        separator: str | None = None,
    ) -> Any:
        """Label texts, or pairs of texts; a language model needs `shots`: examples of (text, label).

        A pair is a text and its `second`, or an item of a list: `classify([("a text", "another")])`.

        Only for a language model: `labels` are those to choose from, with or without shots; `template`,
        "{text} {label}" by default, is the form of an example, and `separator`, a space, stands between examples.
        """
        given = classify.read_shots(self._predictor, shots, labels, template, separator)
        if given is None:
            return _each(texts, lambda many: classify.classify(self._predictor, *classify.pair(many, second)))
        if second is not None:
            raise ConfigError("second: is for a model trained on pairs of texts, not for shots")
        return _each(texts, lambda many: classify.classify_by_shots(self._predictor, many, given))

    @overload
    def tag(self, texts: str, *, legal: bool = True) -> Tagging: ...
    @overload
    def tag(self, texts: Sequence[str] | Sequence[Sequence[str]], *, legal: bool = True) -> list[Tagging]: ...
    @check_keywords
    def tag(self, texts: str | Sequence[str] | Sequence[Sequence[str]], *, legal: bool = True) -> Any:
        """Tag the words of texts; words are separated by white space, or a text is given as a list of words.

        Tags of spans (BIO, BIOES, …) are the best sequence that their scheme allows; without `legal`, each word gets
        its best tag by itself.
        """
        return _each(texts, lambda many: tag.tag(self._predictor, many, legal=legal))

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
    @check_keywords
    def embed(
        self,
        texts: str | Sequence[str],
        *,
        level: Literal["text", "token"] = "text",
        pooling: Pooling | None = None,
        layer: Layer = -1,
        normalise: bool | None = None,
    ) -> Any:
        """Vectors of texts, as the rows of an array, or of one text; with `level="token"`, those of their tokens.

        `layer` is a number from 0, the input, to −1, the last; "mix" is the mean of all; "concat" is [v; h→; h←]; "all"
        gives (layers, coordinates) for a text and (layers, tokens, coordinates) for its tokens.
        """
        if level == "token":
            return _each(
                texts, lambda many: embed.embed_tokens(self._predictor, many, layer=layer, normalise=bool(normalise))
            )
        many = [texts] if isinstance(texts, str) else list(texts)
        found = embed.embed_texts(self._predictor, many, pooling=pooling, layer=layer, normalise=normalise)
        if isinstance(texts, str):
            return found[0].vector
        return (
            np.stack([one.vector for one in found])
            if found
            else np.zeros((0, *embed.measure_shape(self._predictor, layer)), np.float32)
        )

    @check_keywords
    def width(self, layer: Layer = -1) -> int:
        """The number of coordinates of a vector."""
        return embed.measure_shape(self._predictor, layer)[-1]

    @overload
    def fill(self, texts: str, *, top: int = 5) -> Filling: ...
    @overload
    def fill(self, texts: Sequence[str], *, top: int = 5) -> list[Filling]: ...
    @check_keywords
    def fill(self, texts: str | Sequence[str], *, top: int = 5) -> Any:
        """Fill the masks in texts, written [MASK] (or as the tokeniser writes it)."""
        return _each(texts, lambda many: fill.fill(self._predictor, many, top=top))

    @overload
    def score(self, texts: str, targets: str | None = None) -> Score: ...
    @overload
    def score(self, texts: Sequence[str], targets: Sequence[str] | None = None) -> list[Score]: ...
    @check_keywords
    def score(self, texts: str | Sequence[str], targets: str | Sequence[str] | None = None) -> Any:
        """How probable texts are; for a translation model, how probable `targets` are as their translations."""
        wanted = [targets] if isinstance(targets, str) else targets
        return _each(texts, lambda many: score.score(self._predictor, many, wanted))

    @check_keywords
    def evaluate(
        self,
        *files: str | Path,
        split: Split = "valid",
        source_unit: SourceUnit | None = None,
        against: "Model | None" = None,
        metrics: Sequence[str] = (),
        tokenized: bool = False,
        samples: int = SAMPLES,
        advance: Advance = ignore,
        **search: Unpack[SearchKeywords],
    ) -> Scorecard:
        """The metrics of the model's task on files with answers or, if none is named, on a split of its run's own data.

        `against` is a model to compare with on the same records; `advance` is called with the number of records done.
        For translation, `source_unit` is what `translate` calls `split`: "sentence" or "line".
        """
        searched = [*search, *(["source_unit"] if source_unit is not None else [])]
        if searched and self.config.task != "translation":
            raise ConfigError(f"{', '.join(searched)}: only translation models search; leave it out")
        evaluate.check_metrics(metrics, evaluate.list_metrics(self._predictor))
        if against is not None:
            if not isinstance(against, Model):
                raise ConfigError(f"against: expected a Model, as seqloom.load gives it, not {type(against).__name__}")
            evaluate.check_comparable(self._predictor, against._predictor)
        wanted = evaluate.Wanted(tuple(metrics), read_search(search), tokenized, source_unit)
        corpora = evaluate.open_records(self._predictor, [Path(file) for file in files], split)
        records = evaluate.read_records(corpora)
        names = tuple(dict.fromkeys(record.path for record in records))
        models = (self, *([] if against is None else [against]))
        found = [evaluate.measure(model._predictor, corpora, records, wanted, advance) for model in models]
        return make_scorecard(self.config.task, names, len(records), *found, samples=samples)

    @check_keywords
    def align(self, source: str, target: str) -> Alignment:
        """How much the model attends to each source token when it predicts each target token."""
        return translate.align_tokens(self._predictor, source, target)

    @check_keywords
    def trace(self, text: str, second: str | None = None, **search: Unpack[SearchKeywords]) -> Trace:
        """One text, seen from inside: what the model computes on the way to its answer.

        Of a translation model, `second` is a target to read; without it, the target is what the search finds. Of a
        classifier of pairs, it is the second text. A language model reads the text alone or, if an option of a search
        is given, such as `max_length=20`, the text and its own continuation.
        """
        return tracing.trace(self._predictor, Asked(text, second, dict(search)))

    @check_keywords
    def heads(self, texts: Sequence[str] | None = None) -> list[HeadRoles]:
        """What each head, memory and kernel does, on random tokens that are read twice, and on texts if given."""
        return describe_heads(self._predictor, texts)

    @check_keywords
    def run_with_cache(
        self, text: str, second: str | None = None, **search: Unpack[SearchKeywords]
    ) -> tuple[torch.Tensor, dict[str, torch.Tensor]]:
        """The logits of a text, and all values on the way; of a Transformer, by TransformerLens's names."""
        return make_cache(self.trace(text, second, **search)._seen)


def _each(texts: str | Sequence[Any], verb: Callable[[Sequence[Any]], Sequence[R]]) -> R | list[R]:
    if isinstance(texts, bytes) or not isinstance(texts, Iterable):
        raise DataError(f"expected a text or a list of texts, not {type(texts).__name__}")
    return verb([texts])[0] if isinstance(texts, str) else list(verb(list(texts)))
