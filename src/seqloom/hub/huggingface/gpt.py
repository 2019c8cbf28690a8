"""GPT-2 (Radford et al. 2019) and GPT-NeoX (Black et al. 2022): decoders alone, pre-norm, with LayerNorm.

GPT-2 has a table of positions, and its matrices are stored transposed (in × out). GPT-NeoX has rotary positions. The
published models of that name compute attention and the feed-forward network in parallel and are refused; one sublayer
after the other is supported.
"""

from torch import Tensor

from seqloom.config.positions import RotaryPositions
from seqloom.hub.bundle import Bundle
from seqloom.hub.huggingface.layout import (
    ExportPlan,
    Folder,
    ImportPlan,
    Layout,
    check_decoder,
    tabulate,
    untie_scaled,
    write_options,
)
from seqloom.hub.huggingface.recipes import (
    Recipes,
    copy,
    group_by_kind,
    linear,
    map_blocks,
    scale_queries,
    transpose,
    zero_bias,
)
from seqloom.hub.huggingface.settings import Option, Settings, name_activation, write_rotary
from seqloom.tasks import LanguageModelTask, Task

_GPT2_OPTIONS = {
    "num_layers": Option("n_layer", Settings.count),
    "model_dim": Option("n_embd", Settings.count),
    "num_heads": Option("n_head", Settings.count),
    "hidden_dim": Option("n_inner", Settings.count),
    "activation": Option("activation_function", Settings.activation, "gelu_new", name_activation),
    "norm_epsilon": Option("layer_norm_epsilon", Settings.number, 1e-5),
    "dropout": Option("resid_pdrop", Settings.rate),
    "attention_dropout": Option("attn_pdrop", Settings.rate),
}
_GPT2_MATRICES = {
    "attention.in_projection": ("attn.c_attn",),
    "attention.out_projection": ("attn.c_proj",),
    "feedforward.expand": ("mlp.c_fc",),
    "feedforward.contract": ("mlp.c_proj",),
}
_GPT2_NORMS = {"attention_residual.norm": ("ln_1",), "feedforward_residual.norm": ("ln_2",)}
_NEOX_OPTIONS = {
    "num_layers": Option("num_hidden_layers", Settings.count),
    "model_dim": Option("hidden_size", Settings.count),
    "num_heads": Option("num_attention_heads", Settings.count),
    "hidden_dim": Option("intermediate_size", Settings.count),
    "activation": Option("hidden_act", Settings.activation, "gelu", name_activation),
    "norm_epsilon": Option("layer_norm_eps", Settings.number, 1e-5),
    "dropout": Option("hidden_dropout", Settings.rate),
    "attention_dropout": Option("attention_dropout", Settings.rate),
}
_NEOX_PARTS = {
    "attention.in_projection": ("attention.query_key_value",),
    "attention.out_projection": ("attention.dense",),
    "attention_residual.norm": ("input_layernorm",),
    "feedforward.expand": ("mlp.dense_h_to_4h",),
    "feedforward.contract": ("mlp.dense_4h_to_h",),
    "feedforward_residual.norm": ("post_attention_layernorm",),
}


class Gpt2Layout(Layout):
    """Language models with positions in a table."""

    model_types = ("gpt2",)

    def read(self, folder: Folder) -> ImportPlan:
        """A language model."""
        settings = folder.settings
        settings.require_architecture("GPT2LMHeadModel", "GPT2Model")
        settings.require("add_cross_attention", (False,), "GPT-2 with cross-attention is not supported")
        dim, longest = settings.count("n_embd"), settings.count("n_positions", 1024)
        tied = settings.flag("tie_word_embeddings", True)
        decoder = folder.read_options(_GPT2_OPTIONS, hidden_dim=4 * dim)
        decoder["positions"] = {"kind": "learned", "table": longest}
        factor = 1.0 if settings.flag("scale_attn_weights", True) else (dim / decoder["num_heads"]) ** 0.5
        by_layer = settings.flag("scale_attn_by_inverse_layer_idx", False)
        factors = [factor / (index + 1) if by_layer else factor for index in range(decoder["num_layers"])]
        return folder.plan_language_model(
            decoder,
            _map_gpt2(folder.find_prefix("transformer."), dim, factors, tied=tied),
            tied=tied,
            longest=longest,
            embedding_dropout=settings.rate("embd_pdrop"),
            unused=("*.attn.bias", "*.attn.masked_bias", "lm_head.weight"),
        )

    def fits(self, config: Task) -> bool:
        """Language models that no other layout takes."""
        return isinstance(config, LanguageModelTask)

    def write(self, model: Bundle, ours: dict[str, Tensor]) -> ExportPlan:
        """GPT2LMHeadModel."""
        who = "models in GPT-2's layout"
        config, stack = check_decoder(model.config, who)
        rows = tabulate(model, {"decoder": stack}, ours, who)
        tied = untie_scaled(config, ours, who)
        values = {
            "model_type": "gpt2",
            **write_options(stack, _GPT2_OPTIONS),
            "n_positions": rows,
            "embd_pdrop": config.embedding_dropout,
            "tie_word_embeddings": tied,
        }
        recipes = _map_gpt2("transformer.", stack.model_dim, [1.0] * stack.num_layers, tied=tied)
        return ExportPlan("GPT2LMHeadModel", values, recipes, longest=rows)


