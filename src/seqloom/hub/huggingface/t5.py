"""T5 (Raffel et al. 2020), its version 1.1 and mT5: an encoder and a decoder, pre-norm with RMSNorm, no biases.

T5 does not divide scores by √K, so our queries are √K times as long. Where its output layer is the embedding table, it
divides states by √D first; here the last norm does that. All layers of a stack share one table of relative positions.
"""

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from seqloom.config.positions import Relative
from seqloom.hub.bundle import Bundle
from seqloom.hub.fidelity import refusal, require_transformer, resolve_stack
from seqloom.hub.huggingface.layout import ExportPlan, Folder, ImportPlan, Layout, write_options
from seqloom.hub.huggingface.recipes import Recipes, copy, linear, map_blocks, scale, scale_queries
from seqloom.hub.huggingface.settings import Option, Settings, name_activation
from seqloom.tasks import Task, TranslationTask

_CLASSES = {"t5": "T5ForConditionalGeneration", "mt5": "MT5ForConditionalGeneration"}
_GATED = {"gated-gelu": "gelu-tanh-gated", "gated-relu": "relu-gated", "gated-silu": "silu-gated"}
"""T5 1.1 was trained with the tanh approximation of GELU, which it calls gelu."""
_SHARED = ("model_dim", "num_heads", "head_dim", "hidden_dim", "activation", "norm_epsilon", "positions")
"""Options that its encoder and decoder have in common."""
_ATTENTION = {
    "attention.in_projection": ("0.SelfAttention.q", "0.SelfAttention.k", "0.SelfAttention.v"),
    "attention.out_projection": ("0.SelfAttention.o",),
    "attention_residual.norm": ("0.layer_norm",),
}
_CROSS = {
    "cross.query_projection": ("1.EncDecAttention.q",),
    "cross.memory_projection": ("1.EncDecAttention.k", "1.EncDecAttention.v"),
    "cross.out_projection": ("1.EncDecAttention.o",),
    "cross_residual.norm": ("1.layer_norm",),
}


class T5Layout(Layout):
    """Translation models with relative positions."""

    model_types = tuple(_CLASSES)

    def read(self, folder: Folder) -> ImportPlan:
        """A translation model: text to text."""
        settings, kind = folder.settings, folder.settings.word("model_type")
        settings.require_architecture(_CLASSES[kind])
        tied = "lm_head.weight" not in folder.weights
        stack = folder.read_options(_OPTIONS) | {"bias": False, "norm": "rms"}
        stack["attention_dropout"] = stack["dropout"]
        stack["positions"] = {
            "kind": "relative",
            "buckets": settings.count("relative_attention_num_buckets", 32),
            "distance": settings.count("relative_attention_max_distance", 128),
        }
        dim, heads, head_dim = stack["model_dim"], stack["num_heads"], stack["head_dim"]
        layers = {"encoder": stack["num_layers"]}
        layers["decoder"] = folder.count_layers("num_decoder_layers", layers["encoder"])
        model = {
            "scale_embeddings": False,
            "embedding_dropout": stack["dropout"],
            "vocab_size": settings.count("vocab_size"),
            "tie_embeddings": "all" if tied else "none",
            "output_bias": False,
            **{part: {**stack, "num_layers": count} for part, count in layers.items()},
        }
        scaled = _is_scaled(settings, kind)
        gated = stack["activation"].endswith("-gated")
        return folder.plan(
            "translation",
            model,
            _map_tensors(layers, heads, head_dim, gated=gated, tied=tied, factor=dim**-0.5 if scaled else 1.0),
            longest=settings.count("n_positions", 512),
            unused=("*.embed_tokens.weight", "*.EncDecAttention.relative_attention_bias.weight"),
            source_frame=folder.find_source_frame({"before": [], "after": ["eos"]}),
            target_frame={"before": folder.find_start("pad"), "after": ["eos"]},
            end_tokens=folder.find_end_tokens(),
        )

    def fits(self, config: Task) -> bool:
        """Translation models with relative positions."""
        positions = isinstance(config, TranslationTask) and getattr(config.model.encoder, "positions", None)
        return isinstance(positions, Relative)

    def write(self, model: Bundle, ours: dict[str, Tensor]) -> ExportPlan:
        """T5 1.1, whose output layer has its own table."""
        config, who = model.config, "models in T5's layout"
        assert isinstance(config, TranslationTask)
        wanted = {"norm": "rms", "norm_position": "pre", "input_norm": False, "bias": False, "window": None}
        encoder, decoder = (require_transformer(config, part, who, **wanted) for part in ("encoder", "decoder"))
        for part, stack in (("encoder", encoder), ("decoder", decoder)):
            if stack.num_kv_heads not in (None, stack.num_heads):
                raise refusal(f"model.{part}.num_kv_heads", stack.num_kv_heads, f"{who} have as many as num_heads")
            for key in _SHARED:
                value = getattr(stack, key)
                if value != getattr(encoder, key):
                    reason = f"{who} have the same as model.encoder.{key}"
                    raise refusal(f"model.{part}.{key}", getattr(value, "kind", value), reason)
        assert isinstance(encoder.positions, Relative)
        if config.model.output_bias:
            raise refusal("model.output_bias", True, f"{who} have no bias in the output layer; train without it")
        source = ours["source_embedding.weight"]
        target = ours.setdefault("target_embedding.weight", source)
        if not torch.equal(source, target):
            raise refusal("model.tie_embeddings", config.model.tie_embeddings, f"{who} have one table for both sides")
        ours.setdefault("output.weight", target)
        if config.model.scale_embeddings:
            for part in ("source", "target"):
                ours[f"{part}_embedding.weight"] = source * encoder.model_dim**0.5
        head_dim = resolve_stack(encoder)["head_dim"]
        layers = {"encoder": encoder.num_layers, "decoder": decoder.num_layers}
        gated = encoder.activation.endswith("-gated")
        recipes = _map_tensors(layers, encoder.num_heads, head_dim, gated=gated, tied=False, factor=1.0)
        values = {
            "model_type": "t5",
            **write_options(encoder, _OPTIONS),
            "num_decoder_layers": decoder.num_layers,
            "relative_attention_num_buckets": encoder.positions.buckets,
            "relative_attention_max_distance": encoder.positions.distance,
            "n_positions": model.config.max_length,
            "tie_word_embeddings": False,
            "scale_decoder_outputs": False,
            "is_encoder_decoder": True,
        }
        # Their cache counts the layers of the encoder, and fails where the decoder has more.
        generation = {"use_cache": False} if decoder.num_layers > encoder.num_layers else {}
        return ExportPlan(_CLASSES["t5"], values, recipes, longest=model.config.max_length, generation=generation)


