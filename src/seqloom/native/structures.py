"""The structures of kernels.h as Python fills them in, and the signatures of its functions.

Nothing here is taken on trust: when the library is loaded, the size of each structure, the offset of each field and
each constant is compared with what the library says of itself.
"""

import ctypes
from types import SimpleNamespace
from typing import Any, ClassVar

ABI = 4
ACTIVATIONS = ("relu", "gelu", "gelu-tanh", "silu", "tanh", "squared-relu")
SEEN = ("everything", "past", "future")
PRECISIONS = ("float32", "bfloat16", "int8")

_int, _int64, _uint64, _float = ctypes.c_int32, ctypes.c_int64, ctypes.c_uint64, ctypes.c_float
_pointer = ctypes.c_void_p


class Linear(ctypes.Structure):
    """Weights in panels."""

    _fields_: ClassVar = [
        *((name, _pointer) for name in ("weight", "bias", "scales", "totals")),
        *((name, _int) for name in ("inputs", "outputs", "precision")),
    ]


class Norm(ctypes.Structure):
    """LayerNorm, or RMSNorm where there is no shift."""

    _fields_: ClassVar = [("gain", _pointer), ("shift", _pointer), ("epsilon", _float)]


class Block(ctypes.Structure):
    """A Transformer block."""

    _fields_: ClassVar = [
        *((name, _int) for name in ("model_dim", "heads", "kv_heads", "head_dim", "hidden_dim")),
        *((name, _int) for name in ("post_norm", "gated", "activation", "normalised")),
        *((name, Norm) for name in ("attention_norm", "cross_norm", "feedforward_norm")),
        *((name, Linear) for name in ("in", "out", "query", "cross_out", "expand", "contract")),
        ("frequencies", _pointer),
    ]


class Step(ctypes.Structure):
    """What a step reads and writes besides its rows."""

    _fields_: ClassVar = [
        *((name, _int) for name in ("batch", "beams", "tokens", "room", "source_length")),
        *((name, _pointer) for name in ("cache", "positions", "slots", "keys", "values", "source_bias", "weights")),
        *(("vectors", _pointer), ("longest", _int), ("vector_dim", _int)),
    ]


class Model(ctypes.Structure):
    """All that a decoder computes with, from tokens to scores."""

    _fields_: ClassVar = [
        *(("blocks", _pointer), ("table", _pointer)),
        *(("input_norm", Norm), ("final_norm", Norm), ("output", Linear)),
        *((name, _int) for name in ("count", "model_dim", "vocabulary")),
        ("factor", _float),
    ]


class Attention(ctypes.Structure):
    """Attention within packed sequences."""

    _fields_: ClassVar = [
        *((name, _int) for name in ("sequences", "heads", "groups", "dim", "sees", "normalised")),
        *((name, _int) for name in ("longest_query", "longest_key", "precision")),
        *((name, _pointer) for name in ("query_starts", "query_counts", "key_starts", "key_counts")),
        *((name, _pointer) for name in ("query", "key", "value")),
        *((name, _int64) for name in ("query_width", "key_width")),
        *((name, _pointer) for name in ("cosines", "sines")),
        *((name, _float) for name in ("scale", "rate")),
        ("seed", _uint64),
    ]


class Recurrence(ctypes.Structure):
    """An LSTM or a GRU over packed sequences."""

    _fields_: ClassVar = [
        ("rows", _int64),
        *((name, _int) for name in ("lines", "hidden", "gates", "reverse")),
        *((name, _pointer) for name in ("starts", "counts", "order", "weight", "bias", "initial")),
        *((name, _pointer) for name in ("values", "kept", "out")),
    ]


class RecurrenceGrads(ctypes.Structure):
    """What its backward pass reads and writes besides."""

    _fields_: ClassVar = [(name, _pointer) for name in ("grad", "last_grad", "changes", "before", "initial_grad")]


