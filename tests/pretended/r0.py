"""One step of training, and the steps of a search, on the pretended device and on the processor: the same numbers?

    python tests/pretended/rehearsal.py transformer-grouped convolutional-dilated-source …

prints a line of JSON for each: how often something waited for the device, where, and whatever differed or failed.
"""

import copy
import json
import sys
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

import torch
from torch import Tensor, nn

from contracts.zoo import DECODERS, ENCODERS
from pretended.device import DEVICE, Watch, device, place, take
from seqloom.data.batching import LabelledBatch, TaggedBatch
from seqloom.data.masking import MaskedBatch
from seqloom.decode.options import Request, SearchOptions
from seqloom.decode.search import search
from seqloom.models.seq2seq import Seq2Seq
from seqloom.native import library
from seqloom.tasks import TASKS
from seqloom.tasks.configuration import validate
from seqloom.training.distributed import ProcessGroup
from seqloom.training.step import Learner, take_step
from seqloom.types import Alignment, DecodeState, PairBatch, TokenBatch, move

VOCAB, WIDTH, LABELS = 23, 8, 3
START, END = 1, 2
_TEXT = {"train": {"files": ["train.txt"]}}
_DATA: dict[str, dict[str, Any]] = {
    "translation": {"train": {"source": "a", "target": "b"}},
    "classification": {"train": {"format": "tsv", "files": "train.tsv"}},
    "tagging": {"train": {"format": "conll", "files": "train.conll"}},
}
_RIGHT = {"rtol": 1e-4, "atol": 1e-4}
SEARCHES: dict[str, dict[str, Any]] = {
    "greedy": {},
    "beam": {"beam": 3, "nbest": 2},
    "sample": {"sample": True, "nbest": 2, "top_k": 9, "top_p": 0.95, "min_p": 0.01},
    "repetition": {"beam": 2, "repetition_penalty": 1.5, "no_repeat_ngram": 2, "min_length": 3},
    "greedy-repetition": {"repetition_penalty": 1.5, "no_repeat_ngram": 2, "min_length": 3},
}


@dataclass
class Report:
    """What a rehearsal found."""

    name: str
    training: dict[str, int] = field(default_factory=dict)
    """The waits of a step of training, each with its line."""
    steps: dict[str, int] = field(default_factory=dict)
    """The most waits between two steps of each search."""
    where: dict[str, list[str]] = field(default_factory=dict)
    """What these were."""
    faults: list[str] = field(default_factory=list)

    def compare(self, what: str, ours: Any, theirs: Any) -> None:
        """Note where the device has other numbers."""
        ours, theirs = (torch.as_tensor(one).double() for one in (ours, theirs))
        if ours.shape != theirs.shape or not torch.allclose(ours, theirs, **_RIGHT, equal_nan=True):
            gap = (ours - theirs).abs().max().item() if ours.shape == theirs.shape else f"{ours.shape}, {theirs.shape}"
            self.faults.append(f"{what} differs by {gap}")


@dataclass(frozen=True)
class Subject:
    """A model, what it is trained to do, and something to train it with."""

    task: Any
    network: nn.Module
    batch: Any


def list_names() -> list[str]:
    """Everything that can be rehearsed."""
    return [*(f"{name}-encoder" for name in ENCODERS), *DECODERS, *_MORE]


def make(name: str) -> Subject:
    """A model of ours by the name of an encoder or of a decoder, with whatever it needs beside that."""
    torch.manual_seed(5)
    kind, model, more = _MORE[name] if name in _MORE else _describe(name)
    values = {"task": kind, "data": _DATA.get(kind, _TEXT), "model": model, "train": {"optimizer": more or {}}}
    task: Any = validate(values, TASKS[kind], "", "test")
    network = task.model.build(VOCAB, LABELS if kind in ("classification", "tagging") else None)
    with torch.no_grad():
        for parameter in network.parameters():
            parameter += 0.2 * torch.randn_like(parameter)
    return Subject(task, network, make_batch(kind, aligned="aligned" in name))


def _describe(name: str) -> tuple[str, dict[str, Any], dict[str, Any] | None]:
    sizes: dict[str, Any] = {"num_layers": 2, "model_dim": WIDTH, "dropout": 0.0}
    if name.endswith("-encoder"):
        options = sizes | ENCODERS[name.removesuffix("-encoder")]
        both = options.get("direction", "both") == "both"
        kinds = ("masked-language-model", "tagging", "classification") if both else ("tagging", "classification")
        return kinds[len(name) % len(kinds)], {"encoder": options}, None
    options, source = DECODERS[name]
    if not source:
        return "language-model", {"decoder": sizes | options}, None
    encoder = {"family": "transformer", "num_heads": 2}
    if options["family"] == "recurrent":
        encoder = {"family": "recurrent", "cell": options.get("cell", "lstm")}
    return "translation", {"encoder": sizes | encoder, "decoder": sizes | options}, None


