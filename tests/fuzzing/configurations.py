"""Random configurations: what a user could write, for every task, family and key, small enough to train in a second.

The keys are those of the configuration's own sections, so a new key, family, encoding or task is drawn as soon as it is
declared. Only the values that decide the size of a training are chosen here, by the name of their key.
"""

import random
import types
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from annotated_types import Ge, Gt, Le, Lt
from pydantic import BaseModel
from pydantic.fields import FieldInfo

from seqloom.config.base import CHOOSERS
from seqloom.config.batches import RecordBatches
from seqloom.config.faults import section_models
from seqloom.config.tokenizer import TokenizerFile
from seqloom.tasks import TASKS

Table = dict[str, Any]

SIZES: dict[str, tuple[Any, ...]] = {
    "alpha": (1.0, 16.0),
    "accumulate": (1, 1, 2, 3),
    "average": (0, 0, 2, 3),
    "base": (100.0, 10_000.0),
    "batch.tokens": (64, 160, 400),
    "buckets": (4, 8, 32),
    "clip": (0.5, 1.0, 3.0),
    "count": (2, 3),
    "dilation_base": (1, 2, 3),
    "distance": (17, 32, 128),
    "embedding_dim": (6, 16),
    "ema": (0.0, 0.9, 0.999),
    "epochs": (1, 2),
    "end_tokens": ([], ["a"]),
    "factor": (2.0, 8.0),
    "head_dim": (2, 4, 6),
    "first_position": (1, 2),
    "hidden_dim": (7, 16, 40),
    "keep": (2, 3, 5),
    "kernel": (1, 2, 3, 5),
    "learning_rate": (1e-4, 1e-3, 1e-2),
    "length": (8, 16, 33),
    "max_length": (6, 12, 40, 512),
    "memory_dim": (8, 16),
    "min_frequency": (1, 2),
    "model_dim": (8, 12, 16, 24, 30),
    "norm_epsilon": (1e-6, 1e-3),
    "num_heads": (1, 2, 4),
    "num_kv_heads": (1, 2),
    "num_layers": (1, 2, 3),
    "patience": (1, 2, 5),
    "pool": (1, 4, 256),
    "rank": (1, 4),
    "save_every": (1, 2, 3, 100),
    "seed": (1, 2, 3),
    "separator": (6,),
    "size": (30, 270, 330, 400),
    "table": (8, 12, 40, 64),
    "threads": (1,),
    "train.steps": (5, 8),
    "train.tokens": (400, 1_200),
    "validate_every": (2, 3, 4, 50),
    "target_vocab_size": (500, 1_024),
    "vocab_size": (500, 1_024),
    "warmup": (0, 2, 50),
    "weight": (0.5, 1.0, 2.0),
    "window": (1, 2, 5, 64),
}
"""The values of a key, by its name or by its last two names; the other keys follow from their types."""

LEFT_OUT = {"init", "initial_vectors", "features", "device", "compile", "sharding", "minutes", "freeze", "adapters"}
"""Keys that need a file, another machine or a clock. Trials give some of them in their own way."""


ALWAYS = {"model", "encoder", "decoder", "tokenizer"}
"""Sections that are always drawn, so that every family and tokeniser is met as often."""


def draw_configuration(task: str, rng: random.Random, data: Table) -> Table:
    """The tables of a configuration with this `[data]` table. Some of them are refused."""
    share = rng.choice((0.1, 0.3, 0.6))  # of the keys that are given: near to the defaults, and far from them
    config = _draw_section(TASKS[task], "", rng, share)
    config |= {"task": task, "data": data}
    if task == "word-vectors":
        config["vectors"] = config.get("vectors", {}) | {"dim": 8, "epochs": 1}
        return config
    config["size"] = "tiny"
    model = config.setdefault("model", {})
    for stack in {"encoder", "decoder"} & set(
        section_models(TASKS[task].model_fields["model"].annotation)[0].model_fields
    ):
        model.setdefault(stack, {}).setdefault("model_dim", 16)
        model[stack].setdefault("num_layers", 1)
    _fit_rows(TASKS[task], config)
    train = config.setdefault("train", {})
    for budget in [key for key in ("epochs", "steps", "tokens") if key in train][1:]:
        del train[budget]
    if not {"epochs", "steps", "tokens"} & train.keys():
        train["steps"] = 6
    train["threads"] = 1
    train.pop("judge_by", None)
    return config


