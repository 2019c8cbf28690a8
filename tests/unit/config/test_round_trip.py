"""Every configuration that is accepted can be written down and read again: a run keeps its own that way."""

import tomllib

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from configurations import tables_of
from seqloom.config.dump import dump
from seqloom.errors import ConfigError
from seqloom.tasks import TASKS
from seqloom.tasks.configuration import parse, resolve, validate


@pytest.mark.parametrize("task", TASKS)
@settings(max_examples=60, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
@given(drawn=st.data())
def test_what_is_accepted_reads_again_as_the_same(task: str, drawn: st.DataObject) -> None:
    kind = TASKS[task]
    data = {"train": kind.example_files}
    table = {"task": task, "data": data, **drawn.draw(tables_of(kind))}
    if "data" in kind.model_fields and drawn.draw(st.booleans()):
        table["data"] = {**drawn.draw(tables_of(kind.model_fields["data"].annotation)), "train": kind.example_files}  # type: ignore[arg-type]
    for words in (None, 1_000):
        try:
            config = resolve({**table}, words=words)
        except ConfigError:
            continue
        text = dump(config)
        assert parse(text) == config
        assert validate(tomllib.loads(text), kind, "", "again") == config


@pytest.mark.parametrize("family", ["transformer", "recurrent", "convolutional"])
@pytest.mark.parametrize("stack", ["encoder", "decoder"])
@pytest.mark.parametrize("dim", [1, 2, 3, 6, 7, 10, 12, 33, 34, 36, 100])
def test_every_width_is_refused_or_reads_again(family: str, stack: str, dim: int) -> None:
    task = "masked-language-model" if stack == "encoder" else "language-model"
    text = f'task = "{task}"\ndata.train.files = "a"\n[model.{stack}]\nfamily = "{family}"\nmodel_dim = {dim}\n'
    try:
        config = parse(text)
    except ConfigError as error:
        assert "model_dim" in str(error)  # noqa: PT017
        return
    assert parse(dump(config)) == config


def test_a_width_that_the_default_heads_do_not_divide_is_refused_with_a_way_out() -> None:
    text = 'task = "masked-language-model"\ndata.train.files = "a"\nmodel.encoder.model_dim = 34\n'
    with pytest.raises(ConfigError, match="model_dim = 34 is not divisible by num_heads = 4; give a num_heads"):
        parse(text)
