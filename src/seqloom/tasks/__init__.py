"""What can be trained: one file a task. This is the one list of them."""

from seqloom.tasks.base import Task
from seqloom.tasks.bidirectional_language_model import BidirectionalLanguageModelTask
from seqloom.tasks.classification import ClassificationTask
from seqloom.tasks.language_model import LanguageModelTask
from seqloom.tasks.masked_language_model import MaskedLanguageModelTask
from seqloom.tasks.tagging import TaggingTask
from seqloom.tasks.translation import TranslationTask
from seqloom.tasks.word_vectors import WordVectorsTask

Config = Task | WordVectorsTask

TASKS: dict[str, type[Config]] = {
    task.model_fields["task"].default: task
    for task in (
        TranslationTask,
        LanguageModelTask,
        MaskedLanguageModelTask,
        BidirectionalLanguageModelTask,
        ClassificationTask,
        TaggingTask,
        WordVectorsTask,
    )
}

__all__ = [
    "TASKS",
    "BidirectionalLanguageModelTask",
    "ClassificationTask",
    "Config",
    "LanguageModelTask",
    "MaskedLanguageModelTask",
    "TaggingTask",
    "Task",
    "TranslationTask",
    "WordVectorsTask",
]
