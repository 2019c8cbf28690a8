"""One random configuration, tried as a user would: check, train, be killed, resume, load, answer, export, verify.

A trial ends well, is refused with a sentence, or is a fault: a traceback, a hang, a number that is none, or a
difference between two ways to the same thing.
"""

import math
import os
import random
import shutil
import signal
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console

import seqloom
from fuzzing.configurations import draw_configuration
from fuzzing.corpora import LABELS, draw_data
from seqloom.config.dump import dump, write_table
from seqloom.data.doctor import examine
from seqloom.errors import SeqloomError
from seqloom.predict.export import Format, export
from seqloom.runs.verify import verify
from seqloom.tasks import TASKS, Task
from seqloom.tasks.configuration import load as load_configuration
from seqloom.tasks.configuration import load_resolved, parse
from seqloom.training.job import train
from seqloom.training.monitor import PlainMonitor

SECONDS = 120
"""Longer than any of these small trainings could take: a hang."""

TEXTS = ["the old cat sees a bird .", "猫 hears the dog", "", "été " * 9 + "кот", "<s> [MASK] ?"]


@dataclass(frozen=True)
class Outcome:
    """How a trial ended: `ok`, `refused`, or the name of a fault, at which stage, and in which words."""

    seed: int
    task: str
    family: str
    kind: str
    stage: str = ""
    detail: str = ""


class _DifferenceError(Exception):
    """Two ways to the same thing differ."""


class _NotFiniteError(Exception):
    """An answer holds NaN."""


class _HangError(BaseException):
    """It takes too long."""


def try_configuration(seed: int, corpora: Path, folder: Path) -> Outcome:
    """Draw the configuration of a seed and try it in a folder, which is removed if all went well."""
    rng = random.Random(seed)
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    config = _draw_accepted(rng, corpora)
    path = folder / "config.toml"
    path.write_text("\n".join(write_table(_as_tuples(config), ())).strip() + "\n", encoding="utf-8")
    stage = ["read"]
    kind, detail = "ok", ""
    try:
        with _alarm():
            _go_through(path, folder, rng, stage)
    except SeqloomError as error:
        kind, detail = "refused", str(error)
    except _HangError:
        kind, detail = "hang", f"longer than {SECONDS} seconds"
    except _DifferenceError as error:
        kind, detail = "difference", str(error)
    except _NotFiniteError as error:
        kind, detail = "not finite", str(error)
    except Exception:
        kind, detail = "traceback", traceback.format_exc()
    stacks = config.get("model", {})
    families = [stacks[side].get("family", "transformer") for side in ("encoder", "decoder") if side in stacks]
    if kind in ("ok", "refused"):
        shutil.rmtree(folder)
    return Outcome(seed, config["task"], "+".join(families), kind, "" if kind == "ok" else stage[0], detail)


def _draw_accepted(rng: random.Random, corpora: Path) -> dict[str, Any]:
    """A configuration that is accepted; what is refused when it is read costs a user nothing."""
    task = rng.choice(list(TASKS))
    for _ in range(500):
        config = draw_configuration(task, rng, draw_data(task, rng, corpora))
        try:
            accepted = parse("\n".join(write_table(_as_tuples(config), ())))
        except SeqloomError:
            continue
        if isinstance(accepted, Task) and rng.random() < 0.3:
            names = [metric.name for metric in accepted.metrics(())]
            config["train"]["judge_by"] = rng.choice(["loss", *names])
        return config
    raise AssertionError(f"500 configurations of {task} were refused: draw them better")


def _draw_successor(path: Path, rng: random.Random) -> None:
    """The same configuration, from the weights of the run, all of them trained or some, for a few steps."""
    text = path.read_text(encoding="utf-8")
    changes = rng.choice(("", 'freeze = "embedding"\n', 'freeze = ["encoder", "decoder"]\n', "adapters = {rank = 2}\n"))
    path.with_name("successor.toml").write_text(
        f'init = "whole"\n{text}'.replace("[train]\n", f"[train]\n{changes}"), encoding="utf-8"
    )


def _go_through(path: Path, folder: Path, rng: random.Random, stage: list[str]) -> None:
    config = load_configuration(path)
    _same("a configuration that was written and read", parse(dump(config)), config)
    stage[0] = "check"
    report = examine(config.data, folder)
    if report.errors:
        raise SeqloomError("; ".join(finding.kind for finding in report.errors))
    stage[0] = "train"
    whole = folder / "whole"
    _train(path, whole)
    kept = load_resolved(whole / "config.toml")
    _same("the configuration that a run keeps, written and read again,", parse(dump(kept)), kept)
    if config.task == "word-vectors":
        return
    stage[0] = "kill"
    broken = folder / "broken"
    for _ in range(rng.choice((1, 1, 2))):
        _train_and_stop(path, broken, rng.randrange(1, 7), gently=rng.random() < 0.3)
    stage[0] = "resume"
    _train(path, broken)
    for name in ("model.safetensors", "log.jsonl", "tokenizer.json"):
        if (whole / name).exists() or (broken / name).exists():
            _same(f"{name} of the whole and the resumed run", (broken / name).read_bytes(), (whole / name).read_bytes())
    stage[0] = "load"
    model, opened = seqloom.load(whole), seqloom.load(whole, engine="open")
    for name, answer in _verbs(rng):
        stage[0] = name
        with suppress(SeqloomError):
            given = answer(model)
            _check_numbers(given)
            _close(f"{name}: compiled and open", given, answer(opened))
    stage[0] = "evaluate"
    with suppress(SeqloomError):
        _check_numbers(model.evaluate(split="valid").metrics)
    formats: tuple[Format, ...] = ("huggingface",) if rng.random() < 0.9 else ("onnx", "ctranslate2")
    for form in formats:
        stage[0] = f"export {form}"
        with suppress(SeqloomError):
            export(whole, form, folder / form)
    if rng.random() < 0.25:
        stage[0] = "fine-tune"
        _draw_successor(path, rng)
        with suppress(SeqloomError):
            _train(folder / "successor.toml", folder / "successor")
            _check_numbers(seqloom.load(folder / "successor").embed(TEXTS))
    stage[0] = "verify"
    for run in (whole, broken):
        _same("a whole run and its verdict", [verdict for verdict in verify(run) if verdict.fault], [])


