"""The way out: what a layout of theirs asks of a model of ours, and what it then says of it.

A layout has fewer options than Seqloom. What one cannot express is refused by the name of the option that prevents it,
before anything is written. Some things it expresses in another way: fixed positions are rows of a table, scaled
embeddings are larger numbers, a bias that is not there is 0.
"""

import json
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from seqloom.config.batches import LineRows, SampleBatches
from seqloom.config.stacks import DecoderConfig, EncoderConfig, TransformerDecoderConfig, TransformerEncoderConfig
from seqloom.decoders.transformer import TransformerDecoder
from seqloom.encoders.transformer import TransformerEncoder
from seqloom.errors import RunError
from seqloom.hub.huggingface.plan import Recipes
from seqloom.tasks import LanguageModelTask, Task
from seqloom.tasks.language_model import LanguageModelConfig

Stack = TransformerEncoderConfig | TransformerDecoderConfig
_TABLE = ("none", "index", "one-hot", "sinusoidal", "learned")
"""Positions that a table can hold."""
_SHORTEST_TABLE = 1024


@dataclass(frozen=True)
class Layout:
    """A model of ours in their terms."""

    architecture: str
    config: dict[str, Any]
    """The values of config.json that depend on the layout."""
    recipes: Recipes
    longest: int
    """How many tokens it reads at most."""
    generation: dict[str, Any] = field(default_factory=dict)
    """What `generate` must be told beside what follows from the tokens."""

    def convert(self, ours: dict[str, Tensor]) -> dict[str, Tensor]:
        """Their tensors by name."""
        for name in self.recipes.keys() - ours.keys():
            if name.endswith(".bias"):
                ours[name] = ours[name.removesuffix("bias") + "weight"].new_zeros(
                    len(ours[name.removesuffix("bias") + "weight"])
                )
        if self.recipes.keys() != ours.keys():
            raise AssertionError(f"recipes differ from parameters: {self.recipes.keys() ^ ours.keys()}")
        pairs = (pair for name, recipe in self.recipes.items() for pair in recipe.undo(ours[name]))
        return {name: tensor.clone(memory_format=torch.contiguous_format) for name, tensor in pairs}


def refuse(key: str, value: Any, why: str) -> RunError:
    """An error that names the option."""
    return RunError(f"{key} = {json.dumps(value)}: cannot be exported: {why}")


def require(section: Any, where: str, who: str, **wanted: Any) -> None:
    """Refuse a section whose options differ from these."""
    for key, value in wanted.items():
        given = getattr(section, key, value)
        if given != value:
            said = "have none of it" if value is None else f"have {json.dumps(value)}"
            raise refuse(f"{where}.{key}", given, f"{who} {said}")


def check_plain(stack: EncoderConfig | DecoderConfig, where: str, who: str) -> None:
    """Layers as Vaswani et al. 2017 have them: LayerNorm, as many keys as queries, no gate."""
    require(stack, where, who, family="transformer", direction="both")
    assert isinstance(stack, Stack)
    require(stack, where, who, norm="layer", window=None, normalise_qk=False)
    if stack.num_kv_heads not in (None, stack.num_heads):
        raise refuse(f"{where}.num_kv_heads", stack.num_kv_heads, f"{who} have num_heads of them")
    if stack.head_dim not in (None, stack.model_dim // stack.num_heads):
        raise refuse(f"{where}.head_dim", stack.head_dim, f"{who} have model_dim / num_heads")
    if stack.activation.endswith("-gated"):
        raise refuse(f"{where}.activation", stack.activation, f"{who} have no gate")


def check_decoder(config: Task, who: str) -> tuple[LanguageModelTask, TransformerDecoderConfig]:
    """A language model of plain layers, with pre-norm."""
    assert isinstance(config, LanguageModelTask)
    stack = config.model.decoder
    check_plain(stack, "model.decoder", who)
    assert isinstance(stack, TransformerDecoderConfig)
    require(stack, "model.decoder", who, norm_position="pre", input_norm=False)
    return config, stack


def check_table(stack: Stack, where: str, who: str) -> None:
    """Positions that are added to the input."""
    if stack.positions.kind not in _TABLE:
        reason = f'{who} have a table of positions; train with "sinusoidal", or export --to onnx'
        raise refuse(f"{where}.positions", stack.positions.kind, reason)
    if getattr(stack.positions, "combine", "sum") != "sum":
        raise refuse(f"{where}.positions.combine", "concat", f"{who} add positions")


def part_tables(config: LanguageModelConfig, ours: dict[str, Tensor], dim: int, who: str) -> bool:
    """Refuse a bias in the output layer; whether its table is that of the input, which scaled embeddings are not."""
    if config.output_bias:
        raise refuse("model.output_bias", True, f"{who} have no bias in the output layer; train without it")
    if config.scale_embeddings:
        ours.setdefault("output.weight", ours["embedding.weight"])
        ours["embedding.weight"] = ours["embedding.weight"] * dim**0.5
    return config.tie_output and not config.scale_embeddings


def choose_rows(config: Task, *stacks: Stack) -> int:
    """The rows of a table of positions: as many as there are or, for positions without an end, enough."""
    tables = [table for stack in stacks if (table := getattr(stack.positions, "table", None)) is not None]
    return min(tables) if tables else max(_SHORTEST_TABLE, 2 * find_row_length(config) + 16)


def find_row_length(config: Task) -> int:
    """The most tokens in a row while training."""
    batch = config.batch
    if isinstance(batch, SampleBatches):
        return batch.max_length
    return batch.rows.max_length if isinstance(batch.rows, LineRows) else batch.rows.length


@torch.no_grad()
def tabulate(stack: nn.Module, config: Stack, rows: int) -> Tensor:
    """The positions of a stack as the rows of a table."""
    assert isinstance(stack, TransformerEncoder | TransformerDecoder)
    if stack.positions is None:
        return torch.zeros(rows, config.model_dim)
    vectors = stack.positions.tabulate(rows, torch.device("cpu")).vectors
    assert vectors is not None
    return nn.functional.pad(vectors, (0, config.model_dim - vectors.shape[-1]))
