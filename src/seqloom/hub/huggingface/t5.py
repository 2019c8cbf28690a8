"""T5 (Raffel et al. 2020), its version 1.1 and mT5: an encoder and a decoder, pre-norm with RMSNorm, no biases.

Scores are not divided by √K, so the queries are made longer by it. Where the output is the table of embeddings, states
are divided by √D before it; here the last norm does that. One table of relative positions serves all layers of a stack.
"""

from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch import Tensor

from seqloom.config.positions import Relative
from seqloom.config.stacks import TransformerEncoderConfig
from seqloom.hub.huggingface.frames import name_start
from seqloom.hub.huggingface.layout import Layout, Stack, find_row_length, refuse, require
from seqloom.hub.huggingface.plan import (
    Plan,
    Recipe,
    Recipes,
    count_layers,
    join,
    linear,
    scaled,
    stretch_queries,
    take,
)
from seqloom.hub.huggingface.settings import Settings, name_bend
from seqloom.hub.huggingface.tasks import make_task
from seqloom.hub.imported import Imported
from seqloom.tasks import TranslationTask
from seqloom.text import Tokenizer


def plan_t5(settings: Settings, weights: Mapping[str, Any], tokenizer: Tokenizer) -> Plan:
    """A translation model: text to text."""
    kind = {"t5": "T5", "mt5": "MT5"}[settings.word("model_type")]
    settings.must_be_one_of_architectures(f"{kind}ForConditionalGeneration")
    said_tied = settings.flag("tie_word_embeddings", True)
    tied = "lm_head.weight" not in weights
    dim, heads, head_dim = settings.count("d_model"), settings.count("num_heads"), settings.count("d_kv")
    activation, gated = _read_activation(settings)
    stack = {
        "model_dim": dim,
        "num_heads": heads,
        "head_dim": head_dim,
        "hidden_dim": settings.count("d_ff"),
        "activation": activation,
        "bias": False,
        "norm": "rms",
        "norm_epsilon": settings.number("layer_norm_epsilon", 1e-6),
        "positions": {
            "kind": "relative",
            "buckets": settings.count("relative_attention_num_buckets", 32),
            "distance": settings.count("relative_attention_max_distance", 128),
        },
        "dropout": settings.rate("dropout_rate"),
        "attention_dropout": settings.rate("dropout_rate"),
    }
    layers = {"encoder": settings.count("num_layers")}
    layers["decoder"] = settings.count("num_decoder_layers", layers["encoder"])
    model = {
        "scale_embeddings": False,
        "embedding_dropout": settings.rate("dropout_rate"),
        "vocab_size": settings.count("vocab_size"),
        "tie_embeddings": "all" if tied else "none",
        "output_bias": False,
        **{part: {**stack, "num_layers": count_layers(n, weights, str(settings.path))} for part, n in layers.items()},
    }
    shrink = dim**-0.5 if settings.flag("scale_decoder_outputs", said_tied) else 1.0
    recipes = _map_tensors(layers, heads, head_dim, gated=gated, tied=tied, shrink=shrink)
    frames: dict[str, Any] = {
        "source_frame": {"after": ["eos"]},
        "target_frame": {"before": name_start(settings, tokenizer, ["pad"]), "after": ["eos"]},
    }
    longest = settings.count("n_positions", 512)
    unused = ("*.embed_tokens.weight", "*.EncDecAttention.relative_attention_bias.weight")
    return Plan(make_task(settings, "translation", longest, model=model, **frames), recipes, (), unused)


def lay_out_t5(model: Imported, ours: dict[str, Tensor]) -> Layout:
    """T5 1.1, whose output layer is a table of its own."""
    config, who = model.config, "models in T5's layout"
    assert isinstance(config, TranslationTask)
    encoder, decoder = config.model.encoder, config.model.decoder
    same = ("model_dim", "num_heads", "head_dim", "hidden_dim", "activation", "norm_epsilon", "positions")
    for part, stack in (("encoder", encoder), ("decoder", decoder)):
        require(stack, f"model.{part}", who, family="transformer", direction="both")
        assert isinstance(stack, Stack)
        require(stack, f"model.{part}", who, norm="rms", norm_position="pre", input_norm=False, bias=False)
        require(stack, f"model.{part}", who, normalise_qk=False, window=None)
        if stack.num_kv_heads not in (None, stack.num_heads):
            raise refuse(f"model.{part}.num_kv_heads", stack.num_kv_heads, f"{who} have num_heads of them")
        for key in same:
            if getattr(stack, key) != getattr(encoder, key):
                said = getattr(stack, key)
                raise refuse(f"model.{part}.{key}", getattr(said, "kind", said), f"must be as model.encoder.{key}")
    assert isinstance(encoder, TransformerEncoderConfig)
    assert isinstance(encoder.positions, Relative)
    if config.model.output_bias:
        raise refuse("model.output_bias", True, f"{who} have no bias in the output layer; train without it")
    source = ours["source_embedding.weight"]
    target = ours.setdefault("target_embedding.weight", source)
    if not torch.equal(source, target):
        raise refuse("model.tie_embeddings", config.model.tie_embeddings, f"{who} have one table for both sides")
    ours.setdefault("output.weight", target)
    if config.model.scale_embeddings:
        for part in ("source", "target"):
            ours[f"{part}_embedding.weight"] = source * encoder.model_dim**0.5
    head_dim = encoder.head_dim or encoder.model_dim // encoder.num_heads
    layers = {"encoder": encoder.num_layers, "decoder": decoder.num_layers}
    gated = encoder.activation.endswith("-gated")
    recipes = _map_tensors(layers, encoder.num_heads, head_dim, gated=gated, tied=False, shrink=1.0)
    values = {
        "model_type": "t5",
        "d_model": encoder.model_dim,
        "d_kv": head_dim,
        "d_ff": encoder.hidden_dim or 4 * encoder.model_dim,
        "num_heads": encoder.num_heads,
        "num_layers": encoder.num_layers,
        "num_decoder_layers": decoder.num_layers,
        "feed_forward_proj": _write_activation(encoder.activation),
        "relative_attention_num_buckets": encoder.positions.buckets,
        "relative_attention_max_distance": encoder.positions.distance,
        "layer_norm_epsilon": encoder.norm_epsilon or 1e-6,
        "dropout_rate": encoder.dropout,
        "n_positions": find_row_length(config),
        "tie_word_embeddings": False,
        "scale_decoder_outputs": False,
        "is_encoder_decoder": True,
    }
    # Its cache counts the layers of the encoder, and fails where the decoder has more.
    generation = {"use_cache": False} if decoder.num_layers > encoder.num_layers else {}
    longest = find_row_length(config)
    return Layout("T5ForConditionalGeneration", values, recipes, longest=longest, generation=generation)


