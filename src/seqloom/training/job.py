"""A whole training, from a configuration file to a run folder. Starting it again goes on where it stopped."""

import errno
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from itertools import repeat
from pathlib import Path

import torch
from rich.console import Console
from torch import nn

from seqloom.config import Config, load
from seqloom.config.tasks import ModelTask, WordVectorsTask
from seqloom.config.train import TrainConfig
from seqloom.data.corpus import open_split
from seqloom.errors import ConfigError, RunError
from seqloom.hub.word2vec import read_word_vectors, write_word_vectors
from seqloom.models.build import build_model
from seqloom.nn.embeddings import TokenEmbedding
from seqloom.nn.feedforward import FeedForward
from seqloom.nn.low_rank import merge_adapters
from seqloom.nn.transformer import Stack
from seqloom.runs.machine import choose_device, describe_training, explain_kernels
from seqloom.runs.run import Run
from seqloom.seeds import derive_seed
from seqloom.text import Tokenizer
from seqloom.training.average import set_weights
from seqloom.training.budget import Progress
from seqloom.training.finetune import choose_trained, start_from
from seqloom.training.loop import fit
from seqloom.training.prepare import Prepared, open_task, prepare
from seqloom.training.report import write_report
from seqloom.training.sharding import collect
from seqloom.training.team import Team, join_team
from seqloom.training.watch import PlainWatch, Watch, open_watch
from seqloom.training.word_vectors import train_word_vectors


def train(
    config: str | Path,
    overrides: Sequence[str] = (),
    *,
    out: str | Path | None = None,
    watch: Watch | None = None,
    should_stop: Callable[[], bool] = lambda: False,
) -> Run:
    """Train what a configuration file says, in the folder `out` or runs/NAME.

    The same call goes on with a training that was interrupted.
    """
    path, out = Path(config), None if out is None else Path(out)
    with open_watch(Console(stderr=True)) if watch is None else nullcontext(watch) as watch, join_team() as team:
        run = Run(choose_folder(path, out), writes=team.leads)
        heard = watch if team.leads else PlainWatch(Console(quiet=True))
        with run.lock(), _tell_full_disks(run):
            settings = team.follow(lambda: _open(path, overrides, run, heard, team))
            team.follow(lambda: run.adopt(settings))
            if not isinstance(settings, WordVectorsTask):
                _train_model(settings, path.parent, run, heard, should_stop, team)
            elif team.size > 1:
                raise ConfigError("word vectors are trained by one process; leave --processes out")
            else:
                _train_vectors(settings, path.parent, run, heard)
    return run


