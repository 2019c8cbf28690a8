"""The whole configuration, one model for each task: what `weft train CONFIG` reads."""

from typing import Annotated, Literal

from pydantic import Tag

from weft.config.base import Section
from weft.config.model import (
    BidirectionalLanguageModelConfig,
    ClassificationModelConfig,
    LanguageModelConfig,
    MaskedLanguageModelConfig,
    TaggingModelConfig,
    TranslationModelConfig,
)
from weft.config.union import chosen_by


class LanguageModelTask(Section):
    """Continue text."""

    task: Literal["language-model"] = "language-model"
    model: LanguageModelConfig = LanguageModelConfig()


class MaskedLanguageModelTask(Section):
    """Fill in hidden words; the start of many fine-tuned models."""

    task: Literal["masked-language-model"] = "masked-language-model"
    model: MaskedLanguageModelConfig = MaskedLanguageModelConfig()


class BidirectionalLanguageModelTask(Section):
    """Read text in both directions: ELMo's features."""

    task: Literal["bidirectional-language-model"] = "bidirectional-language-model"
    model: BidirectionalLanguageModelConfig = BidirectionalLanguageModelConfig()


class TranslationTask(Section):
    """Turn one sequence into another."""

    task: Literal["translation"] = "translation"
    model: TranslationModelConfig = TranslationModelConfig()


class ClassificationTask(Section):
    """Label texts, or pairs of texts."""

    task: Literal["classification"] = "classification"
    model: ClassificationModelConfig = ClassificationModelConfig()


class TaggingTask(Section):
    """Label every word."""

    task: Literal["tagging"] = "tagging"
    model: TaggingModelConfig = TaggingModelConfig()


Config = Annotated[
    Annotated[TranslationTask, Tag("translation")]
    | Annotated[LanguageModelTask, Tag("language-model")]
    | Annotated[MaskedLanguageModelTask, Tag("masked-language-model")]
    | Annotated[BidirectionalLanguageModelTask, Tag("bidirectional-language-model")]
    | Annotated[ClassificationTask, Tag("classification")]
    | Annotated[TaggingTask, Tag("tagging")],
    chosen_by("task", ""),
]
TASKS: dict[str, type[Section]] = {
    "translation": TranslationTask,
    "language-model": LanguageModelTask,
    "masked-language-model": MaskedLanguageModelTask,
    "bidirectional-language-model": BidirectionalLanguageModelTask,
    "classification": ClassificationTask,
    "tagging": TaggingTask,
}