_PLAIN: dict[str, Any] = {"num_layers": 2, "model_dim": WIDTH, "dropout": 0.0}
_MUON = {"kind": "muon"}
_MORE: dict[str, tuple[str, dict[str, Any], dict[str, Any] | None]] = {
    "bidirectional-language-model": (
        "bidirectional-language-model",
        {"encoder": _PLAIN | {"family": "recurrent", "memory_dim": 5, "clip": 3.0}},
        None,
    ),
    "aligned": ("translation", {"encoder": _PLAIN | {"num_heads": 2}, "decoder": {"num_heads": 2}}, None),
    "aligned-recurrent": ("translation", {"encoder": _PLAIN | {"family": "recurrent"}}, None),
    "muon": ("language-model", {"decoder": _PLAIN | {"num_heads": 2}}, _MUON),
    "narrow": ("masked-language-model", {"encoder": _PLAIN | {"num_heads": 2}, "embedding_dim": 6}, None),
}


def make_batch(kind: str, *, aligned: bool = False) -> Any:
    """Rows of several lengths; of running text, with several documents in a row."""
    generator = torch.Generator().manual_seed(3)

    def rows(lengths: list[int], documents: list[list[int]] | None = None) -> TokenBatch:
        drawn = [torch.randint(3, VOCAB, (length,), generator=generator).tolist() for length in lengths]
        batch = TokenBatch.pad(drawn, 0)
        if documents is None:
            return batch
        numbers = [[n + 1 for n, size in enumerate(sizes) for _ in range(size)] for sizes in documents]
        return TokenBatch(batch.ids, batch.mask, TokenBatch.pad(numbers, 0).ids)

    if kind == "translation":
        entries = torch.tensor([[0, 0, 1], [0, 2, 3], [2, 1, 0], [2, 1, 1]])
        alignment = Alignment(entries, torch.tensor([1.0, 1.0, 0.5, 0.5])) if aligned else None
        return PairBatch(rows([7, 3, 5, 6]), rows([4, 6, 3, 6]), alignment)
    if kind.endswith("language-model"):
        packed = kind != "bidirectional-language-model"
        text = rows([8, 8, 5], [[3, 5], [8], [2, 1, 2]] if packed else None)
        if not kind.startswith("masked"):
            return text
        hidden = text.mask & (torch.rand(text.ids.shape, generator=generator) < 0.3)
        hidden[0, 1] = True
        return MaskedBatch(TokenBatch(text.ids.masked_fill(hidden, 3), text.mask, text.documents), hidden, text.ids)
    text = rows([7, 3, 5])
    if kind == "classification":
        return LabelledBatch(text, torch.tensor([0, 2, 1]))
    tagged = text.mask & (torch.arange(7) % 2 == 0)
    return TaggedBatch(text, torch.randint(LABELS, text.ids.shape, generator=generator) * tagged, tagged)


def rehearse(name: str, *, double: bool = True) -> Report:
    """Everything that a model does, here and on the device."""
    report, subject = Report(name), make(name)
    own = Subject(subject.task, place(copy.deepcopy(subject.network)), subject.batch)
    try:
        train(report, subject, own, double=double)
        if hasattr(subject.network, "step"):
            decode(report, subject, own, double=double)
    except Exception as error:
        if "-v" in sys.argv:
            raise
        report.faults.append(f"{type(error).__name__}: {error}")
    return report


def train(report: Report, there: Subject, own: Subject, *, double: bool) -> None:
    """Two steps: at the first, every layer is measured; the second is an ordinary one."""
    expected = [outcome for outcome, _ in _take_steps(there, None)]
    with device(double=double) as watch:
        found = list(_take_steps(own, watch))
    for number, ((outcome, waits), right) in enumerate(zip(found, expected, strict=True)):
        report.compare(f"the loss of step {number}", outcome.loss, right.loss)
        report.compare(f"the norm of step {number}", outcome.norm / right.norm, 1.0)
        for layer, norm in right.layers.items():
            report.compare(f"the gradient of {layer}", outcome.layers[layer] / max(right.norm, 1e-9), norm / right.norm)
        if sum(waits.values()) >= sum(report.training.values()):
            report.training = waits
    if not watch.copies:
        report.faults.append("nothing was copied from pinned memory")


