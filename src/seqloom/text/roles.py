"""Special tokens by what they are for, whatever a tokeniser file calls them; and keeping them out of plain text."""

import secrets
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any, get_args

from seqloom.config.batches import Role

ROLES: tuple[Role, ...] = get_args(Role)

SPECIAL_TOKENS: tuple[str, ...] = tuple(f"[{role.upper()}]" for role in ROLES)
"""What Seqloom's own tokenisers call them; a token's id is its place here, so padding is 0."""

_NAMES: Mapping[Role, tuple[str, ...]] = {
    "pad": ("[PAD]", "<pad>", "<PAD>", "<|pad|>", "<|finetune_right_pad_id|>"),
    "unk": ("[UNK]", "<unk>", "<UNK>", "<|unk|>"),
    "bos": ("[BOS]", "<s>", "<bos>", "<BOS>", "<|begin_of_text|>", "<|startoftext|>", "<|bos|>", "<|endoftext|>"),
    "eos": ("[EOS]", "</s>", "<eos>", "<EOS>", "<|end_of_text|>", "<|eos|>", "<|endoftext|>"),
    "mask": ("[MASK]", "<mask>", "<MASK>", "<|mask|>"),
    "cls": ("[CLS]", "<cls>", "<CLS>"),
    "sep": ("[SEP]", "<sep>", "<SEP>"),
}
"""The usual names of each role, most telling first (<|endoftext|> is GPT-2's beginning and end at once)."""

_DECLARED = "role:"


@dataclass(frozen=True, slots=True)
class Roles:
    """The id of each special token, None where the tokeniser has none."""

    pad: int | None = None
    unk: int | None = None
    bos: int | None = None
    eos: int | None = None
    mask: int | None = None
    cls: int | None = None
    sep: int | None = None


def find_roles(spec: Mapping[str, Any]) -> dict[Role, str]:
    """The token of each role in a `tokenizer.json`: as declared there, or else by the usual names."""
    if declared := find_declared(spec.get("post_processor")):
        return declared
    known = {token["content"] for token in spec["added_tokens"]}
    unknown = _find_unknown(spec["model"])
    roles: dict[Role, str] = {}
    for role, names in _NAMES.items():
        if role == "unk" and unknown is not None:
            roles[role] = unknown
        elif name := next((name for name in names if name in known), None):
            roles[role] = name
    return roles


def declare_roles(spec: Mapping[str, Any], roles: Mapping[Role, str], ids: Mapping[Role, int]) -> dict[str, Any]:
    """A copy of a `tokenizer.json` that says its roles, where their names alone do not.

    The format refuses keys of our own, but a post-processing template may list special tokens that it does not use.
    """
    if find_roles(spec) == roles:
        return dict(spec)
    first, second = ({"Sequence": {"id": id, "type_id": type_id}} for id, type_id in (("A", 0), ("B", 1)))
    template = {
        "type": "TemplateProcessing",
        "single": [first],
        "pair": [first, second],
        "special_tokens": {
            _DECLARED + role: {"id": _DECLARED + role, "ids": [ids[role]], "tokens": [token]}
            for role, token in roles.items()
        },
    }
    existing = spec.get("post_processor")
    both = {"type": "Sequence", "processors": [existing, template]} if existing else template
    return {**spec, "post_processor": both}


def find_declared(processor: Mapping[str, Any] | None) -> dict[Role, str]:
    """The token of each role that the post-processor of a `tokenizer.json` declares."""
    match processor:
        case {"type": "Sequence", "processors": list(processors)}:
            return next((found for part in processors if (found := find_declared(part))), {})
        case {"type": "TemplateProcessing", "special_tokens": dict(tokens)}:
            return {role: tokens[_DECLARED + role]["tokens"][0] for role in ROLES if _DECLARED + role in tokens}
    return {}


def _find_unknown(model: Mapping[str, Any]) -> str | None:
    if model.get("unk_id") is not None:  # Unigram names it by number
        token: str = model["vocab"][model["unk_id"]][0]
        return token
    unknown: str | None = model.get("unk_token") or None
    return unknown if unknown in model["vocab"] else None


def hide_tokens(spec: Mapping[str, Any], hidden: Collection[str]) -> dict[str, Any]:
    """A copy of a `tokenizer.json` in which no text leads to the `hidden` tokens.

    Somebody who types "[MASK]" or "</s>" means these characters, but a tokeniser that knows a token of that name hands
    out the token: prompt injection, or a crash far away. The library's own switch (`encode_special_tokens`) stops the
    search for special tokens in the text, yet Unigram, WordPiece and WordLevel models also find them in their
    vocabulary. Here the special tokens keep their ids and get random names that nobody can type.
    """
    # U+FFFF occurs in no sane text, so the search for these words costs nothing; the rest cannot be guessed.
    alias = {name: f"\uffff{secrets.token_hex(16)}" for name in hidden}
    model = dict(spec["model"])
    if isinstance(model["vocab"], list):
        model["vocab"] = [[alias.get(token, token), score] for token, score in model["vocab"]]
    else:
        model["vocab"] = {alias.get(token, token): id for token, id in model["vocab"].items()}
    if "merges" in model:
        merges = (tuple(merge.split(" ")) if isinstance(merge, str) else merge for merge in model["merges"])
        model["merges"] = [
            [left, right] for left, right in merges if alias.keys().isdisjoint((left, right, left + right))
        ]
    if unknown := model.get("unk_token"):
        model["unk_token"] = alias.get(unknown, unknown)
    added = [{**token, "content": alias.get(token["content"], token["content"])} for token in spec["added_tokens"]]
    return {**spec, "model": model, "added_tokens": added}
