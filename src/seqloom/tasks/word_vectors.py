"""Word vectors: a static vector for each word. There is no network, so this section answers no question of the rest."""

from typing import Literal

from seqloom.config.data import TextData
from seqloom.config.word_vectors import WordVectorsConfig
from seqloom.tasks.base import Config


class WordVectorsTask(Config):
    """Learn a static vector for each word."""

    task: Literal["word-vectors"] = "word-vectors"
    data: TextData
    """Where the text is."""
    vectors: WordVectorsConfig = WordVectorsConfig()
    """What kind of vectors, and how long to train."""