def _take_steps(subject: Subject, watch: Watch | None) -> Iterator[tuple[Any, dict[str, int]]]:
    learner = Learner(subject.network.train(), subject.task, ProcessGroup())
    for step in range(2):
        before = {} if watch is None else dict(watch.waits)
        outcome = take_step(learner, [subject.batch], step)
        after = {} if watch is None else watch.waits
        yield (
            outcome,
            {what: count - before.get(what, 0) for what, count in after.items() if count > before.get(what, 0)},
        )


@torch.inference_mode()
def decode(report: Report, there: Subject, own: Subject, *, double: bool) -> None:
    """The steps of a search one by one, and whole searches; with the weights of the processor's model."""
    with torch.inference_mode(False):
        network = place(copy.deepcopy(there.network)).eval()
        there.network.eval()
    expected = _walk(there.network, there.batch, torch.device("cpu"))
    with device(double=double) as watch:
        found = _walk(network, there.batch, DEVICE)
    for what, scores in found.items():
        report.compare(what, scores, expected[what])
    aligns = isinstance(network, Seq2Seq) and network.decoder.attends
    for kind, options in (SEARCHES | ({"coverage": {"beam": 2, "coverage_penalty": 0.3}} if aligns else {})).items():
        right, _ = _search(there.network, there.batch, torch.device("cpu"), SearchOptions(**options), None)
        with device(double=double) as watch:
            answers, waits = _search(network, there.batch, DEVICE, SearchOptions(**options), watch)
        report.steps[kind] = max((sum(one.values()) for one in waits), default=0)
        report.where[kind] = sorted({what for one in waits for what in one})
        if [[one.ids for one in line] for line in answers] != [[one.ids for one in line] for line in right]:
            report.faults.append(f"{kind}: other answers")
        for line, wanted in zip(answers, right, strict=True):
            report.compare(f"{kind}: a score", [one.score for one in line], [one.score for one in wanted])


def _start(network: Any, batch: Any, where: torch.device, *, attention: bool = False) -> DecodeState:
    if isinstance(network, Seq2Seq):
        state: DecodeState = network.start(network.encode(move(batch.source, where)), 9, attention=attention)
        return state
    lines: DecodeState = network.start(4, 9)
    return lines


def _walk(network: Any, batch: Any, where: torch.device) -> dict[str, Tensor]:
    """The scores after each of the operations that a search consists of."""
    generator, found = torch.Generator().manual_seed(4), {}

    def read(what: str, state: DecodeState, count: int = 1) -> DecodeState:
        ids = torch.randint(3, VOCAB, (len(state.positions) * state.width, count), generator=generator)
        scores, state = network.step(ids.to(where), state)
        found[what] = take(scores).clone()
        return state

    state = read("start", _start(network, batch, where), 2)
    state = read("select", state.select(torch.tensor([2, 0, 0]).to(where).to(where)))
    state = read("branch", state.branch(torch.tensor([[0, 0], [0, 0], [0, 0]]).to(where)))
    state = read("branch again", state.branch(torch.tensor([[1, 0], [0, 0], [1, 1]]).to(where)))
    other = read("another", _start(network, batch, where).select(torch.tensor([1, 3]).to(where)), 3)
    state = read("join", state.join(other))
    read("after that", state.select(torch.tensor([4, 1]).to(where).to(where)))
    return found


def _search(
    network: Any, batch: Any, where: torch.device, options: SearchOptions, watch: Watch | None
) -> tuple[list[list[Any]], list[dict[str, int]]]:
    """The answers, and what was waited for between each step and the next."""
    prefix = options.beam == 1
    requests = [Request(START, 6 + n % 3, (5, 6)[: n % 2] if prefix else (), seed=n) for n in range(4)]
    state, waits, before = _start(network, batch, where, attention=options.coverage_penalty > 0), [], {}

    def step(ids: Tensor, state: DecodeState) -> tuple[Tensor, DecodeState]:
        if watch is not None:
            now = dict(watch.waits)
            if before:
                waits.append({what: n - before["waits"].get(what, 0) for what, n in now.items()})
            before["waits"] = now
        scores, state = network.step(ids, state)
        return scores, state

    answers = search(step, state, requests, options, ends=(END,), never=(0, 3))
    return answers, [{what: count for what, count in one.items() if count} for one in waits]


def main() -> None:
    """Rehearse what is named, or everything."""
    library._count_dispatch_modes = lambda: 0  # kernels are kept away by what tensors are, not by the modes
    library._count_function_modes = lambda: 0
    torch.set_num_threads(1)
    for name in [name for name in sys.argv[1:] if not name.startswith("-")] or list_names():
        print(json.dumps(asdict(rehearse(name, double="--single" not in sys.argv))), flush=True)


if __name__ == "__main__":
    main()
