"""A whole training, from a configuration file to a run folder. Starting it again resumes it."""

import errno
import inspect
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from itertools import islice, repeat
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from torch import nn

from seqloom.config.dump import Overrides, spell_overrides
from seqloom.config.faults import suggest
from seqloom.config.train import TrainConfig
from seqloom.data.corpus import open_split
from seqloom.data.encoding import Spread
from seqloom.data.subset import choose_share
from seqloom.devices import take_over
from seqloom.errors import ConfigError, RunError
from seqloom.hub.word2vec import read_word_vectors, write_word_vectors
from seqloom.nn.embeddings import TokenEmbedding
from seqloom.nn.feedforward import FeedForward
from seqloom.nn.low_rank import merge_adapters
from seqloom.nn.transformer import Stack
from seqloom.runs.checkpoint import verify_folder
from seqloom.runs.machine import choose_device, describe_training, explain_kernels, explain_precision
from seqloom.runs.run import Run, TrainingRun
from seqloom.runs.weights import find_weights
from seqloom.seeds import derive_seed
from seqloom.tasks import TASKS, Config, Task, WordVectorsTask
from seqloom.tasks.configuration import find_replaced, load, load_resolved, read_text, read_toml
from seqloom.text import Tokenizer
from seqloom.training.distributed import ProcessGroup, collect, join_process_group
from seqloom.training.loop import fit, is_out_of_memory
from seqloom.training.monitor import Monitor, PlainMonitor, open_monitor
from seqloom.training.prepare import Prepared, open_config, prepare
from seqloom.training.report import write_report
from seqloom.training.schedule import Budget
from seqloom.training.weights import choose_trained, set_weights, start_from
from seqloom.training.word_vectors import train_word_vectors

_SHOWN = 3
"""Places that are named on the screen."""


def train(
    config: str | Path,
    overrides: Overrides = (),
    *,
    out: str | Path | None = None,
    monitor: Monitor | None = None,
    should_stop: Callable[[], bool] | None = None,
    **sections: Any,
) -> Run:
    """Train what a configuration file says, in the folder `out`, or in runs/NAME beside the file.

    The same call resumes a training that was interrupted. `overrides` change the configuration: a dict of keys,
    dotted or nested, or a list of strings as on the command line. Sections may also be given as keywords,
    which win over `overrides`. `should_stop` is asked after each step.

    Example:
        run = seqloom.train("de-en.toml", {"train.minutes": 10}, out="runs/quick")
        run = seqloom.train("de-en.toml", train={"minutes": 10, "seed": 7})
    """
    if not isinstance(config, str | Path):
        raise ConfigError(f"config: expected the path of a configuration file, not {type(config).__name__}")
    _check_names(sections)
    overrides = spell_overrides(overrides, sections)
    path, out = Path(config), None if out is None else Path(out)
    opened = open_monitor(Console(stderr=True)) if monitor is None else nullcontext(monitor)
    with opened as monitor, join_process_group() as group:
        run = TrainingRun(choose_folder(path, out), writes=group.is_main)
        shown = monitor if group.is_main else PlainMonitor(Console(quiet=True))
        with run.lock(), _explain_full_disks(run):
            settings = group.main_first(lambda: _open(path, overrides, run, shown, group))
            settings = group.main_first(lambda: run.record_config(settings))
            if isinstance(settings, Task):
                _train_model(settings, path.parent, run, shown, should_stop or _go_on, group)
            elif group.size > 1:
                raise ConfigError("word vectors are trained by one process; start only one")
            elif isinstance(settings, WordVectorsTask):
                _train_vectors(settings, path.parent, run, shown)
    return Run(run.folder)


def prepare_run(
    config: Path, overrides: Sequence[str], out: Path | None, say: Callable[[str], None], spread: Spread | None = None
) -> tuple[Path, Prepared]:
    """Check the data, learn the tokeniser and encode the texts of a training, which then begins with its first step.

    `spread` says where the texts are encoded, by default here.
    """
    run = TrainingRun(choose_folder(config, out), writes=True)
    with run.lock(), _explain_full_disks(run):
        task = run.record_config(open_config(config, overrides, run.folder, say))
        if not isinstance(task, Task):
            raise ConfigError("word vectors are learned from the texts themselves, so there is nothing to prepare")
        return run.folder, prepare(task, config.parent, run.folder, say, spread)


def _check_names(sections: Mapping[str, Any]) -> None:
    """Refuse a keyword that is neither an argument of `train` nor a section of any task."""
    arguments = [name for name in inspect.signature(train).parameters if name != "sections"]
    known = [*arguments, *dict.fromkeys(key for task in TASKS.values() for key in task.model_fields)]
    for name in sections:
        if name not in known:
            raise ConfigError(f"{name}: is not an argument of train or a section{suggest(name, known)}")


def _go_on() -> bool:
    return False


