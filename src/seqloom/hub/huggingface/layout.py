"""A layout: how models of some types are stored in a Hugging Face folder.

To add one, write a file here with a subclass of `Layout`, and list it in `__init__.py`. A layout has fewer options than
Seqloom. An option that it cannot express is refused by name, before anything is written. Some options it expresses in
another way: computed positions become rows of a table, scaled embeddings become larger weights, and a missing bias
becomes 0.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatch
from pathlib import Path
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from seqloom.config.stacks import TransformerDecoderConfig
from seqloom.errors import DataError
from seqloom.hub.bundle import Bundle, make_config
from seqloom.hub.fidelity import (
    Stack,
    count_positions,
    refusal,
    require,
    require_transformer,
    resolve_stack,
    tabulate_positions,
)
from seqloom.hub.huggingface.files import Entry
from seqloom.hub.huggingface.recipes import Recipes
from seqloom.hub.huggingface.settings import Option, Settings
from seqloom.hub.huggingface.tokenizer import Frame, find_frame, find_frames
from seqloom.tasks import LanguageModelTask, Task
from seqloom.tasks.language_model import LanguageModelConfig
from seqloom.text import Tokenizer
from seqloom.text.roles import ROLES

_MAX_LENGTH = 4096  # tokens in a row, for a model that could read more
_TABLE = ("none", "index", "one-hot", "sinusoidal", "learned")
"""Positions that a table can hold."""


@dataclass(frozen=True)
class Folder:
    """An opened folder: everything but the weights themselves has been read."""

    path: Path
    settings: Settings
    weights: Mapping[str, Entry]
    tokenizer: Tokenizer

    def find_prefix(self, prefix: str) -> str:
        """The prefix that a model with a head has before the names of its encoder or decoder; empty without a head."""
        return prefix if any(name.startswith(prefix) for name in self.weights) else ""

    def count_layers(self, key: str, default: int | None = None) -> int:
        """A number of layers, refused if the folder cannot hold that many."""
        count = self.settings.count(key, default)
        if count > len(self.weights):
            raise self.settings.refusal(key, f"is {count}, but there are only {len(self.weights)} tensors")
        return count

    def read_options(self, options: Mapping[str, Option], **defaults: Any) -> dict[str, Any]:
        """The options of a stack by our names; `defaults` are those that depend on other keys."""
        self.count_layers(options["num_layers"].key)
        values = {}
        for name, option in options.items():
            default = defaults.get(name, option.default)
            values[name] = option.read(self.settings, option.key, *(() if default is None else (default,)))
        return values

    def find_source_frame(self, default: Frame) -> Frame:
        """The roles of the tokens around a source, as the tokeniser adds them; by `default`, where it does not say."""
        frames = find_frames(self.path, self.tokenizer, ("bos", "eos"))
        return default if frames is None else frames.text

    def find_end_tokens(self) -> list[str]:
        """The names of the tokens that end an answer, besides the one that is the end of a text."""
        known = (id for id in self.settings.tokens("eos_token_id") if id < self.tokenizer.vocab_size)
        return [self.tokenizer.token(id) for id in dict.fromkeys(known) if id != self.tokenizer.roles.eos]

    def find_start(self, default: str) -> list[str]:
        """The roles of what a decoder reads first: its start token, and the token it is forced to generate first."""
        found = []
        for key, role in {"decoder_start_token_id": default, "forced_bos_token_id": ""}.items():
            id = self.settings.token(key)
            if id is not None:
                role = next((role for role in ROLES if getattr(self.tokenizer.target.roles, role) == id), "")
                if not role:
                    reason = f"token {id} has no role in the tokeniser; a start token per language is not supported"
                    raise self.settings.refusal(key, reason)
            found += [role] if role else []
        return found

    def plan(
        self,
        task: str,
        model: dict[str, Any],
        recipes: Recipes,
        *,
        longest: int,
        labels: tuple[str, ...] = (),
        unused: Sequence[str] = (),
        **more: Any,
    ) -> "ImportPlan":
        """How to import the folder as a model for a task; `more` are other values of the configuration."""
        length = min(longest, _MAX_LENGTH)
        packed = {"rows": {"kind": "packed", "length": length}}  # no row begins with the end of another text
        batch = packed if task.endswith("language-model") else {"max_length": length}
        config = make_config(task, model, batch, str(self.settings.path), **more)
        return ImportPlan(self, config, recipes, labels, tuple(unused))

    def plan_language_model(
        self,
        decoder: dict[str, Any],
        recipes: Recipes,
        *,
        tied: bool,
        longest: int,
        embedding_dropout: float,
        unused: Sequence[str],
    ) -> "ImportPlan":
        """How to import the folder as a language model that has no bias in the output layer."""
        model = {
            "scale_embeddings": False,
            "embedding_dropout": embedding_dropout,
            "vocab_size": self.settings.count("vocab_size"),
            "tie_output": tied,
            "output_bias": False,
            "decoder": decoder,
        }
        frame, ends = find_frame(self.path, self.tokenizer), self.find_end_tokens()
        return self.plan("language-model", model, recipes, longest=longest, unused=unused, frame=frame, end_tokens=ends)


@dataclass(frozen=True)
class ImportPlan:
    """What a folder becomes: a configuration, and a recipe for each parameter."""

    folder: Folder
    config: Task
    recipes: Recipes
    labels: tuple[str, ...] = ()
    unused: tuple[str, ...] = ()
    """Patterns of the names of tensors that we do not need."""

    def check(self) -> None:
        """Refuse a folder whose tensors do not fit its configuration; no memory is allocated."""
        where, weights, tokens = self.folder.path, self.folder.weights, self.folder.tokenizer.vocab_size
        rows = self.config.model.vocab_size
        if rows is not None and rows < tokens:
            raise DataError(f"{where}: vocab_size: is {rows}, but there are {tokens} tokens")
        try:
            with torch.device("meta"):
                network = self._build()
        except (RuntimeError, OverflowError, TypeError) as error:
            raise DataError(f"{where}: no model can have the sizes in its configuration: {error}") from None
        wanted = {name: tuple(parameter.shape) for name, parameter in network.named_parameters()}
        if wanted.keys() != self.recipes.keys():
            raise AssertionError(f"recipes differ from parameters: {wanted.keys() ^ self.recipes.keys()}")
        used: set[str] = set()

        def outline(name: str) -> Tensor:
            if name not in weights:
                raise DataError(f"{where}: {name} is missing; its configuration asks for it")
            used.add(name)
            return weights[name].outline()

        for name, recipe in self.recipes.items():
            try:
                shape = tuple(recipe.read(outline).shape)
            except (RuntimeError, IndexError) as error:
                raise DataError(f"{where}: the tensors of {name} do not fit together: {error}") from None
            if shape != wanted[name]:
                raise DataError(f"{where}: {name} is {shape}, but by its configuration it is {wanted[name]}")
        left = [n for n in weights if n not in used and not any(fnmatch(n, pattern) for pattern in self.unused)]
        if left:
            more = f" and {len(left) - 3} more" if len(left) > 3 else ""
            raise DataError(f"{where}: Seqloom has no place for {', '.join(sorted(left)[:3])}{more}")

    @torch.no_grad()
    def load(self) -> Bundle:
        """The model with its weights."""
        network = self._build()
        for name, parameter in network.named_parameters():
            parameter.copy_(self.recipes[name].read(lambda stored: self.folder.weights[stored].read()))
        return Bundle(self.config, self.folder.tokenizer, self.labels, network.eval())

    def _build(self) -> nn.Module:
        return self.config.build(self.folder.tokenizer, self.labels)


@dataclass(frozen=True)
class ExportPlan:
    """A model of ours in a layout."""

    architecture: str
    """The class of `transformers` that loads it."""
    config: dict[str, Any]
    """The values of config.json that depend on the layout."""
    recipes: Recipes
    longest: int
    """How many tokens it reads at most."""
    generation: dict[str, Any] = field(default_factory=dict)
    """More values of generation_config.json."""
    files: dict[str, Any] = field(default_factory=dict)
    """More JSON files, by their path in the folder; None stands for an empty folder."""

    def convert(self, ours: dict[str, Tensor]) -> dict[str, Tensor]:
        """The tensors of the folder by name."""
        for name in self.recipes.keys() - ours.keys():
            if name.endswith(".bias"):
                weight = ours[name.removesuffix("bias") + "weight"]
                ours[name] = weight.new_zeros(len(weight))
        if self.recipes.keys() != ours.keys():
            raise AssertionError(f"recipes differ from parameters: {self.recipes.keys() ^ ours.keys()}")
        pairs = (pair for name, recipe in self.recipes.items() for pair in recipe.write(ours[name]))
        return {name: tensor.clone(memory_format=torch.contiguous_format) for name, tensor in pairs}


class Layout(ABC):
    """Reads folders of some model types, and writes models of ours as such folders."""

    model_types: ClassVar[tuple[str, ...]]
    """The values of `model_type` in config.json that it reads."""

    @abstractmethod
    def read(self, folder: Folder) -> ImportPlan:
        """How to import a folder."""

    @abstractmethod
    def fits(self, config: Task) -> bool:
        """Whether models like this are exported in this layout; of several that fit, the first in the list is used."""

    @abstractmethod
    def write(self, model: Bundle, ours: dict[str, Tensor]) -> ExportPlan:
        """How to export a model that fits; `ours` are its parameters, changed in place to those that the layout has."""


def write_options(stack: Stack, options: Mapping[str, Option]) -> dict[str, Any]:
    """The options of a stack by their keys."""
    values = resolve_stack(stack)
    return {option.key: option.write(values[name]) for name, option in options.items()}


def check_plain(config: Task, part: str, who: str) -> Stack:
    """The options of a stack, refused unless its layers are those of Vaswani et al. 2017."""
    stack, where = require_transformer(config, part, who, norm="layer", window=None), f"model.{part}"
    if stack.num_kv_heads not in (None, stack.num_heads):
        raise refusal(f"{where}.num_kv_heads", stack.num_kv_heads, f"{who} have as many as num_heads")
    if stack.head_dim not in (None, stack.model_dim // stack.num_heads):
        raise refusal(f"{where}.head_dim", stack.head_dim, f"{who} have model_dim / num_heads")
    if stack.activation.endswith("-gated"):
        raise refusal(f"{where}.activation", stack.activation, f"{who} have no gate")
    return stack


def check_decoder(config: Task, who: str) -> tuple[LanguageModelConfig, TransformerDecoderConfig]:
    """The options of a language model and its decoder, refused unless the layers are plain and pre-norm."""
    assert isinstance(config, LanguageModelTask)
    stack = check_plain(config, "decoder", who)
    assert isinstance(stack, TransformerDecoderConfig)
    require(stack, "model.decoder", who, norm_position="pre", input_norm=False)
    return config.model, stack


def tabulate(model: Bundle, stacks: Mapping[str, Stack], ours: dict[str, Tensor], who: str) -> int:
    """Write the positions of stacks into `ours` as tables, and return how many rows they have.

    Positions that are not added to the input are refused.
    """
    for part, stack in stacks.items():
        if stack.positions.kind not in _TABLE:
            reason = f'{who} have a table of positions; train with "sinusoidal", or export to onnx'
            raise refusal(f"model.{part}.positions", stack.positions.kind, reason)
    rows = count_positions(model, *stacks.values())
    for part, stack in stacks.items():
        positions = tabulate_positions(model.network.get_submodule(part), stack, rows)
        ours[f"{part}.positions.positions.table.weight"] = positions
    return rows


def untie_scaled(config: LanguageModelConfig, ours: dict[str, Tensor], who: str) -> bool:
    """Whether input and output share a table, which scaled embeddings cannot; a bias of the output is refused."""
    if config.output_bias:
        raise refusal("model.output_bias", True, f"{who} have no bias in the output layer; train without it")
    if config.scale_embeddings:
        ours.setdefault("output.weight", ours["embedding.weight"])
        ours["embedding.weight"] = ours["embedding.weight"] * config.decoder.model_dim**0.5
    return config.tie_output and not config.scale_embeddings
