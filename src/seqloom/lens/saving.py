"""A trace as one HTML file: the answers that the page may ask for, as far as they fit.

The file opens from disk, without the model. It holds all maps with their numbers if these fit, the arithmetic of the
strongest weight of each, and the reasons of each prediction; what it does not hold, it says.
"""

import tempfile
import warnings
import webbrowser
import zlib
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode

import numpy as np
from numpy.typing import NDArray

from seqloom.errors import ConfigError, Notice, SeqloomError
from seqloom.files import write_whole
from seqloom.page.bundle import saved_page
from seqloom.page.saved import Saved, encode

if TYPE_CHECKING:
    from seqloom.lens.trace import Trace

MAP_BYTES = 3_200_000
"""For maps, compressed; in base64 they take a third more."""
POSITIONS = 64
"""Predictions whose reasons are in the file."""
NEEDS_MODEL = "A saved page does not hold the model, which this view needs. Open it with: seqloom explore RUN"
_MODEL_VIEWS = {"change": NEEDS_MODEL, "words": NEEDS_MODEL, "runs": NEEDS_MODEL}


def save_page(trace: "Trace", file: Path) -> Path:
    """Write the page of a trace."""
    try:
        write_whole(file, saved_page(record(trace)).encode())
    except OSError as error:
        raise ConfigError(f"{file} cannot be written: {error.strerror}") from None
    return file


def show_page(trace: "Trace") -> Path:
    """Write the page of a trace into a temporary file, and open it in the browser."""
    file = save_page(trace, Path(tempfile.mkdtemp(prefix="seqloom-")) / "trace.html")
    if not webbrowser.open(file.as_uri()):
        warnings.warn(f"no browser could be opened here; open {file} yourself", Notice, stacklevel=3)
    return file


def record(
    trace: "Trace",
    meta: Mapping[str, Any] | None = None,
    model: Mapping[str, Any] | None = None,
    state: Mapping[str, str] | None = None,
) -> Saved:
    """What a saved page answers; `meta` describes the trace, `model` the model, `state` is what the page opens with."""
    meta, model = meta or trace.to_json(), model or describe_model(trace)
    saved = Saved(state=dict(state or {}))
    recorder = _Recorder(trace, meta["id"], saved)
    recorder.add_maps()
    recorder.add_reasons()
    note = "This is a saved page. Change, Words and Runs need the model itself: seqloom explore RUN."
    saved.answers["/model"] = {**model, "views": {**model.get("views", {}), **_MODEL_VIEWS}}
    saved.answers["/trace"] = {
        **meta,
        "views": {**meta["views"], **_MODEL_VIEWS},
        "notes": [note, *recorder.notes, *meta["notes"]],
    }
    return saved


def describe_model(trace: "Trace") -> dict[str, Any]:
    """What a page says about the model of a trace that nobody has given a name."""
    families = dict.fromkeys(stack.family for stack in trace.stacks if stack.kind != "pool")
    return {"name": "Trace", "task": trace.task, "families": list(families), "example": trace.to_json()["request"]}


