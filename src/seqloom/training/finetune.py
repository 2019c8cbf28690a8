"""Starting from a finished run: its weights where names and shapes agree, a new head for the rest."""

from pathlib import Path

import torch
from torch import nn

from seqloom.config.train import TrainConfig
from seqloom.errors import ConfigError
from seqloom.nn.low_rank import add_adapters
from seqloom.runs.checkpoint import load_tensors, verify_folder

_READER = "features.reader."


def start_from(model: nn.Module, run: Path) -> set[str]:
    """Take over the weights of a run; returns the names of the parameters that were."""
    verify_folder(run)
    weights = load_tensors(run / "model.safetensors")
    if any(name.startswith(_READER) for name, _ in model.named_parameters()):
        weights = {_READER + name: tensor for name, tensor in weights.items()}
    taken = set()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if name in weights and weights[name].shape == parameter.shape:
                parameter.copy_(weights[name])
                taken.add(name)
    stacks = {name.split(".")[0] for name in taken}
    if not stacks & {"encoder", "decoder", "features"}:
        raise ConfigError(f"init: no encoder or decoder of {run} fits this model; compare the two model sections")
    return taken


def choose_trained(model: nn.Module, taken: set[str], config: TrainConfig) -> None:
    """Freeze what is not to be trained."""
    names = [name for name, _ in model.named_parameters()]
    for prefix in config.freeze:
        if not any(name.startswith(prefix) for name in names):
            parts = sorted({name.split(".")[0] for name in names})
            raise ConfigError(f'train.freeze: nothing is called "{prefix}"; the parts are {", ".join(parts)}')
    for name, parameter in model.named_parameters():
        if any(name.startswith(prefix) for prefix in config.freeze):
            parameter.requires_grad_(False)
    if config.adapters is not None:
        if not taken:
            raise ConfigError("train.adapters adapt the weights of another run; say which one with init")
        add_adapters(model, taken, config.adapters.rank, config.adapters.alpha)
