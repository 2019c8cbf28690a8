"""Marian (Junczys-Dowmunt et al. 2018) and BART (Lewis et al. 2020): an encoder and a decoder, both post-norm.

They differ in positions (waves, all sines first; a table whose first two rows are never used) and in that BART
normalises its input.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from weft.hub.huggingface.frames import name_start
from weft.hub.huggingface.plan import Get, Plan, Recipe, Recipes, count_layers, linear, skip, take, zeros_for
from weft.hub.huggingface.settings import Settings
from weft.hub.huggingface.tasks import make_task
from weft.text import Tokenizer

_UNUSED_ROWS = 2  # of BART's table of positions


def plan_bart(settings: Settings, weights: Mapping[str, Any], tokenizer: Tokenizer) -> Plan:
    """A translation model."""
    marian = settings.word("model_type") == "marian"
    settings.must_be_one_of_architectures("MarianMTModel" if marian else "BartForConditionalGeneration")
    size = settings.count("vocab_size")
    settings.must("decoder_vocab_size", (size,), "a vocabulary of its own for the target is not supported")
    settings.must("static_position_embeddings", (True,), "only Marian's fixed positions are supported")
    settings.must("normalize_before", (False,), "only norms after the sum are supported")
    settings.must("add_final_layer_norm", (False,), "only norms after the sum are supported")
    settings.must("normalize_embedding", (not marian,), "a norm of the input goes with BART only")
    tied = settings.flag("tie_word_embeddings", True)
    shared = settings.flag("share_encoder_decoder_embeddings", True) and tied
    stacks = {part: _read_stack(settings, weights, part, marian) for part in ("encoder", "decoder")}
    model = {
        "scale_embeddings": settings.flag("scale_embedding", False),
        "embedding_dropout": settings.rate("dropout"),
        "vocab_size": size,
        "tie_embeddings": "all" if shared else "output" if tied else "none",
        **stacks,
    }
    recipes: Recipes = {}
    tables = {part: _find_table(weights, part) for part in ("encoder", "decoder")}
    recipes["source_embedding.weight"] = take(tables["encoder"])
    if not shared:
        recipes["target_embedding.weight"] = take(tables["decoder"])
    if not tied:
        recipes["output.weight"] = take("lm_head.weight")
    recipes["output.bias"] = (
        _flat("final_logits_bias") if "final_logits_bias" in weights else zeros_for(tables["decoder"])
    )
    for part, stack in stacks.items():
        if not marian:
            recipes[f"{part}.positions.positions.table.weight"] = skip(
                f"model.{part}.embed_positions.weight", _UNUSED_ROWS
            )
            recipes |= dict(linear(f"{part}.input_norm", f"model.{part}.layernorm_embedding"))
        for index in range(stack["num_layers"]):
            ours, theirs = f"{part}.blocks.{index}.", f"model.{part}.layers.{index}."
            recipes |= dict(_plan_layer(ours, theirs, cross=part == "decoder"))
    start = ["pad"] if marian else ["eos"]
    frames: dict[str, Any] = {
        "source_frame": {"before": [] if marian else ["bos"], "after": ["eos"]},
        "target_frame": {"before": name_start(settings, tokenizer, start), "after": ["eos"]},
    }
    longest = settings.count("max_position_embeddings", 1024)
    unused = ["lm_head.weight", "model.*.embed_tokens.weight", "model.shared.weight"]
    unused += ["model.*.embed_positions.weight"] if marian else []
    return Plan(make_task(settings, "translation", longest, model=model, **frames), recipes, (), tuple(unused))


def _read_stack(settings: Settings, weights: Mapping[str, Any], part: str, marian: bool) -> dict[str, Any]:
    positions = {"kind": "learned", "table": settings.count("max_position_embeddings", 1024)}
    if marian:
        positions = {"kind": "sinusoidal", "order": "halves"}
    return {
        "num_layers": count_layers(settings.count(f"{part}_layers"), weights, str(settings.path)),
        "model_dim": settings.count("d_model"),
        "num_heads": settings.count(f"{part}_attention_heads"),
        "hidden_dim": settings.count(f"{part}_ffn_dim"),
        "activation": settings.bend("activation_function", "gelu"),
        "norm_position": "post",
        "input_norm": not marian,
        "positions": positions,
        "dropout": settings.rate("dropout"),
        "attention_dropout": settings.rate("attention_dropout"),
    }


def _plan_layer(ours: str, theirs: str, *, cross: bool) -> Iterator[tuple[str, Recipe]]:
    own = theirs + "self_attn"
    yield from linear(f"{ours}attention.in_projection", *(f"{own}.{part}_proj" for part in "qkv"))
    yield from linear(f"{ours}attention.out_projection", f"{own}.out_proj")
    yield from linear(f"{ours}attention_residual.norm", f"{own}_layer_norm")
    if cross:
        source = theirs + "encoder_attn"
        yield from linear(f"{ours}cross.query_projection", f"{source}.q_proj")
        yield from linear(f"{ours}cross.memory_projection", f"{source}.k_proj", f"{source}.v_proj")
        yield from linear(f"{ours}cross.out_projection", f"{source}.out_proj")
        yield from linear(f"{ours}cross_residual.norm", f"{source}_layer_norm")
    yield from linear(f"{ours}feedforward.expand", f"{theirs}fc1")
    yield from linear(f"{ours}feedforward.contract", f"{theirs}fc2")
    yield from linear(f"{ours}feedforward_residual.norm", f"{theirs}final_layer_norm")


def _find_table(weights: Mapping[str, Any], part: str) -> str:
    own = f"model.{part}.embed_tokens.weight"
    return own if own in weights else "model.shared.weight"


def _flat(name: str) -> Recipe:
    def make(get: Get) -> Any:
        return get(name).flatten()

    return make
