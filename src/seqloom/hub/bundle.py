"""A model with everything that belongs to it: imports make one, and exports start from one."""

from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import nn

from seqloom.config.batches import Frame, WindowRows
from seqloom.nn.embeddings import OutputLayer, TokenEmbedding
from seqloom.tasks import TASKS, ClassificationTask, LanguageModelTask, Task, TranslationTask
from seqloom.tasks.configuration import validate
from seqloom.text import Roles, Tokenizer
from seqloom.types import Seen

Ids = tuple[int, ...]


@dataclass(frozen=True)
class Bundle:
    """The parts of a finished run."""

    config: Task
    tokenizer: Tokenizer
    labels: tuple[str, ...]
    network: nn.Module
    seen: Seen | None = None
    """What the training data held; None for a model that was not trained here."""


@torch.no_grad()
def widen_embeddings(model: Bundle) -> Bundle:
    """The same model with tables as wide as the model: what other formats have. Factorised ones are multiplied out."""
    config, network = model.config, model.network
    if getattr(config.model, "embedding_dim", None) is None:
        return model
    section = config.model.model_copy(update={"embedding_dim": None})
    plain = config.model_copy(update={"model": section})
    weights = dict(network.state_dict())
    for name, module in network.named_modules(remove_duplicate=False):
        if name.startswith("features."):  # a model of its own
            continue
        if isinstance(module, TokenEmbedding) and module.project is not None:
            weights[f"{name}.weight"] = module.weight @ module.project.weight.t()
            del weights[f"{name}.project.weight"]
        if isinstance(module, OutputLayer) and module.narrowing is not None:
            weights[f"{name}.weight"] = module.weight @ module.narrowing.weight.t()
            del weights[f"{name}.narrowing.weight"]
    with torch.random.fork_rng(devices=[]):
        wide = plain.build(model.tokenizer, model.labels)
    wide.load_state_dict(weights, strict=False)
    return replace(model, config=plain, network=wide.eval())


def make_config(
    task: str,
    model: dict[str, Any],
    batch: dict[str, Any],
    where: str,
    *,
    data: dict[str, Any] | None = None,
    **more: Any,
) -> Task:
    """The configuration of an imported model, with defaults for what was not imported; errors name the file `where`.

    An imported model has no data, but a configuration must name some: it gets names for the user to change.
    """
    values = {
        "task": task,
        "data": {"train": TASKS[task].example_files} | (data or {}),
        "tokenizer": {"kind": "file", "path": "tokenizer.json"},
        "batch": batch,
        "model": model,
        **more,
    }
    config: Task = validate(values, TASKS[task], "", where)
    return config


@dataclass(frozen=True)
class SpecialTokens:
    """The special tokens around what a model reads and what it writes, as ids."""

    before: Ids
    after: Ids
    second: tuple[Ids, Ids]
    """The tokens before and after the second text of a pair."""
    start: Ids = ()
    """What a decoder reads before the first token it predicts."""
    end: int | None = None
    """The token that ends a generated text."""
    more_ends: Ids = ()
    """Other tokens that end it, too."""
    suppressed: Ids = ()
    """Tokens that are never generated."""

    @property
    def around_targets(self) -> "SpecialTokens":
        """The special tokens around what a decoder predicts."""
        end = () if self.end is None else (self.end,)
        return SpecialTokens(self.start[1:], end, ((), end))

    def frame(self, ids: Ids) -> Ids:
        """A text with the tokens around it."""
        return (*self.before, *ids, *self.after)


def find_special_tokens(model: Bundle) -> SpecialTokens:
    """The special tokens of a model; for a language model, `before` is what comes before a prompt."""
    config, tokenizer = model.config, model.tokenizer
    roles, unseen = tokenizer.target.roles, () if model.seen is None else model.seen.unseen

    def find(frame: Frame, roles: Roles = tokenizer.roles) -> tuple[Ids, Ids]:
        before, after = (
            tuple(id for role in part if (id := getattr(roles, role)) is not None)
            for part in (frame.before, frame.after)
        )
        return before, after

    more_ends = config.find_more_ends(model.tokenizer)

    def suppress(end: int | None) -> Ids:
        special = {roles.pad, roles.bos, roles.mask, roles.cls, roles.sep, *unseen} - {end, *more_ends}
        return tuple(sorted(id for id in special if id is not None))

    match config:
        case TranslationTask():
            before, after = find(config.source_frame)
            start, end = find(config.target_frame, roles)
            last = end[0] if end else None
            return SpecialTokens(before, after, ((), after), start, last, more_ends, suppress(last))
        case LanguageModelTask():
            before, after = find(config.frame)
            running = isinstance(config.batch.rows, WindowRows)
            last = after[0] if after else None
            lead = before or (after if running else ())
            return SpecialTokens(lead, (), ((), ()), (), last, more_ends, suppress(last))
        case _:
            before, after = find(next(iter(config.frames().values())))
            second = find(config.second_frame) if isinstance(config, ClassificationTask) else ((), after)
            return SpecialTokens(before, after, second)
