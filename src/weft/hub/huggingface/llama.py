"""LLaMA (Touvron et al. 2023) and its like, Mistral (Jiang et al. 2023) and Qwen2: decoders alone.

Pre-norm with RMSNorm, rotary positions, grouped-query attention, a gated feed-forward network, hardly a bias.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from weft.hub.huggingface.plan import Plan, Recipe, Recipes, count_layers, join_biases, linear, take, zeros_for
from weft.hub.huggingface.settings import Settings
from weft.hub.huggingface.tasks import make_task

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
        "positions": _read_rotary(settings),
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
        "decoder": decoder,
    }
    recipes: Recipes = {
        "embedding.weight": take(f"{prefix}embed_tokens.weight"),
        "output.bias": zeros_for(f"{prefix}embed_tokens.weight"),
        "decoder.final_norm.weight": take(f"{prefix}norm.weight"),
    }
    if not tied:
        recipes["output.weight"] = take("lm_head.weight" if prefix else "embed_tokens.weight")
    for index in range(layers):
        recipes |= dict(_plan_layer(f"decoder.blocks.{index}.", f"{prefix}layers.{index}.", weights, biased))
    longest = settings.count("max_position_embeddings", 2048)
    unused = ("*.rotary_emb.inv_freq", "lm_head.weight")
    return Plan(make_task(settings, "language-model", longest, model=model, frame=frame), recipes, (), unused)


def _plan_layer(ours: str, theirs: str, weights: Mapping[str, Any], biased: bool) -> Iterator[tuple[str, Recipe]]:
    for our_name, their_names in _LAYERS.items():
        full = [theirs + name for name in their_names]
        yield from linear(ours + our_name, *full, bias=False)
        if biased:
            yield f"{ours}{our_name}.bias", join_biases(full, weights)
    yield f"{ours}attention_residual.norm.weight", take(f"{theirs}input_layernorm.weight")
    yield f"{ours}feedforward_residual.norm.weight", take(f"{theirs}post_attention_layernorm.weight")


def _read_rotary(settings: Settings) -> dict[str, Any]:
    """The base of the rotary angles, and by how much they are slower than that says."""
    table = settings.table("rope_parameters" if "rope_parameters" in settings else "rope_scaling")
    positions: dict[str, Any] = {"kind": "rotary"}
    positions["base"] = table.number("rope_theta", settings.number("rope_theta", 10_000.0))
    match table.word("rope_type", table.word("type", "default")):
        case "default":
            pass
        case "linear":
            positions["stretched"] = {"factor": table.number("factor", 1.0)}
        case "llama3":
            positions["stretched"] = {
                "factor": table.number("factor", 8.0),
                "length": table.count("original_max_position_embeddings"),
                "low": table.number("low_freq_factor", 1.0),
                "high": table.number("high_freq_factor", 4.0),
            }
        case kind:
            raise settings.refusal("rope_scaling", f'rotary positions of type "{kind[:40]}" are not supported')
    return positions