STRUCTURES = (Linear, Norm, Block, Step, Model, Attention, Recurrence, RecurrenceGrads)
_THREADS = ctypes.c_int
_ACTIVATION = (_THREADS, ctypes.c_int, ctypes.c_int, _int64, _int64, _pointer, _float, _uint64)
# What a function returns, and what it takes.
SIGNATURES: dict[str, tuple[Any, ...]] = {
    "packed_size": (_int64, _pointer),
    "pack": (None, _pointer, _int64, _int64, *[_pointer] * 3),
    "linear": (ctypes.c_int, _THREADS, _int64, *[_pointer] * 3),
    "step": (ctypes.c_int, _THREADS, _int, *[_pointer] * 7),
    "predict": (ctypes.c_int, _THREADS, *[_pointer] * 7),
    "finish": (ctypes.c_int, _THREADS, _pointer, _int, _int64, *[_pointer] * 3),
    "attend": (ctypes.c_int, _THREADS, *[_pointer] * 3),
    "differentiate_attention": (ctypes.c_int, _THREADS, *[_pointer] * 6),
    "recur": (ctypes.c_int, _THREADS, _pointer),
    "differentiate_recurrence": (ctypes.c_int, _THREADS, *[_pointer] * 2),
    "activate": (ctypes.c_int, *_ACTIVATION, *[_pointer] * 2),
    "differentiate_activation": (ctypes.c_int, *_ACTIVATION, *[_pointer] * 4),
    "drop": (None, _THREADS, _int64, _float, _uint64, *[_pointer] * 2),
    "add_dropped": (None, _THREADS, _int64, _float, _uint64, *[_pointer] * 3),
    "drop_short": (None, _THREADS, _int64, _float, _uint64, *[_pointer] * 2),
    "normalise_rows": (ctypes.c_int, _THREADS, _int64, _int64, *[_pointer] * 3),
    "differentiate_norm": (ctypes.c_int, _THREADS, _int64, _int64, *[_pointer] * 6),
    "normalise": (None, _THREADS, _int64, _int64, *[_pointer] * 3),
    "find_top": (None, _THREADS, _int64, _int64, _pointer, _int64, *[_pointer] * 3),
    "cross_entropy": (ctypes.c_int, _THREADS, ctypes.c_int, _int64, _int64, *[_pointer] * 3, _float, _pointer),
    "checksum": (ctypes.c_int, _THREADS, _int64, *[_pointer] * 4),
}


class Kernels(SimpleNamespace):
    """The functions of one level, each by its name in `SIGNATURES`."""

    def __init__(self, library: ctypes.CDLL, level: str) -> None:
        super().__init__(level=level)
        self.threaded = bool(library.seqloom_threaded())
        self.block = int(library.seqloom_fact(b"BLOCK"))
        """Scores whose largest is remembered."""
        for name, (result, *arguments) in SIGNATURES.items():
            function = getattr(library, f"seqloom_{name}_{level.replace('-', '_')}")
            function.restype, function.argtypes = result, arguments
            setattr(self, name, function)


def check(status: int) -> None:
    """Raise what a kernel's answer stands for."""
    if status == 1:
        raise MemoryError("there is not enough memory for this computation")
    if status == 2:
        raise IndexError("a position lies outside the key-value cache")
    if status == 3:
        raise IndexError("a slot is that of no beam")
    if status == 4:
        raise IndexError("a token lies outside the vocabulary")


def find_mismatch(library: ctypes.CDLL) -> str | None:
    """What the library says of itself otherwise than this file; None where they agree."""
    library.seqloom_fact.restype, library.seqloom_fact.argtypes = _int64, (ctypes.c_char_p,)
    library.seqloom_levels.restype = ctypes.c_char_p
    library.seqloom_supports.argtypes = (ctypes.c_char_p,)
    expected = {"ABI": ABI, "OK": 0, "NO_MEMORY": 1, "OUT_OF_ROOM": 2, "NO_SUCH_SLOT": 3, "NO_SUCH_TOKEN": 4}
    for names in (ACTIVATIONS, SEEN, PRECISIONS):
        expected |= {name.upper().replace("-", "_"): number for number, name in enumerate(names)}
    for structure in STRUCTURES:
        expected[structure.__name__] = ctypes.sizeof(structure)
        for field in structure._fields_:
            expected[f"{structure.__name__}.{field[0]}"] = getattr(structure, field[0]).offset
    for name, value in expected.items():
        found = library.seqloom_fact(name.encode())
        if found != value:
            return f"{name} is {found} in the library and {value} in the package"
    return None