def _is_scaled(settings: Settings, kind: str) -> bool:
    """Whether states are divided by √d_model before the output layer: in T5, but neither in T5 1.1 nor in mT5.

    Until version 4 of transformers, `tie_word_embeddings` said so; now it is true in every file.
    """
    tied = settings.flag("tie_word_embeddings", kind == "t5")
    old = str(settings.get("transformers_version")).startswith(("2.", "3.", "4."))
    if kind == "mt5" and tied and old and "scale_decoder_outputs" not in settings:
        reason = (
            "transformers 4 divides the decoder's states of such an mT5 by √d_model, transformers 5 does not; "
            'add "scale_decoder_outputs": true or false to the file'
        )
        raise settings.refusal("tie_word_embeddings", reason)
    return settings.flag("scale_decoder_outputs", tied and kind == "t5")


def _read_activation(settings: Settings, key: str, default: str) -> str:
    name = settings.word(key, default)
    if not name.startswith("gated-"):
        return settings.activation(key, default)
    if name not in _GATED:
        raise settings.refusal(key, f'"{name[:40]}" is not supported')
    return _GATED[name]


def _name_activation(activation: str) -> str:
    if not activation.endswith("-gated"):
        return name_activation(activation)
    names = {ours: theirs for theirs, ours in _GATED.items()}
    if activation not in names:
        raise refusal("model.encoder.activation", activation, f"models in T5's layout have {', '.join(names)}")
    return names[activation]


_OPTIONS = {
    "num_layers": Option("num_layers", Settings.count),
    "model_dim": Option("d_model", Settings.count),
    "num_heads": Option("num_heads", Settings.count),
    "head_dim": Option("d_kv", Settings.count),
    "hidden_dim": Option("d_ff", Settings.count),
    "activation": Option("feed_forward_proj", _read_activation, "relu", _name_activation),
    "norm_epsilon": Option("layer_norm_epsilon", Settings.number, 1e-6),
    "dropout": Option("dropout_rate", Settings.rate),
}


def _map_tensors(
    layers: Mapping[str, int], heads: int, head_dim: int, *, gated: bool, tied: bool, factor: float
) -> Recipes:
    """`factor` multiplies states before the output layer."""
    recipes: Recipes = {"source_embedding.weight": copy("shared.weight")}
    if not tied:
        recipes |= {"target_embedding.weight": copy("shared.weight"), "output.weight": copy("lm_head.weight")}
    for part, count in layers.items():
        parts = _ATTENTION | (_CROSS if part == "decoder" else {}) | _list_feedforward(part, gated=gated)
        recipes |= map_blocks(part, f"{part}.block.{{}}.layer.", count, parts, bias=False)
        recipes |= linear(f"{part}.final_norm", f"{part}.final_layer_norm", bias=False)
        relative = copy(f"{part}.block.0.layer.0.SelfAttention.relative_attention_bias.weight")
        recipes[f"{part}.blocks.0.attention.relative.table.weight"] = relative
        for block in (f"{part}.blocks.{index}" for index in range(count)):
            name = f"{block}.attention.in_projection.weight"
            recipes[name] = scale_queries(recipes[name], heads * head_dim, head_dim**0.5)
            if part == "decoder":
                name = f"{block}.cross.query_projection.weight"
                recipes[name] = scale(recipes[name], head_dim**0.5)
    recipes["decoder.final_norm.weight"] = scale(recipes["decoder.final_norm.weight"], factor)
    return recipes


def _list_feedforward(part: str, *, gated: bool) -> dict[str, Sequence[str]]:
    layer = "2" if part == "decoder" else "1"
    names = ("wi_0", "wi_1") if gated else ("wi",)
    return {
        "feedforward.expand": tuple(f"{layer}.DenseReluDense.{name}" for name in names),
        "feedforward.contract": (f"{layer}.DenseReluDense.wo",),
        "feedforward_residual.norm": (f"{layer}.layer_norm",),
    }
