"""What every verb works with: a network, its tokeniser, and how long a text the network can read.

Longer texts are cut where a reader would pause: best at the end of a sentence, then of a clause, then at a space, then
at the end of a token. Each piece is as long as possible. The white space between pieces is kept, so that nothing is
lost when they are joined.
"""

import re
from collections.abc import Callable, Iterator, Sequence, Sized
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NoReturn, Self, TypeVar

import torch
from torch import Tensor, nn

from seqloom.decode.greedy import NAN_SCORES
from seqloom.decode.options import Search
from seqloom.errors import RunError
from seqloom.hub.bundle import Bundle
from seqloom.nn.embeddings import OutputLayer
from seqloom.predict.compiler import Compiler, check_precision
from seqloom.predict.search import Engine, EngineName, NetworkEngine, Precision, spell_required
from seqloom.predict.workers import share
from seqloom.text import Tokenizer
from seqloom.types import TokenBatch, move

R = TypeVar("R")
_BATCH_TOKENS = 4096
_SHARE = 16  # the fewest rows of a worker: of fewer, weights are read as often as they are used
_PAUSES = (
    re.compile(r"[.!?…]+[\"'”’»)\]]*(?=\s)|[。！？｡]+[」』”]*"),  # sentences
    re.compile(r"[,;:–—]+[\"'”’»)\]]*(?=\s)|[、，；：]+"),  # clauses
    re.compile(r"(?=\s)"),
)


@dataclass(frozen=True, slots=True)
class Piece:
    """A part of a text."""

    owner: int
    """The index of the text."""
    text: str
    start: int
    """Where it begins in the text."""
    gap: str
    """What stands between its answer and that of the next piece: as a rule, the white space after it."""
    ids: Sequence[int] = ()
    """Its tokens, once they are known."""
    sentence: int = 0
    """The number of the sentence that it is part of, where a text is split into sentences."""


Split = Callable[[Piece], list[Piece]]
"""Divides a text, whatever its length."""


