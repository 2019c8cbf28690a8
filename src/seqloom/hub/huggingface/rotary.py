"""Rotary positions (Su et al. 2021) as config.json tells them."""

from typing import Any

from seqloom.config.positions import RotaryPositions
from seqloom.hub.huggingface.settings import Settings


def write_rotary(positions: RotaryPositions) -> dict[str, Any]:
    """The way back from `read_rotary`."""
    slower, base = positions.stretched, {"rope_theta": positions.base}
    if slower is None:
        return {"rope_type": "default", **base}
    if slower.length is None:
        return {"rope_type": "linear", "factor": slower.factor, **base}
    bounds = {"low_freq_factor": slower.low, "high_freq_factor": slower.high}
    length = {"original_max_position_embeddings": slower.length}
    return {"rope_type": "llama3", "factor": slower.factor, **length, **bounds, **base}


def read_rotary(settings: Settings, old_name: str = "rope_theta") -> dict[str, Any]:
    """The base of the rotary angles, which older files have apart, and by how much they are slower than it says."""
    table = settings.table("rope_parameters" if "rope_parameters" in settings else "rope_scaling")
    positions: dict[str, Any] = {"kind": "rotary"}
    positions["base"] = table.number("rope_theta", settings.number(old_name, 10_000.0))
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
            raise settings.refusal("rope_scaling", f'rotary positions of type "{kind[:40]}" are not supported')
    return positions
