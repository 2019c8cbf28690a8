"""Encoders beside decoders in one layout: Marian (Junczys-Dowmunt et al. 2018), BART (Lewis et al. 2020), and the same
with the norm before each sublayer: Pegasus (Zhang et al. 2020) and mBART (Liu et al. 2020).

They differ in where they normalise, and in positions: a table whose first two rows are never used, or a fixed one
(waves, all sines first) that may be in the file or not.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from seqloom.config.stacks import TransformerDecoderConfig, TransformerEncoderConfig
from seqloom.hub.huggingface.frames import name_start
from seqloom.hub.huggingface.layout import Layout, check_plain, check_table, choose_rows, refuse, tabulate
from seqloom.hub.huggingface.plan import Plan, Recipe, Recipes, count_layers, flat, linear, skip, take, zeros_for
from seqloom.hub.huggingface.settings import Settings, name_bend
from seqloom.hub.huggingface.tasks import make_task
from seqloom.hub.imported import Imported
from seqloom.tasks import TranslationTask
from seqloom.text import Tokenizer


@dataclass(frozen=True)
class _Kind:
    """How one of them differs."""

    architecture: str
    norm_position: str
    input_norm: bool
    waves: bool
    """Whether positions are fixed ones unless the file says otherwise."""
    start: str
    """The role of the token that a decoder starts from, where nothing is said."""

    @property
    def unused_rows(self) -> int:
        """How many rows of the table of positions are never used."""
        return 0 if self.waves else 2


_KINDS = {
    "marian": _Kind("MarianMTModel", "post", False, True, "pad"),
    "bart": _Kind("BartForConditionalGeneration", "post", True, False, "eos"),
    "pegasus": _Kind("PegasusForConditionalGeneration", "pre", False, True, "pad"),
    "mbart": _Kind("MBartForConditionalGeneration", "pre", True, False, "eos"),
}
_PARTS = ("encoder", "decoder")
_EPSILON = 1e-5


def plan_bart(settings: Settings, weights: Mapping[str, Any], tokenizer: Tokenizer) -> Plan:
    """A translation model."""
    name = settings.word("model_type")
    kind = _KINDS[name]
    settings.must_be_one_of_architectures(kind.architecture)
    size = settings.count("vocab_size")
    settings.must("decoder_vocab_size", (size,), "a vocabulary of its own for the target is not supported")
    settings.must("static_position_embeddings", (True,), "only fixed positions are supported")
    if name in ("marian", "bart"):
        settings.must("normalize_before", (False,), "only norms after the sum are supported")
        settings.must("add_final_layer_norm", (False,), "only norms after the sum are supported")
        settings.must("normalize_embedding", (kind.input_norm,), "a norm of the input goes with BART only")
    tied = settings.flag("tie_word_embeddings", True)
    shared = settings.flag("share_encoder_decoder_embeddings", True) and tied
    tabled = not kind.waves or all(f"model.{part}.embed_positions.weight" in weights for part in _PARTS)
    stacks = {part: _read_stack(settings, weights, part, kind, tabled) for part in _PARTS}
    model = {
        "scale_embeddings": settings.flag("scale_embedding", False),
        "embedding_dropout": settings.rate("dropout"),
        "vocab_size": size,
        "tie_embeddings": "all" if shared else "output" if tied else "none",
        **stacks,
    }
    recipes = _map_tensors(
        kind,
        {part: stack["num_layers"] for part, stack in stacks.items()},
        {part: _find_table(weights, part) for part in _PARTS},
        shared=shared,
        tied=tied,
        tabled=tabled,
        biased="final_logits_bias" in weights,
    )
    frames: dict[str, Any] = {
        "source_frame": {"before": ["bos"] if name == "bart" else [], "after": ["eos"]},
        "target_frame": {"before": name_start(settings, tokenizer, [kind.start]), "after": ["eos"]},
    }
    longest = settings.count("max_position_embeddings", 1024)
    unused = ["lm_head.weight", "model.*.embed_tokens.weight", "model.shared.weight"]
    unused += [] if tabled else ["model.*.embed_positions.weight"]
    return Plan(make_task(settings, "translation", longest, model=model, **frames), recipes, (), tuple(unused))


def lay_out_bart(model: Imported, ours: dict[str, Tensor]) -> Layout:
    """The one of them that computes what a translation model of ours does."""
    config = model.config
    assert isinstance(config, TranslationTask)
    encoder, decoder, who = config.model.encoder, config.model.decoder, "Marian's, BART's and Pegasus's layouts"
    for part, stack in (("encoder", encoder), ("decoder", decoder)):
        check_plain(stack, f"model.{part}", who)
    assert isinstance(encoder, TransformerEncoderConfig)
    assert isinstance(decoder, TransformerDecoderConfig)
    check_table(encoder, "model.encoder", who)
    check_table(decoder, "model.decoder", who)
    for key in ("norm_position", "input_norm", "activation", "model_dim"):
        if getattr(encoder, key) != getattr(decoder, key):
            raise refuse(f"model.decoder.{key}", getattr(decoder, key), f"must be as model.encoder.{key} for export")
    for part, stack in (("encoder", encoder), ("decoder", decoder)):
        if stack.norm_epsilon not in (None, _EPSILON):
            raise refuse(f"model.{part}.norm_epsilon", stack.norm_epsilon, f"these layouts have {_EPSILON}")
    wanted = (encoder.norm_position, encoder.input_norm)
    name, kind = next((n, k) for n, k in _KINDS.items() if (k.norm_position, k.input_norm) == wanted)
    rows = choose_rows(config, encoder, decoder)
    for part, stack in (("encoder", encoder), ("decoder", decoder)):
        ours[f"{part}.positions.positions.table.weight"] = tabulate(getattr(model.network, part), stack, rows)
    if not config.model.output_bias:
        ours["output.bias"] = model.network.get_buffer("output.bias")
    shared = config.model.tie_embeddings == "all"
    if not shared:  # one of them ties the target's table to the output alone; a copy says it to all
        ours.setdefault("output.weight", ours["target_embedding.weight"])
    tables = {part: "model.shared.weight" if shared else f"model.{part}.embed_tokens.weight" for part in _PARTS}
    layers = {"encoder": encoder.num_layers, "decoder": decoder.num_layers}
    recipes = _map_tensors(kind, layers, tables, shared=shared, tied=shared, tabled=True, biased=True)
    values: dict[str, Any] = {
        "model_type": name,
        "d_model": encoder.model_dim,
        "activation_function": name_bend(encoder.activation),
        "scale_embedding": config.model.scale_embeddings,
        "tie_word_embeddings": shared,
        "max_position_embeddings": rows,
        "dropout": encoder.dropout,
        "attention_dropout": encoder.attention_dropout,
        "is_encoder_decoder": True,
        "num_hidden_layers": encoder.num_layers,
    }
    values |= {"share_encoder_decoder_embeddings": shared} if name == "marian" else {}
    for part, stack in (("encoder", encoder), ("decoder", decoder)):
        values[f"{part}_layers"], values[f"{part}_attention_heads"] = stack.num_layers, stack.num_heads
        values[f"{part}_ffn_dim"] = stack.hidden_dim or 4 * stack.model_dim
    return Layout(kind.architecture, values, recipes, longest=rows)


def _read_stack(settings: Settings, weights: Mapping[str, Any], part: str, kind: _Kind, tabled: bool) -> dict[str, Any]:
    positions: dict[str, Any] = {"kind": "learned", "table": settings.count("max_position_embeddings", 1024)}
    if not tabled:
        positions = {"kind": "sinusoidal", "order": "halves"}
    return {
        "num_layers": count_layers(settings.count(f"{part}_layers"), weights, str(settings.path)),
        "model_dim": settings.count("d_model"),
        "num_heads": settings.count(f"{part}_attention_heads"),
        "hidden_dim": settings.count(f"{part}_ffn_dim"),
        "activation": settings.bend("activation_function", "gelu"),
        "norm_position": kind.norm_position,
        "input_norm": kind.input_norm,
        "positions": positions,
        "dropout": settings.rate("dropout"),
        "attention_dropout": settings.rate("attention_dropout"),
    }


def _map_tensors(
    kind: _Kind,
    layers: Mapping[str, int],
    tables: Mapping[str, str],
    *,
    shared: bool,
    tied: bool,
    tabled: bool,
    biased: bool,
) -> Recipes:
    recipes: Recipes = {"source_embedding.weight": take(tables["encoder"])}
    if not shared:
        recipes["target_embedding.weight"] = take(tables["decoder"])
    if not tied:
        recipes["output.weight"] = take("lm_head.weight")
    recipes["output.bias"] = flat("final_logits_bias") if biased else zeros_for(tables["decoder"])
    for part, count in layers.items():
        if tabled:
            positions = skip(f"model.{part}.embed_positions.weight", kind.unused_rows)
            recipes[f"{part}.positions.positions.table.weight"] = positions
        if kind.input_norm:
            recipes |= dict(linear(f"{part}.input_norm", f"model.{part}.layernorm_embedding"))
        if kind.norm_position == "pre":
            recipes |= dict(linear(f"{part}.final_norm", f"model.{part}.layer_norm"))
        for index in range(count):
            ours, theirs = f"{part}.blocks.{index}.", f"model.{part}.layers.{index}."
            recipes |= dict(_map_layer(ours, theirs, cross=part == "decoder"))
    return recipes


def _map_layer(ours: str, theirs: str, *, cross: bool) -> Iterator[tuple[str, Recipe]]:
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
