"""Word vectors: a static vector for each word, by skip-gram with negative sampling. There is no network to ask."""

from typing import Annotated, Literal

from pydantic import Field

from seqloom.config.base import NonNegative, Positive, Section
from seqloom.config.data import TextData
from seqloom.tasks.base import Config


class WordVectorsConfig(Section):
    """What kind of word vectors to train, and how long."""

    dim: Positive = 100
    """Numbers in each vector."""
    window: Annotated[int, Field(gt=0, le=100)] = 5
    """Words to either side that a word may predict; each time, the reach is drawn evenly from 1 to this."""
    negatives: Positive = 5
    """Random words that each pair of neighbours is told apart from: 5 to 20 for little text, 2 to 5 for much."""
    min_count: Positive = 5
    """Words that occur less often get no vector, and windows close over them."""
    subsample: Annotated[float, Field(ge=0.0)] = 1e-3
    """Words above this share of the text are passed over at random, the more often the more frequent; 0 keeps all."""
    epochs: Positive = 5
    """Passes over the text."""
    learning_rate: Annotated[float, Field(gt=0.0)] = 0.025
    """The step size at the start; it falls in a straight line to zero."""
    seed: NonNegative = 0
    """The same seed, text and settings give the same vectors, bit for bit, on the same machine."""


class WordVectorsTask(Config):
    """Learn a static vector for each word."""

    task: Literal["word-vectors"] = "word-vectors"
    data: TextData
    """Where the text is."""
    vectors: WordVectorsConfig = WordVectorsConfig()
    """What kind of vectors, and how long to train."""
