"""Sums that end at the logit; and what integrated gradients and the logit lens are elsewhere."""

import pytest
import torch

from seqloom.errors import ConfigError
from seqloom.lens.attribution import Subject
from unit.lens.traced import NAMES, SOME, trace

pytestmark = pytest.mark.usefixtures("as_users_run")


@pytest.mark.parametrize("name", NAMES)
def test_components_and_tokens_add_up_to_the_logit(name: str) -> None:
    t = trace(name, double=True)
    for position in (0, -1):
        parts, shares = t.contributions(position), t.attribute(position)
        assert abs(parts.gap) < 1e-10
        assert abs(shares.gap) < 1e-10
        assert parts.total == pytest.approx(sum(item.value for item in parts.items), abs=1e-12)
        assert parts.logit == shares.logit == pytest.approx(logit(t, position), abs=1e-10)
        assert {side: len(own) for side, own in shares.sides.items()} == {s.name: len(s.tokens) for s in t.sides}


def logit(t, position: int) -> float:  # type: ignore[no-untyped-def]
    question = t._reading.questions[position]
    with torch.no_grad():
        return float(next(t._seen.score([question]))[1][t.predictions[position].id])


@pytest.mark.parametrize("name", ["language-model/transformer", "translation/recurrent", "tagging/convolutional"])
def test_rather_than_another(name: str) -> None:
    t = trace(name, double=True)
    one, two, both = (t.contributions(0, *tokens) for tokens in ((1,), (2,), (1, 2)))
    assert both.total == pytest.approx(one.total - two.total, abs=1e-10)
    assert both.gap == pytest.approx(0.0, abs=1e-10)
    assert t.attribute(0, 1, against=2).total == pytest.approx(both.total, abs=1e-10)


@pytest.mark.parametrize("name", SOME)
def test_the_last_layer_of_the_lens_is_the_model(name: str) -> None:
    t = trace(name, double=True)
    for position in (0, -1):
        layers = t.lens(position, top=3)
        top = t.predictions[position].top[: len(layers[-1].top)]
        assert [choice.id for choice in layers[-1].top] == [choice.id for choice in top]
        assert [c.logit for c in layers[-1].top] == pytest.approx([c.logit for c in top], abs=1e-10)
        assert [layer.layer for layer in layers] == list(range(len(layers)))
        assert layers[0].name.endswith("input")


def check_integrated(found) -> None:  # type: ignore[no-untyped-def]
    """What is missing is little, and it is said."""
    gained = abs(found.logit - found.biases)
    assert abs(found.gap) < 0.01 * gained
    assert f"{abs(found.gap) / gained:.2%}" in found.note


@pytest.mark.parametrize("name", ["gpt2", "language-model/recurrent", "translation/convolutional", "bert"])
def test_integrated_gradients_are_those_of_captum(name: str) -> None:
    attr = pytest.importorskip("captum.attr", reason="the oracle; pip install captum")
    t = trace(name, double=True)
    found = t.attribute(-1, method="integrated")
    check_integrated(found)
    seen = t._seen
    subject = Subject(seen.open, seen.reading.ids, (), seen.find_question(-1), t.predictions[-1].id)
    sites = [site for own in seen.open.embeddings.values() for site in own]
    vectors = tuple(subject.run(leaves=True)[1].embeddings[site].detach() for site in sites)

    def score(*many: torch.Tensor) -> torch.Tensor:
        rows = zip(*many, strict=True)
        return torch.stack([subject.run(vectors=dict(zip(sites, row, strict=True)))[0] for row in rows])

    method = attr.IntegratedGradients(score)
    theirs = method.attribute(tuple(vector[None] for vector in vectors), n_steps=40, internal_batch_size=8)
    ours = torch.tensor([share for own in found.sides.values() for share in own], dtype=torch.float64)
    expected = torch.cat([own[0].sum(-1) for own in theirs])
    torch.testing.assert_close(ours, expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("name", ["gpt2", "language-model/grouped", "regression/transformer", "tagging/recurrent"])
def test_integrated_gradients_add_up_in_single_precision(name: str) -> None:
    check_integrated(trace(name).attribute(0, method="integrated"))


@pytest.mark.parametrize("name", ["language-model/transformer", "translation/recurrent"])
def test_occlusion_is_what_masking_a_word_does(name: str) -> None:
    t = trace(name, double=True)
    side = t.sides[0].name
    shares = t.attribute(0, method="occlusion").sides[side]
    for index, word in enumerate(t.side(side).words[:2]):
        hidden = t.mask(side, index)
        after = next(hidden._seen.score([t._reading.questions[0]]))[1][t.predictions[0].id].detach()
        if hidden.sides[-1].tokens == t.sides[-1].tokens:
            assert shares[word.tokens[0]] == pytest.approx(logit(t, 0) - float(after), abs=1e-9)


def test_what_cannot_be_explained_is_refused_in_a_sentence() -> None:
    t = trace("tagging/convolutional")
    for wrong, said in (
        (lambda: t.attribute(99), "there is no 99"),
        (lambda: t.attribute(0, "XYZ"), "not a label of this model; its labels are NOUN, VERB"),
        (lambda: t.attribute(0, method="magic"), "choose conserved, gradient, integrated, occlusion"),
        (lambda: t.mixing("encoder.7"), "has no map of its own; those that have: encoder.0.kernel"),
        (lambda: t.arithmetic("encoder.0.kernel", 99, 0), "row: encoder.0.kernel has 7 of them"),
    ):
        with pytest.raises(ConfigError, match=said):
            wrong()
    assert t.contributions(0, "NOUN").token == 0
