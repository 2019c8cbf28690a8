"""SentencePiece `.model` files, as the text of a `tokenizer.json` with the same ids.

The file is one protocol-buffer message. Four of its fields matter here, so a reader of the wire format stands below
instead of a dependency on protobuf and generated code. Numbers are those of `sentencepiece_model.proto`:
ModelProto: 1 pieces (1 text, 2 score, 3 type), 2 trainer (3 model type, 24 space as suffix, 40-43 the ids of unk, bos,
eos, pad), 3 normaliser (1 name, 2 character map, 3 dummy prefix, 4 remove extra spaces, 5 escape spaces).

What SentencePiece does, in terms of the library: map characters (`Precompiled`), squeeze spaces, put a space in front,
write spaces as ▁, then Unigram or BPE on the pieces of type normal. Control pieces never match text, user-defined ones
always do; unknown characters are bytes if the model has byte pieces, else one unknown token per run.
"""

import re
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers

from seqloom.errors import DataError

SPACE = "▁"
NORMAL, UNKNOWN, CONTROL, USER_DEFINED, UNUSED, BYTE = 1, 2, 3, 4, 5, 6
UNIGRAM, BPE = 1, 2


@dataclass(frozen=True, slots=True)
class Piece:
    """A token of the model."""

    text: str
    score: float
    type: int


@dataclass(frozen=True, slots=True)
class Model:
    """What a `.model` file says."""

    pieces: list[Piece]
    type: int
    space_as_suffix: bool
    map_name: str
    character_map: bytes
    dummy_prefix: bool
    squeeze_spaces: bool
    escape_spaces: bool


def convert_model(data: bytes, name: str) -> str:
    """The `tokenizer.json` of a SentencePiece model; `name` stands in errors."""
    model = _read_model(data, name)
    kinds = {3: "word", 4: "char"}
    if model.type in kinds:
        raise DataError(
            f"{name}: this SentencePiece model is of type {kinds[model.type]}; only unigram and bpe can be read"
        )
    if model.space_as_suffix or not model.escape_spaces:
        raise DataError(
            f"{name}: this SentencePiece model does not write spaces as a ▁ before words; it cannot be read"
        )
    if any(piece.type == UNUSED for piece in model.pieces):
        raise DataError(f"{name}: this SentencePiece model has unused pieces; it cannot be read")
    tokenizer = Tokenizer(_build_bpe(model) if model.type == BPE else _build_unigram(model))
    if steps := list(_build_normaliser(model)):
        tokenizer.normalizer = normalizers.Sequence(steps)
    if splits := list(_build_splits(model)):
        tokenizer.pre_tokenizer = pre_tokenizers.Sequence(splits)
    tokenizer.decoder = decoders.Sequence(
        [
            decoders.Replace(SPACE, " "),
            decoders.ByteFallback(),
            decoders.Fuse(),
            *([decoders.Strip(" ", 1, 0)] if model.dummy_prefix else []),
        ]
    )
    tokenizer.add_special_tokens(
        [AddedToken(p.text, special=True, normalized=False) for p in model.pieces if p.type in (CONTROL, UNKNOWN)]
    )
    spec: str = tokenizer.to_str(pretty=True)
    return spec


def _build_normaliser(model: Model) -> Iterator[normalizers.Normalizer]:
    if model.character_map:
        yield from _build_character_map(model)
    if model.squeeze_spaces:
        yield normalizers.Replace(Regex(r"\A +"), "")
        yield normalizers.Replace(Regex(r" {2,}"), " ")
    if model.dummy_prefix:
        yield normalizers.Prepend(SPACE)
    yield normalizers.Replace(" ", SPACE)
    if model.squeeze_spaces:
        yield normalizers.Replace(Regex(rf"{SPACE}+\z"), "")


def _build_character_map(model: Model) -> Iterator[normalizers.Normalizer]:
    """The map, helped where the library applies it to a letter and its marks at once and would lose marks."""
    unicode_form = "nfkc" in model.map_name
    if unicode_form:
        yield normalizers.NFC()
    if model.map_name.endswith("_cf"):
        yield normalizers.Lowercase()
        yield normalizers.Replace("i\u0307", "\u0130")  # İ, the one capital that SentencePiece keeps
    yield normalizers.Precompiled(model.character_map)
    if unicode_form:
        yield normalizers.NFC()


