"""A trace of a loaded model: what it says about its text, what it refuses, and that it does not lie."""

import json
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import seqloom
from contracts.random_models import NAMES, build, find_folder
from parity.trained import SIZE, make_tokenizer
from seqloom.config.tokenizer import Bpe
from seqloom.errors import DataError, SeqloomError
from seqloom.lens import layers
from seqloom.lens.networks import open_network
from seqloom.lens.seen import Seen
from seqloom.lens.texts import Question, Reading, Side, Token
from seqloom.lens.trace import Trace
from seqloom.models.labelling import Features, Tagger
from seqloom.nn.embeddings import TokenEmbedding
from seqloom.nn.feedforward import FeedForward
from seqloom.tasks import TASKS
from seqloom.tasks.configuration import validate
from unit.lens.traced import SOME, load, trace

pytestmark = pytest.mark.usefixtures("as_users_run")


@pytest.mark.parametrize("name", NAMES)
def test_every_number_of_a_map_can_be_computed_by_hand(name: str) -> None:
    t = trace(name, double=True)
    for site in t.sites[:: max(1, len(t.sites) // 6)]:
        weights, norms = t.mixing(site), t.mixing(site, norm=True)
        for row, column in ((len(weights) - 1, 0), (len(weights) - 1, weights.shape[1] - 1), (0, weights.shape[1] - 1)):
            steps = t.arithmetic(site, row, column).steps
            by_name = {step.name: step.values for step in steps}
            shown = by_name.get("share", by_name.get("weight"))
            assert shown == pytest.approx(float(weights[row, column]), abs=1e-12)
            if "softmax" in by_name:
                scores = torch.tensor([-np.inf if v is None else v for v in by_name["scores of the row"]]).double()
                torch.testing.assert_close(scores.softmax(-1), torch.tensor(by_name["softmax"]).double())
            added = next((v for k, v in by_name.items() if k.startswith("added")), None)
            if added is not None:
                assert np.linalg.norm(added) == pytest.approx(float(norms[row, column]), abs=1e-10)


@pytest.mark.parametrize("name", SOME)
def test_a_grid_has_the_maximum_of_each_cell(name: str) -> None:
    t = trace(name)
    for stack in t.stacks:
        sites = [site for layer in stack.layers for site in layer.sites]
        maps = torch.stack([t.mixing(site) for site in sites])
        exact = (255 * maps.clamp(0, 1).sqrt()).round().to(torch.uint8)
        assert torch.equal(t.grid(stack.name), exact)
        small = t.grid(stack.name, size=3)
        assert small.shape == (len(sites), *(min(3, side) for side in maps.shape[1:]))
        assert torch.equal(small.amax((1, 2)), exact.amax((1, 2)))


@pytest.mark.parametrize("name", SOME)
def test_tokens_stand_where_the_text_says(name: str) -> None:
    t = trace(name)
    for side in t.sides:
        for token in side.tokens:
            assert token.special == (token.start is None)
            if token.start is not None:
                assert side.text[token.start : token.end].strip() == token.text
        assert [word.text for word in side.words] == side.text.split()
    for prediction in t.predictions:
        if prediction.of is not None and prediction.of != prediction.at:
            side, index = prediction.of
            assert t.side(side).tokens[index].id == prediction.id
    told = json.loads(json.dumps(t.to_json()))
    assert told["id"] == t.id
    assert told["sides"][0]["tokens"][0].keys() == {"id", "text", "start", "end", "special", "word"}
    assert [one["label"] for one in told["predictions"]] == [one.label for one in t.predictions]


@pytest.mark.parametrize("task", ["classification", "tagging"])
def test_tokens_are_called_what_the_model_reads(task: str) -> None:
    unknown = load(f"{task}/transformer").trace("w1 zebra").sides[0]
    assert [token.text for token in unknown.tokens] == ["[CLS]", "w1", "zebra = [UNK]", "[SEP]"]
    letters = [chr(number) for number in range(ord("a"), ord("z") + 1)]
    tokenizer = seqloom.Tokenizer.train(["the bridge is a bridge", *letters], Bpe(size=300))
    config: Any = validate(
        {"task": task, "data": {"train": {"format": "conllu" if task == "tagging" else "label-first", "files": ["x"]}}},
        TASKS[task],
        "",
        "test",
    )
    model = seqloom.assemble(config, tokenizer, config.build(tokenizer, ("a", "b")).state_dict(), labels=("a", "b"))
    side = model.trace("zebra ש 🐕").sides[0]
    inner = [token.text for token in side.tokens if not token.special]
    assert "".join(inner).startswith("zebra")
    assert [text for text in inner if "·" in text] == ["ש·1/2", "ש·2/2", *(f"🐕·{part}/4" for part in range(1, 5))]
    assert all(side.text[token.start : token.end] == token.text for token in side.tokens[1:4])


def test_a_language_model_reads_its_own_continuation_if_asked() -> None:
    model = load("language-model/transformer")
    alone, longer = model.trace("w1 w2 w3"), model.trace("w1 w2 w3", max_length=4)
    written = model.generate("w1 w2 w3", max_length=4)
    assert len(longer.side("text").tokens) == len(alone.side("text").tokens) + len(written.tokens)
    assert longer.side("text").text == "w1 w2 w3" + written.text
    assert longer.answer == written
    assert alone.answer == model.score("w1 w2 w3")
    assert longer.search.hypotheses[0].log_probability == pytest.approx(sum(written.token_scores))
    with pytest.raises(SeqloomError, match="no answer was searched"):
        alone.search  # noqa: B018


def test_a_given_target_is_read() -> None:
    model = load("translation/transformer")
    t = model.trace("w1 w2", "w7 w8 w9")
    assert [one.label for one in t.predictions] == ["w7", "w8", "w9", "[EOS]"]
    scores = [np.log(one.probability) for one in t.predictions]
    assert scores == pytest.approx(model.score("w1 w2", "w7 w8 w9").token_scores, abs=1e-5)


def test_values_have_the_names_of_transformerlens() -> None:
    model = load("gpt2", double=True)
    logits, cache = model.run_with_cache("w1 w2 w3")
    with torch.no_grad():
        for layer in range(2):
            own = {name: cache[f"blocks.{layer}.hook_{name}"] for name in ("resid_pre", "attn_out", "resid_mid")}
            torch.testing.assert_close(own["resid_pre"] + own["attn_out"], own["resid_mid"])
            after = own["resid_mid"] + cache[f"blocks.{layer}.hook_mlp_out"]
            torch.testing.assert_close(after, cache[f"blocks.{layer}.hook_resid_post"])
            pattern, value = (cache[f"blocks.{layer}.attn.hook_{name}"] for name in ("pattern", "v"))
            mixed = torch.einsum("bhts,bshk->bthk", pattern, value)
            torch.testing.assert_close(mixed, cache[f"blocks.{layer}.attn.hook_z"])
        first = cache["hook_embed"] + cache["hook_pos_embed"]
        torch.testing.assert_close(first, cache["blocks.0.hook_resid_pre"])
        network = model.network
        expected = network.output(network.decoder.final_norm(cache["blocks.1.hook_resid_post"]))
        torch.testing.assert_close(logits, expected)
    _, other = load("tagging/recurrent").run_with_cache("w1 w2 w3")
    assert other["encoder.0.forward.mixing"].shape == (5, 5)


def test_a_wrong_picture_is_never_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    right = layers.feed_forward
    monkeypatch.setattr(layers, "feed_forward", lambda *inputs: 1.01 * right(*inputs))
    with pytest.raises(SeqloomError, match=r"otherwise than the network .* shows nothing"):
        load("language-model/transformer").trace("w1 w2 w3")


class Loud(FeedForward):
    """Not what it was."""


def _hook(network: nn.Module) -> None:
    network.decoder.blocks[0].feedforward.register_forward_hook(lambda *_: None)


def _subclass(network: nn.Module) -> None:
    network.decoder.blocks[0].feedforward.__class__ = Loud


def _forward(network: nn.Module) -> None:
    module = network.decoder.blocks[0].feedforward
    module.forward = module.forward


def _train(network: nn.Module) -> None:
    network.train()


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (_hook, "feedforward .FeedForward. has a hook or a forward of its own"),
        (_forward, "has a hook or a forward of its own"),
        (_subclass, "feedforward .Loud. is of a class that the lens does not know"),
        (_train, "training mode"),
    ],
)
def test_a_network_that_is_not_known_is_refused(change: Any, said: str) -> None:
    model = seqloom.load(find_folder("language-model/transformer"))
    change(model.network)
    with pytest.raises(SeqloomError, match=said):
        model.trace("w1 w2 w3")


