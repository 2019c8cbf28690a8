"""T5 (Raffel et al. 2020), its version 1.1 and mT5: an encoder and a decoder, pre-norm with RMSNorm, no biases.

Scores are not divided by √K, so the queries are made longer by it. Where the output is the table of embeddings, states
are divided by √D before it; here the last norm does that. One table of relative positions serves all layers of a stack.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from weft.hub.huggingface.frames import name_start
from weft.hub.huggingface.plan import (
    Plan,
    Recipe,
    Recipes,
    count_layers,
    join,
    linear,
    scaled,
    stretch_queries,
    take,
    zeros_for,
)
from weft.hub.huggingface.settings import Settings
from weft.hub.huggingface.tasks import make_task
from weft.text import Tokenizer


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
        **{part: {**stack, "num_layers": count_layers(n, weights, str(settings.path))} for part, n in layers.items()},
    }
    recipes: Recipes = {"source_embedding.weight": take("shared.weight"), "output.bias": zeros_for("shared.weight")}
    if not tied:
        recipes |= {"target_embedding.weight": take("shared.weight"), "output.weight": take("lm_head.weight")}
    shrunk = settings.flag("scale_decoder_outputs", said_tied)
    for part, count in layers.items():
        last = take(f"{part}.final_layer_norm.weight")
        recipes[f"{part}.final_norm.weight"] = scaled(last, dim**-0.5) if part == "decoder" and shrunk else last
        recipes[f"{part}.blocks.0.attention.relative.table.weight"] = take(
            f"{part}.block.0.layer.0.SelfAttention.relative_attention_bias.weight"
        )
        for index in range(count):
            ours, theirs = f"{part}.blocks.{index}.", f"{part}.block.{index}.layer."
            recipes |= dict(_plan_layer(ours, theirs, heads * head_dim, head_dim**0.5, gated, cross=part == "decoder"))
    frames: dict[str, Any] = {
        "source_frame": {"after": ["eos"]},
        "target_frame": {"before": name_start(settings, tokenizer, ["pad"]), "after": ["eos"]},
    }
    longest = settings.count("n_positions", 512)
    unused = ("*.embed_tokens.weight", "*.EncDecAttention.relative_attention_bias.weight")
    return Plan(make_task(settings, "translation", longest, model=model, **frames), recipes, (), unused)


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


def _plan_layer(
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
