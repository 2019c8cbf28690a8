"""One step of training, and the steps of a search, on the pretended device and on the processor: the same numbers?

    python tests/pretended/rehearsal.py transformer-grouped convolutional-dilated-source@single loaded:tagging/recurrent

prints a line of JSON for each: how often something waited for the device, where, and whatever differed or failed. After
an @ stands how: `bfloat16` trains in mixed precision, on a `single` device there is no float64, `quick` searches less.
What is `loaded` is a finished run, asked by every verb. Without arguments, everything is rehearsed in turn; `-v` shows
where something fails.
"""

import copy
import json
import math
import sys
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

import torch
from torch import Tensor, nn
from torch.nn.attention.varlen import varlen_attn

from contracts.zoo import DECODERS, ENCODERS
from pretended.device import DEVICE, NAME, Watch, device, place, take
from seqloom.data.batching import LabelledBatch, TaggedBatch
from seqloom.data.masking import MaskedBatch
from seqloom.decode.options import Request, SearchOptions
from seqloom.decode.search import search
from seqloom.devices import take_over
from seqloom.models.seq2seq import Seq2Seq
from seqloom.native import library
from seqloom.nn import varlen_attention
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


_CHOSEN = {"single": ("sample",), "quick": ("greedy", "beam")}


@dataclass
class Report:
    """What a rehearsal found."""

    name: str
    training: dict[str, int] = field(default_factory=dict)
    """The waits of a step of training, each with its line."""
    products: list[str] = field(default_factory=list)
    """The types of the matrix products of training, each with its line."""
    varlen: int = 0
    """How often training called PyTorch's attention of packed sequences."""
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


def make(name: str, precision: str = "float32") -> Subject:
    """A model of ours by the name of an encoder or of a decoder, with whatever it needs beside that."""
    torch.manual_seed(5)
    kind, model, more = _MORE[name] if name in _MORE else _describe(name)
    how = {"optimizer": more or {}, "precision": precision}
    values = {"task": kind, "data": _DATA.get(kind, _TEXT), "model": model, "train": how}
    task: Any = validate(values, TASKS[kind], "", "test")
    network = task.model.build(VOCAB, LABELS if kind in ("classification", "tagging") else None)
    for module in network.modules():
        for rate in ("p", "dropout", "word_dropout"):
            if isinstance(module.__dict__.get(rate), float):
                setattr(module, rate, 0.0)
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
_SIDES = ("encoder", "decoder")
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
    "short": (
        "language-model",
        {"decoder": _PLAIN | {"model_dim": 16, "num_heads": 2, "num_kv_heads": 1, "positions": "rotary"}},
        None,
    ),
    "short-source": ("translation", {side: _PLAIN | {"model_dim": 16, "num_heads": 2} for side in _SIDES}, None),
    "short-alibi": (
        "masked-language-model",
        {"encoder": _PLAIN | {"model_dim": 16, "num_heads": 2, "positions": "alibi"}},
        None,
    ),
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


def rehearse(name: str) -> Report:
    """Everything that a model does, here and on the device."""
    report, (what, _, how) = Report(name), name.partition("@")
    try:
        if what.startswith("loaded:"):
            rehearse_loaded(report, what.removeprefix("loaded:"))
            return report
        if what == "process":
            rehearse_process(report)
            return report
        there = make(what)
        own = replace(make(what, "bfloat16" if how == "bfloat16" else "float32"), batch=there.batch)
        own = replace(own, network=place(own.network))
        if how == "bfloat16":
            train_short(report, there, own)
            return report
        train(report, there, own, double=how != "single")
        if hasattr(there.network, "step") and not what.startswith("aligned"):
            decode(report, there, _CHOSEN.get(how, tuple(SEARCHES)), double=how != "single")
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


def train_short(report: Report, there: Subject, own: Subject) -> None:
    """A step in mixed precision: near that in float32, and with nearly all products in the shorter type."""
    [(expected, _), _] = _take_steps(there, None)
    with device() as watch:
        [(found, _), (_, report.training)] = _take_steps(own, watch)
    if not math.isclose(found.loss, expected.loss, rel_tol=0.02):
        report.faults.append(f"the loss is {found.loss}, and in float32 {expected.loss}")
    if not math.isclose(found.norm, expected.norm, rel_tol=0.1):
        report.faults.append(f"the norm is {found.norm}, and in float32 {expected.norm}")
    report.products, report.varlen = sorted(watch.products), watch.calls["torch_attn._varlen_attn"]


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
def decode(report: Report, there: Subject, kinds: Sequence[str], *, double: bool) -> None:
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
    for kind in [*kinds, *(["coverage"] if aligns else [])]:
        options = SEARCHES.get(kind, {"beam": 2, "coverage_penalty": 0.3})
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
    state = read("select", state.select(torch.tensor([2, 0, 0])))
    state = read("branch", state.branch(torch.tensor([[0, 0], [0, 0], [0, 0]]).to(where)))
    state = read("branch again", state.branch(torch.tensor([[1, 0], [0, 0], [1, 1]]).to(where)))
    other = read("another", _start(network, batch, where).select(torch.tensor([1, 3])), 3)
    state = read("join", state.join(other))
    read("after that", state.select(torch.tensor([4, 1])))
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


def rehearse_loaded(report: Report, name: str) -> None:
    """Every verb of a finished run, whose compiled copies were made before it was moved."""
    from contracts.answers import ask, compare
    from contracts.random_models import find_folder
    from seqloom import load

    model = load(find_folder(name))
    expected = ask(model)
    with device(double=False):
        place(model.network)
        found = ask(model)
    if difference := compare(found, expected, tolerance=1e-4):
        report.faults.append(difference)


def rehearse_process(report: Report) -> None:
    """The fourth process of a machine takes over its fourth GPU."""
    take_over(torch.device(NAME, 3))
    if torch.get_device_module(NAME).current_device() != 3:
        report.faults.append("a process did not take over its GPU")


def main() -> None:
    """Rehearse what is named, or everything, which takes ten minutes; with --quarter, each fourth of that."""
    library._count_dispatch_modes = lambda: 0  # kernels are kept away by what tensors are, not by the modes
    library._count_function_modes = lambda: 0
    varlen_attention.find_kernel = lambda device: varlen_attn if device == DEVICE else None
    torch.set_num_threads(1)
    everything = list_names()[:: 4 if "--quarter" in sys.argv else 1]
    for name in [name for name in sys.argv[1:] if not name.startswith("-")] or everything:
        print(json.dumps(asdict(rehearse(name))), flush=True)


if __name__ == "__main__":
    main()
