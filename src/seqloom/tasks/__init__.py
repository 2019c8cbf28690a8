"""What can be trained: one file a task. This is the one list of them; a class that is imported here is in `TASKS`."""

from seqloom.tasks.base import TASKS as TASKS
from seqloom.tasks.base import Config as Config
from seqloom.tasks.base import Task as Task
from seqloom.tasks.bidirectional_language_model import BidirectionalLanguageModelTask as BidirectionalLanguageModelTask
from seqloom.tasks.classification import ClassificationTask as ClassificationTask
from seqloom.tasks.language_model import LanguageModelTask as LanguageModelTask
from seqloom.tasks.masked_language_model import MaskedLanguageModelTask as MaskedLanguageModelTask
from seqloom.tasks.tagging import TaggingTask as TaggingTask
from seqloom.tasks.translation import TranslationTask as TranslationTask
from seqloom.tasks.word_vectors import WordVectorsTask as WordVectorsTask
