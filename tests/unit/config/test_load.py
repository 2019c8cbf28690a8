"""What a person who mistypes a configuration gets to read."""

import json
import tomllib
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from seqloom.config.batches import Frame
from seqloom.config.dump import dump, spell_overrides
from seqloom.config.recipes import RECIPES
from seqloom.errors import ConfigError
from seqloom.tasks import configuration as config
from seqloom.tasks.template import render

TRANSLATION = 'task = "translation"\ndata.train = {source = "a.de", target = "a.en"}\n'


def faults_of(text: str, *overrides: str) -> str:
    with pytest.raises(ConfigError) as caught:
        config.parse(text, overrides, name="my.toml")
    return str(caught.value)


@pytest.mark.parametrize("task", config.TASKS)
def test_the_template_of_every_task_validates_as_it_is(task: str) -> None:
    assert config.parse(render(task)).task == task


@pytest.mark.parametrize("task", [task for task in config.TASKS if task != "word-vectors"])
@pytest.mark.parametrize("family", ["transformer", "recurrent", "convolutional"])
def test_one_word_swaps_the_family_in_the_template(task: str, family: str) -> None:
    swapped = config.parse(render(task).replace('\nfamily = "transformer"', f'\nfamily = "{family}"'))
    stacks = [getattr(swapped.model, name) for name in ("encoder", "decoder") if hasattr(swapped.model, name)]
    assert {stack.family for stack in stacks} == {family}


@pytest.mark.parametrize("name", RECIPES)
def test_a_recipe_is_a_template_with_its_own_settings(name: str) -> None:
    recipe = RECIPES[name]
    written = tomllib.loads(render(recipe.task, recipe))
    assert config.parse(render(recipe.task, recipe)).task == recipe.task

    def assert_given(given: dict[str, Any], found: dict[str, Any]) -> None:
        for key, value in given.items():
            if isinstance(value, dict):
                assert_given(value, found[key])
            else:
                assert found[key] == value

    assert_given(recipe.read(), written)


def test_a_misspelt_key_is_named_with_its_line_and_the_nearest_name() -> None:
    text = TRANSLATION + "[model.encoder]\nmodle_dim = 64\n"
    message = faults_of(text)
    assert "line 4: model.encoder.modle_dim" in message
    assert 'did you mean "model_dim"?' in message


@pytest.mark.parametrize(
    ("lines", "key", "expected"),
    [
        ('num_layers = "three"', "model.encoder.num_layers", 'a whole number, not "three"'),
        ("num_layers = 1.5", "model.encoder.num_layers", "a whole number, not 1.5"),
        ("num_layers = 0", "model.encoder.num_layers", "greater than 0, not 0"),
        ("dropout = 1.0", "model.encoder.dropout", "less than 1, not 1.0"),
        ("dropout = nan", "model.encoder.dropout", "a finite number"),
        ('family = "recurent"', "model.encoder.family", 'did you mean "recurrent"?'),
        ('direction = "left"', "model.encoder.direction", '"both", "forward", "backward"'),
        ("num_heads = 7", "model.encoder.num_heads", "model_dim = 256 is not divisible by num_heads = 7"),
        ("num_kv_heads = 3", "model.encoder.num_kv_heads", "num_heads = 4 is not divisible by num_kv_heads = 3"),
        ('positions = "rotry"', "model.encoder.positions", 'did you mean "rotary"?'),
        ("positions = 3", "model.encoder.positions", "a table, or one of"),
        ('family = "recurrent"\nnum_heads = 2', "model.encoder.num_heads", 'belongs to family = "transformer"'),
        ('family = "recurrent"\nmodel_dim = 63', "model.encoder", "make it even"),
        ('positions = {kind = "one-hot", table = 999}', "model.encoder", "smaller table"),
        (
            'positions = {kind = "learned", base = 2.0}',
            "model.encoder.positions.base",
            'belongs to kind = "sinusoidal"',
        ),
        ("model_dim = 4\nnum_heads = 4\npositions = 'rotary'", "model.encoder", "make model_dim / num_heads even"),
    ],
)
def test_a_fault_names_its_key_and_what_was_expected(lines: str, key: str, expected: str) -> None:
    message = faults_of(f"{TRANSLATION}[model.encoder]\n{lines}\n")
    assert f"{key}: " in message
    assert expected in message


