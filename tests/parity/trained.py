"""Models of ours with random weights and random options, as a finished run would hold them."""

import json
from typing import Any

import torch
from hypothesis import strategies as st

from seqloom.hub.bundle import Bundle
from seqloom.tasks import TASKS
from seqloom.tasks.configuration import validate
from seqloom.text import Tokenizer
from seqloom.text.roles import SPECIAL_TOKENS

SIZE = 30
LABELS = {"classification": ("good", "bad", "so so"), "tagging": ("NOUN", "VERB", "O", "DET")}
ACTIVATIONS = ("relu", "gelu", "gelu-tanh", "silu", "tanh", "squared-relu")
DATA: dict[str, dict[str, Any]] = {
    "translation": {"source": ["train.source"], "target": ["train.target"]},
    "classification": {"files": ["train.tsv"]},
    "tagging": {"files": ["train.conll"]},
}


def make_tokenizer() -> Tokenizer:
    """Words w0, w1, … after the special tokens."""
    words = [*SPECIAL_TOKENS, *(f"w{number}" for number in range(SIZE - len(SPECIAL_TOKENS)))]
    plain = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}
    spec = {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [{"id": id, "content": token, **plain} for id, token in enumerate(SPECIAL_TOKENS)],
        "normalizer": None,
        "pre_tokenizer": {"type": "WhitespaceSplit"},
        "post_processor": None,
        "decoder": None,
        "model": {"type": "WordLevel", "vocab": {word: id for id, word in enumerate(words)}, "unk_token": "[UNK]"},
    }
    return Tokenizer(json.dumps(spec))


def make_model(task: str, model: dict[str, Any], **more: Any) -> Bundle:
    """A model of a task; no weight is at a special value, so that none can be forgotten or exchanged unnoticed."""
    rows = {"rows": {"kind": "packed", "length": 48}} if task.endswith("language-model") else {"max_length": 48}
    values = {
        "task": task,
        "data": {"train": DATA.get(task, {"files": ["train.txt"]})},
        "tokenizer": {"kind": "file", "path": "tokenizer.json"},
        "batch": rows,
        "model": model,
        **more,
    }
    config = validate(values, TASKS[task], "", "test")
    tokenizer, labels = make_tokenizer(), LABELS.get(task, ())
    torch.manual_seed(0)
    network = config.build(tokenizer, labels)
    with torch.no_grad():
        for name, parameter in network.named_parameters():
            if parameter.requires_grad:
                parameter += 0.2 * torch.randn(parameter.shape) * (3.0 if name == "output.bias" else 1.0)
    return Bundle(config, tokenizer, labels, network.eval())


@st.composite
def stacks(draw: st.DrawFn, **fixed: Any) -> dict[str, Any]:
    """A self-attention stack of small and odd sizes."""
    heads = draw(st.sampled_from((1, 2, 3)))
    kind = draw(st.sampled_from(("sinusoidal", "learned", "none", "one-hot", "index")))
    table = {"table": draw(st.integers(50, 60)), "combine": "sum"} if kind in ("learned", "one-hot") else {}
    stack = {
        "num_layers": draw(st.integers(1, 3)),
        "model_dim": 12 if kind != "one-hot" else 60,
        "num_heads": heads,
        "hidden_dim": draw(st.integers(1, 21)),
        "activation": draw(st.sampled_from(ACTIVATIONS)),
        "bias": draw(st.booleans()),
        "positions": {"kind": kind, **table},
    }
    if kind == "sinusoidal":
        stack["positions"]["order"] = draw(st.sampled_from(("pairs", "halves")))
    return {**stack, **fixed}
