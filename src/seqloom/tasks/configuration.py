"""TOML text to a validated configuration, and all of its faults at once."""

import tomllib
from collections.abc import Mapping, Sequence
from functools import reduce
from operator import or_
from pathlib import Path
from typing import Annotated, Any

from pydantic import BaseModel, Field, TypeAdapter, ValidationError

from seqloom.config.faults import describe, suggest
from seqloom.config.sizes import PRESETS, choose_size, fill_size
from seqloom.config.train import BUDGETS
from seqloom.errors import ConfigError
from seqloom.tasks import TASKS, Config


def load(path: str | Path, overrides: Sequence[str] = (), *, words: int | None = None) -> Config:
    """Read a configuration file; `overrides` are `section.key=value`, as on the command line.

    `words` is how many there are to learn from, once that is known: the size of the model follows it.
    """
    path = Path(path)
    return parse(read_text(path), overrides, name=str(path), base=path.parent, words=words)


def read_text(path: Path) -> str:
    """The text of a configuration file."""
    try:
        return path.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise ConfigError(f"{path}: there is no such file; `seqloom new TASK -o {path}` writes one") from None
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}: cannot be read: {error}") from None


def parse(
    text: str,
    overrides: Sequence[str] = (),
    *,
    name: str = "configuration",
    base: Path = Path(),
    words: int | None = None,
) -> Config:
    """The same from text; `name` stands in front of its faults, `base` is where relative paths start."""
    data = read_toml(text, name)
    replaced = find_replaced(data, overrides)
    overridden = [apply_override(data, override) for override in overrides]
    for budget in replaced:
        del data["train"][budget]
    return resolve(data, overridden, text=text, name=name, base=base, words=words)


def find_replaced(data: dict[str, Any], overrides: Sequence[str]) -> dict[str, Any]:
    """The budget in a file, with its value, where the command line gives one of another kind: that one counts."""
    given = {override.partition("=")[0].strip() for override in overrides} & {f"train.{name}" for name in BUDGETS}
    train = data.get("train")
    if not given or not isinstance(train, dict):
        return {}
    return {name: train[name] for name in BUDGETS if name in train and f"train.{name}" not in given}


def read_toml(text: str, name: str) -> dict[str, Any]:
    """The tables of TOML text."""
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"{name}: not TOML: {error}") from None


def as_table(value: Any) -> Any:
    """A mapping as TOML would give it: dotted keys as tables, lists instead of tuples, strings instead of paths."""
    match value:
        case Mapping():
            table: dict[str, Any] = {}
            for key, item in value.items():
                _set(table, str(key), as_table(item), str(key), merge=True)
            return table
        case list() | tuple():
            return [as_table(item) for item in value]
        case Path():
            return str(value)
        case _:
            return value


def resolve(
    data: dict[str, Any],
    overridden: Sequence[str] = (),
    *,
    text: str = "",
    name: str = "configuration",
    base: Path = Path(),
    words: int | None = None,
) -> Config:
    """The configuration of tables that were read; `text` is where its faults are located, but for `overridden` keys."""
    find_task(data.get("task"), f"{name}: task: ")
    task = data["task"]
    if isinstance(data.get("init"), str):
        _take_over(data, base / data["init"])
    if "size" in TASKS[task].model_fields:
        size = data.get("size", "auto")
        size = choose_size(words) if size == "auto" and words is not None else size
        if size in PRESETS:
            fill_size(data, size, _stacks(task))
    config: Config = validate(data, TASKS[task], text, name, overridden)
    return config


def find_task(name: Any, where: str = "") -> type[Config]:
    """The class of a task, or a ConfigError with the name that may be meant."""
    if isinstance(name, str) and name in TASKS:
        return TASKS[name]
    given = f'"{name}" is not a task{suggest(name, list(TASKS))}' if name is not None else "it is missing"
    raise ConfigError(f"{where}{given}; the tasks are {', '.join(TASKS)}")