def test_all_faults_are_reported_at_once() -> None:
    text = (
        TRANSLATION + '[model]\ntie_embeddings = "al"\n[model.encoder]\ndropuot = 0.1\n[model.decoder]\nnum_heads = 3\n'
    )
    message = faults_of(text)
    assert message.startswith("my.toml has 3 faults:")
    assert all(key in message for key in ("model.tie_embeddings", "model.encoder.dropuot", "model.decoder.num_heads"))


def test_contradictions_between_sections_are_faults() -> None:
    base = TRANSLATION + '[model]\ntie_embeddings = "none"\n[model.encoder]\nmodel_dim = 64\n[model.decoder]\n'
    message = faults_of(base + 'family = "recurrent"\nmodel_dim = 32\nscore = "dot"\n')
    assert "encoder.model_dim = 64" in message
    assert "decoder.model_dim = 32" in message
    tied = faults_of(TRANSLATION + "[model.encoder]\nmodel_dim = 64\n[model.decoder]\nmodel_dim = 32\n")
    assert 'tie_embeddings = "all"' in tied


@pytest.mark.parametrize(
    ("lines", "positions"),
    [
        ("", ("rotary", "rotary")),
        ("[model.decoder]\nnum_heads = 2", ("rotary", "rotary")),
        ("[model.encoder]\npositions = 'sinusoidal'", ("sinusoidal", "rotary")),
        ("[model.encoder]\nfamily = 'recurrent'", (None, None)),
        ("[model.encoder]\nfamily = 'convolutional'", ("sinusoidal", "sinusoidal")),
        ("[model.encoder]\nfamily = 'recurrent'\n[model.decoder]\nfamily = 'transformer'", (None, "rotary")),
    ],
)
def test_transformers_have_rotary_positions_unless_they_say_otherwise(lines, positions) -> None:
    model = config.parse(f"{TRANSLATION}{lines}\n").model
    found = (getattr(stack, "positions", None) for stack in (model.encoder, model.decoder))
    assert tuple(None if one is None else one.kind for one in found) == positions


def test_the_decoder_follows_the_encoder_unless_it_says_otherwise() -> None:
    text = TRANSLATION + '[model.encoder]\nfamily = "recurrent"\nnum_layers = 2\nmodel_dim = 64\ndropout = 0.3\n'
    decoder = config.parse(text).model.decoder
    assert (decoder.family, decoder.num_layers, decoder.model_dim, decoder.dropout) == ("recurrent", 2, 64, 0.3)
    other = config.parse(text + '[model.decoder]\nfamily = "transformer"\nnum_layers = 5\n').model.decoder
    assert (other.family, other.num_layers, other.model_dim) == ("transformer", 5, 64)


@pytest.mark.parametrize("text", ["task = 'translatoin'", "", "task = 3"])
def test_an_unknown_task_lists_the_tasks(text: str) -> None:
    message = faults_of(text)
    assert all(task in message for task in config.TASKS)


@pytest.mark.parametrize("family", ["transformer", "convolutional"])
def test_a_decoder_refuses_positions_that_need_the_whole_length(family: str) -> None:
    lines = f'[model.encoder]\nfamily = "{family}"\n[model.decoder]\npositions = "normalised"\n'
    assert "model.decoder.positions: " in faults_of(TRANSLATION + lines)


def test_text_that_is_not_toml_says_where() -> None:
    assert "line 2" in faults_of("task = 'translation'\nmodel = = 3\n")


def test_a_missing_file_says_how_to_make_one(tmp_path) -> None:
    with pytest.raises(ConfigError, match="seqloom new"):
        config.load(tmp_path / "absent.toml")


def test_overrides_are_values_or_bare_words() -> None:
    chosen = config.parse(TRANSLATION, ["model.encoder.num_layers=7", "model.encoder.family=recurrent"])
    assert (chosen.model.encoder.num_layers, chosen.model.encoder.family) == (7, "recurrent")
    assert "section.key=value" in faults_of(TRANSLATION, "model.encoder")
    assert "is a value, not a table" in faults_of(TRANSLATION, "task.kind=3")


def test_a_fault_of_an_override_is_not_blamed_on_the_file() -> None:
    text = TRANSLATION + "[train]\nseed = 3\n"
    assert "given beside the file: train.seed: expected a whole number" in faults_of(text, "train.seed=x")
    assert "given beside the file: train.sed: is not a known key" in faults_of(text, "train.sed=4")
    assert "line 4: train.seed" in faults_of(text.replace("3", "'x'"), "train.clip=2.0")
    assert "given beside the file: model.encoder.family: " in faults_of(text, "model.encoder.family=recurent")
    assert "given beside the file: train.judge_by: " in faults_of(text, "train.judge_by=blue")
    two = faults_of(text + "epochs = 2.0\n", "train.minutes=10")
    assert "epochs and minutes are two budgets; keep one of them (given beside the file: train.minutes)" in two
    assert "(given beside the file: tokenizer.kind)" in faults_of(text, "tokenizer.kind=bpee")


