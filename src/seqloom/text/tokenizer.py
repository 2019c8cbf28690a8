"""The tokeniser a user holds: text to ids and back, on the `tokenizers` library.

Ids are those of the text alone: special tokens around it (beginning, end, [CLS], [SEP]) are added by the code that
builds a model's input, from `roles`. Offsets are half-open ranges of characters of the text as given, before
normalisation; what normalisation folds into a character (an accent that follows its letter) belongs to its token.
"""

import hashlib
import json
import re
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from itertools import chain, pairwise
from pathlib import Path
from typing import Any

import numpy as np
import tokenizers
from numpy.typing import NDArray

from seqloom.config.tokenizer import TokenizerConfig, TokenizerFile
from seqloom.errors import DataError
from seqloom.files import write_whole
from seqloom.text.cuts import find_splitting
from seqloom.text.files import name_sides, read_specs
from seqloom.text.parts import PartEncoder, has_table
from seqloom.text.roles import Roles, find_roles, hide_tokens

_WORD = re.compile(r"\S+")
_WORTH_A_TABLE = 1 << 18  # characters in all calls: for less, the library is done before a table is made ready
_WORTH_A_LOOK = 1 << 10  # characters in a call, where there is a table


@dataclass(frozen=True, slots=True)
class Encoding:
    """The tokens of a text: their ids, their names in the vocabulary, and where in the text they stand."""

    ids: list[int]
    tokens: list[str]
    offsets: list[tuple[int, int]]


