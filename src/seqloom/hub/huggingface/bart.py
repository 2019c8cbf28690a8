"""Encoder-decoders in one layout: Marian (Junczys-Dowmunt et al. 2018), BART (Lewis et al. 2020), and with pre-norm
Pegasus (Zhang et al. 2020) and mBART (Liu et al. 2020).

They differ in where they normalise and in their positions: a table whose first two rows are never used, or sinusoidal
positions (all sines first), which may or may not be stored.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from seqloom.hub.bundle import Bundle
from seqloom.hub.fidelity import refusal
from seqloom.hub.huggingface.layout import (
    ExportPlan,
    Folder,
    ImportPlan,
    Layout,
    check_plain,
    tabulate,
    write_options,
)
from seqloom.hub.huggingface.recipes import Recipes, copy, flatten, linear, map_blocks, skip_rows, zero_bias
from seqloom.hub.huggingface.settings import Option, Settings, name_activation
from seqloom.hub.huggingface.tokenizer import refuse_languages
from seqloom.tasks import Task, TranslationTask

_PARTS = ("encoder", "decoder")
_EPSILON = 1e-5
_ATTENTION = {
    "attention.in_projection": ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"),
    "attention.out_projection": ("self_attn.out_proj",),
    "attention_residual.norm": ("self_attn_layer_norm",),
}
_CROSS = {
    "cross.query_projection": ("encoder_attn.q_proj",),
    "cross.memory_projection": ("encoder_attn.k_proj", "encoder_attn.v_proj"),
    "cross.out_projection": ("encoder_attn.out_proj",),
    "cross_residual.norm": ("encoder_attn_layer_norm",),
}
_FEEDFORWARD = {
    "feedforward.expand": ("fc1",),
    "feedforward.contract": ("fc2",),
    "feedforward_residual.norm": ("final_layer_norm",),
}


@dataclass(frozen=True)
class _Kind:
    """How one of these models differs from the others."""

    architecture: str
    norm_position: str
    input_norm: bool
    sinusoidal: bool
    """Whether positions are sinusoidal unless a table is stored."""
    start: str
    """The role of the token that a decoder starts from, unless the configuration names one."""

    @property
    def unused_rows(self) -> int:
        """How many rows at the start of the position table are never used."""
        return 0 if self.sinusoidal else 2


_KINDS = {
    "marian": _Kind("MarianMTModel", "post", False, True, "pad"),
    "bart": _Kind("BartForConditionalGeneration", "post", True, False, "eos"),
    "pegasus": _Kind("PegasusForConditionalGeneration", "pre", False, True, "pad"),
    "mbart": _Kind("MBartForConditionalGeneration", "pre", True, False, "eos"),
}


class BartLayout(Layout):
    """Translation models with positions in a table."""

    model_types = tuple(_KINDS)

    def read(self, folder: Folder) -> ImportPlan:
        """A translation model."""
        settings, weights, name = folder.settings, folder.weights, folder.settings.word("model_type")
        kind = _KINDS[name]
        settings.require_architecture(kind.architecture)
        size, separate = settings.count("vocab_size"), not folder.tokenizer.shares_ids
        if not separate:
            settings.require("decoder_vocab_size", (size,), "sources and targets have one vocabulary")
        if name == "mbart":
            refuse_languages(folder.path)
        reason = f"positions of {name} are {'sinusoidal' if kind.sinusoidal else 'learned'}"
        settings.require("static_position_embeddings", (kind.sinusoidal,), reason)
        if name in ("marian", "bart"):
            settings.require("normalize_before", (False,), "only post-norm is supported")
            settings.require("add_final_layer_norm", (False,), "only post-norm is supported")
            settings.require("normalize_embedding", (kind.input_norm,), "only BART has a norm of the input")
        tied = settings.flag("tie_word_embeddings", True)
        shared = settings.flag("share_encoder_decoder_embeddings", True) and tied
        if shared and separate:
            reason = "is true, but the tokenisers of sources and targets have different vocabularies"
            raise settings.refusal("share_encoder_decoder_embeddings", reason)
        tabled = not kind.sinusoidal or all(f"model.{part}.embed_positions.weight" in weights for part in _PARTS)
        longest = settings.count("max_position_embeddings", 1024)
        shape = {
            "norm_position": kind.norm_position,
            "input_norm": kind.input_norm,
            "positions": {"kind": "learned", "table": longest} if tabled else {"kind": "sinusoidal", "order": "halves"},
        }
        stacks = {part: folder.read_options(_list_options(part)) | shape for part in _PARTS}
        model = {
            "scale_embeddings": settings.flag("scale_embedding", False),
            "embedding_dropout": settings.rate("dropout"),
            "vocab_size": size,
            **({"target_vocab_size": settings.count("decoder_vocab_size", size)} if separate else {}),
            "tie_embeddings": "all" if shared else "output" if tied else "none",
            **stacks,
        }
        own = {part: f"model.{part}.embed_tokens.weight" for part in _PARTS}
        recipes = _map_tensors(
            kind,
            {part: stack["num_layers"] for part, stack in stacks.items()},
            {part: table if table in weights else "model.shared.weight" for part, table in own.items()},
            shared=shared,
            tied=tied,
            tabled=tabled,
            biased="final_logits_bias" in weights,
        )
        unused = ["lm_head.weight", "model.*.embed_tokens.weight", "model.shared.weight"]
        return folder.plan(
            "translation",
            model,
            recipes,
            longest=longest,
            unused=unused + ([] if tabled else ["model.*.embed_positions.weight"]),
            source_frame=folder.find_source_frame({"before": ["bos"] if name == "bart" else [], "after": ["eos"]}),
            target_frame={"before": folder.find_start(kind.start), "after": ["eos"]},
            data={"source_unit": "sentence" if name in ("marian", "mbart") else "line"},
            end_tokens=folder.find_end_tokens(),
        )

    def fits(self, config: Task) -> bool:
        """Translation models that no other layout takes."""
        return isinstance(config, TranslationTask)

    def write(self, model: Bundle, ours: dict[str, Tensor]) -> ExportPlan:
        """The one that normalises in the same places as the model."""
        config = model.config
        assert isinstance(config, TranslationTask)
        who, sections = "Marian's, BART's and Pegasus's layouts", config.model
        stacks = {part: check_plain(config, part, who) for part in _PARTS}
        rows = tabulate(model, stacks, ours, who)
        encoder, decoder = stacks.values()
        for key in ("norm_position", "input_norm", "activation", "model_dim"):
            value = getattr(decoder, key)
            if value != getattr(encoder, key):
                raise refusal(f"model.decoder.{key}", value, f"{who} have the same as model.encoder.{key}")
        for part, stack in stacks.items():
            if stack.norm_epsilon not in (None, _EPSILON):
                raise refusal(f"model.{part}.norm_epsilon", stack.norm_epsilon, f"these layouts have {_EPSILON}")
        wanted = (encoder.norm_position, encoder.input_norm)
        name, kind = next((n, k) for n, k in _KINDS.items() if (k.norm_position, k.input_norm) == wanted)
        if not sections.output_bias:
            ours["output.bias"] = model.network.get_buffer("output.bias")
        shared = sections.tie_embeddings == "all"
        read, written = (len(ours.get(f"{side}_embedding.weight", ())) for side in ("source", "target"))
        if not shared and written != read and name != "marian":
            raise refusal(
                "tokenizer", "pair", "of these layouts only Marian's, which is post-norm, has two vocabularies"
            )
        if not shared:  # only Marian can tie the output to the target alone; a copy works for all
            ours.setdefault("output.weight", ours["target_embedding.weight"])
        tables = {part: "model.shared.weight" if shared else f"model.{part}.embed_tokens.weight" for part in _PARTS}
        layers = {part: stack.num_layers for part, stack in stacks.items()}
        recipes = _map_tensors(kind, layers, tables, shared=shared, tied=shared, tabled=True, biased=True)
        values: dict[str, Any] = {
            "model_type": name,
            **write_options(decoder, _list_options("decoder")),
            **write_options(encoder, _list_options("encoder")),
            "scale_embedding": sections.scale_embeddings,
            "tie_word_embeddings": shared,
            "max_position_embeddings": rows,
            "is_encoder_decoder": True,
            "num_hidden_layers": encoder.num_layers,
        }
        if name == "marian":
            values |= {"share_encoder_decoder_embeddings": shared, "decoder_vocab_size": read if shared else written}
        return ExportPlan(kind.architecture, values, recipes, longest=rows)


def _list_options(part: str) -> dict[str, Option]:
    return {
        "num_layers": Option(f"{part}_layers", Settings.count),
        "model_dim": Option("d_model", Settings.count),
        "num_heads": Option(f"{part}_attention_heads", Settings.count),
        "hidden_dim": Option(f"{part}_ffn_dim", Settings.count),
        "activation": Option("activation_function", Settings.activation, "gelu", name_activation),
        "dropout": Option("dropout", Settings.rate),
        "attention_dropout": Option("attention_dropout", Settings.rate),
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
    recipes: Recipes = {"source_embedding.weight": copy(tables["encoder"])}
    if not shared:
        recipes["target_embedding.weight"] = copy(tables["decoder"])
    if not tied:
        recipes["output.weight"] = copy("lm_head.weight")
    recipes["output.bias"] = flatten("final_logits_bias") if biased else zero_bias(tables["decoder"])
    for part, count in layers.items():
        if tabled:
            positions = skip_rows(f"model.{part}.embed_positions.weight", kind.unused_rows)
            recipes[f"{part}.positions.positions.table.weight"] = positions
        if kind.input_norm:
            recipes |= linear(f"{part}.input_norm", f"model.{part}.layernorm_embedding")
        if kind.norm_position == "pre":
            recipes |= linear(f"{part}.final_norm", f"model.{part}.layer_norm")
        parts = _ATTENTION | (_CROSS if part == "decoder" else {}) | _FEEDFORWARD
        recipes |= map_blocks(part, f"model.{part}.layers.{{}}.", count, parts)
    return recipes
