"""What comes out of other people's folders."""

from dataclasses import dataclass

from torch import nn

from seqloom.tasks import Task
from seqloom.text import Tokenizer


@dataclass(frozen=True)
class Imported:
    """What a finished run has, too."""

    config: Task
    tokenizer: Tokenizer
    labels: tuple[str, ...]
    network: nn.Module
