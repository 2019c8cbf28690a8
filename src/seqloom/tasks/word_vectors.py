"""Word vectors: a static vector for each word. There is no network, so this section answers no question of the rest."""

from typing import Any, ClassVar, Literal

from seqloom.config.base import Section
from seqloom.config.data import TextData
from seqloom.config.word_vectors import WordVectorsConfig


class WordVectorsTask(Section):
    """Learn a static vector for each word."""

    task: Literal["word-vectors"] = "word-vectors"
    data: TextData
    """Where the text is."""
    vectors: WordVectorsConfig = WordVectorsConfig()
    """What kind of vectors, and how long to train."""

    example_files: ClassVar[dict[str, Any]] = {"files": "train.txt"}
