"""GPT-2 (Radford et al. 2019): a decoder alone, pre-norm. Its matrices stand on their side (in × out)."""

from collections.abc import Iterator, Mapping
from typing import Any

from torch import Tensor

from seqloom.hub.huggingface.layout import Layout, check_decoder, check_table, choose_rows, part_tables, tabulate
from seqloom.hub.huggingface.plan import (
    Plan,
    Recipe,
    Recipes,
    count_layers,
    linear,
    stretch_queries,
    take,
    turn,
)
from seqloom.hub.huggingface.settings import Settings, name_bend
from seqloom.hub.huggingface.tasks import make_task
from seqloom.hub.imported import Imported


def plan_gpt2(settings: Settings, weights: Mapping[str, Any], frame: dict[str, Any]) -> Plan:
    """A language model."""
    settings.must_be_one_of_architectures("GPT2LMHeadModel", "GPT2Model")
    settings.must("add_cross_attention", (False,), "GPT-2 with attention to a source is not supported")
    prefix = "transformer." if any(name.startswith("transformer.") for name in weights) else ""
    layers = count_layers(settings.count("n_layer"), weights, str(settings.path))
    dim, heads = settings.count("n_embd"), settings.count("n_head")
    longest = settings.count("n_positions", 1024)
    tied = settings.flag("tie_word_embeddings", True)
    model = {
        "scale_embeddings": False,
        "embedding_dropout": settings.rate("embd_pdrop"),
        "vocab_size": settings.count("vocab_size"),
        "tie_output": tied,
        "output_bias": False,
        "decoder": {
            "num_layers": layers,
            "model_dim": dim,
            "num_heads": heads,
            "hidden_dim": settings.count("n_inner", 4 * dim),
            "activation": settings.bend("activation_function", "gelu_new"),
            "norm_epsilon": settings.number("layer_norm_epsilon", 1e-5),
            "positions": {"kind": "learned", "table": longest},
            "dropout": settings.rate("resid_pdrop"),
            "attention_dropout": settings.rate("attn_pdrop"),
        },
    }
    plain = 1.0 if settings.flag("scale_attn_weights", True) else (dim / heads) ** 0.5
    by_layer = settings.flag("scale_attn_by_inverse_layer_idx", False)
    factors = [plain / (index + 1) if by_layer else plain for index in range(layers)]
    recipes = _map_tensors(prefix, dim, factors, tied=tied)
    unused = ("*.attn.bias", "*.attn.masked_bias", "lm_head.weight")
    return Plan(make_task(settings, "language-model", longest, model=model, frame=frame), recipes, (), unused)


def lay_out_gpt2(model: Imported, ours: dict[str, Tensor]) -> Layout:
    """A decoder with positions in a table."""
    who = "models in GPT-2's layout"
    config, stack = check_decoder(model.config, who)
    check_table(stack, "model.decoder", who)
    rows, dim = choose_rows(config, stack), stack.model_dim
    ours["decoder.positions.positions.table.weight"] = tabulate(model.network.get_submodule("decoder"), stack, rows)
    tied = part_tables(config.model, ours, dim, who)
    values = {
        "model_type": "gpt2",
        "n_embd": dim,
        "n_layer": stack.num_layers,
        "n_head": stack.num_heads,
        "n_inner": stack.hidden_dim or 4 * dim,
        "n_positions": rows,
        "activation_function": name_bend(stack.activation),
        "layer_norm_epsilon": stack.norm_epsilon or 1e-5,
        "embd_pdrop": config.model.embedding_dropout,
        "resid_pdrop": stack.dropout,
        "attn_pdrop": stack.attention_dropout,
        "tie_word_embeddings": tied,
    }
    recipes = _map_tensors("transformer.", dim, [1.0] * stack.num_layers, tied=tied)
    return Layout("GPT2LMHeadModel", values, recipes, longest=rows)


def _map_tensors(prefix: str, dim: int, factors: list[float], *, tied: bool) -> Recipes:
    """`factors` are those of the queries of each layer."""
    recipes: Recipes = {
        "embedding.weight": take(f"{prefix}wte.weight"),
        "decoder.positions.positions.table.weight": take(f"{prefix}wpe.weight"),
        **dict(linear("decoder.final_norm", f"{prefix}ln_f")),
    }
    if not tied:
        recipes["output.weight"] = take("lm_head.weight")
    for index, factor in enumerate(factors):
        recipes |= dict(_map_layer(f"decoder.blocks.{index}.", f"{prefix}h.{index}.", dim, factor))
    return recipes


def _map_layer(ours: str, theirs: str, dim: int, factor: float) -> Iterator[tuple[str, Recipe]]:
    names = {
        "attention.in_projection": "attn.c_attn",
        "attention.out_projection": "attn.c_proj",
        "feedforward.expand": "mlp.c_fc",
        "feedforward.contract": "mlp.c_proj",
    }
    for our_name, their_name in names.items():
        weight, bias = turn(f"{theirs}{their_name}.weight"), take(f"{theirs}{their_name}.bias")
        if our_name == "attention.in_projection":
            weight, bias = stretch_queries(weight, dim, factor), stretch_queries(bias, dim, factor)
        yield f"{ours}{our_name}.weight", weight
        yield f"{ours}{our_name}.bias", bias
    yield from linear(f"{ours}attention_residual.norm", f"{theirs}ln_1")
    yield from linear(f"{ours}feedforward_residual.norm", f"{theirs}ln_2")