class _Recorder:
    """Asks a trace what the page will ask for."""

    def __init__(self, trace: "Trace", id: str, saved: Saved) -> None:
        self._trace, self._id, self._saved = trace, id, saved
        self.notes: list[str] = []

    def _address(self, what: str, **parameters: object) -> str:
        """The address of an answer, as `address` in source.js writes it."""
        given = sorted((key, str(value)) for key, value in parameters.items())
        return f"/trace/{self._id}/{what}" + (f"?{urlencode(given)}" if given else "")

    def add_maps(self) -> None:
        """Thumbnails of all maps; then whole maps, first the one that is shown, then all weights, then all norms."""
        trace, saved = self._trace, self._saved
        for stack in trace.stacks:
            sites = [site for layer in stack.layers for site in layer.sites]
            grid = trace.grid(stack.name).cpu().numpy()
            saved.tensors[self._address("grid", stack=stack.name)] = ({"grid": grid}, {"sites": sites})
            with suppress(SeqloomError):
                saved.answers[self._address("roles", stack=stack.name)] = _shorten(trace.roles(stack.name).to_json())
        shown = saved.state.get("site")
        wanted = [(norm, site) for norm in (False, True) for site in sorted(trace.sites, key=lambda one: one != shown)]
        left = MAP_BYTES
        for kept, (norm, site) in enumerate(wanted):
            weights = trace.mixing(site, norm=norm).float().cpu().numpy()
            left -= len(zlib.compress(encode(weights)[1], 1))
            if left < 0:
                self.notes.append(f"It holds the numbers of {kept} maps out of {len(wanted)}, and thumbnails of all.")
                return
            more, about = ({"norm": 1}, {}) if norm else ({}, {"cell": self._add_arithmetic(site, weights)})
            saved.tensors[self._address("mixing", site=site, **more)] = ({"weights": weights}, about)

    def _add_arithmetic(self, site: str, weights: NDArray[np.float32]) -> tuple[int, int]:
        """The arithmetic of one weight of a map: the one that is asked for, or the strongest."""
        state = self._saved.state
        asked = (state.get("row", ""), state.get("column", ""))
        if state.get("site") == site and all(part.isdecimal() for part in asked):
            row, column = (int(part) for part in asked)
        else:
            row, column = self._find_strongest(site, weights)
        address = self._address("arithmetic", site=site, row=row, column=column)
        self._saved.answers[address] = _shorten(self._trace.arithmetic(site, row, column).to_json())
        return row, column

    def _find_strongest(self, site: str, weights: NDArray[np.float32]) -> tuple[int, int]:
        """The largest weight between two different positions that are not special; the page chooses in the same way."""
        stack = next(stack for stack in self._trace.stacks for layer in stack.layers if site in layer.sites)
        sizes = np.abs(weights)
        for axis, name in enumerate((stack.queries, stack.keys)):
            special = np.array([token.special for token in self._trace.side(name).tokens])
            if len(special) == sizes.shape[axis] and not special.all():
                sizes = np.where(np.expand_dims(special, 1 - axis), -1.0, sizes)
        if stack.queries == stack.keys and len(sizes) > 1:
            np.fill_diagonal(sizes, -1.0)
        row, column = np.unravel_index(int(np.argmax(sizes)), sizes.shape)
        return int(row), int(column)

    def add_reasons(self) -> None:
        """For each prediction: what speaks for it, component by component and token by token, and layer by layer."""
        trace, saved = self._trace, self._saved
        for position in range(min(len(trace.predictions), POSITIONS)):
            with suppress(SeqloomError):
                found = trace.attribute(position).to_json()
                saved.answers[self._address("attribution", position=position)] = _shorten(found)
            with suppress(SeqloomError):
                found = trace.contributions(position).to_json()
                saved.answers[self._address("contributions", position=position)] = _shorten(found)
            with suppress(SeqloomError):
                layers = [asdict(layer) for layer in trace.lens(position)]
                saved.answers[self._address("lens", position=position)] = _shorten({"layers": layers})
        if len(trace.predictions) > POSITIONS:
            self.notes.append(f"It holds the reasons of the first {POSITIONS} of {len(trace.predictions)} predictions.")
        with suppress(SeqloomError):
            saved.answers[self._address("alignment")] = _shorten(trace.alignment().to_json())
        with suppress(SeqloomError):
            saved.answers[self._address("search")] = _shorten(trace.search.to_json())


def _shorten(value: Any) -> Any:
    """Numbers with as many digits as a float32 has: that is what they were, and JSON would write twice as many."""
    match value:
        case float():
            return float(str(np.float32(value)))
        case dict():
            return {key: _shorten(item) for key, item in value.items()}
        case list() | tuple():
            return [_shorten(item) for item in value]
        case _:
            return value
