"""A small BERT folder, written by hand."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor

CONFIG: dict[str, Any] = {
    "architectures": ["BertModel"],
    "model_type": "bert",
    "vocab_size": 12,
    "hidden_size": 4,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "intermediate_size": 6,
    "hidden_act": "gelu",
    "layer_norm_eps": 1e-12,
    "max_position_embeddings": 16,
    "type_vocab_size": 2,
}
WORDS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "a", "b", "c", "d", "##e", "f", "g"]


def make_tensors() -> dict[str, Tensor]:
    layer = "encoder.layer.0."
    shapes: dict[str, tuple[int, ...]] = {
        "embeddings.word_embeddings.weight": (12, 4),
        "embeddings.position_embeddings.weight": (16, 4),
        "embeddings.token_type_embeddings.weight": (2, 4),
        layer + "attention.self.query.weight": (4, 4),
        layer + "attention.self.key.weight": (4, 4),
        layer + "attention.self.value.weight": (4, 4),
        layer + "attention.output.dense.weight": (4, 4),
        layer + "intermediate.dense.weight": (6, 4),
        layer + "output.dense.weight": (4, 6),
    }
    for name, (rows, _) in list(shapes.items()):
        if "embeddings" not in name:
            shapes[name.replace("weight", "bias")] = (rows,)
    for norm in ("embeddings.LayerNorm", layer + "attention.output.LayerNorm", layer + "output.LayerNorm"):
        shapes |= {f"{norm}.weight": (4,), f"{norm}.bias": (4,)}
    torch.manual_seed(0)
    return {name: torch.randn(shape) for name, shape in shapes.items()}


def write_folder(folder: Path, **config: Any) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(CONFIG | config))
    (folder / "vocab.txt").write_text("\n".join(WORDS) + "\n")
    save_file(make_tensors(), folder / "model.safetensors")
    return folder


@pytest.fixture
def bert(tmp_path: Path) -> Callable[..., Path]:
    """Writes the folder, with some settings changed."""
    return lambda **config: write_folder(tmp_path / "bert", **config)
