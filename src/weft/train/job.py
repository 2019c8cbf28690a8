"""A whole training, from a configuration file to a run folder. Starting it again goes on where it stopped."""

import os
from collections.abc import Callable, Sequence
from pathlib import Path

import torch
from torch import nn

from weft.config import Config, load
from weft.models.build import build_model
from weft.train.budget import Progress
from weft.train.loop import fit
from weft.train.prepare import Prepared, prepare
from weft.train.run import Run
from weft.train.step import derive_seed
from weft.train.watch import Watch


def train(
    path: Path,
    overrides: Sequence[str] = (),
    *,
    out: Path | None = None,
    watch: Watch,
    should_stop: Callable[[], bool] = lambda: False,
) -> tuple[Run, Progress]:
    """Train what a configuration file says, in the folder `out` or runs/NAME."""
    config = load(path, overrides)
    run = Run(out if out is not None else Path("runs") / path.stem)
    torch.set_num_threads(config.train.threads or os.cpu_count() or 1)
    with run.lock():
        run.adopt(config)
        prepared = prepare(config, path.parent, run.folder, watch.tell)
        _tell_counts(prepared, watch)
        model = build(config, prepared)
        watch.tell(f"model: {sum(p.numel() for p in model.parameters()):,} weights")
        progress = fit(model, prepared, config.train, run, watch, should_stop)
        if not should_stop():
            run.finish(model, config, prepared.labels)
    return run, progress


def build(config: Config, prepared: Prepared) -> nn.Module:
    """The model of a configuration with its first weights, which the seed decides."""
    torch.manual_seed(derive_seed(config.train.seed))
    return build_model(config.model, prepared.tokenizer.vocab_size, prepared.num_outputs)


def _tell_counts(prepared: Prepared, watch: Watch) -> None:
    """Nothing is left out, cut or split without a word."""
    for name, batches in (("train", prepared.train), ("valid", prepared.valid)):
        for reason, count in batches.samples.counts.items() if batches is not None else ():
            if count:
                watch.tell(f"{name}: {count:,} records {reason}")
