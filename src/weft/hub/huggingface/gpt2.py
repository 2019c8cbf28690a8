"""GPT-2 (Radford et al. 2019): a decoder alone, pre-norm. Its matrices stand on their side (in × out).

Its output layer has no bias, while ours has one. A model of ours with a bias b becomes a GPT-2 that is one coordinate a
head wider. Each new coordinate of the residual stream is the mean of the old ones, whoever writes to it; then no norm
sees a change but for a factor:

    the mean stays what it was;  the variance becomes var · D/D′;  so  γ′ = γ √(D/D′)  and  ε′ = ε D/D′

The last norm makes a constant 1 of the first of them (γ = 0, β = 1), and the output layer multiplies that by b.
"""

from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch import Tensor

from weft.config.stacks import TransformerDecoderConfig
from weft.config.tasks import LanguageModelTask
from weft.hub.huggingface.layout import Layout, check_plain, choose_rows, require, tabulate
from weft.hub.huggingface.plan import (
    Plan,
    Recipe,
    Recipes,
    count_layers,
    linear,
    stretch_queries,
    take,
    turn,
    zeros_for,
)
from weft.hub.huggingface.settings import Settings, name_bend
from weft.hub.huggingface.tasks import make_task
from weft.hub.imported import Imported


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
    """GPT-2, wider where the output layer has a bias."""
    config = model.config
    assert isinstance(config, LanguageModelTask)
    stack, who = config.model.decoder, "models in GPT-2's layout"
    check_plain(stack, "model.decoder", who)
    assert isinstance(stack, TransformerDecoderConfig)
    require(stack, "model.decoder", who, norm_position="pre", input_norm=False)
    rows = choose_rows(config, stack)
    dim, heads, epsilon = stack.model_dim, stack.num_heads, stack.norm_epsilon or 1e-5
    ours["decoder.positions.positions.table.weight"] = tabulate(model.network.get_submodule("decoder"), stack, rows)
    tied = config.model.tie_output
    if config.model.scale_embeddings or ours["output.bias"].any():
        tied = False
        ours.setdefault("output.weight", ours["embedding.weight"])
    if config.model.scale_embeddings:
        ours["embedding.weight"] = ours["embedding.weight"] * dim**0.5
    notes: tuple[str, ...] = ()
    if ours["output.bias"].any():
        _widen(ours, dim, heads)
        notes = (f"GPT-2 has no bias in its output layer: it is carried by {heads} coordinates beside the {dim}.",)
        epsilon *= dim / (dim + heads)
    width = len(ours["decoder.final_norm.weight"])
    recipes = _map_tensors("transformer.", width, [1.0] * stack.num_layers, tied=tied)
    values = {
        "model_type": "gpt2",
        "n_embd": width,
        "n_layer": stack.num_layers,
        "n_head": heads,
        "n_inner": stack.hidden_dim or 4 * dim,
        "n_positions": rows,
        "activation_function": name_bend(stack.activation),
        "layer_norm_epsilon": epsilon,
        "embd_pdrop": config.model.embedding_dropout,
        "resid_pdrop": stack.dropout,
        "attn_pdrop": stack.attention_dropout,
        "tie_word_embeddings": tied,
    }
    return Layout("GPT2LMHeadModel", values, recipes, longest=rows, notes=notes)


def _widen(ours: dict[str, Tensor], dim: int, heads: int) -> None:
    """Give the residual stream a coordinate more for each head, as the module says; names stay what they are."""
    head_dim, wider = dim // heads, dim + heads
    shrink = (dim / wider) ** 0.5

    def add_mean(rows: Tensor) -> Tensor:  # (…, D) → (…, D′)
        return torch.cat([rows, rows.mean(-1, keepdim=True).expand(*rows.shape[:-1], heads)], dim=-1)

    def ignore(rows: Tensor) -> Tensor:  # what reads the stream does not read the new coordinates
        return torch.nn.functional.pad(rows, (0, heads))

    def spread(rows: Tensor) -> Tensor:  # (3·H·K, …) → (3·H·(K + 1), …): each head has one more coordinate, 0
        parts = rows.unflatten(0, (-1, heads, head_dim))
        return torch.cat([parts, parts.new_zeros(len(parts), heads, 1, *rows.shape[1:])], dim=2).flatten(0, 2)

    for name in ("embedding.weight", "decoder.positions.positions.table.weight"):
        ours[name] = add_mean(ours[name])
    for name in [name for name in ours if name.startswith("decoder.blocks.")]:
        rows = ours[name]
        match name.split(".", 3)[3]:
            case "attention.in_projection.weight":
                ours[name] = _lengthen(spread(ignore(rows)), wider, ((head_dim + 1) / head_dim) ** 0.5)
            case "attention.in_projection.bias":
                ours[name] = _lengthen(spread(rows), wider, ((head_dim + 1) / head_dim) ** 0.5)
            case "attention.out_projection.weight":
                ours[name] = add_mean(spread(rows.t())).t()
            case "feedforward.expand.weight":
                ours[name] = ignore(rows)
            case "feedforward.contract.weight":
                ours[name] = add_mean(rows.t()).t()
            case "attention.out_projection.bias" | "feedforward.contract.bias":
                ours[name] = add_mean(rows)
            case "attention_residual.norm.weight" | "feedforward_residual.norm.weight":
                ours[name] = ignore(rows) * shrink
            case "attention_residual.norm.bias" | "feedforward_residual.norm.bias":
                ours[name] = ignore(rows)
    ours["decoder.final_norm.weight"] = ignore(ours["decoder.final_norm.weight"]) * shrink
    ours["decoder.final_norm.bias"] = ignore(ours["decoder.final_norm.bias"])
    ours["decoder.final_norm.bias"][dim] = 1.0
    ours["output.weight"] = ignore(ours["output.weight"])
    ours["output.weight"][:, dim] = ours["output.bias"]
    ours["output.bias"] = torch.zeros_like(ours["output.bias"])


def _lengthen(rows: Tensor, queries: int, factor: float) -> Tensor:
    """A wider head divides its scores by more: longer queries make up for it."""
    return torch.cat([rows[:queries] * factor, rows[queries:]])


def _map_tensors(prefix: str, dim: int, factors: list[float], *, tied: bool) -> Recipes:
    """`factors` are those of the queries of each layer."""
    recipes: Recipes = {
        "embedding.weight": take(f"{prefix}wte.weight"),
        "decoder.positions.positions.table.weight": take(f"{prefix}wpe.weight"),
        "output.bias": zeros_for(f"{prefix}wte.weight"),
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
