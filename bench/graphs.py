"""The graph of all-MiniLM-L6-v2 in ONNX Runtime and OpenVINO, for bench/embed.py.

These are the runtimes of sentence-transformers' other backends, without its own code around them. The graph is what
torch.onnx makes of the `transformers` model. ONNX Runtime's own tool makes it int8 (per_channel, activations when they
are known); NNCF does so for OpenVINO, where it is installed, with ranges of activations found on some of the texts.
"""

import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import torch

BATCH, LONGEST, CALIBRATED = 32, 256, 20
Run = Callable[[np.ndarray, np.ndarray], np.ndarray]


def write_graphs(folder: Path, into: Path) -> None:
    """The graph in float32, and ONNX Runtime's in int8."""
    from onnxruntime.quantization import QuantType, quantize_dynamic
    from transformers import AutoModel

    class States(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.bert = AutoModel.from_pretrained(folder).eval()

        def forward(self, ids: torch.Tensor, mask: torch.Tensor) -> Any:
            given = {"token_type_ids": torch.zeros_like(ids), "position_ids": torch.arange(ids.shape[1])[None]}
            return self.bert(input_ids=ids, attention_mask=mask, **given).last_hidden_state

    states, path = States().eval(), into / "float32.onnx"
    ids, mask = torch.randint(1000, 2000, (3, 17)), torch.arange(17) < torch.tensor([[17], [9], [3]])
    sizes = {name: {0: "batch", 1: "length"} for name in ("ids", "mask")}
    # The newer exporter (dynamo=True) of PyTorch 2.13 makes a graph of this model that computes something else.
    names = {"input_names": list(sizes), "dynamic_axes": sizes, "opset_version": 17}
    torch.onnx.export(states, (ids[:2, :9], mask[:2, :9].long()), path, dynamo=False, **names)
    with torch.inference_mode():
        expected = states(ids, mask.long()).numpy()
    difference = abs(_open_onnx(path, 1)(ids.numpy(), mask.long().numpy()) - expected)[mask.numpy()].max()
    if not difference < 1e-4:
        raise SystemExit(f"the graph differs from the model by {difference:.1e}")
    quantize_dynamic(path, into / "int8.onnx", per_channel=True, weight_type=QuantType.QInt8)


def open_graph(
    engine: str, precision: str, graphs: Path, folder: Path, workers: int, threads: int, texts: list[str]
) -> Callable[[list[str]], np.ndarray]:
    """From texts to vectors: batches sorted by length, shared by workers."""
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    tokenizer.enable_truncation(LONGEST)
    tokenizer.enable_padding()

    def encode(texts: Sequence[str]) -> tuple[np.ndarray, np.ndarray]:
        encoded = tokenizer.encode_batch(texts)
        return np.array([row.ids for row in encoded]), np.array([row.attention_mask for row in encoded])

    if engine == "OpenVINO":
        samples = (encode(texts[start : start + BATCH]) for start in range(0, len(texts), BATCH)[:CALIBRATED])
        run = _open_openvino(graphs, precision, workers, threads, samples)
    else:
        run = _open_onnx(graphs / f"{precision}.onnx", threads)

    def embed(texts: list[str]) -> np.ndarray:
        order = sorted(range(len(texts)), key=lambda index: -len(texts[index]))
        vectors = np.empty((len(texts), 384), np.float32)

        def compute(start: int) -> None:
            chosen = order[start : start + BATCH]
            ids, mask = encode([texts[index] for index in chosen])
            states = run(ids, mask)
            mean = (states * mask[:, :, None]).sum(1) / mask.sum(1, keepdims=True)
            vectors[chosen] = mean / np.linalg.norm(mean, axis=1, keepdims=True)

        starts = range(0, len(order), BATCH)
        if workers == 1:
            any(map(compute, starts))
        else:
            with ThreadPoolExecutor(workers) as pool:
                any(pool.map(compute, starts))
        return vectors

    return embed


def _open_onnx(path: Path, threads: int) -> Run:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    names = [given.name for given in session.get_inputs()]
    return lambda *given: session.run(None, dict(zip(names, given, strict=True)))[0]


def _open_openvino(
    graphs: Path, precision: str, workers: int, threads: int, samples: Iterator[tuple[np.ndarray, np.ndarray]]
) -> Run:
    import openvino

    model = openvino.convert_model(graphs / "float32.onnx")
    if precision == "int8":
        import nncf

        model = nncf.quantize(
            model, nncf.Dataset(list(samples)), model_type=nncf.ModelType.TRANSFORMER, subset_size=CALIBRATED
        )
    hint = "bf16" if precision == "bfloat16" else "f32"
    asked = {"INFERENCE_NUM_THREADS": workers * threads, "NUM_STREAMS": workers, "INFERENCE_PRECISION_HINT": hint}
    compiled, own = openvino.compile_model(model, "CPU", asked), threading.local()

    def run(*given: np.ndarray) -> np.ndarray:
        if not hasattr(own, "request"):
            own.request = compiled.create_infer_request()
        found: np.ndarray = own.request.infer(given)[0]
        return found

    return run
