"""A finished run in other formats: written to a temporary folder, run there, compared, and only then moved in place."""

import json
import shutil
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Literal, assert_never

from seqloom.errors import Notice, RunError, import_extra
from seqloom.hub import ctranslate2
from seqloom.hub.bundle import Bundle, widen_embeddings
from seqloom.hub.fidelity import TOLERANCE
from seqloom.hub.huggingface import export as huggingface
from seqloom.hub.huggingface.export import History
from seqloom.hub.onnx import export as onnx
from seqloom.predict.load import open_predictor
from seqloom.tasks.base import Judge, Task

Format = Literal["huggingface", "ctranslate2", "onnx"]


@dataclass(frozen=True)
class Export:
    """The folder that was written, and how far it differs from the run."""

    folder: Path
    format: Format
    kind: str
    """The class, or the files, of the format that hold the model."""
    difference: float
    """The largest difference from the run, relative to the largest value where that is above 1."""


def export(run: str | Path, to: Format, out: str | Path | None = None, *, licence: str = "unknown") -> Export:
    """Write the model of a run in another format; what the format cannot express is refused by the option's name."""
    source = Path(run)
    folder = Path(out) if out is not None else source.with_name(f"{source.resolve().name}-{to}")
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise RunError(f"{folder}: is not empty; choose another folder with `out`")
    loaded = open_predictor(source)
    model = widen_embeddings(Bundle(loaded.config, loaded.tokenizer, loaded.labels, loaded.network, loaded.seen))
    kind, write, check = _prepare(model, to, source, licence)
    unfinished = folder.with_name(f".{folder.name}.partial")
    shutil.rmtree(unfinished, ignore_errors=True)
    try:
        unfinished.mkdir(parents=True)
        write(unfinished)
        difference = check(unfinished)
        if not difference <= TOLERANCE:
            raise RunError(
                f"{folder}: the exported model differs from {source} by {difference:.2e}, more than rounding "
                f"explains ({TOLERANCE:.0e}); nothing was kept"
            )
        if folder.exists():
            folder.rmdir()
        unfinished.rename(folder)
    except OSError as error:
        raise RunError(f"{folder}: cannot be written: {error}; choose another folder with `out`") from None
    finally:
        shutil.rmtree(unfinished, ignore_errors=True)
    if to == "ctranslate2" and (ends := ctranslate2.describe_ends(model)):
        warnings.warn(f"{folder}: {ends}", Notice, stacklevel=2)
    return Export(folder, to, kind, difference)


def _prepare(
    model: Bundle, to: Format, source: Path, licence: str
) -> tuple[str, Callable[[Path], None], Callable[[Path], float]]:
    """What the model becomes, a function that writes it, and one that compares it; refused options raise an error."""
    match to:
        case "huggingface":
            import_extra("transformers", "export")
            plan, tensors = huggingface.plan_export(model)

            def write(folder: Path) -> None:
                huggingface.write_folder(model, plan, tensors, folder)
                history = read_history(source / "log.jsonl", model.config, model.labels)
                card = huggingface.write_card(model, plan, source.resolve().name, licence, history)
                (folder / "README.md").write_text(card, encoding="utf-8")

            return plan.architecture, write, partial(huggingface.check_folder, model, plan)
        case "ctranslate2":
            import_extra("ctranslate2", "export")
            kind = f"ctranslate2.{ctranslate2.find_kind(model)}"
            return kind, partial(ctranslate2.write_folder, model), partial(ctranslate2.check_folder, model)
        case "onnx":
            for library in ("onnx", "onnxscript", "onnxruntime"):
                import_extra(library, "export")
            graphs = onnx.plan_graphs(model)
            names = " + ".join(f"{graph.name}.onnx" for graph in graphs)
            return names, partial(onnx.write_folder, model, graphs), partial(onnx.check_folder, model, graphs)
        case _ as unreachable:
            assert_never(unreachable)


def read_history(path: Path, task: Task, labels: Sequence[str]) -> History:
    """What the log of a run says; an imported run has none, and averaged weights were never validated."""
    if not path.is_file():
        return History()
    entries = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    steps = max((entry["step"] for entry in entries), default=0)
    tokens = sum(entry.get("count", 0) for entry in entries)
    judged = [entry["valid"] for entry in entries if "valid" in entry and not task.train.average]
    best: dict[str, float] = max(judged, key=Judge(task, labels).score, default={})
    return History(steps, tokens, tuple((key, float(value)) for key, value in best.items()))
