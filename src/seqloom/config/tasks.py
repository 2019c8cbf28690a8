"""The whole configuration, one model for each task: what `seqloom train CONFIG` reads."""

from typing import Annotated, Literal

from pydantic import Field, Tag

from seqloom.config.base import Section
from seqloom.config.batches import Frame, LineRows, Masking, PackedRows, SampleBatches, TextBatches, TokenMasking
from seqloom.config.data import LabelledData, ParallelData, TaggedData, TextData
from seqloom.config.model import (
    BidirectionalLanguageModelConfig,
    ClassificationModelConfig,
    LanguageModelConfig,
    MaskedLanguageModelConfig,
    TaggingModelConfig,
    TranslationModelConfig,
)
from seqloom.config.sizes import Size
from seqloom.config.tokenizer import Bpe, TokenizerConfig
from seqloom.config.train import TrainConfig
from seqloom.config.union import chosen_by
from seqloom.config.word_vectors import WordVectorsConfig


class LanguageModelTask(Section):
    """Continue text."""

    task: Literal["language-model"] = "language-model"
    size: Size = "auto"
    """tiny, small, base or large: the model's width, depth, dropout and rate where no key gives them; auto chooses by
    the words there are to learn from."""
    data: TextData
    """Where the records are."""
    tokenizer: TokenizerConfig = Bpe()
    """How text becomes tokens: bpe, characters, bytes, words, wordpiece, unigram, or a file."""
    frame: Frame = Frame(after=("eos",))
    """The special tokens around each text."""
    batch: TextBatches = TextBatches()
    """How text becomes batches."""
    init: str | None = Field(None, examples=["runs/pretrained"])
    """A finished run to start from: its tokeniser and encoder are taken over, with their weights."""
    model: LanguageModelConfig = LanguageModelConfig()
    """What is trained."""
    train: TrainConfig = TrainConfig()
    """How to train it."""


class MaskedLanguageModelTask(Section):
    """Fill in hidden words; the start of many fine-tuned models."""

    task: Literal["masked-language-model"] = "masked-language-model"
    size: Size = "auto"
    """tiny, small, base or large: the model's width, depth, dropout and rate where no key gives them; auto chooses by
    the words there are to learn from."""
    data: TextData
    """Where the records are."""
    tokenizer: TokenizerConfig = Bpe()
    """How text becomes tokens: bpe, characters, bytes, words, wordpiece, unigram, or a file."""
    frame: Frame = Frame(before=("cls",), after=("sep",))
    """The special tokens around each text."""
    batch: TextBatches = TextBatches(rows=PackedRows())
    """How text becomes batches."""
    masking: Masking = TokenMasking()
    """Which tokens are hidden: tokens, words or spans."""
    init: str | None = Field(None, examples=["runs/pretrained"])
    """A finished run to start from: its tokeniser and encoder are taken over, with their weights."""
    model: MaskedLanguageModelConfig = MaskedLanguageModelConfig()
    """What is trained."""
    train: TrainConfig = TrainConfig()
    """How to train it."""


class BidirectionalLanguageModelTask(Section):
    """Read text in both directions: ELMo's features."""

    task: Literal["bidirectional-language-model"] = "bidirectional-language-model"
    size: Size = "auto"
    """tiny, small, base or large: the model's width, depth, dropout and rate where no key gives them; auto chooses by
    the words there are to learn from."""
    data: TextData
    """Where the records are."""
    tokenizer: TokenizerConfig = Bpe()
    """How text becomes tokens: bpe, characters, bytes, words, wordpiece, unigram, or a file."""
    frame: Frame = Frame(before=("bos",), after=("eos",))
    """The special tokens around each text."""
    batch: TextBatches = TextBatches(rows=LineRows())
    """How text becomes batches."""
    init: str | None = Field(None, examples=["runs/pretrained"])
    """A finished run to start from: its tokeniser and encoder are taken over, with their weights."""
    model: BidirectionalLanguageModelConfig = BidirectionalLanguageModelConfig()
    """What is trained."""
    train: TrainConfig = TrainConfig()
    """How to train it."""


