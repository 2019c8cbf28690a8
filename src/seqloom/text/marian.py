"""Marian's tokenisers: a SentencePiece model for sources, another for targets, and the ids of pieces in `vocab.json`.

A text is cut by the model of its side; each piece is then looked up in the vocabulary, which both sides share unless
the targets have a `target_vocab.json`. A character that is unknown to the model of this side is looked up, too, and may
be a piece of the other side. Several of them in a row are one unknown token.
"""

import json
from pathlib import Path
from typing import Any

from seqloom.errors import DataError
from seqloom.text.sentencepiece import convert_model

_FOREIGN = -1e6  # the score of a piece of the other side, which is taken only where this side has none
_UNKNOWN = "\uffff"  # a character that no text has


def is_marian(folder: Path) -> bool:
    """Whether a folder has Marian's files; with a tokenizer.json, which has one side only, both sides must be there."""
    needed = ("source.spm", "vocab.json", *(("target.spm",) if (folder / "tokenizer.json").exists() else ()))
    return all((folder / name).is_file() for name in needed)


def read_marian(folder: Path) -> tuple[str, ...]:
    """The specification of sources and, where targets are spelled otherwise, that of targets."""
    models = {side: folder / f"{side}.spm" for side in ("source", "target")}
    source = _combine(models["source"], folder / "vocab.json")
    if not models["target"].is_file():
        return (source,)
    separate = _read_json(folder / "tokenizer_config.json").get("separate_vocabs") is True
    target = _combine(models["target"], folder / ("target_vocab.json" if separate else "vocab.json"))
    return (source,) if source == target else (source, target)


def _combine(path: Path, vocabulary: Path) -> str:
    """Pieces of a SentencePiece model with the ids of a vocabulary."""
    vocab = _read_json(vocabulary)
    spec = json.loads(convert_model(path.read_bytes(), str(path)))
    if spec["model"]["type"] != "Unigram":
        raise DataError(f"{path}: only unigram models can be combined with a {vocabulary.name}")
    if sorted(vocab.values(), key=str) != sorted(range(len(vocab)), key=str) or "<unk>" not in vocab:
        raise DataError(f"{vocabulary}: is not a list of tokens with their ids and an <unk>")
    scores = dict(spec["model"]["vocab"])
    names = sorted(vocab, key=lambda name: int(vocab[name]))
    pieces = [[name, scores.get(name, _FOREIGN * len(name))] for name in names]
    spec["model"] |= {"vocab": pieces, "unk_id": vocab["<unk>"]}
    named = {token["content"] for token in spec["added_tokens"]}  # such as <s>, which is no text
    known = sorted({character for name in scores.keys() - named for character in name})
    escaped = "".join(c if c.isalnum() or not c.isascii() else rf"\{c}" for c in known)
    runs = {"type": "Replace", "pattern": {"Regex": f"[^{escaped}]{{2,}}"}, "content": _UNKNOWN}
    steps = [step for step in (spec["normalizer"], runs) if step is not None]
    spec["normalizer"] = {"type": "Sequence", "normalizers": steps}
    flags = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False}
    special: dict[str, bool] = {name: True for name in ("</s>", "<unk>", "<pad>") if name in vocab}
    special |= {name: False for name in names if name.startswith(">>") and name.endswith("<<")}  # the target language
    spec["added_tokens"] = [
        {"id": vocab[name], "content": name, "special": special[name], **flags} for name in names if name in special
    ]
    return json.dumps(spec, ensure_ascii=False)


def _read_json(path: Path) -> dict[str, Any]:
    """The object in a file; empty if there is no such file."""
    try:
        values = json.loads(path.read_bytes()) if path.is_file() else {}
    except (ValueError, RecursionError) as error:
        raise DataError(f"{path}: not JSON: {error}") from None
    if not isinstance(values, dict):
        raise DataError(f"{path}: is not a JSON object")
    return values
