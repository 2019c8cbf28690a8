"""What is explored: a model with its traces, or a run whose training has saved nothing to use yet."""

from pathlib import Path
from typing import Any

from seqloom.config.data import ParallelData
from seqloom.errors import RunError
from seqloom.lens.saving import record
from seqloom.page.bundle import saved_page
from seqloom.predict.classify import count_columns
from seqloom.predict.load import load
from seqloom.predict.model import Model
from seqloom.runs.weights import find_run
from seqloom.serve.example import find_example
from seqloom.serve.traces import Kept, Request, Traces, listen

_UNKNOWN = (
    "No validation data of this model are here, so the page opens with a sentence of its own, perhaps in a language "
    "that the model does not know. Type one that it was made for."
)
VIEWS = ("answer", "mixing", "why", "search", "change", "words", "runs")


class Subject:
    """A folder, and what can be seen of it."""

    def __init__(self, folder: Path, loaded: Model | None = None) -> None:
        """`loaded` is the folder's model, if somebody has loaded it already; it is only read."""
        self.folder, self.name = folder, "/".join(folder.resolve().parts[-2:])
        self.model = loaded
        self._reason = ""
        with listen() as notes:
            try:
                self.model = self.model or load(folder)
            except RunError as error:
                if not self.is_run or (folder / "vectors.bin").exists():
                    raise
                self._reason = str(error)
        self.notes = [f"When this was opened: {note.removeprefix(f'{folder}: ')}" for note in notes]
        """What a user should know about the model."""
        self._request: Request | None = None
        self._traces = None if self.model is None else Traces(self.model)

    @property
    def is_run(self) -> bool:
        """Whether the folder is a run of ours, or one of its checkpoints: it then has a history."""
        return (find_run(self.folder) / "log.jsonl").exists()

    @property
    def traces(self) -> Traces:
        """The traces of the model."""
        if self._traces is None:
            raise RunError(self._reason)
        return self._traces

    def describe(self) -> dict[str, Any]:
        """What the page says about the model before anything is traced."""
        model = self.model
        if model is None:
            views: dict[str, bool | str] = dict.fromkeys(VIEWS, self._reason)
            return {"name": self.name, "task": "", "families": [], "weights": 0, "views": {**views, "runs": True}}
        predictor, data = model._predictor, model.config.data
        stacks = (getattr(model.config.model, stack, None) for stack in ("encoder", "decoder"))
        languages = [data.source_language, data.target_language] if isinstance(data, ParallelData) else []
        return {
            "name": self.name,
            "task": model.config.task,
            "families": list(dict.fromkeys(str(stack.family) for stack in stacks if stack is not None)),
            "weights": sum(weights.numel() for weights in predictor.peek().parameters()),
            "labels": [label for label in model.labels if label],
            "languages": [language for language in languages if language],
            "limits": {"tokens": predictor.longest},
            "pair": self.reads_pairs,
            "example": self.request.plain(),
            "views": self._find_views(model),
            "runs": self.is_run,
            "notes": self.notes,
        }

    @property
    def reads_pairs(self) -> bool:
        """Whether a second text can be given."""
        return self.model is not None and count_columns(self.model._predictor)[1] == 2

    @property
    def request(self) -> Request:
        """What is traced first."""
        if self._request is None:
            assert self.model is not None
            example, known = find_example(self.model._predictor, paired=self.reads_pairs)
            self._request = Request.model_validate(example)
            self.notes += [] if known else [_UNKNOWN]
        return self._request

    def ask(self, text: str, second: str | None) -> None:
        """Trace these first; the second text is a target for a translation model."""
        other = "target" if self.model is not None and self.model.config.task == "translation" else "second"
        self._request = Request.model_validate({"text": text, **({} if second is None else {other: second})})
        self.traces.make(self._request)

    def save(self, kept: Kept, state: dict[str, str]) -> str:
        """The page of a trace as one file."""
        return saved_page(record(kept.trace, kept.describe(), self.describe(), state))

    def _find_views(self, model: Model) -> dict[str, bool | str]:
        verbs = model.config.verbs
        searches = "translate" in verbs or "generate" in verbs
        return {
            "search": True if searches else f"A model for {model.config.task} does not search: it scores every answer.",
            "runs": True if self.is_run else "This model was not trained here, so there is no training to show.",
        }
