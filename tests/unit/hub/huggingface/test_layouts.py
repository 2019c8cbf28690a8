"""A layout can be added from outside: one class, one entry in the list."""

import json
import re
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from seqloom.errors import DataError, RunError
from seqloom.hub import huggingface
from seqloom.hub.bundle import Bundle
from seqloom.hub.huggingface.export import History, check_folder, plan_export, write_card, write_folder
from seqloom.hub.huggingface.layout import (
    ExportPlan,
    Folder,
    ImportPlan,
    Layout,
    check_decoder,
    untie_scaled,
    write_options,
)
from seqloom.hub.huggingface.recipes import Recipes, copy, linear, map_blocks, skip_rows
from seqloom.hub.huggingface.settings import Option, Settings, name_activation
from seqloom.hub.load import load_published
from seqloom.tasks import LanguageModelTask, Task

OPTIONS = {
    "num_layers": Option("num_hidden_layers", Settings.count),
    "model_dim": Option("hidden_size", Settings.count),
    "num_heads": Option("num_attention_heads", Settings.count),
    "hidden_dim": Option("ffn_dim", Settings.count),
    "activation": Option("activation_function", Settings.activation, "relu", name_activation),
    "dropout": Option("dropout", Settings.rate),
}
PARTS = {
    "attention.in_projection": ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"),
    "attention.out_projection": ("self_attn.out_proj",),
    "attention_residual.norm": ("self_attn_layer_norm",),
    "feedforward.expand": ("fc1",),
    "feedforward.contract": ("fc2",),
    "feedforward_residual.norm": ("final_layer_norm",),
}


class OptLayout(Layout):
    """OPT (Zhang et al. 2022): a pre-norm decoder whose position table has two unused rows."""

    model_types = ("opt",)

    def read(self, folder: Folder) -> ImportPlan:
        longest = folder.settings.count("max_position_embeddings")
        decoder = folder.read_options(OPTIONS) | {"positions": {"kind": "learned", "table": longest}}
        recipes = map_tensors(decoder["num_layers"])
        return folder.plan_language_model(
            decoder,
            recipes,
            tied=True,
            longest=longest,
            embedding_dropout=decoder["dropout"],
            unused=("lm_head.weight",),
        )

    def fits(self, config: Task) -> bool:
        return isinstance(config, LanguageModelTask) and getattr(config.model.decoder, "activation", "") == "relu"

    def write(self, model: Bundle, ours: dict[str, Tensor]) -> ExportPlan:
        config, stack = check_decoder(model.config, "models in OPT's layout")
        untie_scaled(config, ours, "models in OPT's layout")
        rows = len(ours["decoder.positions.positions.table.weight"])
        values = {"model_type": "opt", **write_options(stack, OPTIONS), "max_position_embeddings": rows}
        values |= {"word_embed_proj_dim": stack.model_dim, "attention_dropout": 0.0}
        return ExportPlan("OPTForCausalLM", values, map_tensors(stack.num_layers), longest=rows)


def map_tensors(layers: int) -> Recipes:
    return {
        "embedding.weight": copy("model.decoder.embed_tokens.weight"),
        "decoder.positions.positions.table.weight": skip_rows("model.decoder.embed_positions.weight", 2),
        **linear("decoder.final_norm", "model.decoder.final_layer_norm"),
        **map_blocks("decoder", "model.decoder.layers.{}.", layers, PARTS),
    }


@pytest.fixture
def opt(tmp_path: Path) -> Path:
    """A folder in that layout, written by hand."""
    folder, torch_seed = tmp_path / "opt", torch.Generator().manual_seed(0)
    folder.mkdir()
    values = {"model_type": "opt", "architectures": ["OPTForCausalLM"], "vocab_size": 12, "num_hidden_layers": 2}
    values |= {"hidden_size": 8, "num_attention_heads": 2, "ffn_dim": 6, "max_position_embeddings": 48}
    values |= {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2, "dropout": 0.0}
    shapes = {"model.decoder.embed_tokens.weight": (12, 8), "model.decoder.embed_positions.weight": (50, 8)}
    shapes |= {f"model.decoder.final_layer_norm.{part}": (8,) for part in ("weight", "bias")}
    for n in range(2):
        for name in (name for names in PARTS.values() for name in names):
            rows = 6 if name == "fc1" else 8
            columns = () if "norm" in name else (6,) if name == "fc2" else (8,)
            shapes[f"model.decoder.layers.{n}.{name}.weight"] = (rows, *columns)
            shapes[f"model.decoder.layers.{n}.{name}.bias"] = (rows,)
    tensors = {name: torch.randn(shape, generator=torch_seed) for name, shape in shapes.items()}
    tensors["model.decoder.embed_positions.weight"][:2] = 0
    save_file(tensors, folder / "model.safetensors")
    (folder / "config.json").write_text(json.dumps(values), encoding="utf-8")
    words = ["<pad>", "<s>", "</s>", "<unk>", *"abcdefgh"]
    model = {"type": "WordLevel", "vocab": {word: id for id, word in enumerate(words)}, "unk_token": "<unk>"}
    spec = {"version": "1.0", "added_tokens": [], "pre_tokenizer": {"type": "WhitespaceSplit"}, "model": model}
    (folder / "tokenizer.json").write_text(json.dumps(spec), encoding="utf-8")
    return folder


def test_a_layout_from_outside_reads_and_writes(opt: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(huggingface, "LAYOUTS", [OptLayout(), *huggingface.LAYOUTS])
    model = load_published(opt)
    plan, tensors = plan_export(model)
    out = tmp_path / "out"
    out.mkdir()
    write_folder(model, plan, tensors, out)
    stored, again = load_file(opt / "model.safetensors"), load_file(out / "model.safetensors")
    assert stored.keys() == again.keys()
    assert all(torch.equal(tensor, again[name]) for name, tensor in stored.items())
    before, after = (json.loads((folder / "config.json").read_bytes()) for folder in (opt, out))
    assert before.items() <= after.items()
    back = load_published(out)
    assert back.config == model.config
    assert all(torch.equal(a, b) for a, b in zip(model.network.parameters(), back.network.parameters(), strict=True))
    assert "AutoModelForCausalLM" in write_card(model, plan, "opt", "mit", History())


def test_transformers_computes_the_same(opt: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("transformers", reason="the oracle; pip install transformers")
    monkeypatch.setattr(huggingface, "LAYOUTS", [OptLayout(), *huggingface.LAYOUTS])
    model = load_published(opt)
    plan, tensors = plan_export(model)
    write_folder(model, plan, tensors, tmp_path)
    assert check_folder(model, plan, tmp_path) < 1e-5


def test_without_it_the_folder_is_refused(opt: Path) -> None:
    with pytest.raises(
        DataError, match=r'config.json: model_type: "opt" is stored or .* it knows bart, bert, camembert'
    ):
        load_published(opt)


def test_a_model_that_no_layout_fits_is_refused(opt: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(huggingface, "LAYOUTS", [OptLayout()])
    model = load_published(opt)
    monkeypatch.setattr(huggingface, "LAYOUTS", [])
    with pytest.raises(RunError, match='task = "language-model": cannot be exported'):
        plan_export(model)


def test_every_model_type_has_one_layout_and_is_documented() -> None:
    listed = [name for layout in huggingface.LAYOUTS for name in layout.model_types]
    assert len(listed) == len(set(listed))
    page = (Path(__file__).parents[4] / "docs" / "importing.md").read_text(encoding="utf-8")
    assert set(listed) <= set(re.findall(r"`([\w-]+)`", page))
