"""What a person sees who asks Python for help, and which words messages use."""

import inspect
import re
from pathlib import Path
from typing import Any

import pytest

import seqloom
from seqloom.config.tokenizer import Bytes
from seqloom.decode.options import Search
from seqloom.errors import ConfigError, DataError, RunError
from small_runs import Runs

SOURCE = Path(seqloom.__file__).parent


@pytest.mark.parametrize("verb", ["translate", "generate", "stream", "evaluate"])
def test_help_shows_the_options_of_a_search(verb: str) -> None:
    function = getattr(seqloom.Model, verb)
    shown = inspect.signature(function).parameters
    assert set(Search.__dataclass_fields__) <= set(shown)
    assert not any(one.kind is one.VAR_KEYWORD for one in shown.values())
    assert shown["beam"].default == 1
    assert "beam: Hypotheses followed at once" in function.__doc__


def test_no_signature_shows_an_address() -> None:
    for function in (seqloom.train, seqloom.load, seqloom.assemble):
        assert " at 0x" not in str(inspect.signature(function))
        assert "lambda" not in str(inspect.signature(function))


def test_a_tokenizer_shows_what_it_is() -> None:
    assert repr(seqloom.Tokenizer.train(["a text"], Bytes())) == "<seqloom.Tokenizer BPE: 263 tokens>"


def test_messages_for_python_users_name_arguments_and_not_flags() -> None:
    """What only the command line has (bulk jobs, export, check) may name its flags."""
    flags = re.compile(r"--(out|engine|data|tokenized|sample|processes|metrics?|constraints?)\b(?! \{)")
    for path in SOURCE.rglob("*.py"):
        if path.parent.name != "cli" and path.name != "demo.py":
            found = [line for line in path.read_text(encoding="utf-8").splitlines() if flags.search(line)]
            assert not found, (path, found)


def test_the_labels_of_a_classifier_are_its_own(runs: Runs) -> None:
    model = seqloom.load(runs("classification"))
    with pytest.raises(ConfigError) as caught:
        model.classify("the cat", labels=["long", "short"])
    assert str(caught.value) == (
        "labels: only for a language model, but this model was trained for classification; its labels are long, short"
    )
    with pytest.raises(ConfigError, match="template: only for a language model"):
        model.classify("the cat", template="{text}: {label}")
    with pytest.raises(ConfigError, match="template: how examples are written; give some with shots"):
        seqloom.load(runs("language-model")).classify("the cat", template="{text}: {label}")


def test_a_configuration_is_not_a_run(tmp_path: Path) -> None:
    path = tmp_path / "mt.toml"
    path.write_text('task = "translation"\n')
    with pytest.raises(RunError, match=rf"{path}: is a file, and a run is a folder; `seqloom train {path}` makes one"):
        seqloom.load(path)


def test_a_missing_file_is_not_told_twice_and_cannot_be_repaired(tmp_path: Path) -> None:
    path = tmp_path / "mt.toml"
    path.write_text(
        'task = "translation"\ndata.train = {source = "a.de", target = "a.en"}\ndata.valid_fraction = 0.1\n'
    )
    with pytest.raises(DataError) as caught:
        seqloom.train(path, out=tmp_path / "run")
    assert "a.de: missing_file" in str(caught.value)
    assert "no records" not in str(caught.value)
    assert "--fix" not in str(caught.value)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"output": "runs/x"}, 'output: is not an argument of train or a section; did you mean "out"?'),
        ({"overides": {}}, 'did you mean "overrides"?'),
        ({"trian": {}}, 'did you mean "train"?'),
    ],
)
def test_a_misspelt_argument_of_train(given: dict[str, Any], said: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as caught:
        seqloom.train(tmp_path / "mt.toml", **given)
    assert said in str(caught.value)


def test_a_misspelt_task_is_answered_with_the_nearest(tmp_path: Path) -> None:
    path = tmp_path / "mt.toml"
    path.write_text('task = "translatoin"\n')
    with pytest.raises(ConfigError, match=r'"translatoin" is not a task; did you mean "translation"\?'):
        seqloom.train(path)
    with pytest.raises(ConfigError, match=r'did you mean "language-model"\?'):
        seqloom.assemble({"task": "langauge-model"}, "tokenizer.json", {})


def test_assemble_takes_dotted_keys(runs: Runs) -> None:
    model = seqloom.load(runs("tagging"))
    given = {
        "task": "tagging",
        "model.encoder": {"family": "transformer", "num_layers": 9},
        "model.encoder.num_layers": model.config.model.encoder.num_layers,
        "model.encoder.model_dim": model.config.model.encoder.model_dim,
    }
    again = seqloom.assemble(given, model.tokenizer, model.network.state_dict(), labels=model.labels)
    assert again.tag("the cat sees").tags == model.tag("the cat sees").tags


def test_one_file_is_no_pair_of_files(runs: Runs, tmp_path: Path) -> None:
    path = tmp_path / "p.de"
    path.write_text("the cat sees the dog .\n")
    with pytest.raises(DataError, match="give two files, source and target"):
        seqloom.load(runs("translation")).evaluate(path)
