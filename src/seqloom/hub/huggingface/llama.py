"""LLaMA (Touvron et al. 2023) and its like, Mistral (Jiang et al. 2023) and Qwen2: decoders alone.

Pre-norm with RMSNorm, rotary positions, grouped-query attention, a gated feed-forward network, hardly a bias.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from torch import Tensor

from seqloom.config.positions import RotaryPositions
from seqloom.config.stacks import TransformerDecoderConfig
from seqloom.hub.huggingface.layout import Layout, find_row_length, part_tables, refuse, require
from seqloom.hub.huggingface.plan import Plan, Recipe, Recipes, count_layers, join_biases, linear, take
from seqloom.hub.huggingface.rotary import read_rotary, write_rotary
from seqloom.hub.huggingface.settings import Settings, name_bend
from seqloom.hub.huggingface.tasks import make_task
from seqloom.hub.imported import Imported
from seqloom.tasks import LanguageModelTask

_QKV = ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj")
_LAYERS = {
    "attention.in_projection": _QKV,
    "attention.out_projection": ("self_attn.o_proj",),
    "feedforward.expand": ("mlp.gate_proj", "mlp.up_proj"),
    "feedforward.contract": ("mlp.down_proj",),
}


def plan_llama(settings: Settings, weights: Mapping[str, Any], frame: dict[str, Any]) -> Plan:
    """A language model."""
    kind = settings.word("model_type")
    name = {"llama": "Llama", "mistral": "Mistral", "qwen2": "Qwen2"}[kind]
    settings.must_be_one_of_architectures(f"{name}ForCausalLM", f"{name}Model")
    prefix = "model." if any(name.startswith("model.") for name in weights) else ""
    layers = count_layers(settings.count("num_hidden_layers"), weights, str(settings.path))
    dim, heads = settings.count("hidden_size"), settings.count("num_attention_heads")
    tied = settings.flag("tie_word_embeddings", False)
    biased = any(name.startswith(f"{prefix}layers.") and name.endswith("_proj.bias") for name in weights)
    bend = settings.bend("hidden_act", "silu")
    if bend not in ("relu", "gelu", "gelu-tanh", "silu"):
        raise settings.refusal("hidden_act", f"there is no gated {bend} here")
    decoder: dict[str, Any] = {
        "num_layers": layers,
        "model_dim": dim,
        "num_heads": heads,
        "num_kv_heads": settings.count("num_key_value_heads", heads),
        "hidden_dim": settings.count("intermediate_size"),
        "activation": f"{bend}-gated",
        "bias": biased,
        "norm": "rms",
        "norm_epsilon": settings.number("rms_norm_eps", 1e-6),
        "positions": read_rotary(settings),
        "dropout": 0.0,
        "attention_dropout": settings.rate("attention_dropout"),
    }
    if "head_dim" in settings:
        decoder["head_dim"] = settings.count("head_dim")
    if "sliding_window" in settings and settings.flag("use_sliding_window", kind == "mistral"):
        if kind != "mistral":
            raise settings.refusal("use_sliding_window", "a window in some of the layers is not supported")
        decoder["window"] = settings.count("sliding_window")
    model = {
        "scale_embeddings": False,
        "embedding_dropout": 0.0,
        "vocab_size": settings.count("vocab_size"),
        "tie_output": tied,
        "output_bias": False,
        "decoder": decoder,
    }
    kv_heads, head_dim = decoder["num_kv_heads"], decoder.get("head_dim", dim // heads)
    sizes = [heads * head_dim, kv_heads * head_dim, kv_heads * head_dim]
    recipes = _map_tensors(prefix, layers, sizes, decoder["hidden_dim"], dim, weights if biased else None, tied=tied)
    longest = settings.count("max_position_embeddings", 2048)
    unused = ("*.rotary_emb.inv_freq", "lm_head.weight")
    return Plan(make_task(settings, "language-model", longest, model=model, frame=frame), recipes, (), unused)


def lay_out_llama(model: Imported, ours: dict[str, Tensor]) -> Layout:
    """LLaMA, or Mistral where attention has a window."""
    config = model.config
    assert isinstance(config, LanguageModelTask)
    stack, who = config.model.decoder, "LLaMA and its like"
    assert isinstance(stack, TransformerDecoderConfig)
    assert isinstance(stack.positions, RotaryPositions)
    require(stack, "model.decoder", who, norm="rms", norm_position="pre", input_norm=False, normalise_qk=False)
    if not stack.activation.endswith("-gated"):
        raise refuse("model.decoder.activation", stack.activation, f"{who} have a gate, such as silu-gated")
    if stack.window is not None and stack.bias:
        raise refuse("model.decoder.bias", True, "with a window this is Mistral's layout, which has none")
    tied = part_tables(config.model, ours, stack.model_dim, who)
    heads, kv_heads = stack.num_heads, stack.num_kv_heads or stack.num_heads
    head_dim, hidden = stack.head_dim or stack.model_dim // heads, stack.hidden_dim or 4 * stack.model_dim
    sizes = [heads * head_dim, kv_heads * head_dim, kv_heads * head_dim]
    every = {f"{name}.bias" for names in _LAYERS.values() for name in names}
    biased = {f"model.layers.{n}.{name}": None for n in range(stack.num_layers) for name in every}
    recipes = _map_tensors(
        "model.", stack.num_layers, sizes, hidden, stack.model_dim, biased if stack.bias else None, tied=tied
    )
    values: dict[str, Any] = {
        "model_type": "llama" if stack.window is None else "mistral",
        "hidden_size": stack.model_dim,
        "intermediate_size": hidden,
        "num_hidden_layers": stack.num_layers,
        "num_attention_heads": heads,
        "num_key_value_heads": kv_heads,
        "head_dim": head_dim,
        "hidden_act": name_bend(stack.activation.removesuffix("-gated")),
        "rms_norm_eps": stack.norm_epsilon or 1e-6,
        "rope_parameters": write_rotary(stack.positions),
        "attention_dropout": stack.attention_dropout,
        "tie_word_embeddings": tied,
        "max_position_embeddings": find_row_length(config),
    }
    if stack.window is None:
        values |= {"attention_bias": stack.bias, "mlp_bias": stack.bias}
    else:
        values["sliding_window"] = stack.window
    name = "LlamaForCausalLM" if stack.window is None else "MistralForCausalLM"
    return Layout(name, values, recipes, longest=find_row_length(config))


def _map_tensors(
    prefix: str,
    layers: int,
    sizes: Sequence[int],
    hidden: int,
    dim: int,
    biased: Mapping[str, Any] | None,
    *,
    tied: bool,
) -> Recipes:
    """`sizes`: of queries, keys and values; `biased`: the biases that are there, None where our layers have none."""
    recipes: Recipes = {
        "embedding.weight": take(f"{prefix}embed_tokens.weight"),
        "decoder.final_norm.weight": take(f"{prefix}norm.weight"),
    }
    if not tied:
        recipes["output.weight"] = take("lm_head.weight" if prefix else "embed_tokens.weight")
    all_sizes = {"attention.in_projection": sizes, "feedforward.expand": [hidden, hidden]}
    for index in range(layers):
        ours, theirs = f"decoder.blocks.{index}.", f"{prefix}layers.{index}."
        recipes |= dict(_map_layer(ours, theirs, all_sizes, dim, biased))
    return recipes


def _map_layer(
    ours: str, theirs: str, sizes: Mapping[str, Sequence[int]], dim: int, biased: Mapping[str, Any] | None
) -> Iterator[tuple[str, Recipe]]:
    for our_name, their_names in _LAYERS.items():
        full, own = [theirs + name for name in their_names], sizes.get(our_name, [dim])
        yield from linear(ours + our_name, *full, bias=False, sizes=own)
        if biased is not None:
            yield f"{ours}{our_name}.bias", join_biases(full, biased, own)
    yield f"{ours}attention_residual.norm.weight", take(f"{theirs}input_layernorm.weight")
    yield f"{ours}feedforward_residual.norm.weight", take(f"{theirs}post_attention_layernorm.weight")
