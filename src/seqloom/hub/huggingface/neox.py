"""GPT-NeoX (Black et al. 2022), one sublayer after the other: a decoder alone, pre-norm, with rotary positions.

The published models of this name compute attention and the feed-forward network side by side; those are refused.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from torch import Tensor

from seqloom.config.positions import RotaryPositions
from seqloom.hub.huggingface.layout import Layout, check_decoder, find_row_length, part_tables
from seqloom.hub.huggingface.plan import Plan, Recipe, Recipes, count_layers, linear, part_heads, take, zeros_for
from seqloom.hub.huggingface.rotary import read_rotary, write_rotary
from seqloom.hub.huggingface.settings import Settings, name_bend
from seqloom.hub.huggingface.tasks import make_task
from seqloom.hub.imported import Imported


def plan_neox(settings: Settings, weights: Mapping[str, Any], frame: dict[str, Any]) -> Plan:
    """A language model."""
    settings.must_be_one_of_architectures("GPTNeoXForCausalLM", "GPTNeoXModel")
    if settings.flag("use_parallel_residual", True):
        raise settings.refusal("use_parallel_residual", "sublayers side by side are not supported")
    table = settings.table("rope_parameters")
    if table.number("partial_rotary_factor", settings.number("rotary_pct", 0.25)) != 1.0:
        raise settings.refusal("rope_parameters", "rotary positions in a part of each head are not supported")
    prefix = "gpt_neox." if any(name.startswith("gpt_neox.") for name in weights) else ""
    layers = count_layers(settings.count("num_hidden_layers"), weights, str(settings.path))
    heads, tied = settings.count("num_attention_heads"), settings.flag("tie_word_embeddings", False)
    model = {
        "scale_embeddings": False,
        "embedding_dropout": settings.rate("hidden_dropout"),
        "vocab_size": settings.count("vocab_size"),
        "tie_output": tied,
        "output_bias": False,
        "decoder": {
            "num_layers": layers,
            "model_dim": settings.count("hidden_size"),
            "num_heads": heads,
            "hidden_dim": settings.count("intermediate_size"),
            "activation": settings.bend("hidden_act", "gelu"),
            "norm_epsilon": settings.number("layer_norm_eps", 1e-5),
            "positions": read_rotary(settings, "rotary_emb_base"),
            "dropout": settings.rate("hidden_dropout"),
            "attention_dropout": settings.rate("attention_dropout"),
        },
    }
    recipes = _map_tensors(prefix, layers, heads, biased=settings.flag("attention_bias", True), tied=tied)
    longest = settings.count("max_position_embeddings", 2048)
    unused = ("*.attention.bias", "*.attention.masked_bias", "*.rotary_emb.inv_freq", "embed_out.weight")
    return Plan(make_task(settings, "language-model", longest, model=model, frame=frame), recipes, (), unused)


def lay_out_neox(model: Imported, ours: dict[str, Tensor]) -> Layout:
    """A decoder with rotary positions."""
    who = "models in GPT-NeoX's layout"
    config, stack = check_decoder(model.config, who)
    assert isinstance(stack.positions, RotaryPositions)
    tied, longest = part_tables(config.model, ours, stack.model_dim, who), find_row_length(config)
    values = {
        "model_type": "gpt_neox",
        "use_parallel_residual": False,
        "hidden_size": stack.model_dim,
        "num_hidden_layers": stack.num_layers,
        "num_attention_heads": stack.num_heads,
        "intermediate_size": stack.hidden_dim or 4 * stack.model_dim,
        "hidden_act": name_bend(stack.activation),
        "layer_norm_eps": stack.norm_epsilon or 1e-5,
        "rope_parameters": {**write_rotary(stack.positions), "partial_rotary_factor": 1.0},
        "hidden_dropout": stack.dropout,
        "attention_dropout": stack.attention_dropout,
        "tie_word_embeddings": tied,
        "max_position_embeddings": longest,
    }
    recipes = _map_tensors("gpt_neox.", stack.num_layers, stack.num_heads, biased=True, tied=tied)
    return Layout("GPTNeoXForCausalLM", values, recipes, longest=longest)


def _map_tensors(prefix: str, layers: int, heads: int, *, biased: bool, tied: bool) -> Recipes:
    """`biased`: whether the layers of attention have biases."""
    recipes: Recipes = {
        "embedding.weight": take(f"{prefix}embed_in.weight"),
        **dict(linear("decoder.final_norm", f"{prefix}final_layer_norm")),
    }
    if not tied:
        recipes["output.weight"] = take("embed_out.weight" if prefix else "embed_in.weight")
    for index in range(layers):
        recipes |= dict(_map_layer(f"decoder.blocks.{index}.", f"{prefix}layers.{index}.", heads, biased=biased))
    return recipes


def _map_layer(ours: str, theirs: str, heads: int, *, biased: bool) -> Iterator[tuple[str, Recipe]]:
    joined, dense = f"{theirs}attention.query_key_value", f"{theirs}attention.dense"
    yield f"{ours}attention.in_projection.weight", part_heads(f"{joined}.weight", heads)
    yield f"{ours}attention.out_projection.weight", take(f"{dense}.weight")
    bias = part_heads(f"{joined}.bias", heads) if biased else zeros_for(f"{joined}.weight")
    yield f"{ours}attention.in_projection.bias", bias
    yield f"{ours}attention.out_projection.bias", take(f"{dense}.bias") if biased else zeros_for(f"{dense}.weight")
    yield from linear(f"{ours}feedforward.expand", f"{theirs}mlp.dense_h_to_4h")
    yield from linear(f"{ours}feedforward.contract", f"{theirs}mlp.dense_4h_to_h")
    yield from linear(f"{ours}attention_residual.norm", f"{theirs}input_layernorm")
    yield from linear(f"{ours}feedforward_residual.norm", f"{theirs}post_attention_layernorm")
