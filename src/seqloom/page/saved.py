"""What a saved page holds: answers of the server, by their address, packed to a text that the page unpacks itself.

The packed form is gzip, in base64, of: eight bytes with the length of a JSON header, the header, numbers. The header is
{"answers": {address: JSON}, "tensors": {address: {"metadata": {}, "arrays": {name: [kind, shape, offset]}}}, "state"}.

Weights are kept so that every number the page shows has the digits that it has beside the model. Four decimals are
shown. Six are kept, cut off and not rounded, and the page reads n as (n + ½)·10⁻⁶: a number then lies on the same side
of every boundary between two shown ones. Each of the four bytes of these integers is stored in a plane of its own,
which halves the size after compression (Blosc's shuffle): the high planes are almost all zeros.
"""

import base64
import gzip
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

DECIMALS = 6
"""Of the weights in a saved page."""
_LARGEST = 2**31 / 10**DECIMALS  # what fits: a bit is for the sign

Arrays = Mapping[str, NDArray[Any]]


@dataclass
class Saved:
    """Answers for a saved page."""

    answers: dict[str, Any] = field(default_factory=dict)
    """JSON, by address: "/trace/x/lens?position=0&top=5"; parameters are in alphabetical order."""
    tensors: dict[str, tuple[Arrays, Mapping[str, Any]]] = field(default_factory=dict)
    """Arrays and what is said about them, by address."""
    state: dict[str, str] = field(default_factory=dict)
    """What the page opens with, if its address says nothing."""

    def pack(self) -> str:
        """Everything as one text."""
        body, tensors = bytearray(), {}
        for address, (arrays, metadata) in self.tensors.items():
            noted = {}
            for name, array in arrays.items():
                kind, data = encode(array)
                noted[name] = [kind, list(array.shape), len(body)]
                body += data
            tensors[address] = {"metadata": dict(metadata), "arrays": noted}
        header = {"answers": self.answers, "tensors": tensors, "state": self.state}
        text = json.dumps(header, ensure_ascii=False, separators=(",", ":"), allow_nan=False).encode()
        whole = len(text).to_bytes(8, "little") + text + bytes(body)
        return base64.b64encode(gzip.compress(whole, 9, mtime=0)).decode()


def encode(array: NDArray[Any]) -> tuple[str, bytes]:
    """The kind and the bytes of an array: bytes as they are, others as decimals, or as floats where they are large."""
    if array.dtype == np.uint8:
        return "bytes", array.tobytes()
    exact = array.astype(np.float64)
    if not np.isfinite(exact).all() or np.abs(exact).max(initial=0.0) >= _LARGEST:
        return "floats", array.astype("<f4").tobytes()
    # A float32 times 10⁶ is exact in float64, so that no digit is decided by rounding.
    cut = np.floor(np.abs(exact) * 10**DECIMALS).astype(np.uint32)
    coded = (cut << np.uint32(1)) | np.signbit(exact).astype(np.uint32)
    planes = coded.astype("<u4").reshape(-1, 1).view(np.uint8)
    return "decimals", np.ascontiguousarray(planes.T).tobytes()
