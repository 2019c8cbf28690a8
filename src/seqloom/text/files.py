"""Reads tokeniser files of other programs as the text of a `tokenizer.json`."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import tokenizers

from seqloom.config.batches import Role
from seqloom.errors import DataError
from seqloom.text.marian import is_marian, read_marian
from seqloom.text.patterns import check_patterns
from seqloom.text.roles import ROLES, declare_roles
from seqloom.text.sentencepiece import convert_model

TARGET_FOLDER = "target"
"""Where an exported folder of transformers has the tokeniser of targets, if they have one of their own."""
_SPARE = 1 << 16  # ids that may be without a token


def name_sides(path: Path) -> tuple[Path, Path]:
    """The files of two tokenisers that are saved as `path`: tokenizer.source.json and tokenizer.target.json."""
    return path.with_suffix(".source.json"), path.with_suffix(".target.json")


def find_files(path: Path) -> tuple[Path, ...]:
    """The files of what was saved as `path`: one or, where the sides have a tokeniser each, two; () if none exist."""
    sides = name_sides(path)
    return (path,) if path.exists() else sides if all(side.exists() for side in sides) else ()


def read_specs(path: Path) -> tuple[str, ...]:
    """Read a tokeniser of any kind: one specification or, where the sides have one each, that of sources first."""
    if path.is_dir():
        return _read_folder(path)
    return tuple(read_spec(file) for file in find_files(path) or (path,))


def read_spec(path: Path) -> str:
    """Read a `tokenizer.json` or a SentencePiece `.model`."""
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        raise DataError(f"{path}: there is no such file; `seqloom tokenizer train FILES -o {path}` makes one") from None
    except OSError as error:
        raise DataError(f"{path}: the file cannot be read: {error.strerror}") from None
    if path.suffix in (".model", ".spm"):
        return convert_model(data, str(path))
    try:
        library = tokenizers.Tokenizer.from_buffer(data)
    except (KeyboardInterrupt, SystemExit):
        raise
    except BaseException as error:  # the library raises nothing narrower, and its panics are no Exception
        raise DataError(f"{path}: the tokenizers library cannot read this as a tokenizer.json: {error}") from None
    spec = json.loads(data)
    if not isinstance(spec.get("added_tokens"), list):
        raise DataError(f"{path}: the key added_tokens is missing; a tokenizer.json has it, if only as []")
    _check_ids(library, str(path))
    check_patterns(spec, str(path))
    return data.decode("utf-8").strip()  # not as the library would write it, for it rounds scores a little each time


def _check_ids(library: tokenizers.Tokenizer, name: str) -> None:
    """Refuse ids far beyond the number of tokens: an embedding has a row for each id."""
    ids = library.get_vocab(with_added_tokens=True).values()
    if max(ids, default=0) > 2 * len(ids) + _SPARE:
        raise DataError(f"{name}: the file has {len(ids)} tokens, but the id of one is {max(ids)}")


def _read_folder(folder: Path) -> tuple[str, ...]:
    """Read what transformers writes, or the tokenisers of a run; Marian's SentencePiece models come first."""
    if is_marian(folder):
        return tuple(_declare(spec, folder) for spec in read_marian(folder))
    files = find_files(folder / "tokenizer.json") or tuple(sorted(folder.glob("*.model"))[:1])
    if not files:
        raise DataError(f"{folder}: the folder has neither a tokenizer.json nor a SentencePiece *.model")
    target = folder / TARGET_FOLDER / "tokenizer.json"
    if target.is_file():
        files = (files[0], target)
    return tuple(_declare(read_spec(file), file.parent) for file in files)


def _declare(spec: str, folder: Path) -> str:
    """A specification with the roles that other files of its folder give."""
    tokenizer, declared = tokenizers.Tokenizer.from_str(spec), _read_roles(folder)
    ids = {role: id for role, token in declared.items() if (id := tokenizer.token_to_id(token)) is not None}
    if not ids:
        return spec
    roles = {role: declared[role] for role in ids}
    return json.dumps(declare_roles(json.loads(spec), roles, ids), ensure_ascii=False, indent=2)


def _read_roles(folder: Path) -> dict[Role, str]:
    """Read the roles in the files of transformers: `"eos_token": "</s>"`, or an object with its content."""
    settings: dict[str, Any] = {}
    for name in ("special_tokens_map.json", "tokenizer_config.json"):
        path = folder / name
        if path.is_file():
            try:
                settings |= json.loads(path.read_bytes())
            except ValueError as error:
                raise DataError(f"{path}: not JSON: {error}") from None
    roles: dict[Role, str] = {}
    for role in ROLES:
        token = settings.get(f"{role}_token")
        content = token.get("content") if isinstance(token, Mapping) else token
        if isinstance(content, str):
            roles[role] = content
    return roles