class Tokenizer:
    """Text to ids and back; made by `train` or `load`, never changed afterwards.

    A translation model may spell its targets with another tokeniser than its sources. Then `target` is that one.
    """

    def __init__(self, spec: str, target: "Tokenizer | None" = None) -> None:
        """From the text of a `tokenizer.json`; `target` is the tokeniser of targets, if it is another one."""
        # Truncation, padding and framing are settings of somebody's model input, not of the text.
        bare = {**json.loads(spec), "truncation": None, "padding": None, "post_processor": None}
        self._spec, self._target, self._characters = spec, target, 0
        roles = find_roles(json.loads(spec))
        special = {token["content"] for token in bare["added_tokens"] if token["special"]}
        self._named = tokenizers.Tokenizer.from_str(json.dumps(bare))
        self._hidden = json.dumps(hide_tokens(bare, special | set(roles.values())))
        self.plain = tokenizers.Tokenizer.from_str(self._hidden)
        self.roles = Roles(**{role: self._named.token_to_id(token) for role, token in roles.items()})

    def __repr__(self) -> str:
        return f"<seqloom.Tokenizer {type(self._named.model).__name__}: {self.vocab_size:,} tokens>"

    def __reduce__(self) -> tuple[Any, ...]:
        return Tokenizer, (self._spec, self._target)

    @classmethod
    def train(cls, texts: Iterable[str | Path], config: TokenizerConfig) -> "Tokenizer":
        """Learn a tokeniser; a string is a text, a path a file with a text a line (`.gz` too)."""
        if isinstance(config, TokenizerFile):
            return cls.load(config.path)
        from seqloom.text.training import train_spec

        return cls(train_spec(texts, config))

    @classmethod
    def load(cls, path: str | Path) -> "Tokenizer":
        """Read a `tokenizer.json`, a folder of a Hugging Face tokeniser or a SentencePiece `.model`.

        Where sources and targets have a tokeniser each, both are read.
        """
        spec, *other = read_specs(Path(path))
        return cls(spec, cls(other[0]) if other else None)

    def with_target(self, target: "Tokenizer") -> "Tokenizer":
        """A tokeniser that spells sources as this one does, and targets as `target` does."""
        return Tokenizer(self._spec, Tokenizer(target.target._spec))

    def without_target(self) -> "Tokenizer":
        """The tokeniser of sources alone."""
        return Tokenizer(self._spec)

    @property
    def target(self) -> "Tokenizer":
        """The tokeniser of targets: this one, unless they have one of their own."""
        return self if self._target is None else self._target

    def of(self, role: str) -> "Tokenizer":
        """The tokeniser of a column: `target` for targets, this one for every other text."""
        return self.target if role == "target" else self

    @cached_property
    def shares_ids(self) -> bool:
        """Whether an id names the same token in sources and in targets."""
        return self._names == self.target._names

    def save(self, path: str | Path) -> None:
        """Write a `tokenizer.json`, which the `tokenizers` library reads on its own.

        Two tokenisers are two files, `tokenizer.source.json` and `tokenizer.target.json`.
        """
        path = Path(path)
        files = {path: self} if self._target is None else dict(zip(name_sides(path), (self, self.target), strict=True))
        try:
            for file, tokenizer in files.items():
                write_whole(file, f"{tokenizer._spec}\n".encode())
            if path not in files:
                path.unlink(missing_ok=True)
        except OSError as error:
            raise DataError(f"{path}: the file cannot be written: {error.strerror}") from None

    @cached_property
    def fingerprint(self) -> str:
        """SHA-256 of everything that decides the ids."""
        canonical = json.dumps(json.loads(self._spec), sort_keys=True, separators=(",", ":"), ensure_ascii=False)
        return hashlib.sha256(canonical.encode("utf-8")).hexdigest()

    @cached_property
    def vocab_size(self) -> int:
        """One more than the largest id: how many rows an embedding needs."""
        return 1 + max(self._named.get_vocab(with_added_tokens=True).values(), default=-1)

    @cached_property
    def _names(self) -> list[str]:
        return [self._named.id_to_token(id) or "" for id in range(self.vocab_size)]

    def token(self, id: int) -> str:
        """The name of a token in the vocabulary."""
        self._check_ids((id,))
        return self._names[id]

    def id(self, token: str) -> int | None:
        """The id of a token by its name, None if there is none."""
        found: int | None = self._named.token_to_id(token)
        return found

    def encode(self, text: str, *, special: bool = False) -> Encoding:
        """The tokens of a text; names of special tokens in it are plain text unless `special` says otherwise."""
        with explain_refusal([text]):
            encoding = self._encoder(special).encode(text, add_special_tokens=False)
        ids: list[int] = encoding.ids
        return Encoding(ids, [self._names[id] for id in ids], _cover(text, encoding.offsets))

    def encode_batch(self, texts: Sequence[str], *, special: bool = False) -> list[list[int]]:
        """The ids of many texts, each in a list."""
        with explain_refusal(texts):
            if not special and self._is_worth_a_table(texts):
                ids, offsets = self._encode_by_parts(texts)
                numbers, ends = ids.tolist(), offsets.tolist()
                return [numbers[start:end] for start, end in pairwise(ends)]
            encodings = self._encoder(special).encode_batch_fast(texts, add_special_tokens=False)
        return [encoding.ids for encoding in encodings]

    def encode_end_to_end(self, texts: Sequence[str]) -> tuple[NDArray[np.unsignedinteger[Any]], NDArray[np.int64]]:
        """The ids of many texts in one array, and where those of each text begin: for much text, without lists."""
        with explain_refusal(texts):
            if self._is_worth_a_table(texts):
                return self._encode_by_parts(texts)
            rows = [encoding.ids for encoding in self.plain.encode_batch_fast(texts, add_special_tokens=False)]
        offsets = np.cumsum([0, *map(len, rows)], dtype=np.int64)
        dtype = np.uint16 if self.vocab_size <= 1 << 16 else np.uint32
        return np.fromiter(chain.from_iterable(rows), dtype, int(offsets[-1])), offsets

    def encode_words(self, words: Sequence[str]) -> tuple[list[int], list[int]]:
        """The ids of a sentence given as words, and for each word the index of the first id that spells it.

        Words are spelled as in running text, after a space, but no token spans two of them. A word of which
        normalisation leaves nothing is the unknown token.
        """
        leads = [0, *[0 if self._adds_space else 1] * (len(words) - 1)] if words else []
        spaced = [" " * lead + word for lead, word in zip(leads, words, strict=True)]
        with explain_refusal(words):
            pieces = self.plain.encode_batch(spaced, add_special_tokens=False)
        ids: list[int] = []
        first: list[int] = []
        for word, lead, piece in zip(words, leads, pieces, strict=True):
            start = next((k for k, (_, end) in enumerate(piece.offsets) if end > lead), None)
            if start is not None:
                first.append(len(ids) + start)
                ids += piece.ids
            elif self.roles.unk is not None:
                first.append(len(ids))
                ids.append(self.roles.unk)
            else:
                raise DataError(f"word {len(first) + 1} of the sentence, {word!r}, is empty; remove it and its tag")
        return ids, first

    def decode(self, ids: Sequence[int], *, special: bool = False) -> str:
        """The text of some ids; special tokens are left out unless `special` asks for their names."""
        return self.decode_batch([ids], special=special)[0]

    def decode_batch(self, batch: Sequence[Sequence[int]], *, special: bool = False) -> list[str]:
        """The texts of many lists of ids."""
        for ids in batch:
            self._check_ids(ids)
        texts: list[str] = self._named.decode_batch(batch, skip_special_tokens=not special)
        return texts

    @cached_property
    def _adds_space(self) -> bool:
        """Whether a text is spelled as if a space stood before it, as SentencePiece does."""
        spelled = "a"
        if self.plain.normalizer:
            spelled = self.plain.normalizer.normalize_str(spelled)
        if self.plain.pre_tokenizer:
            spelled = "".join(word for word, _ in self.plain.pre_tokenizer.pre_tokenize_str(spelled))
        return not spelled.startswith("a")

    def _check_ids(self, ids: Sequence[int]) -> None:
        if ids and not (min(ids) >= 0 and max(ids) < self.vocab_size):
            wrong = next(id for id in ids if not 0 <= id < self.vocab_size)
            raise DataError(f"there is no token {wrong}: ids of this tokeniser go from 0 to {self.vocab_size - 1}")

    def _is_worth_a_table(self, texts: Sequence[str]) -> bool:
        """Whether parts of texts that were met before should be looked up; the ids are the same in either case."""
        if isinstance(texts, str):
            return False
        characters = sum(map(len, texts))
        self._characters += characters
        return characters >= _WORTH_A_LOOK and self._characters >= _WORTH_A_TABLE and self._may_be_cut

    @cached_property
    def _may_be_cut(self) -> bool:
        return has_table() and find_splitting(json.loads(self._hidden)) is not None

    @cached_property
    def _encode_by_parts(self) -> Callable[..., tuple[NDArray[np.unsignedinteger[Any]], NDArray[np.int64]]]:
        spec = json.loads(self._hidden)
        splitting = find_splitting(spec)
        assert splitting is not None, "`_may_be_cut` says whether it is"
        return PartEncoder(self.plain, spec, splitting, self.vocab_size).encode

    def _encoder(self, special: bool) -> Any:
        return self._named if special else self.plain