def load_resolved(path: Path) -> Config:
    """Read the configuration that a run keeps: it says everything, so what it was made from may be gone."""
    data = read_toml(read_text(path), str(path))
    config: Config = validate(data, find_task(data.get("task"), f"{path}: task: "), "", str(path))
    return config


def validate(data: dict[str, Any], root: type[BaseModel], text: str, name: str, overrides: Sequence[str] = ()) -> Any:
    """Data as one of the root sections, or a ConfigError that lists every fault; `overrides` are keys not of `text`."""
    try:
        return root.model_validate(data)
    except ValidationError as error:
        faults = [describe(fault, root, text, overrides) for fault in error.errors(include_url=False)]
        count = "1 fault" if len(faults) == 1 else f"{len(faults)} faults"
        raise ConfigError(f"{name} has {count}:\n" + "\n".join(f"  {fault}" for fault in faults)) from None


def schema() -> dict[str, Any]:
    """The JSON schema of a configuration file, for editors."""
    tasks: Any = reduce(or_, TASKS.values())
    return TypeAdapter[Any](Annotated[tasks, Field(discriminator="task")]).json_schema()


def _take_over(data: dict[str, Any], run: Path) -> None:
    """What a fine-tuned model does not say about its encoder or decoder, it takes from the run it starts from."""
    path = run / "config.toml"
    if not path.exists():
        raise ConfigError(f'init: "{run}" is not a run; it has no config.toml')
    whole = read_toml(read_text(path), str(path))
    start = whole.get("model", {})
    model = data.setdefault("model", {})
    if not isinstance(model, dict):
        return
    if whole.get("task") == "bidirectional-language-model" and "features" in _model_fields(data["task"]):
        features = model.setdefault("features", {})
        if isinstance(features, dict):
            features.setdefault("model", start)
        data.setdefault("frame", whole["frame"])  # the special tokens that it knows
        return
    for stack in {"encoder", "decoder"} & start.keys() & _stacks(data["task"]):
        model[stack] = {**start[stack], **model.get(stack, {})}
    model.setdefault("scale_embeddings", start.get("scale_embeddings", True))
    keys = {"vocab_size", "segments"}
    if data["task"] == whole.get("task") == "translation":  # a decoder that goes on from where it was
        keys |= {"target_vocab_size", "tie_embeddings", "output_bias"}
        for frame in ("source_frame", "target_frame"):
            data.setdefault(frame, whole[frame])
    for key in keys & start.keys() & _model_fields(data["task"]):
        model.setdefault(key, start[key])


def _model_fields(task: str) -> set[str]:
    return set(TASKS[task].model_fields["model"].annotation.model_fields)  # type: ignore[union-attr]


def _stacks(task: str) -> set[str]:
    return {"encoder", "decoder"} & _model_fields(task)


def apply_override(data: dict[str, Any], override: str) -> str:
    """Set a key, which is returned."""
    key, equals, value = override.partition("=")
    if not equals or not key.strip():
        raise ConfigError(f'"{override}" is not of the form section.key=value, such as train.seed=7')
    _set(data, key.strip(), _value(value.strip()), override)
    return key.strip()


def _set(data: dict[str, Any], key: str, value: Any, shown: str, *, merge: bool = False) -> None:
    """Set a dotted key; a table replaces one that is there, or is merged into it."""
    first, _, rest = key.partition(".")
    if merge and not rest and isinstance(value, dict) and isinstance(data.get(first), dict):
        for name, item in value.items():
            _set(data[first], name, item, shown, merge=True)
    elif not rest:
        data[first] = value
    elif isinstance(inner := data.setdefault(first, {}), dict):
        _set(inner, rest, value, shown, merge=merge)
    else:
        raise ConfigError(f'"{shown}": {first} is a value, not a table')


def _value(text: str) -> Any:
    """A TOML value; anything that is none is taken as a string, so that quotes are not needed in a shell."""
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        return text