class Predictor:
    """A trained network with its tokeniser. A `Model` holds one, and every verb is a function of one."""

    def __init__(
        self,
        model: Bundle,
        folder: Path | None = None,
        *,
        private: bool = False,
        engine: EngineName = "compiled",
        precision: Precision = "float32",
    ) -> None:
        """Set `private` if nobody else holds the network; it is then not checked for changes."""
        self.config, self.tokenizer, self.labels = model.config, model.tokenizer, model.labels
        self.seen = model.seen
        """What the training data held; None for a model that was not trained here."""
        self.folder = folder
        """Where it was loaded from or saved to."""
        self.engine_name: EngineName = engine
        check_precision(model.network, engine, precision)
        enabled = engine != "open"
        self._compiler = Compiler(model.network.eval(), private=private, enabled=enabled, precision=precision)
        self.frames = self.config.find_frames(self.tokenizer)
        self._more_ends = self.config.find_more_ends(self.tokenizer)
        limits = (self.config.max_length, self.positions("encoder"), self.positions("decoder"))
        self.longest = min(limit for limit in limits if limit)
        """The most tokens in a row: as many as in training, but no more than there are positions."""
        self.engine: Engine = NetworkEngine(self)
        """What runs a search; `load` may replace it."""

    def __copy__(self) -> Self:
        """Another predictor with the same network."""
        twin = object.__new__(type(self))
        twin.__dict__.update(self.__dict__)
        twin._compiler = self._compiler.move_to(self.network)
        twin.engine = self.engine.move_to(twin)
        return twin

    def with_network(self, network: nn.Module) -> Self:
        """Another predictor, which answers by another network, as it is; its engine is the network."""
        twin = object.__new__(type(self))
        twin.__dict__.update(self.__dict__)
        twin._compiler = Compiler(network, enabled=False)
        twin.engine, twin.engine_name = NetworkEngine(twin), "open"
        return twin

    @property
    def network(self) -> nn.Module:
        """The network. The caller may change it, so from now on every verb checks whether it has changed."""
        self._compiler.private = False
        return self._compiler.network

    @network.setter
    def network(self, network: nn.Module) -> None:
        self._compiler = self._compiler.move_to(network.eval())

    def compile(self) -> nn.Module:
        """A compiled copy of the network as it is now or, where there can be none, the network itself."""
        return self._compiler.get()

    def freeze(self) -> nn.Module:
        """Like `compile`, but unaffected by later changes of the network: for answers that are streamed."""
        return self._compiler.freeze()

    @property
    def private(self) -> bool:
        """Whether nobody can have changed the network since it was loaded."""
        return self._compiler.private

    def count_workers(self, network: nn.Module) -> int:
        """How many workers share batches: one for each thread that a compiled copy may use.

        The network itself may have hooks, which expect to be called one after the other.
        """
        return 1 if network is self.peek() or not isinstance(self.engine, NetworkEngine) else torch.get_num_threads()

    @property
    def precision(self) -> Precision:
        """What a compiled copy computes in."""
        return self._compiler.precision

    @property
    def device(self) -> torch.device:
        """Where the network is."""
        return next(self.peek().parameters()).device

    def peek(self) -> nn.Module:
        """The network, for callers that do not change it."""
        return self._compiler.network

    def refuse(self, verb: str) -> NoReturn:
        """Raise an error that names what the model can do."""
        if getattr(self.peek(), "output", self) is None:
            raise RunError(f"this model has no head: it can only embed, not {verb}")
        *others, last = self.config.verbs
        can = f"{', '.join(others)} and {last}" if others else last
        raise RunError(f"this model was trained for {self.config.task}: it can {can}, not {verb}")

    def read(
        self, texts: Sequence[str], role: str, split: Split = lambda text: [text]
    ) -> tuple[list[Piece], list[list[int]]]:
        """Pieces of the texts that the model can read, and the ids of each with the special tokens of its role."""
        pieces = cut_texts(self.tokenizer, texts, self.room(role), split)
        return pieces, [self.frame(role, piece.ids) for piece in pieces]

    def positions(self, stack: str) -> int | None:
        """How many positions a stack has; None where there is no limit."""
        positions = getattr(getattr(self.config.model, stack, None), "positions", None)
        table: int | None = getattr(positions, "table", None)
        return table

    def room(self, role: str) -> int:
        """How many tokens of a text the model can read, besides its special tokens."""
        frame = self.frames[role]
        return max(1, self.longest - len(frame.before) - len(frame.after))

    def frame(self, role: str, ids: Sequence[int]) -> list[int]:
        """A text's ids with the special tokens of its role."""
        before, after = self.frames[role]
        return [*before, *ids, *after]

    def find_ends(self, role: str) -> tuple[int, ...]:
        """The tokens that end an answer: the one that follows a text in training, and others by name; maybe none."""
        return *self.frames[role].after[:1], *self._more_ends

    def list_suppressed(self, output: OutputLayer, ends: Sequence[int], wanted: Search) -> tuple[int, ...]:
        """Tokens that no answer may contain, such as special ones, ids beyond the vocabulary, and those never seen.

        Tokens that training did not see are allowed if the search is told so, or in what every answer must contain.
        """
        tokenizer = self.tokenizer.target
        roles, rows = tokenizer.roles, range(tokenizer.vocab_size, len(output.weight))
        never = {roles.pad, roles.bos, roles.mask, roles.cls, roles.sep}
        if self.seen is not None and not wanted.allow_unseen:
            never |= {*self.seen.unseen} - {id for ids in spell_required(wanted, tokenizer) for id in ids}
        return (*sorted(id for id in never - {*ends} if id is not None), *rows)

    def pad(self, rows: Sequence[Sequence[int]], role: str = "text") -> TokenBatch:
        """Rows of ids as a batch, on the network's device."""
        return move(TokenBatch.pad(rows, self.tokenizer.of(role).roles.pad or 0), self.device)

    def batch(self, rows: Sequence[Sequence[int]]) -> Iterator[tuple[list[int], TokenBatch]]:
        """Batches of rows of similar length, each with the indices of its rows."""
        for indices in batch_by_length(rows):
            yield indices, self.pad([rows[index] for index in indices])

    def compute(
        self, network: nn.Module, rows: Sequence[Sequence[int]], function: Callable[[TokenBatch], R]
    ) -> Iterator[tuple[list[int], R]]:
        """What a function of the network makes of batches of rows, on all cores; with the indices of the rows."""
        batches = list(batch_by_length(rows))

        def compute(batch: list[int]) -> R:
            return function(self.pad([rows[index] for index in batch]))

        yield from zip(batches, share(batches, compute, self.count_workers(network)), strict=True)


