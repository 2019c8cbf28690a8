"""What if: a change gives another trace, which answers as a network with that change would."""

import copy
import json
from typing import Any

import pytest
import torch

import seqloom
from contracts.random_models import find_folder
from seqloom.errors import ConfigError
from seqloom.predict.model import Model
from unit.lens.traced import SOME, load, trace

pytestmark = pytest.mark.usefixtures("as_users_run")


def shown(t: Any) -> list[list[float]]:
    """The probabilities of what is most probable, place by place."""
    return [[choice.logit for choice in prediction.top] for prediction in t.predictions]


@pytest.mark.parametrize("name", SOME)
def test_a_change_that_changes_nothing(name: str) -> None:
    t = trace(name)
    for site in (t.sites[0], t.sites[-1], t.stacks[0].layers[0].name):
        if site in t._seen.passed.sites:
            for same in (t.scale(site, 1.0), t.patch(site, t)):
                assert shown(same) == shown(t)
                assert same.compare(t).sites == ()
                assert all(one.before == one.after for one in same.compare(t).predictions)
                assert as_text(same) == as_text(t)


def as_text(t: Any) -> Any:
    return {key: value for key, value in t.to_json()["answer"].items() if key in ("text", "label", "tags")}


HEADS = [("gpt2", "decoder.1.head.0"), ("bert", "encoder.0.head.1"), ("translation/transformer", "decoder.0.cross.1")]


@pytest.mark.parametrize(("name", "site"), [*HEADS, ("tagging/transformer", "encoder.1.head.1")])
@torch.no_grad()
def test_a_head_switched_off_is_a_head_without_columns(name: str, site: str) -> None:
    t = trace(name).ablate(site)
    model = seqloom.load(find_folder(name))
    stack, layer, kind, head = site.split(".")
    block = getattr(model.network, stack).blocks[int(layer)]
    attention = block.cross if kind == "cross" else block.attention
    first = int(head) * attention.head_dim
    attention.out_projection.weight[:, first : first + attention.head_dim] = 0.0
    again = {"max_length": 5} if name.startswith("translation") else {}
    expected = model.trace(trace(name)._reading.request["text"], **again)
    assert as_text(t) == as_text(expected)
    for ours, theirs in zip(shown(t), shown(expected), strict=True):
        assert ours == pytest.approx(theirs, abs=1e-6)


@pytest.mark.parametrize("name", SOME)
def test_a_changed_answer_is_that_of_a_changed_network(name: str) -> None:
    """The search under a change finds what a network finds in which the last layer gives less."""
    t = trace(name)
    site = t.sites[-1]
    changed = t.scale(site, 0.25)
    assert changed.changes[0].to_json() == {"kind": "scale", "site": site, "factor": 0.25}
    found = changed.compare(t)
    assert found.sites[0].change > 0
    assert json.loads(json.dumps(found.to_json()))["answer"]
    new = [prediction.id for prediction in changed.predictions]
    if name.startswith(("translation", "t5")):  # greedy: each token is the best of those allowed
        tops = [prediction.top[0].id for prediction in changed.predictions[:-1]]
        assert sum(a == b for a, b in zip(new, tops, strict=False)) >= len(tops) - 1


def test_the_mean_is_that_of_the_unchanged_trace() -> None:
    t = trace("translation/transformer", double=True)
    site = "encoder.0.head.0"
    u = t.ablate("encoder.0.head.1").ablate(site, by="mean")
    expected = t.value(site).mean(0).expand_as(t.value(site))
    torch.testing.assert_close(u.value(site), expected, rtol=0, atol=1e-12)


def test_a_patch_carries_a_value_over() -> None:
    t = trace("language-model/transformer", double=True)
    other = t.swap("text", 1, "w9")
    assert other.side("text").text == "w1 w9 w3 w2 w5"
    all_of_it = t.patch("decoder.1", other)
    assert [p.top[0].logit for p in all_of_it.predictions] == pytest.approx([p.top[0].logit for p in other.predictions])
    one = t.patch("decoder.1", other, positions=[1])
    assert shown(one)[1] == pytest.approx(shown(other)[1])
    assert shown(one)[2] == shown(t)[2]
    with pytest.raises(ConfigError, match="say which positions"):
        t.patch("decoder.1", t.swap("text", 0, "w1 w2"))


