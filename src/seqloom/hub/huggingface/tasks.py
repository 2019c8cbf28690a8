"""A whole task around an imported model: what was not imported is at its default, and the data are to be named."""

from typing import Any

from seqloom.hub.huggingface.settings import Settings
from seqloom.tasks import TASKS, Task
from seqloom.tasks.configuration import validate

_DATA: dict[str, dict[str, Any]] = {
    "masked-language-model": {"files": ["train.txt"]},
    "language-model": {"files": ["train.txt"]},
    "bidirectional-language-model": {"files": ["train.txt"]},
    "translation": {"source": ["train.source"], "target": ["train.target"]},
    "classification": {"files": ["train.tsv"]},
    "tagging": {"files": ["train.conll"]},
}
"""A configuration names its data; an imported model has none, so these are names to be changed."""


_MAX_LENGTH = 4096  # tokens in a row, where a model would read more


def make_task(
    settings: Settings, task: str, longest: int, *, model: dict[str, Any], numbers: bool = False, **more: Any
) -> Task:
    """A configuration of that task; faults are told as those of the imported config.json."""
    length = min(longest, _MAX_LENGTH)
    rows = {"rows": {"kind": "packed", "length": length}}  # texts one by one: none begins with the end of another
    batch = rows if task.endswith("language-model") else {"max_length": length}
    data = {"train": _DATA[task]} | ({"labels": "numbers"} if numbers else {})
    tokenizer = {"kind": "file", "path": "tokenizer.json"}
    values = {"task": task, "data": data, "tokenizer": tokenizer, "batch": batch, "model": model, **more}
    whole: Task = validate(values, TASKS[task], "", str(settings.path))
    return whole