def batch_by_length(rows: Sequence[Sized], width: int = 1, workers: int = 1) -> Iterator[list[int]]:
    """Batches of row indices: rows of similar length, 4096 tokens at most unless a row is longer.

    `width` is how many hypotheses a search follows for each row. There are enough batches for all `workers`, unless
    these would have few rows.
    """
    tokens = max(1, _BATCH_TOKENS // width)
    parts = min(workers, len(rows) * width // _SHARE)
    if parts > 1:
        tokens = min(tokens, -(-sum(map(len, rows)) // parts))
    batch: list[int] = []
    for index in sorted(range(len(rows)), key=lambda index: len(rows[index])):
        if batch and (len(batch) + 1) * len(rows[index]) > tokens:
            yield batch
            batch = []
        batch.append(index)
    if batch:
        yield batch


def require_numbers(scores: Tensor) -> Tensor:
    """The scores, moved to the CPU; an error if any is NaN."""
    if scores.isnan().any():
        raise RunError(NAN_SCORES)
    return scores.cpu()


def cut_texts(
    tokenizer: Tokenizer,
    texts: Sequence[str],
    room: int,
    split: Split = lambda text: [text],
    *,
    special: bool = False,
) -> list[Piece]:
    """The texts, split and then cut into pieces of at most `room` tokens; a blank text has none.

    With `special`, names of special tokens in a text stand for these.
    """
    whole = (Piece(owner, text, 0, "") for owner, text in enumerate(texts) if text.strip())
    parts = [part for text in whole for part in split(text)]
    encoded = tokenizer.encode_batch([part.text for part in parts], special=special)
    return [
        piece
        for part, ids in zip(parts, encoded, strict=True)
        for piece in _fit(tokenizer, replace(part, ids=ids), room, special)
    ]


def _fit(tokenizer: Tokenizer, piece: Piece, room: int, special: bool) -> list[Piece]:
    """Cut a piece until its parts fit: a cut may change the tokens, so that a part is too long again."""
    if len(piece.ids) <= room:
        return [piece]
    parts = split_text(piece.owner, piece.text, tokenizer.encode(piece.text, special=special).offsets, room)
    if parts[0].text == piece.text:  # one character with more tokens than there is room for
        return [piece]
    parts[-1] = replace(parts[-1], gap=piece.gap)
    encoded = zip(parts, tokenizer.encode_batch([part.text for part in parts], special=special), strict=True)
    moved = (replace(part, start=piece.start + part.start, ids=ids, sentence=piece.sentence) for part, ids in encoded)
    return [fitting for part in moved for fitting in _fit(tokenizer, part, room, special)]


def group_pieces(pieces: Sequence[Piece], count: int) -> list[list[int]]:
    """For each of `count` texts, the indices of its pieces."""
    groups: list[list[int]] = [[] for _ in range(count)]
    for index, piece in enumerate(pieces):
        groups[piece.owner].append(index)
    return groups


def split_text(owner: int, text: str, offsets: Sequence[tuple[int, int]], room: int) -> list[Piece]:
    """Cut a text, whose tokens have these offsets, into pieces of at most `room` tokens."""
    pieces, start, token = [], len(text) - len(text.lstrip()), 0
    end = len(text.rstrip())
    while start < end:
        while token < len(offsets) and offsets[token][1] <= start:
            token += 1
        fits = token + room >= len(offsets)  # a character may have several tokens, all with its offset
        reach = end if fits else min(offsets[token + room - 1][1], offsets[token + room][0])
        stop = end if fits or reach >= end else _find_pause(text, start, max(reach, start + 1))
        stop = start + len(text[start:stop].rstrip())
        after = stop + len(text[stop:end]) - len(text[stop:end].lstrip())
        pieces.append(Piece(owner, text[start:stop], start, text[stop:after]))
        start = after
    return pieces


def _find_pause(text: str, start: int, reach: int) -> int:
    """The end of the last pause of the best kind in text[start:reach]; the next character may be part of the match."""
    for pause in _PAUSES:
        # A pause in the first quarter would make the piece too short; a lesser pause may come later.
        ends = [match.end() for match in pause.finditer(text, start, reach + 1) if match.end() <= reach]
        if ends and ends[-1] > start + (reach - start) // 4:
            return ends[-1]
    return reach