class TranslationTask(Section):
    """Turn one sequence into another."""

    task: Literal["translation"] = "translation"
    size: Size = "auto"
    """tiny, small, base or large: the model's width, depth, dropout and rate where no key gives them; auto chooses by
    the words there are to learn from."""
    data: ParallelData
    """Where the records are."""
    tokenizer: TokenizerConfig = Bpe()
    """How text becomes tokens: bpe, characters, bytes, words, wordpiece, unigram, or a file."""
    source_frame: Frame = Frame(after=("eos",))
    """The special tokens around each source."""
    target_frame: Frame = Frame(before=("bos",), after=("eos",))
    """The special tokens around each target."""
    batch: SampleBatches = SampleBatches()
    """How records become batches."""
    init: str | None = Field(None, examples=["runs/pretrained"])
    """A finished run to start from: its tokeniser and encoder are taken over, with their weights."""
    model: TranslationModelConfig = TranslationModelConfig()
    """What is trained."""
    train: TrainConfig = TrainConfig()
    """How to train it."""


class ClassificationTask(Section):
    """Label texts, or pairs of texts."""

    task: Literal["classification"] = "classification"
    size: Size = "auto"
    """tiny, small, base or large: the model's width, depth, dropout and rate where no key gives them; auto chooses by
    the words there are to learn from."""
    data: LabelledData
    """Where the records are."""
    tokenizer: TokenizerConfig = Bpe()
    """How text becomes tokens: bpe, characters, bytes, words, wordpiece, unigram, or a file."""
    frame: Frame = Frame(before=("cls",), after=("sep",))
    """The special tokens around each text."""
    second_frame: Frame = Frame(after=("sep",))
    """The special tokens around the second text of a pair."""
    batch: SampleBatches = SampleBatches()
    """How records become batches."""
    init: str | None = Field(None, examples=["runs/pretrained"])
    """A finished run to start from: its tokeniser and encoder are taken over, with their weights."""
    model: ClassificationModelConfig = ClassificationModelConfig()
    """What is trained."""
    train: TrainConfig = TrainConfig()
    """How to train it."""


class TaggingTask(Section):
    """Label every word."""

    task: Literal["tagging"] = "tagging"
    size: Size = "auto"
    """tiny, small, base or large: the model's width, depth, dropout and rate where no key gives them; auto chooses by
    the words there are to learn from."""
    data: TaggedData
    """Where the records are."""
    tokenizer: TokenizerConfig = Bpe()
    """How text becomes tokens: bpe, characters, bytes, words, wordpiece, unigram, or a file."""
    frame: Frame = Frame(before=("cls",), after=("sep",))
    """The special tokens around each sentence."""
    batch: SampleBatches = SampleBatches()
    """How records become batches."""
    init: str | None = Field(None, examples=["runs/pretrained"])
    """A finished run to start from: its tokeniser and encoder are taken over, with their weights."""
    model: TaggingModelConfig = TaggingModelConfig()
    """What is trained."""
    train: TrainConfig = TrainConfig()
    """How to train it."""


class WordVectorsTask(Section):
    """Learn a static vector for each word."""

    task: Literal["word-vectors"] = "word-vectors"
    data: TextData
    """Where the text is."""
    vectors: WordVectorsConfig = WordVectorsConfig()
    """What kind of vectors, and how long to train."""


ModelTask = (
    LanguageModelTask
    | MaskedLanguageModelTask
    | BidirectionalLanguageModelTask
    | TranslationTask
    | ClassificationTask
    | TaggingTask
)
"""The tasks that train a network."""

Config = Annotated[
    Annotated[TranslationTask, Tag("translation")]
    | Annotated[LanguageModelTask, Tag("language-model")]
    | Annotated[MaskedLanguageModelTask, Tag("masked-language-model")]
    | Annotated[BidirectionalLanguageModelTask, Tag("bidirectional-language-model")]
    | Annotated[ClassificationTask, Tag("classification")]
    | Annotated[TaggingTask, Tag("tagging")]
    | Annotated[WordVectorsTask, Tag("word-vectors")],
    chosen_by("task", ""),
]
TASKS: dict[str, type[Section]] = {
    "translation": TranslationTask,
    "language-model": LanguageModelTask,
    "masked-language-model": MaskedLanguageModelTask,
    "bidirectional-language-model": BidirectionalLanguageModelTask,
    "classification": ClassificationTask,
    "tagging": TaggingTask,
    "word-vectors": WordVectorsTask,
}
