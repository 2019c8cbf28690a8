"""The values of a config.json, each with its type checked; what Seqloom does not support is refused by its key."""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from seqloom.config.positions import RotaryPositions
from seqloom.errors import DataError

_MAX = 1 << 31
Activation = Literal["relu", "gelu", "gelu-tanh", "silu", "tanh", "squared-relu"]
_ACTIVATIONS: Mapping[str, Activation] = {
    "relu": "relu",
    "gelu": "gelu",
    "gelu_python": "gelu",
    "gelu_new": "gelu-tanh",
    "gelu_fast": "gelu-tanh",
    "gelu_pytorch_tanh": "gelu-tanh",
    "silu": "silu",
    "swish": "silu",
    "tanh": "tanh",
    "relu2": "squared-relu",
}


def name_activation(activation: str) -> str:
    """Hugging Face's name of an activation function of ours."""
    return {"gelu-tanh": "gelu_pytorch_tanh", "squared-relu": "relu2"}.get(activation, activation)


def write_rotary(positions: RotaryPositions) -> dict[str, Any]:
    """Rotary positions as config.json stores them, for `Settings.rotary` to read."""
    scaling, base = positions.stretched, {"rope_theta": positions.base}
    if scaling is None:
        return {"rope_type": "default", **base}
    if scaling.length is None:
        return {"rope_type": "linear", "factor": scaling.factor, **base}
    bounds = {"low_freq_factor": scaling.low, "high_freq_factor": scaling.high}
    length = {"original_max_position_embeddings": scaling.length}
    return {"rope_type": "llama3", "factor": scaling.factor, **length, **bounds, **base}


class Settings:
    """The values of a config.json; null counts as absent."""

    def __init__(self, path: Path, values: Mapping[str, Any]) -> None:
        self.path = path
        self._values = {key: value for key, value in values.items() if value is not None}

    def __contains__(self, key: str) -> bool:
        return key in self._values

    def count(self, key: str, default: int | None = None) -> int:
        """A whole number above 0."""
        value = self._get(key, default)
        if type(value) is not int or not 0 < value < _MAX:
            raise self.refusal(key, f"expected a whole number above 0, not {str(value)[:40]!r}")
        return value

    def tokens(self, key: str) -> list[int]:
        """The ids of tokens: none, one, or a list; -1 stands for none."""
        value = self._values.get(key, [])
        ids = value if isinstance(value, list) else [] if value == -1 else [value]
        for id in ids:
            if type(id) is not int or not 0 <= id < _MAX:
                raise self.refusal(key, f"expected the id of a token, not {str(id)[:40]!r}")
        return ids

    def token(self, key: str) -> int | None:
        """The id of a token; from a list, the first."""
        return next(iter(self.tokens(key)), None)

    def number(self, key: str, default: float, *, below: float = 1e9) -> float:
        """A number, 0 or more."""
        value = self._get(key, default)
        if type(value) not in (int, float) or not 0 <= value < below:
            raise self.refusal(key, f"expected a number from 0 to {below:g}, not {str(value)[:40]!r}")
        return float(value)

    def rate(self, key: str, default: float = 0.0) -> float:
        """A dropout rate."""
        return self.number(key, default, below=1.0)

    def flag(self, key: str, default: bool) -> bool:
        """True or false."""
        value = self._get(key, default)
        if not isinstance(value, bool):
            raise self.refusal(key, f"expected true or false, not {str(value)[:40]!r}")
        return value

    def word(self, key: str, default: str | None = None) -> str:
        """A string."""
        value = self._get(key, default)
        if not isinstance(value, str):
            raise self.refusal(key, f"expected a string, not {str(value)[:40]!r}")
        return value

    def table(self, key: str) -> "Settings":
        """An object inside; an absent one is empty."""
        value = self._get(key, {})
        if not isinstance(value, dict):
            raise self.refusal(key, f"expected an object, not {str(value)[:40]!r}")
        return Settings(self.path, value)

    def activation(self, key: str, default: str) -> Activation:
        """An activation function that Seqloom has."""
        name = self.word(key, default)
        if name not in _ACTIVATIONS:
            raise self.refusal(key, f'Seqloom has no activation "{name[:40]}"; it has {", ".join(_ACTIVATIONS)}')
        return _ACTIVATIONS[name]

    def rotary(self, old_name: str = "rope_theta") -> dict[str, Any]:
        """Rotary positions (Su et al. 2021): their base, `old_name` in older files, and their scaling."""
        table = self.table("rope_parameters" if "rope_parameters" in self else "rope_scaling")
        if table.number("partial_rotary_factor", self.number("partial_rotary_factor", 1.0)) != 1.0:
            raise self.refusal("partial_rotary_factor", "rotary positions in only part of each head are not supported")
        positions: dict[str, Any] = {"kind": "rotary"}
        positions["base"] = table.number("rope_theta", self.number(old_name, 10_000.0))
        match table.word("rope_type", table.word("type", "default")):
            case "default":
                pass
            case "linear":
                positions["stretched"] = {"factor": table.number("factor", 1.0)}
            case "llama3":
                positions["stretched"] = {
                    "factor": table.number("factor", 8.0),
                    "length": table.count("original_max_position_embeddings"),
                    "low": table.number("low_freq_factor", 1.0),
                    "high": table.number("high_freq_factor", 4.0),
                }
            case kind:
                raise self.refusal("rope_scaling", f'rotary positions of type "{kind[:40]}" are not supported')
        return positions

    def get(self, key: str) -> Any:
        """The value as it is, None if absent."""
        return self._values.get(key)

    def labels(self, count: int) -> tuple[str, ...]:
        """The names of the labels."""
        named = self._get("id2label", {})
        if not isinstance(named, dict) or set(named) != {str(number) for number in range(count)}:
            return tuple(f"LABEL_{number}" for number in range(count))
        labels = tuple(str(named[str(number)]) for number in range(count))
        twice = next((label for label in labels if labels.count(label) > 1), None)
        if twice is not None:
            raise self.refusal("id2label", f"{twice!r} is the name of several labels; give each its own")
        return labels

    @property
    def architecture(self) -> str:
        """The class that wrote the folder; empty where none is named."""
        names = self._values.get("architectures")
        return str(names[0]) if isinstance(names, list) and names else ""

    def require_architecture(self, *allowed: str) -> None:
        """Refuse a model of another class; the class may be absent."""
        name = self.architecture
        if name and name not in allowed:
            raise self.refusal("architectures", f'"{name[:60]}" is not supported; {" and ".join(allowed)} are')

    def require(self, key: str, allowed: Collection[Any], why: str) -> None:
        """Refuse all other values; the key may be absent."""
        if key in self._values and self._values[key] not in allowed:
            raise self.refusal(key, f"{str(self._values[key])[:60]!r}: {why}")

    def refusal(self, key: str, what: str) -> DataError:
        """An error that names the file and the key."""
        return DataError(f"{self.path}: {key}: {what}")

    def _get(self, key: str, default: Any) -> Any:
        value = self._values.get(key, default)
        if value is None:
            raise self.refusal(key, "is missing")
        return value


@dataclass(frozen=True)
class Option:
    """An option of ours as a key of config.json: how its value is read, its default, and how it is written."""

    key: str
    read: Callable[..., Any]
    """A method of `Settings`, or a function like one."""
    default: Any = None
    write: Callable[[Any], Any] = lambda value: value
