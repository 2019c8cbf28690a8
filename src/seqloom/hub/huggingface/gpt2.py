"""GPT-2 (Radford et al. 2019): a decoder alone, pre-norm. Its matrices are stored transposed (in × out)."""

from collections.abc import Iterator

from torch import Tensor

from seqloom.hub.bundle import Bundle
from seqloom.hub.fidelity import count_positions, tabulate_positions
from seqloom.hub.huggingface.layout import (
    ExportPlan,
    Folder,
    ImportPlan,
    Layout,
    check_decoder,
    check_table,
    untie_scaled,
    write_options,
)
from seqloom.hub.huggingface.recipes import Recipe, Recipes, copy, linear, scale_queries, transpose
from seqloom.hub.huggingface.settings import Option, Settings, name_activation
from seqloom.tasks import LanguageModelTask, Task

_OPTIONS = {
    "num_layers": Option("n_layer", Settings.count),
    "model_dim": Option("n_embd", Settings.count),
    "num_heads": Option("n_head", Settings.count),
    "hidden_dim": Option("n_inner", Settings.count),
    "activation": Option("activation_function", Settings.activation, "gelu_new", name_activation),
    "norm_epsilon": Option("layer_norm_epsilon", Settings.number, 1e-5),
    "dropout": Option("resid_pdrop", Settings.rate),
    "attention_dropout": Option("attn_pdrop", Settings.rate),
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
        decoder = folder.read_options(_OPTIONS, hidden_dim=4 * dim)
        decoder["positions"] = {"kind": "learned", "table": longest}
        heads, layers = decoder["num_heads"], decoder["num_layers"]
        factor = 1.0 if settings.flag("scale_attn_weights", True) else (dim / heads) ** 0.5
        by_layer = settings.flag("scale_attn_by_inverse_layer_idx", False)
        factors = [factor / (index + 1) if by_layer else factor for index in range(layers)]
        return folder.plan_language_model(
            decoder,
            _map_tensors(folder.find_prefix("transformer."), dim, factors, tied=tied),
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
        check_table(stack, "model.decoder", who)
        rows, dim = count_positions(model, stack), stack.model_dim
        positions = tabulate_positions(model.network.get_submodule("decoder"), stack, rows)
        ours["decoder.positions.positions.table.weight"] = positions
        tied = untie_scaled(config.model, ours, dim, who)
        values = {
            "model_type": "gpt2",
            **write_options(stack, _OPTIONS),
            "n_positions": rows,
            "embd_pdrop": config.model.embedding_dropout,
            "tie_word_embeddings": tied,
        }
        recipes = _map_tensors("transformer.", dim, [1.0] * stack.num_layers, tied=tied)
        return ExportPlan("GPT2LMHeadModel", values, recipes, longest=rows)


def _map_tensors(prefix: str, dim: int, factors: list[float], *, tied: bool) -> Recipes:
    """`factors` multiply the queries of each layer."""
    recipes: Recipes = {
        "embedding.weight": copy(f"{prefix}wte.weight"),
        "decoder.positions.positions.table.weight": copy(f"{prefix}wpe.weight"),
        **dict(linear("decoder.final_norm", f"{prefix}ln_f")),
    }
    if not tied:
        recipes["output.weight"] = copy("lm_head.weight")
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
        weight, bias = transpose(f"{theirs}{their_name}.weight"), copy(f"{theirs}{their_name}.bias")
        if our_name == "attention.in_projection":
            weight, bias = scale_queries(weight, dim, factor), scale_queries(bias, dim, factor)
        yield f"{ours}{our_name}.weight", weight
        yield f"{ours}{our_name}.bias", bias
    yield from linear(f"{ours}attention_residual.norm", f"{theirs}ln_1")
    yield from linear(f"{ours}feedforward_residual.norm", f"{theirs}ln_2")