def _map_tensors(
    layers: Mapping[str, int], heads: int, head_dim: int, *, gated: bool, tied: bool, shrink: float
) -> Recipes:
    """`shrink` is what states are multiplied by before the output layer."""
    recipes: Recipes = {"source_embedding.weight": take("shared.weight")}
    if not tied:
        recipes |= {"target_embedding.weight": take("shared.weight"), "output.weight": take("lm_head.weight")}
    for part, count in layers.items():
        last = take(f"{part}.final_layer_norm.weight")
        recipes[f"{part}.final_norm.weight"] = scaled(last, shrink) if part == "decoder" else last
        recipes[f"{part}.blocks.0.attention.relative.table.weight"] = take(
            f"{part}.block.0.layer.0.SelfAttention.relative_attention_bias.weight"
        )
        for index in range(count):
            ours, theirs = f"{part}.blocks.{index}.", f"{part}.block.{index}.layer."
            recipes |= dict(_map_layer(ours, theirs, heads * head_dim, head_dim**0.5, gated, cross=part == "decoder"))
    return recipes


def _write_activation(activation: str) -> str:
    """The way back from `_read_activation`."""
    known = {"gelu-tanh-gated": "gated-gelu", "relu-gated": "gated-relu", "silu-gated": "gated-silu"}
    if activation.endswith("-gated") and activation not in known:
        raise refuse("model.encoder.activation", activation, f"models in T5's layout have {', '.join(known)}")
    return known.get(activation) or name_bend(activation)


def _read_activation(settings: Settings) -> tuple[str, bool]:
    """`gated-gelu` is GELU by its approximation; it is what T5 1.1 was trained with."""
    said = settings.word("feed_forward_proj", "relu")
    gated = said.startswith("gated-")
    if said == "gated-gelu":
        return "gelu-tanh-gated", True
    if gated and said not in ("gated-relu", "gated-silu"):
        raise settings.refusal("feed_forward_proj", f'"{said[:40]}" is not supported')
    return (
        (said.removeprefix("gated-") + "-gated", True) if gated else (settings.bend("feed_forward_proj", "relu"), False)
    )


def _map_layer(
    ours: str, theirs: str, width: int, factor: float, gated: bool, *, cross: bool
) -> Iterator[tuple[str, Recipe]]:
    own = f"{theirs}0.SelfAttention"
    yield (
        f"{ours}attention.in_projection.weight",
        stretch_queries(join(*(f"{own}.{n}.weight" for n in "qkv")), width, factor),
    )
    yield from linear(f"{ours}attention.out_projection", f"{own}.o", bias=False)
    yield f"{ours}attention_residual.norm.weight", take(f"{theirs}0.layer_norm.weight")
    if cross:
        source = f"{theirs}1.EncDecAttention"
        yield f"{ours}cross.query_projection.weight", scaled(take(f"{source}.q.weight"), factor)
        yield from linear(f"{ours}cross.memory_projection", f"{source}.k", f"{source}.v", bias=False)
        yield from linear(f"{ours}cross.out_projection", f"{source}.o", bias=False)
        yield f"{ours}cross_residual.norm.weight", take(f"{theirs}1.layer_norm.weight")
    last = f"{theirs}{2 if cross else 1}."
    expand = [f"{last}DenseReluDense.{name}" for name in (("wi_0", "wi_1") if gated else ("wi",))]
    yield from linear(f"{ours}feedforward.expand", *expand, bias=False)
    yield from linear(f"{ours}feedforward.contract", f"{last}DenseReluDense.wo", bias=False)
    yield f"{ours}feedforward_residual.norm.weight", take(f"{last}layer_norm.weight")