def _build_splits(model: Model) -> Iterator[pre_tokenizers.PreTokenizer]:
    if symbols := sorted((p.text for p in model.pieces if p.type == USER_DEFINED), key=len, reverse=True):
        yield pre_tokenizers.Split(Regex("|".join(map(re.escape, symbols))), "isolated")
    # Where no piece holds a space inside, cutting the text at spaces changes nothing and lets words be cached.
    if not any(SPACE in piece.text[1:] for piece in model.pieces if piece.type in (NORMAL, USER_DEFINED)):
        yield pre_tokenizers.Split(SPACE, "merged_with_next")
    if any(piece.type == BYTE for piece in model.pieces):
        yield pre_tokenizers.Split("<0x", "isolated")  # text that reads "<0x41>" is not the byte of that name


def _build_unigram(model: Model) -> models.Unigram:
    scores = [piece.score for piece in model.pieces if piece.type == NORMAL]
    lowest, highest = min(scores, default=0.0), max(scores, default=0.0)  # highest: no cut of a symbol can beat it
    return models.Unigram(
        [(p.text, {NORMAL: p.score, USER_DEFINED: highest}.get(p.type, lowest)) for p in model.pieces],
        unk_id=next(id for id, piece in enumerate(model.pieces) if piece.type == UNKNOWN),
        byte_fallback=any(piece.type == BYTE for piece in model.pieces),
    )


def _build_bpe(model: Model) -> models.BPE:
    """Any two pieces whose concatenation is a piece may merge; the better its score, the earlier."""
    ids = {piece.text: id for id, piece in enumerate(model.pieces)}
    usable = {piece.text: piece.score for piece in model.pieces if piece.type == NORMAL}
    merges: list[tuple[float, int, int, tuple[str, str]]] = []
    for text, score in usable.items():
        for cut in range(1, len(text)):
            left, right = text[:cut], text[cut:]
            if left in usable and right in usable:
                merges.append((-score, ids[left], ids[right], (left, right)))
    merges.sort()
    return models.BPE(
        vocab=ids,
        merges=[pair for *_, pair in merges],
        unk_token=next(piece.text for piece in model.pieces if piece.type == UNKNOWN),
        fuse_unk=True,
        byte_fallback=any(piece.type == BYTE for piece in model.pieces),
        ignore_merges=any(piece.type == USER_DEFINED for piece in model.pieces),
    )


def _read_model(data: bytes, name: str) -> Model:
    try:
        top = list(_fields(data))
        trainer = dict(_fields(b"".join(value for number, value in top if number == 2)))
        normaliser = dict(_fields(b"".join(value for number, value in top if number == 3)))
        pieces = [_read_piece(dict(_fields(value))) for number, value in top if number == 1]
        if not trainer or not normaliser:
            raise ValueError("it ends before its settings")
        if sum(piece.type == UNKNOWN for piece in pieces) != 1:
            raise ValueError("it does not have one unknown piece")
        return Model(
            pieces,
            type=trainer.get(3, UNIGRAM),
            space_as_suffix=bool(trainer.get(24, 0)),
            map_name=normaliser.get(1, b"").decode("utf-8"),
            character_map=normaliser.get(2, b""),
            dummy_prefix=bool(normaliser.get(3, 1)),
            squeeze_spaces=bool(normaliser.get(4, 1)),
            escape_spaces=bool(normaliser.get(5, 1)),
        )
    except (ValueError, IndexError, TypeError, AttributeError, struct.error) as error:
        raise DataError(f"{name}: this is not a SentencePiece model: {error}") from None


def _read_piece(fields: dict[int, Any]) -> Piece:
    (score,) = struct.unpack("<f", fields.get(2, bytes(4)))
    return Piece(fields[1].decode("utf-8"), round(score, 6), fields.get(3, NORMAL))


def _fields(message: bytes) -> Iterator[tuple[int, Any]]:
    """The fields of a message: (number, whole number or bytes)."""
    position = 0
    while position < len(message):
        key, position = _varint(message, position)
        match key & 7:
            case 0:
                value, position = _varint(message, position)
                yield key >> 3, value
            case 1 | 2 | 5 as wire:
                size = {1: 8, 5: 4}.get(wire)
                if size is None:
                    size, position = _varint(message, position)
                if position + size > len(message):
                    raise ValueError("the file ends too early")
                yield key >> 3, message[position : position + size]
                position += size
            case wire:
                raise ValueError(f"wire type {wire} at byte {position}")


def _varint(message: bytes, position: int) -> tuple[int, int]:
    """Seven bits a byte, lowest first; the top bit says that more follow."""
    value = shift = 0
    while True:
        byte = message[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, position
        shift += 7
        if shift > 63:
            raise ValueError("a number is too long")
