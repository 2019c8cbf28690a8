"""Models of `transformers` with random weights, as the oracle for every layout; saved and loaded as published ones."""

import json
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from seqloom.hub.bundle import Bundle
from seqloom.hub.load import load_published
from seqloom.lens.networks import open_network
from seqloom.lens.passes import Pass
from seqloom.types import TokenBatch

transformers = pytest.importorskip("transformers", reason="the oracle; pip install transformers")
transformers.utils.logging.set_verbosity_error()
transformers.utils.logging.disable_progress_bar()
CLOSE = {"rtol": 1e-5, "atol": 1e-5}
MIN_WIDTH = 8
"""Norms of narrower vectors divide by next to nothing now and then, which makes float32 noise large."""
BERT_TOKENS = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
SENTENCE_TOKENS = ("<s>", "<pad>", "</s>", "<unk>", "<mask>")


def write_tokenizer(folder: Path, size: int, special: Sequence[str], unknown: str, **roles: str) -> None:
    """A tokeniser of `size` words, so that every id has a text."""
    words = [*special, *(f"w{number}" for number in range(size - len(special)))]
    spec = {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [
            {"id": number, "content": token, "single_word": False, "lstrip": False, "rstrip": False}
            | {"normalized": False, "special": True}
            for number, token in enumerate(special)
        ],
        "normalizer": None,
        "pre_tokenizer": {"type": "WhitespaceSplit"},
        "post_processor": None,
        "decoder": None,
        "model": {
            "type": "WordLevel",
            "vocab": {word: number for number, word in enumerate(words)},
            "unk_token": unknown,
        },
    }
    (folder / "tokenizer.json").write_text(json.dumps(spec))
    (folder / "special_tokens_map.json").write_text(json.dumps({f"{role}_token": name for role, name in roles.items()}))


def publish(model: Any, special: Sequence[str], unknown: str, **roles: str) -> Bundle:
    """Save a model of transformers and load it here."""
    randomise(model)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        model.save_pretrained(folder)
        write_tokenizer(folder, model.config.vocab_size, special, unknown, **roles)
        return load_published(folder)


@torch.no_grad()
def randomise(model: Any) -> None:
    """No weight stays at a special value, so that none can be forgotten or exchanged unnoticed."""
    generator = torch.Generator().manual_seed(7)
    for parameter in filter(lambda p: p.requires_grad, model.parameters()):
        parameter += 0.1 * torch.randn(parameter.shape, generator=generator)
    for name, buffer in model.named_buffers():
        if name == "final_logits_bias":
            buffer += torch.randn(buffer.shape, generator=generator)
    model.eval()
    model.set_attn_implementation("eager")  # the one that shows its weights


def random_batch(vocab_size: int, lengths: Sequence[int], first: int = 5, seed: int = 0) -> TokenBatch:
    """Rows of ids from `first` on, padded at the end."""
    generator = torch.Generator().manual_seed(seed)
    mask = torch.arange(max(lengths)) < torch.tensor(lengths)[:, None]
    ids = torch.randint(first, vocab_size, mask.shape, generator=generator)
    return TokenBatch(ids.masked_fill(~mask, 0), mask)


def assert_same_attention(
    network: nn.Module, batches: Mapping[str, TokenBatch], expected: Mapping[str, Sequence[Tensor]]
) -> None:
    """Every head of every layer, seen through the lens: `batches` has a batch for each side, `expected` the stacks."""
    opened = open_network(network)
    stacks = {stack.name: stack for stack in opened.describe()}
    assert stacks.keys() == expected.keys()
    for row in range(len(next(iter(batches.values())).ids)):
        p = Pass(opened.like, watch=True)
        opened.run(p, {side: batch.ids[row, batch.mask[row]] for side, batch in batches.items()})
        for name, layers in expected.items():
            assert len(layers) == len(stacks[name].layers)
            for layer, theirs in zip(stacks[name].layers, layers, strict=True):
                ours = p.mixers[layer.sites[0]].weights()
                _, queries, keys = ours.shape
                torch.testing.assert_close(ours, theirs[row, :, :queries, :keys], **CLOSE)


def assert_greedy(logits: Tensor, path: list[int], prompt: int, length: int, end: int) -> None:
    """`path` is what greedy search finds by these `logits`: each token the best, up to ties, with its end."""
    for place in range(prompt, len(path)):
        scores = logits[place - 1]
        assert scores[path[place]] >= scores.max() - 1e-5, f"token {place}"
        assert (path[place] == end or place == length - 1) == (place == len(path) - 1)
