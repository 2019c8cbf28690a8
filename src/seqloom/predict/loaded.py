"""What every verb works with: a network, its tokeniser, and how long a text it can read."""

from collections.abc import Iterator, Sequence, Sized
from dataclasses import replace
from pathlib import Path
from typing import Literal, NoReturn, Self

import torch
from torch import Tensor, nn

from seqloom.decode.greedy import NAN_SCORES
from seqloom.errors import RunError
from seqloom.nn.embeddings import OutputLayer
from seqloom.predict.compiler import Compiler
from seqloom.predict.search import Engine, NetworkEngine
from seqloom.predict.splitting import Piece, split_text
from seqloom.tasks import Task
from seqloom.text import Tokenizer
from seqloom.types import TokenBatch, move

_BATCH_TOKENS = 4096


class Loaded:
    """A trained network with its tokeniser."""

    def __init__(
        self,
        config: Task,
        tokenizer: Tokenizer,
        labels: tuple[str, ...],
        network: nn.Module,
        folder: Path | None = None,
        *,
        private: bool = False,
        compiled: bool = True,
    ) -> None:
        """`private`: nobody else holds the network. `compiled`: a compiled copy of it may answer."""
        self.config, self.tokenizer, self.labels = config, tokenizer, labels
        self.folder = folder
        """Where it was loaded from."""
        self._compiler = Compiler(network.eval(), private=private, enabled=compiled)
        self.frames = config.find_frames(tokenizer)
        self.longest = find_longest(config)
        self.engine: Engine = NetworkEngine(self)
        """What runs a search; `load` may put another in its place."""

    def __copy__(self) -> Self:
        """Another model with the same network."""
        twin = object.__new__(type(self))
        twin.__dict__.update(self.__dict__)
        twin._compiler = Compiler(self.network, enabled=self._compiler.enabled)
        twin.engine = self.engine.move_to(twin)
        return twin

    @property
    def network(self) -> nn.Module:
        """The network, an ordinary module: answers are a function of it, whatever is done to it.

        From the first time it is asked for, each verb checks whether it has changed, down to the last number.
        """
        self._compiler.private = False
        return self._compiler.network

    @network.setter
    def network(self, network: nn.Module) -> None:
        self._compiler = Compiler(network.eval(), enabled=self._compiler.enabled)

    def compile(self) -> nn.Module:
        """What a verb computes with: a copy of the network as it is now that runs on kernels, or the network itself."""
        return self._compiler.get()

    def freeze(self) -> nn.Module:
        """The same, for an answer that is given bit by bit: it stays as it is while the network changes."""
        return self._compiler.freeze()

    @property
    def private(self) -> bool:
        """Whether nobody can have changed the network since it was loaded."""
        return self._compiler.private

    @property
    def device(self) -> torch.device:
        """Where the network is."""
        return next(self._compiler.network.parameters()).device

    def refuse(self, verb: str) -> NoReturn:
        """Say what the model can do instead."""
        headless = getattr(self._compiler.network, "output", self) is None
        if headless:
            raise RunError(f"this model has no head: it can only embed, not {verb}")
        *others, last = self.config.verbs
        can = f"{', '.join(others)} and {last}" if others else last
        raise RunError(f"this model was trained for {self.config.task}: it can {can}, not {verb}")

    def cut(self, texts: Sequence[str], room: int) -> list[Piece]:
        """The texts in pieces of at most `room` tokens, most often one each; a blank text has none."""
        pieces: list[Piece] = []
        for owner, (text, ids) in enumerate(zip(texts, self.tokenizer.encode_batch(texts), strict=True)):
            if text.strip():
                pieces += self._fit(Piece(owner, text, 0, "", ids), room)
        return pieces

    def _fit(self, piece: Piece, room: int) -> list[Piece]:
        """A piece in pieces that fit; where a cut changes the spelling, they may have to be cut again."""
        if len(piece.ids) <= room:
            return [piece]
        parts = split_text(piece.owner, piece.text, self.tokenizer.encode(piece.text).offsets, room)
        if parts[0].text == piece.text:  # a single character of more tokens than there is room for
            return [piece]
        parts[-1] = replace(parts[-1], gap=piece.gap)
        spelled = zip(parts, self.tokenizer.encode_batch([part.text for part in parts]), strict=True)
        moved = (replace(part, start=piece.start + part.start, ids=ids) for part, ids in spelled)
        return [fitting for part in moved for fitting in self._fit(part, room)]

    def positions(self, stack: Literal["encoder", "decoder"]) -> int | None:
        """How many positions a stack has a table for; None where it has no end."""
        return find_table(self.config, stack)

    def room(self, role: str) -> int:
        """How many tokens of a text the model can read, beside its special tokens."""
        frame = self.frames[role]
        return max(1, self.longest - len(frame.before) - len(frame.after))

    def frame(self, role: str, ids: Sequence[int]) -> list[int]:
        """A text's ids with the special tokens of its role."""
        before, after = self.frames[role]
        return [*before, *ids, *after]

    def find_end(self, role: str) -> int:
        """The token that ends a text."""
        after = self.frames[role].after
        if not after:
            raise RunError(f"the frame of a {role} has no token after it, so nothing would end an answer")
        return after[0]

    def list_silent(self, output: OutputLayer, end: int) -> tuple[int, ...]:
        """What no text holds: special tokens but the end, and rows of the table beyond the tokeniser's tokens."""
        roles, rows = self.tokenizer.roles, range(self.tokenizer.vocab_size, len(output.weight))
        special = {roles.pad, roles.bos, roles.mask, roles.cls, roles.sep} - {end}
        return (*sorted(id for id in special if id is not None), *rows)

    def pad(self, rows: Sequence[Sequence[int]]) -> TokenBatch:
        """Rows of ids as a batch, where the network is."""
        return move(TokenBatch.pad(rows, self.tokenizer.roles.pad or 0), self.device)


def batch_by_length(rows: Sequence[Sized], tokens: int = _BATCH_TOKENS) -> Iterator[list[int]]:
    """The indices of the rows in batches of similar length, each of at most `tokens` tokens or a single row."""
    batch: list[int] = []
    for index in sorted(range(len(rows)), key=lambda index: len(rows[index])):
        if batch and (len(batch) + 1) * len(rows[index]) > tokens:
            yield batch
            batch = []
        batch.append(index)
    if batch:
        yield batch


def require_numbers(scores: Tensor) -> Tensor:
    """The scores, on the processor; refused where they are not numbers, for then any answer would be as good."""
    if scores.isnan().any():
        raise RunError(NAN_SCORES)
    return scores.cpu()


def find_longest(config: Task) -> int:
    """The most tokens in a row: as many as in training, and never more than there are positions."""
    longest = config.max_length
    tables = (find_table(config, "encoder"), find_table(config, "decoder"))
    return min(longest, *(table or longest for table in tables))


def find_table(config: Task, stack: Literal["encoder", "decoder"]) -> int | None:
    """The size of a stack's table of positions, where it has one."""
    positions = getattr(getattr(config.model, stack, None), "positions", None)
    table: int | None = getattr(positions, "table", None)
    return table