def _open(path: Path, overrides: Sequence[str], run: Run, watch: Watch, team: Team) -> Config:
    """Say what computes, then read the configuration and check its data. Word vectors need no kernels."""
    config = load(path, overrides)
    if not isinstance(config, WordVectorsTask):
        torch.set_num_threads(config.train.threads or max(1, (os.cpu_count() or 1) // team.local_size))
        watch.tell(f"kernels: {explain_kernels(choose_device(config.train.device, team.local_rank))}")
    return open_task(path, overrides, run.folder, watch.tell)


@contextmanager
def _tell_full_disks(run: Run) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EIO):
            raise
        raise RunError(
            f"{run.folder}: cannot be written: {error.strerror}; the last good checkpoint is kept, the same command "
            "goes on from it when there is room"
        ) from None


def choose_folder(path: Path, out: Path | None) -> Path:
    """Where the run of a configuration file goes."""
    return out if out is not None else Path("runs") / path.stem


def build(config: ModelTask, prepared: Prepared, base: Path) -> nn.Module:
    """The model of a configuration with its first weights, which the seed decides."""
    torch.manual_seed(derive_seed(config.train.seed))
    model = build_model(config.model, prepared.tokenizer.vocab_size, prepared.num_outputs)
    taken = start_from(model, base / config.init) if config.init is not None else set()
    choose_trained(model, taken, config.train)
    if config.model.initial_vectors is not None:
        vectors = base / config.model.initial_vectors
        for name, module in model.named_modules():
            if isinstance(module, TokenEmbedding) and not name.startswith("features."):  # those were learned already
                _start_from(vectors, module, prepared.tokenizer)
    return model


def _train_model(
    config: ModelTask, base: Path, run: Run, watch: Watch, should_stop: Callable[[], bool], team: Team
) -> None:
    prepared = team.follow(lambda: prepare(config, base, run.folder, watch.tell))
    run.note_base(base)
    _tell_counts(prepared, watch)
    model = build(config, prepared, base)
    trained = sum(p.numel() for p in model.parameters() if p.requires_grad)
    watch.tell(
        f"model: {config.size}, {sum(p.numel() for p in model.parameters()):,} weights, {trained:,} of them trained"
    )
    device = choose_device(config.train.device, team.local_rank)
    _equip(model, config.train, device)
    progress = fit(model, prepared, config.train, run, watch, should_stop, team)
    weights = {} if progress is None else collect(model.named_parameters(), team)
    if progress is None or not team.leads:
        return
    if config.train.sharding == "full":
        model = build(config, prepared, base)
        set_weights(model, weights)
    merge_adapters(model)
    run.finish(model, config, prepared.labels, describe_training(config.train, team.size, device))
    facts = _list_facts(config, prepared, model, progress) | {"kernels": explain_kernels(device)}
    page = write_report(run, facts, _show_use(config, run))
    watch.tell(f"report: {page}")


def _list_facts(config: ModelTask, prepared: Prepared, model: nn.Module, progress: Progress) -> dict[str, str]:
    """What the report says at its head."""
    samples = prepared.train.samples
    return {
        "task": config.task,
        "training samples": f"{sum(samples.sizes):,}",
        **{reason: f"{count:,}" for reason, count in samples.counts.items() if count},
        "vocabulary": f"{prepared.tokenizer.vocab_size:,} tokens",
        "weights": f"{sum(p.numel() for p in model.parameters()):,}",
        "steps": f"{progress.step:,}, the best at {progress.best_step:,}",
        "speed": f"{progress.predictions / max(progress.seconds, 1e-9):,.0f} predictions a second",
        "time": f"{progress.seconds / 60:.1f} minutes",
    }


def _show_use(config: ModelTask, run: Run) -> str:
    if config.task == "translation":
        return f"echo 'a text' | seqloom translate {run.folder}"
    return f'import seqloom\nmodel = seqloom.load("{run.folder}")'


def _equip(model: nn.Module, config: TrainConfig, device: torch.device) -> None:
    """Put the model where and how it is to be trained."""
    model.to(device)
    for module in model.modules():
        if isinstance(module, Stack):
            module.recompute = config.recompute
        if isinstance(module, FeedForward) and config.compile:
            module.compile(dynamic=True)


def _train_vectors(config: WordVectorsTask, base: Path, run: Run, watch: Watch) -> None:
    def sentences() -> Iterator[list[str]]:
        for corpus in open_split(config.data, "train", base):
            for number, example in enumerate(corpus):
                text = example.values["text"]
                assert isinstance(text, str)
                times = int((number + 1) * corpus.weight) - int(number * corpus.weight)
                yield from repeat(text.split(), times)

    vectors = train_word_vectors(config.vectors, sentences, watch.word_vectors)
    write_word_vectors(vectors, run.folder / "vectors.bin", "word2vec-binary")


def _start_from(path: Path, embedding: TokenEmbedding, tokenizer: Tokenizer) -> None:
    """Give the tokens that are words their vectors; the others keep random ones of the same size."""
    vectors = read_word_vectors(path)
    if vectors.dim != embedding.weight.shape[1]:
        raise ConfigError(
            f"model.initial_vectors: {path} has vectors of width {vectors.dim}, but model_dim is "
            f"{embedding.weight.shape[1]}; make them equal"
        )
    words = [tokenizer.token(id).lstrip("Ġ▁") for id in range(tokenizer.vocab_size)]
    start = vectors.matrix_for(words, torch.Generator().manual_seed(derive_seed(0)))
    with torch.no_grad():
        embedding.weight.copy_(start.matrix)


def _tell_counts(prepared: Prepared, watch: Watch) -> None:
    """Nothing is left out, cut or split without a word."""
    for name, batches in (("train", prepared.train), ("valid", prepared.valid)):
        for reason, count in batches.samples.counts.items() if batches is not None else ():
            if count:
                watch.tell(f"{name}: {count:,} records {reason}")