def _fit_rows(task: type[BaseModel], config: Table) -> None:
    """Rows that are shorter than the smallest batch."""
    batch = config.setdefault("batch", {})
    if issubclass(section_models(task.model_fields["batch"].annotation)[0], RecordBatches):
        batch["max_length"] = min(batch.get("max_length", 40), batch.get("tokens", 400) // 2)
        return
    rows = batch.setdefault("rows", {"kind": "packed"})
    rows.setdefault("max_length" if rows["kind"] == "lines" else "length", 16)
    rows.update({key: min(rows[key], 33) for key in ("max_length", "length") if key in rows})


def _draw_section(section: type[BaseModel], path: str, rng: random.Random, share: float) -> Table:
    """Some of the keys of a section."""
    table: Table = {}
    for name, field in section.model_fields.items():
        if name in LEFT_OUT or name in ("data", "task", "judge_by"):
            continue
        if name in CHOOSERS:
            table[name] = rng.choice(get_args(field.annotation))
        elif field.is_required() or name in ALWAYS or rng.random() < share:
            table[name] = _draw_field(name, field, path, rng, share)
    return table


def _draw_field(name: str, field: FieldInfo, path: str, rng: random.Random, share: float) -> Any:
    here = f"{path}.{name}".lstrip(".")
    last = ".".join(here.split(".")[-2:])
    sizes = SIZES.get(last) or SIZES.get(name)
    return rng.choice(sizes) if sizes else _draw(field.annotation, field.metadata, here, rng, share)


def _draw(kind: Any, metadata: list[Any], path: str, rng: random.Random, share: float) -> Any:
    """A value of a type, within its bounds."""
    origin = get_origin(kind)
    if origin is Annotated:
        first, *more = get_args(kind)
        return _draw(first, [*metadata, *_bounds(more)], path, rng, share)
    if origin is Literal:
        return rng.choice(get_args(kind))
    if origin in (Union, types.UnionType):
        members = [
            member for member in get_args(kind) if member is not type(None) and TokenizerFile not in get_args(member)
        ]
        return _draw(rng.choice(members), metadata, path, rng, share)
    if origin is tuple:
        return [_draw(get_args(kind)[0], [], path, rng, share) for _ in range(rng.choice((0, 1, 1, 2)))]
    if isinstance(kind, type) and issubclass(kind, BaseModel):
        return _draw_section(kind, path, rng, share)
    if kind is bool:
        return rng.random() < 0.5
    low = max(
        (bound.ge if isinstance(bound, Ge) else bound.gt for bound in metadata if isinstance(bound, Ge | Gt)), default=0
    )
    high = min(
        (bound.le if isinstance(bound, Le) else bound.lt for bound in metadata if isinstance(bound, Le | Lt)),
        default=None,
    )
    if kind is int:
        return rng.choice((int(low) + 1, int(low) + 2, int(low) + 7))
    if kind is float:
        return rng.choice((low, low + 0.1, low + 0.5) if high == 1.0 else (low + 0.05, low + 1.5))
    raise TypeError(f"{path}: {kind} is not drawn yet; add it to SIZES or to this function")


def _bounds(metadata: list[Any]) -> list[Any]:
    """The bounds in `Field(gt=0)` and its like."""
    return [bound for entry in metadata for bound in (entry.metadata if isinstance(entry, FieldInfo) else [entry])]