def _map_gpt2(prefix: str, dim: int, factors: list[float], *, tied: bool) -> Recipes:
    """`factors` multiply the queries of each layer."""
    recipes: Recipes = {
        "embedding.weight": copy(f"{prefix}wte.weight"),
        "decoder.positions.positions.table.weight": copy(f"{prefix}wpe.weight"),
        **linear("decoder.final_norm", f"{prefix}ln_f"),
        **map_blocks("decoder", f"{prefix}h.{{}}.", len(factors), _GPT2_MATRICES | _GPT2_NORMS),
    }
    if not tied:
        recipes["output.weight"] = copy("lm_head.weight")
    for index, factor in enumerate(factors):
        block = f"decoder.blocks.{index}"
        for name in (f"{block}.{part}.weight" for part in _GPT2_MATRICES):
            recipes[name] = transpose(recipes[name])
        for name in (f"{block}.attention.in_projection.{part}" for part in ("weight", "bias")):
            recipes[name] = scale_queries(recipes[name], dim, factor)
    return recipes


class NeoxLayout(Layout):
    """Language models with rotary positions."""

    model_types = ("gpt_neox",)

    def read(self, folder: Folder) -> ImportPlan:
        """A language model."""
        settings = folder.settings
        settings.require_architecture("GPTNeoXForCausalLM", "GPTNeoXModel")
        if settings.flag("use_parallel_residual", True):
            raise settings.refusal("use_parallel_residual", "sublayers in parallel are not supported")
        table = settings.table("rope_parameters")
        if table.number("partial_rotary_factor", settings.number("rotary_pct", 0.25)) != 1.0:
            raise settings.refusal("rope_parameters", "rotary positions in only part of each head are not supported")
        tied, biased = settings.flag("tie_word_embeddings", False), settings.flag("attention_bias", True)
        decoder = folder.read_options(_NEOX_OPTIONS) | {"positions": settings.rotary("rotary_emb_base")}
        layers, heads = decoder["num_layers"], decoder["num_heads"]
        return folder.plan_language_model(
            decoder,
            _map_neox(folder.find_prefix("gpt_neox."), layers, heads, biased=biased, tied=tied),
            tied=tied,
            longest=settings.count("max_position_embeddings", 2048),
            embedding_dropout=decoder["dropout"],
            unused=("*.attention.bias", "*.attention.masked_bias", "*.rotary_emb.inv_freq", "embed_out.weight"),
        )

    def fits(self, config: Task) -> bool:
        """Language models with rotary positions."""
        rotary = isinstance(config, LanguageModelTask) and getattr(config.model.decoder, "positions", None)
        return isinstance(rotary, RotaryPositions)

    def write(self, model: Bundle, ours: dict[str, Tensor]) -> ExportPlan:
        """GPTNeoXForCausalLM."""
        who, longest = "models in GPT-NeoX's layout", model.config.max_length
        config, stack = check_decoder(model.config, who)
        assert isinstance(stack.positions, RotaryPositions)
        tied = untie_scaled(config, ours, who)
        values = {
            "model_type": "gpt_neox",
            "use_parallel_residual": False,
            **write_options(stack, _NEOX_OPTIONS),
            "rope_parameters": {**write_rotary(stack.positions), "partial_rotary_factor": 1.0},
            "tie_word_embeddings": tied,
            "max_position_embeddings": longest,
        }
        recipes = _map_neox("gpt_neox.", stack.num_layers, stack.num_heads, biased=True, tied=tied)
        return ExportPlan("GPTNeoXForCausalLM", values, recipes, longest=longest)


def _map_neox(prefix: str, layers: int, heads: int, *, biased: bool, tied: bool) -> Recipes:
    """`biased`: whether attention has biases."""
    recipes: Recipes = {
        "embedding.weight": copy(f"{prefix}embed_in.weight"),
        **linear("decoder.final_norm", f"{prefix}final_layer_norm"),
        **map_blocks("decoder", f"{prefix}layers.{{}}.", layers, _NEOX_PARTS),
    }
    if not tied:
        recipes["output.weight"] = copy("embed_out.weight" if prefix else "embed_in.weight")
    for index in range(layers):
        ours, theirs = f"decoder.blocks.{index}.attention", f"{prefix}layers.{index}.attention"
        if not biased:
            recipes[f"{ours}.in_projection.bias"] = zero_bias(f"{theirs}.query_key_value.weight")
            recipes[f"{ours}.out_projection.bias"] = zero_bias(f"{theirs}.dense.weight")
        for name in (f"{ours}.in_projection.{part}" for part in ("weight", "bias")):
            recipes[name] = group_by_kind(recipes[name], heads)
    return recipes
