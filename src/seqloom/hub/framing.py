"""The special tokens that a model wants around its texts, as ids."""

from dataclasses import dataclass

from seqloom.config.batches import Frame, WindowRows
from seqloom.tasks import ClassificationTask, LanguageModelTask, Task, TranslationTask
from seqloom.text import Tokenizer

Ids = tuple[int, ...]


@dataclass(frozen=True)
class Framing:
    """What stands around what the model reads, and around what it writes."""

    before: Ids
    after: Ids
    second: tuple[Ids, Ids]
    """Around the second text of a pair."""
    start: Ids = ()
    """What a decoder reads before its first own token."""
    end: int | None = None
    """What ends an answer."""
    silent: Ids = ()
    """Tokens that no answer holds."""

    def frame(self, ids: Ids) -> Ids:
        """A text with what stands around it."""
        return (*self.before, *ids, *self.after)


def find_framing(config: Task, tokenizer: Tokenizer) -> Framing:
    """Of a prompt, where the model is one of language."""
    find = _Finder(tokenizer)
    match config:
        case TranslationTask():
            before, after = find(config.source_frame)
            start, end = find(config.target_frame)
            return Framing(before, after, ((), after), start, end[0], find.list_silent(end[0]))
        case LanguageModelTask():
            before, after = find(config.frame)
            running = isinstance(config.batch.rows, WindowRows)
            lead = before or (after if running else ())
            end_id = after[0] if after else None
            return Framing(lead, (), ((), ()), (), end_id, find.list_silent(end_id))
        case ClassificationTask():
            before, after = find(config.frame)
            return Framing(before, after, find(config.second_frame))
        case _:
            before, after = find(next(iter(config.frames().values())))
            return Framing(before, after, ((), after))


class _Finder:
    def __init__(self, tokenizer: Tokenizer) -> None:
        self.roles = tokenizer.roles

    def __call__(self, frame: Frame) -> tuple[Ids, Ids]:
        before, after = (
            tuple(id for role in part if (id := getattr(self.roles, role)) is not None)
            for part in (frame.before, frame.after)
        )
        return before, after

    def list_silent(self, end: int | None) -> Ids:
        special = {self.roles.pad, self.roles.bos, self.roles.mask, self.roles.cls, self.roles.sep} - {end}
        return tuple(sorted(id for id in special if id is not None))