@pytest.mark.parametrize(
    ("name", "given", "said"),
    [
        ("language-model/transformer", (" ",), "blank"),
        ("translation/transformer", ("",), "blank"),
        ("tagging/transformer", ("",), "blank"),
        ("masked-language-model/transformer", ("\n",), "blank"),
        ("classification/transformer", ("",), "blank"),
        ("language-model/transformer", ("w1 " * 99,), "has 99 tokens, but the model reads 2"),
        ("translation/recurrent", ("w1 " * 99,), "has 99 tokens, but the model reads 2"),
        ("tagging/recurrent", ("w1 " * 99,), "has 99 tokens, but the model reads 2"),
    ],
)
def test_a_text_that_cannot_be_traced_gets_a_sentence(name: str, given: tuple[str, ...], said: str) -> None:
    with pytest.raises(DataError, match=said):
        load(name).trace(*given)


def make_classifier(**more: Any) -> Any:
    """A model of pairs of texts, or of texts with the features of a language model."""
    table = {"format": "tsv", "files": ["x.tsv"], "columns": {"text": 1, "second": 2, "label": 3}}
    stack = {"num_layers": 1, "model_dim": 16, "num_heads": 2}
    config = {"task": "classification", "data": {"train": table}, "model": {"encoder": stack, **more}}
    tokenizer = make_tokenizer()
    task = validate({"tokenizer": {"kind": "file", "path": "x"}, **config}, TASKS["classification"], "", "test")
    torch.manual_seed(0)
    return seqloom.assemble(config, tokenizer, task.build(tokenizer, ("a", "b")).state_dict(), labels=["a", "b"])


