"""Sizes of models by name, and the size that a corpus can feed.

A size sets what a configuration leaves open: the vocabulary, the width and depth of the stacks, dropout and the
learning rate. A key that is given has priority. Little text needs a small model and much dropout: on 29,000 sentence
pairs a Transformer of width 128 beats wider ones (Wu et al. 2021, "Good for Misconceived Reasons", table 2).
"""

from typing import Any, Literal, NamedTuple

from seqloom.config.base import as_kind
from seqloom.config.tokenizer import name_pair

Size = Literal["auto", "tiny", "small", "base", "large"]


class Preset(NamedTuple):
    """The settings of a size."""

    up_to_words: float
    """The largest training corpus, in running words, that `auto` gives this size."""
    vocabulary: int
    """Tokens of a sub-word tokeniser, at most."""
    model_dim: int
    num_layers: int
    dropout: float
    learning_rate: float
    """Of AdamW alone."""


PRESETS = {
    "tiny": Preset(100_000, vocabulary=4_000, model_dim=64, num_layers=2, dropout=0.2, learning_rate=4e-3),
    "small": Preset(3_000_000, vocabulary=8_000, model_dim=128, num_layers=4, dropout=0.2, learning_rate=3e-3),
    "base": Preset(50_000_000, vocabulary=16_000, model_dim=256, num_layers=4, dropout=0.1, learning_rate=1.5e-3),
    "large": Preset(float("inf"), vocabulary=32_000, model_dim=512, num_layers=6, dropout=0.1, learning_rate=7e-4),
}
_SUBWORDS = ("bpe", "wordpiece", "unigram")


def choose_size(words: int) -> str:
    """The size for a training corpus with this many running words."""
    return next(name for name, preset in PRESETS.items() if words <= preset.up_to_words)


def fill_size(data: dict[str, Any], size: str, stacks: set[str]) -> None:
    """Add the settings of a size to `data`, a configuration as written, where it does not have them."""
    preset = PRESETS[size]
    data["size"] = size
    if "init" not in data:
        tokenizer = name_pair(as_kind(data.get("tokenizer", "bpe")))
        if isinstance(tokenizer, dict) and tokenizer.get("kind") == "pair":
            filled = {side: _fill_vocabulary(tokenizer.get(side, "bpe"), preset) for side in ("source", "target")}
            data["tokenizer"] = tokenizer | filled
        else:
            data["tokenizer"] = _fill_vocabulary(tokenizer, preset)
    model = data.setdefault("model", {})
    if not isinstance(model, dict):
        return
    for name in stacks:
        stack, encoder = model.setdefault(name, {}), model.get("encoder", {})
        leader = encoder if name == "decoder" and isinstance(encoder, dict) else {}  # a decoder follows its encoder
        for key in ("model_dim", "num_layers", "dropout") if isinstance(stack, dict) else ():
            stack.setdefault(key, leader.get(key, getattr(preset, key)))
    model.setdefault("embedding_dropout", preset.dropout)
    train = data.setdefault("train", {})
    optimizer = train.get("optimizer", {}) if isinstance(train, dict) else None
    optimizer = {"kind": optimizer} if isinstance(optimizer, str) else optimizer
    if isinstance(optimizer, dict):
        # Muon moves a matrix equally far whatever its gradient, so weights learned before may be lost.
        kind = optimizer.get("kind", "adamw" if "init" in data else "muon")
        rate = {"learning_rate": preset.learning_rate} if kind == "adamw" else {}
        train["optimizer"] = {"kind": kind, **rate, **optimizer}


def _fill_vocabulary(tokenizer: Any, preset: Preset) -> Any:
    """The settings of a tokeniser with the size of its vocabulary, where it has one."""
    whole = as_kind(tokenizer)
    subword = isinstance(whole, dict) and whole.get("kind", "bpe") in _SUBWORDS
    return {"kind": "bpe", "size": preset.vocabulary, **whole} if subword else whole
