"""What if: a change of a text or of a value inside the network, as a value that JSON can express.

    ablate    what a site gives is 0, or its mean over the positions of the unchanged trace, at every position
    scale     what a site gives is multiplied by a factor
    patch     what a site gives is what it gave in another trace, at all positions or at some (Vig et al. 2020)
    mask      the embeddings of a word are 0; its positions stay
    swap      a word of the text is another one

A change does not touch the network. It is applied in the open pass, and searches see it through `lens/changed.py`.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, get_args

from torch import Tensor

from seqloom.errors import ConfigError
from seqloom.lens.passes import Edit
from seqloom.lens.seen import Seen

ChangeKind = Literal["ablate", "scale", "mask", "swap", "patch"]
By = Literal["zero", "mean"]
_KEYS: dict[ChangeKind, tuple[str, ...]] = {
    "ablate": ("site", "by"),
    "scale": ("site", "factor"),
    "mask": ("side", "index"),
    "swap": ("side", "index", "text"),
    "patch": ("site", "from", "positions"),
}
_OPTIONAL = ("by", "positions")


@dataclass(frozen=True)
class Change:
    """One change of a trace."""

    kind: ChangeKind
    site: str = ""
    by: By = "zero"
    factor: float = 1.0
    side: str = ""
    index: int = 0
    """The index of a word."""
    text: str = ""
    origin: str = ""
    """The id of the trace that a patch comes from."""
    positions: tuple[int, ...] | None = None
    value: Tensor | None = field(default=None, compare=False, repr=False)
    """What a patch puts in."""

    def to_json(self) -> dict[str, Any]:
        """The change as a value that JSON can express."""
        own = {key: getattr(self, "origin" if key == "from" else key) for key in _KEYS[self.kind]}
        return {"kind": self.kind, **{key: value for key, value in own.items() if value is not None}}

    @classmethod
    def from_json(cls, given: Mapping[str, Any]) -> "Change":
        """A change that came as JSON; a wrong one is refused with a sentence."""
        kind: Any = given.get("kind")
        if kind not in get_args(ChangeKind):
            raise ConfigError(f"a change has a kind, one of {', '.join(get_args(ChangeKind))}, not {kind!r}")
        keys = _KEYS[kind]
        for key in given:
            if key != "kind" and key not in keys:
                raise ConfigError(f"{key}: a change of the kind {kind} has only {', '.join(keys)}")
        for key in keys:
            if key not in given and key not in _OPTIONAL:
                raise ConfigError(f"{key}: is missing; a change of the kind {kind} has {', '.join(keys)}")
        read = {("origin" if key == "from" else key): _read(key, given[key]) for key in keys if key in given}
        return cls(kind, **read)


def _read(key: str, value: Any) -> Any:
    kinds: dict[str, tuple[type, ...]] = {"factor": (int, float), "index": (int,), "positions": (list, tuple)}
    wanted = kinds.get(key, (str,))
    if not isinstance(value, wanted) or isinstance(value, bool):
        raise ConfigError(f"{key}: expected {wanted[0].__name__}, not {value!r}")
    if key == "by" and value not in get_args(By):
        raise ConfigError(f"by: expected {' or '.join(get_args(By))}, not {value!r}")
    return tuple(value) if isinstance(value, list) else value


def find_edits(change: Change, seen: Seen, unchanged: Seen) -> list[Edit]:
    """What a change does inside the network; `unchanged` is the same text without any."""
    if change.kind == "mask":
        word = seen.find_word(change.side, change.index)
        return [Edit(site, positions=word.tokens) for site in seen.open.embeddings[change.side]]
    seen.check_site(change.site)
    match change.kind:
        case "ablate":
            return [
                Edit(change.site, constant=unchanged.get_value(change.site).mean(0) if change.by == "mean" else None)
            ]
        case "scale":
            return [Edit(change.site, factor=change.factor)]
        case _:
            assert change.value is not None
            own, value = seen.get_value(change.site), change.value
            if change.positions is None and own.shape != value.shape:
                raise ConfigError(
                    f"{change.site} has {len(own)} positions here and {len(value)} in the other trace; "
                    "say which positions to patch"
                )
            return [Edit(change.site, constant=value, positions=change.positions)]
