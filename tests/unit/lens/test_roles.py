"""What heads do, on models whose heads do something known."""

from typing import Any

import pytest
import torch

import seqloom
from contracts.random_models import find_folder
from parity.trained import SIZE, make_tokenizer
from seqloom.lens.texts import Side, Token
from seqloom.lens.words import join_words
from unit.lens.traced import load, trace

pytestmark = pytest.mark.usefixtures("as_users_run")
TABLE = 64
SHARP = 120.0


def make_induction_model(**more: Any) -> Any:
    """Two layers of one head, without norms: the first carries each token to the next place, the second looks it up.

    The stream is [position; token; token before]. Elhage et al. 2021, "Two-layer attention-only transformers".
    """
    dim = TABLE + 2 * SIZE
    stack = {
        **{"num_layers": 2, "model_dim": dim, "num_heads": 1, "head_dim": TABLE, "bias": False, "dropout": 0.0},
        **{"norm": "none", "feedforward": False, "positions": {"kind": "one-hot", "table": TABLE}},
    }
    config = {"task": "language-model", "batch": {"rows": {"kind": "lines", "max_length": 60}}}
    config["model"] = {"decoder": stack | more, "tie_output": False}
    place, token, before = slice(0, TABLE), slice(TABLE, TABLE + SIZE), slice(TABLE + SIZE, dim)
    state: dict[str, torch.Tensor] = {}
    state["embedding.weight"] = torch.zeros(SIZE, dim)
    state["embedding.weight"][:, token] = torch.eye(SIZE)
    for layer, (query, key, back) in enumerate([(place, place, before), (token, before, token)]):
        heads, out = torch.zeros(3, TABLE, dim), torch.zeros(dim, TABLE)
        width = query.stop - query.start
        wanted = torch.eye(TABLE).roll(-1, 0)[:, :TABLE] if layer == 0 else torch.eye(width)
        heads[0, :width, query] = SHARP * wanted  # in the first layer, the place before one's own
        heads[1, :width, key] = torch.eye(width)
        heads[2, :SIZE, token] = torch.eye(SIZE)
        out[back, :SIZE] = torch.eye(SIZE) * (1.0 if layer == 0 else 10.0)
        state[f"decoder.blocks.{layer}.attention.in_projection.weight"] = heads.flatten(0, 1)
        state[f"decoder.blocks.{layer}.attention.out_projection.weight"] = out
    state["output.weight"] = torch.zeros(SIZE, dim)
    state["output.weight"][:, token] = torch.eye(SIZE)
    state["output.bias"] = torch.zeros(SIZE)
    return seqloom.assemble(config, make_tokenizer(), state)


def test_induction_is_found_where_it_was_built() -> None:
    first, second = make_induction_model().heads()
    assert second.induction is not None
    assert second.induction > 0.9
    assert first.previous is not None
    assert first.previous > 0.9
    assert max(first.induction or 0.0, second.previous or 0.0) < 0.1
    assert second.copying is not None
    assert second.copying > 0.9  # what is looked up is what is said


def test_the_built_model_continues_what_it_has_read() -> None:
    model = make_induction_model()
    t = model.trace("w3 w9 w4 w7 w3 w9")
    assert t.predictions[-1].label == "w4"
    best = max(t.contributions(-1, against="w7").items, key=lambda item: item.value)
    assert best.site == "decoder.1.head.0"
    assert t.ablate("decoder.0.head.0").predictions[-1].label != "w4"  # without the first layer nothing is found


@pytest.mark.parametrize("name", ["language-model/transformer", "gpt2", "llama", "translation/transformer"])
def test_at_random_no_head_does_induction(name: str) -> None:
    for one in seqloom.load(find_folder(name)).heads():
        assert one.induction is None or one.induction < 0.1


def test_copying_is_told_only_where_it_has_a_meaning() -> None:
    assert all(one.copying is not None and one.matching is not None for one in load("gpt2").heads())
    assert all(one.copying is not None and one.matching is None for one in load("llama").heads())  # rotary
    assert all(one.copying is None for one in load("bert").heads())


def test_roles_of_a_text_are_those_of_its_maps() -> None:
    t = trace("bert")
    for one in t.roles("encoder").heads:
        weights = t.mixing(one.site)
        assert one.special == pytest.approx(float(weights[:, [0, -1]].sum(1).mean()), abs=1e-6)
        assert one.previous == pytest.approx(float(weights.diagonal(-1).mean()), abs=1e-6)
        assert 0.0 < one.entropy <= 1.0
    told = t.roles("encoder").to_json()
    assert set(told["about"]) == {"previous", "duplicate", "induction", "entropy", "distance", "special"} & set(
        told["roles"][0]
    )


def test_a_memory_has_a_half_life_and_a_kernel_its_offsets() -> None:
    for one in trace("language-model/recurrent").roles().heads:
        assert one.half_life is not None
        assert one.half_life > 0
    for one in trace("tagging/convolutional").roles().heads:
        assert one.energy is not None
        assert list(one.energy) == [-1, 0, 1]
        assert sum(one.energy.values()) == pytest.approx(1.0)


@pytest.mark.parametrize("name", ["translation/transformer", "translation/recurrent", "t5"])
def test_the_best_head_is_the_one_that_attends_to_what_matters(name: str) -> None:
    t = trace(name)
    found = t.alignment()
    assert [one.site for one in found.heads] == sorted(
        (one.site for one in found.heads), key=lambda site: -next(o.share for o in found.heads if o.site == site)
    )
    effects = found.effects[:, [not token.special for token in t.side("source").tokens]]
    rows = [n for n, one in enumerate(t.predictions) if one.of is not None]
    expected = t.mixing(found.best.site)[rows, effects[rows].argmax(-1)].mean()
    assert found.best.share == pytest.approx(float(expected), abs=1e-6)
    assert found.to_json()["best"]["site"] == found.best.site


def test_words_take_the_sum_of_columns_and_the_mean_of_rows() -> None:
    pieces = [Token(2, "a", 0, 1, word=0), Token(3, "b", 1, 2, word=0), Token(4, "c", 3, 4, word=1)]
    side = Side("text", "ab c", (Token(1, "[CLS]", special=True), *pieces))
    expected = torch.tensor([[0.0, 3.0, 3.0], [6.0, 15.0, 9.0], [12.0, 27.0, 15.0]])
    torch.testing.assert_close(join_words(torch.arange(16.0).view(4, 4), side, side), expected)
    assert [word.text for word in side.words] == ["ab", "c"]
    t = trace("bert")
    assert t.mixing(t.sites[0], words=True).shape == (len(t.words("text")),) * 2
