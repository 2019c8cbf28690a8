"""How it grows: tiny cells of bench/growth.py, each in a process of its own, and its page from made-up numbers."""

import sys
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def bench() -> Any:
    """Its modules import each other, as if one had started it."""
    sys.path.insert(0, str(ROOT / "bench"))
    yield import_module("growth")
    sys.path.remove(str(ROOT / "bench"))


CELLS = [
    ("length", "training, LSTM", 1200),
    ("length", "training, relative", 1200),
    ("length", "scoring, ALiBi", 1200),
    ("width", "Transformer", 32),
    ("depth", "Transformer", 1),
    ("vocabulary", "Transformer", 100),
    ("preparation", "check", 300),
    ("preparation", "learn the tokeniser", 300),
    ("preparation", "encode", 300),
    ("preparation", "hand out chunks", 300),
    ("corpus", "pairs", 100_000),
    ("bulk", "hand out lines", 2000),
]


def test_tiny_cells(bench: Any, tmp_path: Path) -> None:
    with bench.start_processes() as processes:
        for cell in CELLS:
            found = processes.apply(bench.Cell(*cell).measure, (tmp_path,))
            assert found["seconds"] > 0.0, cell
            assert 0.0 < found["peak"] < 500.0, cell


@pytest.mark.long
def test_a_bulk_job_and_processes(bench: Any, tmp_path: Path) -> None:
    with bench.start_processes() as processes:
        assert processes.apply(bench.Cell("bulk", "translate", 50).measure, (tmp_path,))["seconds"] > 0.0
        found = processes.apply(bench.Cell("processes", "Transformer", 2).measure, (tmp_path,))
    assert found["seconds"] > 0.0
    assert "sent" not in found or found["sent"] >= 2 * 4 * found["weights"], "each sends its gradients once"


def test_the_page_names_every_wall(bench: Any) -> None:
    kept = {
        f"{name}/{variant}/{size}": {
            "seconds": 1e-6 * size**1.5, "peak": 1e-4 * size, "kept": 5e-5 * size, "weights": 1e3 * size, "sent": 1.7e8,
            "bytes": 70 * size, "disk": 60 * size, "pairs": size, "tokens": 30.0, "open": 1e-9 * size, "lengths": 0.1,
            "order": 0.1, "jump": 0.03, "batch": 0.001, "date": "2026-11-19", "machine": "a machine",
        }
        for name, axis in bench.AXES.items()
        for variant, sizes in axis.variants.items()
        for size in sizes
    }  # fmt: skip
    variants = {name: [*axis.variants] for name, axis in bench.AXES.items()}
    text, picture = bench.write_page(bench.Grown(kept), variants)
    assert text.count("**The wall.**") == len(variants)
    assert "not measured" not in text
    assert "| 1.50 | 1.00   |" in text, "the exponents the numbers were made with"
    assert picture.startswith("<svg")
    text, _ = bench.write_page(bench.Grown({}), variants)
    assert text.count("is not known yet") == len(variants)