def _open(path: Path, overrides: Sequence[str], run: TrainingRun, monitor: Monitor, group: ProcessGroup) -> Config:
    """Say what computes, then read the configuration and check its data. Word vectors need no kernels."""
    config = load(path, overrides)
    for name, value in find_replaced(read_toml(read_text(path), str(path)), overrides).items():
        monitor.say(f"the budget that was given replaces train.{name} = {value} of {path}")
    if isinstance(config, Task):
        check_undivided(config, group)
        if config.init is not None and (note := find_weights(path.parent / config.init).note):
            monitor.say(f"init: {note}")
        torch.set_num_threads(config.train.threads or max(1, (os.cpu_count() or 1) // group.local_size))
        device = choose_device(config.train.device, group.local_rank)
        monitor.say(f"kernels: {explain_kernels(device)}")
        if config.train.precision == "auto":
            monitor.say(f"precision: a new run takes {explain_precision(device)}")
    return open_config(path, overrides, run.folder, monitor.say)


def check_undivided(task: Task, group: ProcessGroup) -> None:
    """Refuse to divide a batch whose records the loss compares with each other."""
    if task.needs_whole_batch and (task.train.accumulate > 1 or group.size > 1):
        raise ConfigError(
            f"the loss of {task.task} compares all records of a batch, so a batch cannot be divided; "
            "set train.accumulate = 1 and train in one process. train.recompute = true saves memory"
        )


@contextmanager
def _explain_full_disks(run: Run) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS, errno.EIO):
            raise
        raise RunError(
            f"{run.folder}: cannot be written: {error.strerror}; the last good checkpoint is kept, and the same "
            "command resumes from it when there is room"
        ) from None


def choose_folder(path: Path, out: Path | None) -> Path:
    """Where the run of a configuration file goes."""
    return out if out is not None else path.parent / "runs" / path.stem


def build(task: Task, prepared: Prepared, base: Path) -> nn.Module:
    """The model of a configuration with its first weights, which the seed decides."""
    torch.manual_seed(derive_seed(task.train.seed))
    try:
        model = task.build(prepared.tokenizer, prepared.labels)
    except (RuntimeError, MemoryError, OverflowError, TypeError) as error:
        if not is_out_of_memory(error) and "verflow" not in str(error):
            raise
        raise ConfigError(
            "model: it needs more memory than this machine has; choose a smaller size, or smaller keys of model"
        ) from None
    taken = start_from(model, base / task.init) if task.init is not None else set()
    choose_trained(model, taken, task.train)
    if task.model.initial_vectors is not None:
        vectors = base / task.model.initial_vectors
        for name, module in model.named_modules():
            if isinstance(module, TokenEmbedding) and not name.startswith("features."):  # those were learned already
                _set_vectors(vectors, module, prepared.tokenizer.of(name.removesuffix("_embedding")))
    return model


def _train_model(
    task: Task, base: Path, run: TrainingRun, monitor: Monitor, should_stop: Callable[[], bool], group: ProcessGroup
) -> None:
    prepared = group.main_first(lambda: prepare(task, base, run.folder, monitor.say))
    if prepared.valid is None and (task.train.judge_by or task.train.patience):
        monitor.say("train.judge_by and train.patience have no effect: there are no validation data")
    budget = Budget(task.train, len(prepared.train))
    if _is_done(run, budget, prepared, monitor):
        return
    run.note_base(base)
    run.record_found(prepared.labels, prepared.seen)
    _report_treated(prepared, run, monitor)
    monitor.say(prepared.train.order.describe_batches())
    model = build(task, prepared, base)
    weights, trained = (
        sum(p.numel() for p in model.parameters() if p.requires_grad or not only) for only in (False, True)
    )
    if not trained:
        raise ConfigError("train.freeze leaves no weight to train; name fewer parts")
    monitor.say(f"model: {task.size}, {weights:,} weights, {trained:,} of them trained")
    if group.size > 1 and any(_drops(module) for module in model.modules()):
        monitor.say(
            f"each of the {group.size} processes draws its own dropout, so the weights will differ from those of "
            "another number of processes by more than rounding"
        )
    device = choose_device(task.train.device, group.local_rank)
    take_over(device)
    _equip(model, task.train, device)
    facts = {
        "budget": str(budget),
        "batches": f"{prepared.train.order.tokens:,} tokens",
        "weights": weights,
        "trained": trained,
        "vocabulary": _describe_vocabulary(prepared.tokenizer),
        "training samples": f"{sum(prepared.train.samples.sizes):,}",
    }
    facts |= {**describe_training(task.train, group.size, device), "kernels": explain_kernels(device)}
    progress = fit(model, task, prepared, run, monitor, should_stop, group, facts)
    kept = {} if progress is None else collect(model.named_parameters(), group)
    if progress is None or not group.is_main:
        return
    if task.train.sharding == "full" and group.size > 1:
        model = build(task, prepared, base)
        set_weights(model, kept)
    merge_adapters(model)
    made = describe_training(task.train, group.size, device, progress.earlier)
    made |= {"budget": budget.plan(progress, validates=prepared.valid is not None), "data": prepared.fingerprint}
    made |= {"batches": prepared.train.order.describe_batches()}
    run.finish(model, task, prepared.labels, made, prepared.seen)
    try:
        monitor.say(f"report: {write_report(run)}")
    except Exception as error:  # the model is whole, whatever happens to the page about it
        monitor.say(f"the run is finished, but its report could not be written: {error}")


def _is_done(run: Run, budget: Budget, prepared: Prepared, monitor: Monitor) -> bool:
    """Whether the run is finished with this budget; if so, say what can be done."""
    if not run.finished:
        return False
    config = load_resolved(run.folder / "config.toml")
    assert isinstance(config, Task)
    if budget.of(config.train).given != budget.given:
        return False
    try:
        made = verify_folder(run.folder)
    except RunError as error:
        monitor.say(f"{error}; the model is made again from the checkpoints that are left")
        return False
    if "data" not in made:  # of an older version, whose checkpoints know their data
        return False
    if made["data"] != prepared.fingerprint:
        raise RunError(
            f"the training data changed since {run.folder} was finished; bring the old files back, or train in a new "
            "folder with `out`"
        )
    key, value = next(iter(budget.given.items()))
    monitor.say(
        f"{run.folder} is finished: there is nothing left to do. A larger budget continues it, such as "
        f"train.{key}={2 * value:g}; to train anew, choose another folder (out)"
    )
    return True


def _drops(module: nn.Module) -> bool:
    """Whether a module drops values at random in training."""
    rates = (getattr(module, name, 0.0) for name in ("rate", "p", "dropout", "word_dropout"))
    return any(isinstance(rate, float) and rate > 0.0 for rate in rates)


def _describe_vocabulary(tokenizer: Tokenizer) -> str:
    source, target = (f"{side.vocab_size:,} tokens" for side in (tokenizer, tokenizer.target))
    return source if tokenizer.shares_ids else f"{source} of sources, {target} of targets"


def _equip(model: nn.Module, config: TrainConfig, device: torch.device) -> None:
    """Put the model where and how it is to be trained."""
    model.to(device)
    for module in model.modules():
        if isinstance(module, Stack):
            module.recompute = config.recompute
        if isinstance(module, FeedForward) and config.compile:
            module.compile(dynamic=True)


def _train_vectors(config: WordVectorsTask, base: Path, run: TrainingRun, monitor: Monitor) -> None:
    def sentences() -> Iterator[list[str]]:
        for corpus in choose_share(config.data, open_split(config.data, "train", base), config.vectors.seed):
            for number, example in enumerate(corpus):
                text = example.values["text"]
                assert isinstance(text, str)
                times = int((number + 1) * corpus.weight) - int(number * corpus.weight)
                yield from repeat(text.split(), times)

    vectors = train_word_vectors(config.vectors, sentences, monitor.word_vectors)
    write_word_vectors(vectors, run.folder / "vectors.bin", "word2vec-binary")


def _set_vectors(path: Path, embedding: TokenEmbedding, tokenizer: Tokenizer) -> None:
    """Give the tokens that are words their vectors; the others keep random ones of the same size."""
    vectors = read_word_vectors(path)
    if vectors.dim != embedding.weight.shape[1]:
        raise ConfigError(
            f"model.initial_vectors: {path} has vectors of width {vectors.dim}, but the embeddings have "
            f"{embedding.weight.shape[1]}; set model.embedding_dim = {vectors.dim}"
        )
    words = [tokenizer.token(id).lstrip("Ġ▁") for id in range(tokenizer.vocab_size)]
    start = vectors.matrix_for(words, torch.Generator().manual_seed(derive_seed(0)))
    with torch.no_grad():
        embedding.weight.copy_(start.matrix)


def _report_treated(prepared: Prepared, run: TrainingRun, monitor: Monitor) -> None:
    """Nothing is left out, cut or split without a word; every place is in a file of the run."""
    places = {(treated.split, treated.what): treated.places for treated in prepared.treated}
    for name, batches in (("train", prepared.train), ("valid", prepared.valid)):
        for what, count in batches.samples.counts.items() if batches is not None else ():
            if count:
                monitor.say(f"{name}: {count:,} {what}")
                for place in islice(places.get((name, what), ()), _SHOWN):
                    monitor.say(f"    {place}")
    if not run.writes:
        return
    if any(prepared.treated):
        with run.treated.open("w", encoding="utf-8") as file:
            file.writelines(
                f"{treated.split}\t{place}\t{treated.what}\n"
                for treated in prepared.treated
                for place in treated.places
            )
        monitor.say(f"all of them are in {run.treated}")
    else:
        run.treated.unlink(missing_ok=True)
