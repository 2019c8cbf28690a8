"""GPT-NeoX (Black et al. 2022) with one sublayer after the other: a decoder alone, pre-norm, with rotary positions.

The published models of this name compute attention and the feed-forward network in parallel; those are refused.
"""

from collections.abc import Iterator

from torch import Tensor

from seqloom.config.positions import RotaryPositions
from seqloom.hub.bundle import Bundle
from seqloom.hub.huggingface.layout import (
    ExportPlan,
    Folder,
    ImportPlan,
    Layout,
    check_decoder,
    untie_scaled,
    write_options,
)
from seqloom.hub.huggingface.recipes import Recipe, Recipes, copy, group_by_kind, linear, zero_bias
from seqloom.hub.huggingface.settings import Option, Settings, name_activation, write_rotary
from seqloom.tasks import LanguageModelTask, Task

_OPTIONS = {
    "num_layers": Option("num_hidden_layers", Settings.count),
    "model_dim": Option("hidden_size", Settings.count),
    "num_heads": Option("num_attention_heads", Settings.count),
    "hidden_dim": Option("intermediate_size", Settings.count),
    "activation": Option("hidden_act", Settings.activation, "gelu", name_activation),
    "norm_epsilon": Option("layer_norm_eps", Settings.number, 1e-5),
    "dropout": Option("hidden_dropout", Settings.rate),
    "attention_dropout": Option("attention_dropout", Settings.rate),
}


class NeoxLayout(Layout):
    """Language models with rotary positions."""

    model_types = ("gpt_neox",)

    def read(self, folder: Folder) -> ImportPlan:
        """A language model."""
        settings = folder.settings
        settings.require_architecture("GPTNeoXForCausalLM", "GPTNeoXModel")
        if settings.flag("use_parallel_residual", True):
            raise settings.refusal("use_parallel_residual", "sublayers in parallel are not supported")
        table = settings.table("rope_parameters")
        if table.number("partial_rotary_factor", settings.number("rotary_pct", 0.25)) != 1.0:
            raise settings.refusal("rope_parameters", "rotary positions in only part of each head are not supported")
        tied, biased = settings.flag("tie_word_embeddings", False), settings.flag("attention_bias", True)
        decoder = folder.read_options(_OPTIONS) | {"positions": settings.rotary("rotary_emb_base")}
        layers, heads = decoder["num_layers"], decoder["num_heads"]
        return folder.plan_language_model(
            decoder,
            _map_tensors(folder.find_prefix("gpt_neox."), layers, heads, biased=biased, tied=tied),
            tied=tied,
            longest=settings.count("max_position_embeddings", 2048),
            embedding_dropout=decoder["dropout"],
            unused=("*.attention.bias", "*.attention.masked_bias", "*.rotary_emb.inv_freq", "embed_out.weight"),
        )

    def fits(self, config: Task) -> bool:
        """Language models with rotary positions."""
        rotary = isinstance(config, LanguageModelTask) and getattr(config.model.decoder, "positions", None)
        return isinstance(rotary, RotaryPositions)

    def write(self, model: Bundle, ours: dict[str, Tensor]) -> ExportPlan:
        """GPTNeoXForCausalLM."""
        who = "models in GPT-NeoX's layout"
        config, stack = check_decoder(model.config, who)
        assert isinstance(stack.positions, RotaryPositions)
        tied = untie_scaled(config.model, ours, stack.model_dim, who)
        values = {
            "model_type": "gpt_neox",
            "use_parallel_residual": False,
            **write_options(stack, _OPTIONS),
            "rope_parameters": {**write_rotary(stack.positions), "partial_rotary_factor": 1.0},
            "tie_word_embeddings": tied,
            "max_position_embeddings": model.config.max_length,
        }
        recipes = _map_tensors("gpt_neox.", stack.num_layers, stack.num_heads, biased=True, tied=tied)
        return ExportPlan("GPTNeoXForCausalLM", values, recipes, longest=model.config.max_length)


def _map_tensors(prefix: str, layers: int, heads: int, *, biased: bool, tied: bool) -> Recipes:
    """`biased`: whether attention has biases."""
    recipes: Recipes = {
        "embedding.weight": copy(f"{prefix}embed_in.weight"),
        **dict(linear("decoder.final_norm", f"{prefix}final_layer_norm")),
    }
    if not tied:
        recipes["output.weight"] = copy("embed_out.weight" if prefix else "embed_in.weight")
    for index in range(layers):
        recipes |= dict(_map_layer(f"decoder.blocks.{index}.", f"{prefix}layers.{index}.", heads, biased=biased))
    return recipes


def _map_layer(ours: str, theirs: str, heads: int, *, biased: bool) -> Iterator[tuple[str, Recipe]]:
    joined, dense = f"{theirs}attention.query_key_value", f"{theirs}attention.dense"
    yield f"{ours}attention.in_projection.weight", group_by_kind(f"{joined}.weight", heads)
    yield f"{ours}attention.out_projection.weight", copy(f"{dense}.weight")
    bias = group_by_kind(f"{joined}.bias", heads) if biased else zero_bias(f"{joined}.weight")
    yield f"{ours}attention.in_projection.bias", bias
    yield f"{ours}attention.out_projection.bias", copy(f"{dense}.bias") if biased else zero_bias(f"{dense}.weight")
    yield from linear(f"{ours}feedforward.expand", f"{theirs}mlp.dense_h_to_4h")
    yield from linear(f"{ours}feedforward.contract", f"{theirs}mlp.dense_4h_to_h")
    yield from linear(f"{ours}attention_residual.norm", f"{theirs}input_layernorm")
    yield from linear(f"{ours}feedforward_residual.norm", f"{theirs}post_attention_layernorm")
