"""Whatever configuration is accepted trains, resumes, loads and answers."""

import itertools
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from rich.console import Console

import seqloom
from configurations import values_of_fields
from seqloom.config.dump import spell_overrides
from seqloom.config.stacks import (
    ConvolutionalDecoderConfig,
    ConvolutionalEncoderConfig,
    RecurrentDecoderConfig,
    RecurrentEncoderConfig,
    TransformerDecoderConfig,
    TransformerEncoderConfig,
)
from seqloom.errors import ConfigError
from seqloom.tasks.configuration import load
from seqloom.training.job import train
from seqloom.training.monitor import PlainMonitor
from small_corpora import DATA, write_config

STACKS = {
    "encoder": (TransformerEncoderConfig, RecurrentEncoderConfig, ConvolutionalEncoderConfig),
    "decoder": (TransformerDecoderConfig, RecurrentDecoderConfig, ConvolutionalDecoderConfig),
}
QUIET = PlainMonitor(Console(quiet=True))


@pytest.mark.parametrize("family", ["transformer", "recurrent", "convolutional"])
@pytest.mark.parametrize("task", DATA)
@settings(max_examples=3, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
@given(drawn=st.data())
def test_what_is_accepted_trains_resumes_loads_and_answers(
    task: str, family: str, corpora: Path, drawn: st.DataObject
) -> None:
    stack = "decoder" if task == "language-model" else "encoder"
    kind = next(one for one in STACKS[stack] if one.model_fields["family"].default == family)
    names = [name for name in kind.model_fields if name not in ("family", "num_layers", "dropout")]
    chosen = drawn.draw(st.lists(st.sampled_from(names), min_size=2, max_size=4, unique=True))
    table = {f"model.{stack}.{name}": drawn.draw(values_of_fields(kind)[name]) for name in chosen}
    with TemporaryDirectory() as name:
        folder = Path(name)
        path = write_config(folder, corpora, task, family, "steps = 3")
        try:
            load(path, spell_overrides(table, {}))
        except ConfigError:
            return  # refused with a sentence, before anything is trained
        steps = itertools.count()
        train(path, table, out=folder / "run", monitor=QUIET, should_stop=lambda: next(steps) > 0)
        train(path, table, out=folder / "run", monitor=QUIET)
        model = seqloom.load(folder / "run")
        assert len(model.embed(["the cat sees a dog ."])) == 1
