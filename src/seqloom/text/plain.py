"""A tokeniser in which text can only ever be text.

Somebody who types "[MASK]" or "</s>" means these characters, but a tokeniser that knows a token of that name hands out
the token: prompt injection, or a crash far away. The library's own switch (`encode_special_tokens`) stops the search
for special tokens in the text, yet Unigram, WordPiece and WordLevel models also find them in their vocabulary. Here the
special tokens keep their ids and lose their names: each is renamed to a random word that nobody can type.
"""

import secrets
from collections.abc import Collection, Mapping
from typing import Any


def hide_tokens(spec: Mapping[str, Any], hidden: Collection[str]) -> dict[str, Any]:
    """A copy of a `tokenizer.json` in which no text leads to the `hidden` tokens."""
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
