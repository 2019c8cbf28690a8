"""A finished run in the formats of others: written beside, run there, compared, and only then put in its place."""

import json
import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, assert_never

from seqloom.errors import RunError
from seqloom.hub import ctranslate2
from seqloom.hub.card import History, write_card
from seqloom.hub.huggingface import export as huggingface
from seqloom.hub.imported import Imported
from seqloom.hub.onnx import export as onnx
from seqloom.hub.samples import TOLERANCE
from seqloom.predict.load import load
from seqloom.tasks.base import Judge, Task

Format = Literal["huggingface", "ctranslate2", "onnx"]
Write = Callable[[Path], float]
"""Writes a folder, runs what it wrote, and says the largest difference."""


@dataclass(frozen=True)
class Export:
    """What was written."""

    folder: Path
    format: Format
    kind: str
    """Which of the format's models it is."""
    difference: float
    """The largest difference from the run, as a share of the largest number where that is above 1."""


def export(run: str | Path, to: Format, out: str | Path | None = None, *, licence: str = "unknown") -> Export:
    """Write the model of a run in another format; what that cannot express is refused by the name of the option."""
    source = Path(run)
    folder = Path(out) if out is not None else source.with_name(f"{source.resolve().name}-{to}")
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise RunError(f"{folder}: is not empty; choose another folder with --out")
    loaded = load(source)
    model = Imported(loaded.config, loaded.tokenizer, loaded.labels, loaded.network)
    kind, write = _prepare(model, to, source, licence)
    partial = folder.with_name(f".{folder.name}.partial")
    shutil.rmtree(partial, ignore_errors=True)
    try:
        partial.mkdir(parents=True)
        difference = write(partial)
        if not difference <= TOLERANCE:
            raise RunError(
                f"{folder}: the exported model differs from {source} by {difference:.2e}, more than rounding "
                f"explains ({TOLERANCE:.0e}); nothing was kept"
            )
        if folder.exists():
            folder.rmdir()
        partial.rename(folder)
    except OSError as error:
        raise RunError(f"{folder}: cannot be written: {error}; choose another folder with --out") from None
    finally:
        shutil.rmtree(partial, ignore_errors=True)
    return Export(folder, to, kind, difference)


def _prepare(model: Imported, to: Format, source: Path, licence: str) -> tuple[str, Write]:
    """Refuse what the format cannot express; else what it will be, and how to write it."""
    match to:
        case "huggingface":
            huggingface.import_transformers()
            layout, tensors = huggingface.lay_out(model)

            def write(folder: Path) -> float:
                huggingface.write_folder(model, layout, tensors, folder)
                card = write_card(
                    source.resolve().name,
                    model.config,
                    licence=licence,
                    architecture=layout.architecture,
                    parameters=sum(parameter.numel() for parameter in model.network.parameters()),
                    vocabulary=model.tokenizer.vocab_size,
                    labels=model.labels,
                    history=read_history(source / "log.jsonl", model.config, model.labels),
                )
                (folder / "README.md").write_text(card, encoding="utf-8")
                return huggingface.check_folder(model, folder, layout)

            return layout.architecture, write
        case "ctranslate2":
            ctranslate2.import_ctranslate2()
            return f"ctranslate2.{ctranslate2.find_kind(model)}", lambda folder: ctranslate2.write_checked(
                model, folder
            )
        case "onnx":
            onnx.import_onnx()
            graphs = onnx.plan_graphs(model)
            names = " + ".join(f"{graph.name}.onnx" for graph in graphs)
            return names, lambda folder: onnx.write_checked(model, graphs, folder)
        case _ as unreachable:
            assert_never(unreachable)


def read_history(path: Path, task: Task, labels: Sequence[str]) -> History:
    """What the log of a run tells; an imported one has none, and an average of weights was never judged."""
    if not path.is_file():
        return History()
    entries = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    steps = max((entry["step"] for entry in entries), default=0)
    tokens = sum(entry.get("count", 0) for entry in entries)
    judged = [entry["valid"] for entry in entries if "valid" in entry and not task.train.average]
    best: dict[str, float] = max(judged, key=Judge(task, labels).score, default={})
    return History(steps, tokens, tuple((key, float(value)) for key, value in best.items()))
