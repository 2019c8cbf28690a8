"""LLaMA (Touvron et al. 2023), Mistral (Jiang et al. 2023) and Qwen2: decoders alone.

Pre-norm with RMSNorm, rotary positions, grouped-query attention, a gated feed-forward network, few or no biases.
"""

from collections.abc import Container, Mapping
from typing import Any

from torch import Tensor

from seqloom.config.positions import RotaryPositions
from seqloom.config.stacks import TransformerDecoderConfig
from seqloom.hub.bundle import Bundle
from seqloom.hub.fidelity import refusal, require, require_usual, resolve_stack
from seqloom.hub.huggingface.layout import ExportPlan, Folder, ImportPlan, Layout, untie_scaled, write_options
from seqloom.hub.huggingface.recipes import Recipes, concatenate, copy, linear, zero_bias
from seqloom.hub.huggingface.settings import Option, Settings, name_activation, write_rotary
from seqloom.tasks import LanguageModelTask, Task

_CLASSES = {"llama": "Llama", "mistral": "Mistral", "qwen2": "Qwen2"}
_LAYERS = {
    "attention.in_projection": ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"),
    "attention.out_projection": ("self_attn.o_proj",),
    "feedforward.expand": ("mlp.gate_proj", "mlp.up_proj"),
    "feedforward.contract": ("mlp.down_proj",),
}


class LlamaLayout(Layout):
    """Language models with RMSNorm and rotary positions."""

    model_types = tuple(_CLASSES)

    def read(self, folder: Folder) -> ImportPlan:
        """A language model."""
        settings, kind = folder.settings, folder.settings.word("model_type")
        settings.require_architecture(f"{_CLASSES[kind]}ForCausalLM", f"{_CLASSES[kind]}Model")
        prefix = folder.find_prefix("model.")
        tied = settings.flag("tie_word_embeddings", False)
        biased = any(name.startswith(f"{prefix}layers.") and name.endswith("_proj.bias") for name in folder.weights)
        decoder = folder.read_options(_OPTIONS, num_kv_heads=settings.count("num_attention_heads"))
        decoder |= {"bias": biased, "norm": "rms", "positions": settings.rotary(), "dropout": 0.0}
        if "head_dim" in settings:
            decoder["head_dim"] = settings.count("head_dim")
        if "sliding_window" in settings and settings.flag("use_sliding_window", kind == "mistral"):
            if kind != "mistral":
                raise settings.refusal("use_sliding_window", "a window in some of the layers is not supported")
            decoder["window"] = settings.count("sliding_window")
        return folder.plan_language_model(
            decoder,
            _map_tensors(prefix, decoder, folder.weights if biased else None, tied=tied),
            tied=tied,
            longest=settings.count("max_position_embeddings", 2048),
            embedding_dropout=0.0,
            unused=("*.rotary_emb.inv_freq", "lm_head.weight"),
        )

    def fits(self, config: Task) -> bool:
        """Transformers for language with RMSNorm and rotary positions."""
        stack = config.model.decoder if isinstance(config, LanguageModelTask) else None
        rms = isinstance(stack, TransformerDecoderConfig) and stack.norm == "rms"
        return rms and isinstance(getattr(stack, "positions", None), RotaryPositions)

    def write(self, model: Bundle, ours: dict[str, Tensor]) -> ExportPlan:
        """LlamaForCausalLM, or MistralForCausalLM where attention has a window."""
        config = model.config
        assert isinstance(config, LanguageModelTask)
        stack, who, longest = config.model.decoder, "models in LLaMA's layout", config.max_length
        assert isinstance(stack, TransformerDecoderConfig)
        assert isinstance(stack.positions, RotaryPositions)
        require_usual(config, "decoder", who)
        require(stack, "model.decoder", who, norm="rms", norm_position="pre", input_norm=False, normalise_qk=False)
        if not stack.activation.endswith("-gated"):
            raise refusal("model.decoder.activation", stack.activation, f"{who} have a gate, such as silu-gated")
        if stack.window is not None and stack.bias:
            raise refusal("model.decoder.bias", True, "with a window this is Mistral's layout, which has none")
        tied = untie_scaled(config.model, ours, who)
        names = [f"{name}.bias" for names in _LAYERS.values() for name in names]
        biases = {f"model.layers.{n}.{name}" for n in range(stack.num_layers) for name in names}
        recipes = _map_tensors("model.", resolve_stack(stack), biases if stack.bias else None, tied=tied)
        kind = "llama" if stack.window is None else "mistral"
        values: dict[str, Any] = {
            "model_type": kind,
            **write_options(stack, _OPTIONS | {"head_dim": Option("head_dim", Settings.count)}),
            "rope_parameters": write_rotary(stack.positions),
            "tie_word_embeddings": tied,
            "max_position_embeddings": longest,
        }
        if stack.window is None:
            values |= {"attention_bias": stack.bias, "mlp_bias": stack.bias}
        else:
            values["sliding_window"] = stack.window
        return ExportPlan(f"{_CLASSES[kind]}ForCausalLM", values, recipes, longest=longest)


def _read_gated(settings: Settings, key: str, default: str) -> str:
    name = settings.activation(key, default)
    if name not in ("relu", "gelu", "gelu-tanh", "silu"):
        raise settings.refusal(key, f"Seqloom has no gated {name}")
    return f"{name}-gated"


_OPTIONS = {
    "num_layers": Option("num_hidden_layers", Settings.count),
    "model_dim": Option("hidden_size", Settings.count),
    "num_heads": Option("num_attention_heads", Settings.count),
    "num_kv_heads": Option("num_key_value_heads", Settings.count),
    "hidden_dim": Option("intermediate_size", Settings.count),
    "activation": Option("hidden_act", _read_gated, "silu", lambda name: name_activation(name.removesuffix("-gated"))),
    "norm_epsilon": Option("rms_norm_eps", Settings.number, 1e-6),
    "attention_dropout": Option("attention_dropout", Settings.rate),
}


def _map_tensors(prefix: str, stack: Mapping[str, Any], biases: Container[str] | None, *, tied: bool) -> Recipes:
    """`biases` are the names of the biases that they have; None where our layers have none."""
    heads, kv_heads = stack["num_heads"], stack["num_kv_heads"]
    width = stack.get("head_dim") or stack["model_dim"] // heads
    recipes: Recipes = {
        "embedding.weight": copy(f"{prefix}embed_tokens.weight"),
        "decoder.final_norm.weight": copy(f"{prefix}norm.weight"),
    }
    if not tied:
        recipes["output.weight"] = copy("lm_head.weight" if prefix else "embed_tokens.weight")
    for index in range(stack["num_layers"]):
        block, layer = f"decoder.blocks.{index}", f"{prefix}layers.{index}"
        for ours, theirs in _LAYERS.items():
            sizes = [heads * width, kv_heads * width, kv_heads * width] if len(theirs) == 3 else None
            names = [f"{layer}.{name}" for name in theirs]
            recipes |= linear(f"{block}.{ours}", *names, bias=False, sizes=sizes)
            if biases is not None:
                parts = [copy(f"{n}.bias") if f"{n}.bias" in biases else zero_bias(f"{n}.weight") for n in names]
                recipes[f"{block}.{ours}.bias"] = concatenate(parts, sizes)
        recipes |= linear(f"{block}.attention_residual.norm", f"{layer}.input_layernorm", bias=False)
        recipes |= linear(f"{block}.feedforward_residual.norm", f"{layer}.post_attention_layernorm", bias=False)
    return recipes