def test_a_metric_that_is_none_is_blamed_on_its_line() -> None:
    said = faults_of(TRANSLATION + "[train]\njudge_by = 'blue'\n")
    assert 'line 4: train.judge_by: "blue" is not a metric' in said
    assert "top level" not in said


def test_a_configuration_cannot_be_changed_after_it_was_checked() -> None:
    checked = config.parse(TRANSLATION)
    with pytest.raises(ValidationError):
        checked.model.encoder.num_layers = 9


def test_the_schema_describes_every_key_of_every_task() -> None:
    text = json.dumps(config.schema())
    assert all(task in text for task in config.TASKS)
    assert "num_kv_heads" in text
    assert "Key-value heads, shared by groups of query heads" in text


@pytest.mark.parametrize("task", config.TASKS)
def test_a_dumped_configuration_loads_as_the_same(task: str) -> None:
    loaded = config.parse(render(task), ["data.max_length=7"])
    assert config.parse(dump(loaded)) == loaded


@pytest.mark.parametrize("task", ["tagging", "classification"])
def test_what_starts_from_a_language_model_has_its_special_tokens_unless_it_says_others(
    task: str, tmp_path: Path
) -> None:
    (tmp_path / "config.toml").write_text(dump(config.parse(render("bidirectional-language-model"))))
    text = f'init = "{tmp_path}"\n' + render(task)
    assert config.parse(text).frame == Frame(before=("bos",), after=("eos",))
    assert config.parse(text, ["frame={after = 'sep'}"]).frame == Frame(after=("sep",))


def test_overrides_may_be_a_dict_or_sections() -> None:
    text = 'task = "translation"\ntrain.seed = 3\ndata.train = {source = "a", target = "b"}\n'

    def change(overrides: Any = (), **sections: Any) -> Any:
        return config.parse(text, spell_overrides(overrides, sections))

    for found in (
        change({"train.minutes": 10, "train.optimizer": {"learning_rate": 0.5}}),
        change({"train": {"minutes": 10.0, "optimizer.learning_rate": 0.5}}),
        change(["train.minutes=10", "train.optimizer.learning_rate=0.5"]),
        change(train={"minutes": 10, "optimizer": {"learning_rate": 0.5}}),
        change({"train.minutes": 10}, train={"optimizer": {"learning_rate": 0.5}}),
    ):
        assert (found.train.minutes, found.train.optimizer.learning_rate, found.train.seed) == (10, 0.5, 3)
    corpora = [{"source": Path("x"), "target": ("y", 'z "q"')}, {"source": "1", "target": "2"}]
    found = change(data={"train": corpora}, size="tiny")
    assert found.size == "tiny"
    assert [(corpus.source, corpus.target) for corpus in found.data.train] == [
        (("x",), ("y", 'z "q"')),
        (("1",), ("2",)),
    ]
    with pytest.raises(ConfigError, match=r'given beside the file: train\.minuts: .*did you mean "minutes"'):
        change({"train.minuts": 1})
    with pytest.raises(ConfigError, match=r'trian: is not a known key; did you mean "train"'):
        change(trian={"minutes": 1})
    with pytest.raises(ConfigError, match=r"given beside the file: train\.seed: expected a whole number"):
        change({"train.seed": "7"})
    with pytest.raises(ConfigError, match=r"train\.seed: None is not a value that TOML has"):
        change({"train.seed": None})
    with pytest.raises(ConfigError, match=r'give a list, \["train\.seed=7"\]'):
        change("train.seed=7")


def test_a_recipe_that_was_fitted_to_one_text_says_so() -> None:
    assert "fitted by hand" in RECIPES["characters"].about


def test_an_override_that_is_a_table_replaces_the_one_of_the_file() -> None:
    text = 'task = "language-model"\ndata.train.files = "a"\nbatch.rows = {kind = "lines", max_length = 32}\n'
    found = config.parse(text, ['batch.rows={kind = "windows", length = 8}'])
    assert (found.batch.rows.kind, found.batch.rows.length) == ("windows", 8)