def test_a_pair_is_one_side_with_both_texts() -> None:
    model = make_classifier()
    t = model.trace("w1 w2", "w3")
    assert [token.text for token in t.side("text").tokens] == ["[CLS]", "w1", "w2", "[SEP]", "w3", "[SEP]"]
    assert [word.text for word in t.side("text").words] == ["w1", "w2", "w3"]
    assert t.answer == model.classify("w1 w2", "w3")
    swapped = t.swap("text", 2, "w9").swap("text", 0, "w8")
    assert swapped.side("text").text == "w8 w2\nw9"
    assert swapped.answer == model.classify("w8 w2", "w9")
    with pytest.raises(DataError, match="trained on pairs"):
        model.trace("w1 w2")


@torch.no_grad()
def test_the_features_of_a_language_model_are_seen_too() -> None:
    _, _, reader = build("bidirectional-language-model/recurrent")
    torch.manual_seed(0)
    encoder = build("tagging/transformer")[2].encoder
    features = Features(reader, 2, 16, frozen=True, dropout=0.0)
    network = Tagger(TokenEmbedding(SIZE, 16), encoder, 4, 0.0, features).double().eval()
    for parameter in network.parameters():
        parameter += 0.1 * torch.randn_like(parameter)
    opened = open_network(network)
    ids = {"text": torch.arange(6)}
    side = Side("text", "", tuple(Token(id, str(id)) for id in range(6)))
    questions = (Question(2, ("text", 2), None, 1),)
    t = Trace(Seen(opened, Reading("tagging", (side,), ids, questions, str, int, {})))
    assert [stack.name for stack in t.stacks] == ["forwards", "backwards", "encoder"]
    for found in (t.contributions(0), t.attribute(0)):
        assert abs(found.gap) < 1e-10
    assert {"features.mix", "encoder.embedding"} <= {item.site for item in t.contributions(0).items}


def test_what_nothing_is_predicted_from_says_so() -> None:
    t = load("bert").trace("w1 w2 w3")
    assert t.predictions == ()
    assert t.notes == ("There is no [MASK] in the text, so nothing is predicted.",)
    assert t.views["lens"] == "Nothing is predicted in this text."
    with pytest.raises(SeqloomError, match="nothing is predicted"):
        t.lens(0)
    for wrong in (lambda: t.mask("text", 9), lambda: load("bert").trace("a", "b")):
        with pytest.raises(SeqloomError):
            wrong()
