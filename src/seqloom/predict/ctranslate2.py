"""Searches on CTranslate2: the same requests and answers, with its own beam search.

Greedy search finds the same text. Both rank a beam by log P / |Y|^α, but CTranslate2 has its own rule for when to stop,
so with a beam texts may differ.
"""

import hashlib
import os
import shutil
import tempfile
import threading
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import nn

from seqloom.decode.options import Request, Search, SearchOptions, Tokens
from seqloom.decode.record import Recorder
from seqloom.errors import ConfigError, RunError, SeqloomError, import_extra
from seqloom.hub import ctranslate2
from seqloom.hub.bundle import Bundle, widen_embeddings
from seqloom.hub.fidelity import TOLERANCE
from seqloom.predict.compiler import Snapshot, can_copy, is_patched
from seqloom.predict.predictor import Predictor
from seqloom.predict.search import Engine, NetworkEngine, Rows
from seqloom.types import Hypothesis

_BATCH = 32  # requests that a worker takes at a time


class CTranslate2Engine(Engine):
    """A translator or generator of CTranslate2 with the weights of a model."""

    def __init__(self, model: Bundle, folder: Path, numbers: ctranslate2.Numbers) -> None:
        kind = ctranslate2.find_kind(model)
        if kind == "Encoder":
            raise RunError(
                f"{folder}: CTranslate2 generates with translation and language models only; leave `engine` out"
            )
        self.model = ctranslate2.open_folder(folder, kind, torch.get_num_threads(), numbers)
        network: Any = model.network
        self.names = ctranslate2.name_tokens(model.tokenizer.target, len(network.output.weight))
        self.ids = {name: id for id, name in enumerate(self.names)}
        self.source_names = self.names
        self.translates = kind == "Translator"
        if self.translates:
            self.source_names = ctranslate2.name_tokens(model.tokenizer, len(network.source_embedding.weight))

    def check(self, wanted: Search) -> None:
        """Refuse options for which CTranslate2 would give other answers."""
        if wanted.sample or wanted.constraints:
            raise ConfigError("CTranslate2 samples in its own way and has no constraints; leave `engine` out")
        if wanted.repetition_penalty != 1.0 or wanted.no_repeat_ngram:
            raise ConfigError("CTranslate2 penalises and bans repetition in its own way; leave `engine` out")

    def search(
        self,
        sources: Rows | None,
        requests: Sequence[Request],
        options: SearchOptions,
        *,
        ends: Tokens,
        never: Tokens,
        recorder: Recorder | None = None,
    ) -> list[list[Hypothesis]]:
        """The best hypotheses; each call has requests of one length, because it has one limit for all of them.

        Calls are made before the first is answered, so that all of CTranslate2's workers have something to do.
        """
        if recorder is not None:
            raise ConfigError("CTranslate2 does not say what its search kept and dropped; leave `engine` out")
        if not ends:
            raise ConfigError("CTranslate2 needs a token that ends a text, and this model has none; leave `engine` out")
        found = [[Hypothesis(request.prefix, 0.0, (), False)] for request in requests]
        groups: dict[tuple[int, int], list[int]] = {}
        for line, request in enumerate(requests):
            room = request.max_length - len(request.prefix)
            if room:
                groups.setdefault((room, len(request.prefix)), []).append(line)
        calls = []
        for lines in groups.values():
            asked = [requests[line] for line in lines]
            given = None
            if sources is not None:
                given = [[self.source_names[id] for id in sources[line]] for line in lines]
            calls.append((lines, asked, self._call(given, asked, options, ends, never)))
        for lines, asked, answers in calls:
            for line, request, answer in zip(lines, asked, answers, strict=True):
                found[line] = self._list_hypotheses(request, answer.result(), ends)
        return found

    def _call(
        self,
        sources: list[list[str]] | None,
        requests: list[Request],
        options: SearchOptions,
        ends: Tokens,
        never: Tokens,
    ) -> Any:
        """An answer for each request, once its result is asked for."""
        first = requests[0]
        kept, longest = len(first.prefix), first.max_length
        shared: dict[str, Any] = {
            "beam_size": options.beam,
            "num_hypotheses": options.nbest,
            "length_penalty": options.length_penalty if options.beam > 1 else 0.0,
            "suppress_sequences": [self._spell(ids) for ids in (*((id,) for id in never), *first.forbidden)],
            "end_token": list(ends),
            "return_end_token": True,
            "return_scores": True,
            "max_batch_size": _BATCH,
            "asynchronous": True,
        }
        if sources is None:
            prompts = [self._spell((request.start, *request.prefix)) for request in requests]
            lengths = {"max_length": longest - kept, "min_length": max(0, options.min_length - kept)}
            return self.model.generate_batch(prompts, include_prompt_in_result=False, **lengths, **shared)
        return self.model.translate_batch(
            sources,
            [self._spell(request.prefix) for request in requests],
            max_input_length=0,
            max_decoding_length=longest,
            min_decoding_length=options.min_length,
            coverage_penalty=options.coverage_penalty,
            **shared,
        )

    def _list_hypotheses(self, request: Request, answer: Any, ends: Tokens) -> list[Hypothesis]:
        before, texts = ((), answer.hypotheses) if self.translates else (request.prefix, answer.sequences)
        return [
            _finish((*before, *self._read(tokens)), score, ends)
            for tokens, score in zip(texts, answer.scores, strict=True)
        ]

    def _spell(self, ids: Sequence[int]) -> list[str]:
        return [self.names[id] for id in ids]

    def _read(self, tokens: Sequence[str]) -> tuple[int, ...]:
        return tuple(self.ids[token] for token in tokens)


