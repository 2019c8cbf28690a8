"""A whole task around an imported model: what was not imported is at its default, and the data are to be named."""

from typing import Any

from weft.config.load import validate
from weft.config.tasks import TASKS, ModelTask
from weft.hub.huggingface.settings import Settings

_DATA: dict[str, dict[str, Any]] = {
    "masked-language-model": {"files": ["train.txt"]},
    "language-model": {"files": ["train.txt"]},
    "bidirectional-language-model": {"files": ["train.txt"]},
    "translation": {"source": ["train.source"], "target": ["train.target"]},
    "classification": {"files": ["train.tsv"]},
    "tagging": {"files": ["train.conll"]},
}
"""A configuration names its data; an imported model has none, so these are names to be changed."""


def make_task(settings: Settings, task: str, *, model: dict[str, Any], numbers: bool = False, **more: Any) -> ModelTask:
    """A configuration of that task; faults are told as those of the imported config.json."""
    data: dict[str, Any] = {"train": _DATA[task]}
    if numbers:
        data["labels"] = "numbers"
    whole: ModelTask = validate(
        {"task": task, "data": data, "model": model, **more}, TASKS[task], "", str(settings.path)
    )
    return whole