@contextmanager
def explain_refusal(texts: Sequence[Any]) -> Iterator[None]:
    """Explain an error of the library: which text is at fault, and why."""
    try:
        yield
    except Exception as error:  # the library raises TypeError for lone surrogates and Exception for the rest
        raise DataError(find_bad_text(texts) or f"the tokeniser does not take the text: {error}") from None


def find_bad_text(texts: Sequence[Any]) -> str:
    """What is wrong with the first text that is not valid Unicode; empty if all are."""
    if isinstance(texts, str):
        return "expected a list of texts, not a single text"
    for index, text in enumerate(texts):
        where = f"text {index + 1} of {len(texts)}" if len(texts) > 1 else "the text"
        if not isinstance(text, str):
            return f"{where} is {type(text).__name__}, not a string"
        try:
            text.encode("utf-8")
        except UnicodeEncodeError as error:
            return (
                f"{where} has half of a surrogate pair, U+{ord(text[error.start]):04X}, at character"
                f" {error.start + 1}, which UTF-8 cannot hold; the program that made the text decoded it wrongly"
            )
    return ""


def group_by_word(text: str, offsets: Sequence[tuple[int, int]]) -> list[list[int]]:
    """The tokens of each word, separated by white space; a token of white space belongs to no word."""
    starts = [match.start() for match in _WORD.finditer(text)]
    groups: list[list[int]] = [[] for _ in starts]
    for token, (start, end) in enumerate(offsets):
        if text[start:end].strip():
            groups[bisect_right(starts, end - 1) - 1].append(token)
    return groups


def _cover(text: str, offsets: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """Give each token the characters after it that belong to no token and are not spaces."""
    covered: list[tuple[int, int]] = []
    limit, last_end, last_covered = len(text), -1, -1
    for start, end in reversed(offsets):
        if end != last_end:
            last_end, last_covered = end, end
            while last_covered < limit and not text[last_covered].isspace():
                last_covered += 1
        covered.append((start, last_covered))
        limit = start
    covered.reverse()
    return covered