def _finish(ids: tuple[int, ...], score: float, ends: Tokens) -> Hypothesis:
    finished = bool(ids) and ids[-1] in ends
    return Hypothesis(ids[:-1] if finished else ids, score, (), finished)


def open_engine(model: Bundle, run: Path, numbers: ctranslate2.Numbers) -> CTranslate2Engine:
    """The engine of a run; its folder is written once for these weights, inside the run if that is possible."""
    import_extra("ctranslate2", "export")
    ctranslate2.find_kind(model)
    weights = run / "model.safetensors"
    ours = (run / "manifest.json").is_file()  # other people's folders are left as they are
    key = hashlib.sha256(weights.read_bytes()).hexdigest()[:16] if ours else ""
    folder = run / "engines" / f"ctranslate2-{key}"
    if ours and (folder / "model.bin").is_file():
        return CTranslate2Engine(model, folder, numbers)
    partial = Path(tempfile.mkdtemp(prefix="seqloom-ctranslate2-"))
    try:
        _write(model, partial)
        return CTranslate2Engine(model, _keep(partial, folder) if ours else partial, numbers)
    finally:
        shutil.rmtree(partial, ignore_errors=True)


_INEXPRESSIBLE = (SeqloomError, AttributeError, LookupError, RuntimeError, TypeError, ValueError)
"""The errors of writing a network whose modules were changed."""


class RefreshedEngine(Engine):
    """CTranslate2 with the weights that a network has now; a network that it cannot express answers itself."""

    def __init__(self, predictor: Predictor, numbers: ctranslate2.Numbers, engine: Engine | None = None) -> None:
        """`engine` has the weights that the network was loaded with."""
        self._predictor, self._numbers, self._first = predictor, numbers, engine
        self._made: tuple[nn.Module, Snapshot, Engine] | None = None
        self._lock = threading.Lock()

    def __getstate__(self) -> dict[str, Any]:
        return {"predictor": self._predictor, "numbers": self._numbers}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__init__(**state)  # type: ignore[misc]

    def move_to(self, predictor: Predictor) -> Engine:
        """The same for another model."""
        return RefreshedEngine(predictor, self._numbers)

    def check(self, wanted: Search) -> None:
        """Refuse options that the current engine does not have."""
        self._current().check(wanted)

    def search(
        self,
        sources: Rows | None,
        requests: Sequence[Request],
        options: SearchOptions,
        *,
        ends: Tokens,
        never: Tokens,
        recorder: Recorder | None = None,
    ) -> list[list[Hypothesis]]:
        """The best hypotheses for each request, best first."""
        return self._current().search(sources, requests, options, ends=ends, never=never, recorder=recorder)

    def _current(self) -> Engine:
        with self._lock:
            if is_patched():
                return self._fall_back("a hook of torch's runs around every module, or a class was changed")
            if self._predictor.private and self._first is not None:
                return self._first
            network = self._predictor.network
            if self._made is None or self._made[0] is not network or not self._made[1].holds():
                self._made = None
                if not can_copy(network):
                    return self._fall_back("it is not of float32, hooks are on it, or a part is not Seqloom's own")
                self._made = network, Snapshot(network), self._open(network)
            return self._made[2]

    def _open(self, network: nn.Module) -> Engine:
        model = Bundle(
            self._predictor.config, self._predictor.tokenizer, self._predictor.labels, network, self._predictor.seen
        )
        with tempfile.TemporaryDirectory(prefix="seqloom-ctranslate2-") as folder:
            try:
                _write(model, Path(folder))
                return CTranslate2Engine(model, Path(folder), self._numbers)
            except _INEXPRESSIBLE as error:
                return self._fall_back(str(error))

    def _fall_back(self, reason: str) -> Engine:
        warnings.warn(
            f"CTranslate2 cannot run the network as it is now ({reason}); Seqloom computes instead",
            stacklevel=2,
        )
        return NetworkEngine(self._predictor)


def _write(model: Bundle, folder: Path) -> None:
    model = widen_embeddings(model)
    ctranslate2.write_folder(model, folder)
    difference = ctranslate2.check_folder(model, folder)
    if not difference <= TOLERANCE:
        raise RunError(f"CTranslate2 differs from the network by {difference:.1e}; leave `engine` out")


def _keep(written: Path, folder: Path) -> Path:
    """Move a folder to its place in one step; if that fails, it is used once from where it is."""
    beside = folder.with_name(f".{folder.name}.{os.getpid()}.partial")
    try:
        folder.parent.mkdir(exist_ok=True)
        shutil.copytree(written, beside)
        beside.rename(folder)
    except OSError:
        shutil.rmtree(beside, ignore_errors=True)
        return written
    return folder