def _train(path: Path, out: Path) -> None:
    train(path, out=out, monitor=PlainMonitor(Console(quiet=True)))


class _Killer(PlainMonitor):
    """Kills its own process after some steps."""

    left = 0

    def step(self, *of: Any) -> None:
        self.left -= 1
        if self.left <= 0:
            os.kill(os.getpid(), signal.SIGKILL)


def _train_and_stop(path: Path, out: Path, steps: int, *, gently: bool) -> None:
    """Train in a child that is killed after some steps, or stops when it is asked to."""
    child = os.fork()
    if not child:
        try:
            monitor = _Killer(Console(quiet=True))
            monitor.left = 10**9 if gently else steps
            asked = iter(range(10**9))
            train(path, out=out, monitor=monitor, should_stop=lambda: gently and next(asked) >= steps)
        finally:
            os._exit(0)
    os.waitpid(child, 0)


def _verbs(rng: random.Random) -> Iterator[tuple[str, Callable[[Any], Any]]]:
    """Every verb; those that a task does not have are refused with a sentence."""
    search: dict[str, Any] = {"max_length": rng.choice((1, 5, 20))}
    match rng.randrange(3):
        case 0:
            search |= {"beam": rng.choice((2, 4)), "length_penalty": rng.choice((0.0, 1.0))}
        case 1:
            search |= {"sample": True, "seed": 3, "top_k": 5, "temperature": rng.choice((0.5, 1.5))}
    pairs = [text or "x" for text in TEXTS[::-1]]
    yield "translate", lambda model: model.translate(TEXTS, **search)
    yield "generate", lambda model: model.generate(["the", "a cat"], **search)
    yield "classify", lambda model: model.classify(TEXTS)
    yield "classify pairs", lambda model: model.classify(TEXTS, pairs)
    yield "classify by examples", lambda model: model.classify(["a cat"], shots=[("a", LABELS[0]), ("b", LABELS[1])])
    yield "tag", lambda model: model.tag(TEXTS)
    yield "fill", lambda model: model.fill(["the [MASK] sees", "[MASK] [MASK]"], top=2)
    yield "score", lambda model: model.score(TEXTS)
    yield "score pairs", lambda model: model.score(TEXTS, pairs)
    yield "embed", lambda model: model.embed(TEXTS)
    yield "embed tokens", lambda model: [one.vectors for one in model.embed(TEXTS, level="token")]


@contextmanager
def _alarm() -> Iterator[None]:
    def ring(*_: Any) -> None:
        raise _HangError

    before = signal.signal(signal.SIGALRM, ring)
    signal.alarm(SECONDS)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def _same(what: str, given: Any, wanted: Any) -> None:
    if given != wanted:
        raise _DifferenceError(f"{what} differ")


def _check_numbers(value: Any) -> None:
    """Refuse NaN wherever it is."""
    for number in _numbers(value):
        if math.isnan(number):
            raise _NotFiniteError(f"NaN in {value!r:.300}")


def _close(what: str, one: Any, other: Any) -> None:
    """Texts are the same, and numbers but for rounding."""
    first, second = list(_numbers(one)), list(_numbers(other))
    if len(first) != len(second) or not np.allclose(first, second, rtol=1e-3, atol=1e-3):
        raise _DifferenceError(f"{what}: {one!r:.300} and {other!r:.300}")


def _numbers(value: Any) -> Iterator[float]:
    """All numbers in an answer, and the characters of its texts.

    Where rounding decides, answers are left out: alignments, because a word that a text repeats is attended to equally
    in each place, and a label whose rival is as probable.
    """
    match value:
        case seqloom.Classification(probabilities=dict() as shares) if np.ptp(sorted(shares.values())[-2:]) < 1e-3:
            yield from _numbers(shares)
        case float() | int():
            yield float(value)
        case str():
            yield from map(float, value.encode())
        case np.ndarray():
            yield from value.astype(float).ravel().tolist()
        case dict():
            for item in value.values():
                yield from _numbers(item)
        case list() | tuple():
            for item in value:
                yield from _numbers(item)
        case _ if hasattr(value, "__dataclass_fields__"):
            for name in (field for field in value.__dataclass_fields__ if field != "alignment"):
                yield from _numbers(getattr(value, name))


def _as_tuples(value: Any) -> Any:
    """Lists of tables as the writer of TOML wants them."""
    match value:
        case dict():
            return {key: _as_tuples(item) for key, item in value.items()}
        case list():
            return tuple(_as_tuples(item) for item in value)
        case _:
            return value