@pytest.mark.parametrize(
    "name", ["translation/recurrent", "classification/transformer", "language-model/convolutional"]
)
def test_changes_can_be_told_as_json_and_made_again(name: str) -> None:
    t = trace(name)
    side = t.sides[0].name
    u = t.mask(side, 0).scale(t.sites[0], 0.5).swap(side, 2, "w8").patch(t.sites[-1], t, positions=[0])
    again, known = load(name).trace(t._reading.request["text"], **t._reading.request.get("search", {})), {t.id: t}
    assert again.id == t.id
    for change in json.loads(json.dumps(u.to_json()["changes"])):
        again = again.change(change, known)
    assert again.id == u.id != t.id
    assert shown(again) == shown(u)
    assert u.to_json()["request"]["changes"] == u.to_json()["changes"]


def test_a_word_of_the_answer_can_be_changed() -> None:
    t = trace("translation/transformer")
    masked, swapped = t.mask("target", 0), t.swap("target", 0, "w3")
    assert masked.side("target").tokens == t.side("target").tokens
    assert swapped.side("target").words[0].text == "w3"
    assert masked.predictions[0].probability == pytest.approx(t.predictions[0].probability)  # it came before
    assert masked.compare(t).predictions[1].after != masked.compare(t).predictions[1].before


@pytest.mark.parametrize("name", ["translation/transformer", "translation/recurrent", "language-model/transformer"])
def test_a_search_under_change_takes_every_option(name: str) -> None:
    model = load(name)
    cover = {"coverage_penalty": 0.3} if name.startswith("translation") else {}
    t = model.trace("w1 w2 w3", beam=3, nbest=2, max_length=4, **cover)
    same = t.scale(t.sites[0], 1.0)
    assert as_text(same) == as_text(t)
    assert same.answer.score == pytest.approx(t.answer.score, abs=1e-4)
    assert [a.text for a in same.answer.alternatives] == [a.text for a in t.answer.alternatives]
    assert same.search.hypotheses[0].ids == t.search.hypotheses[0].ids


def test_what_a_change_does_not_reach_is_said() -> None:
    t = trace("translation/copied")
    assert not any("takes over" in note for note in t.notes)
    assert any("takes over" in note for note in t.ablate("encoder.0.forward").notes)


def test_a_tie_is_said() -> None:
    model = seqloom.load(find_folder("translation/transformer"))
    with torch.no_grad():
        model.network.output.weight.zero_()
        model.network.output.bias.zero_()
    assert any("up to rounding" in note for note in model.trace("w1 w2", max_length=2).notes)
    assert not any("rounding" in note for note in trace("translation/transformer").notes)


def test_the_network_is_left_alone() -> None:
    model = load("translation/transformer")
    before = copy.deepcopy(model.network.state_dict())
    answer = model.translate("w1 w2", max_length=4)
    model.trace("w1 w2", max_length=4).ablate("encoder.0.head.0")
    assert model.translate("w1 w2", max_length=4) == answer
    assert all(torch.equal(value, before[key]) for key, value in model.network.state_dict().items())
    assert isinstance(model, Model)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"kind": "explode"}, "one of ablate, scale, mask, swap, patch"),
        ({"kind": "scale", "site": "decoder.0.head.0"}, "factor: is missing"),
        ({"kind": "scale", "site": "decoder.0.head.0", "factor": "big"}, "factor: expected"),
        ({"kind": "ablate", "site": "decoder.0.hed.0"}, 'did you mean "decoder.0.head.0"'),
        ({"kind": "ablate", "site": "decoder.0.head.0", "by": "magic"}, "expected zero or mean"),
        ({"kind": "mask", "side": "text", "index": 77}, "there is no 77"),
        ({"kind": "swap", "side": "source", "index": 0, "text": "w1"}, "there is no side 'source'; there is text"),
        ({"kind": "patch", "site": "decoder.0", "from": "nobody"}, "there is no trace 'nobody'"),
        ({"kind": "mask", "side": "text", "index": 0, "site": "decoder.0"}, "has only side, index"),
    ],
)
def test_a_wrong_change_is_refused_in_a_sentence(change: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        trace("language-model/transformer").change(change)
