"""What every model promises: each task with each family, and any encoder beside any decoder."""

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from contracts.zoo import shake
from seqloom.errors import ShapeError
from seqloom.tasks.bidirectional_language_model import BidirectionalLanguageModelConfig
from seqloom.tasks.classification import ClassificationModelConfig
from seqloom.tasks.language_model import LanguageModelConfig
from seqloom.tasks.masked_language_model import MaskedLanguageModelConfig
from seqloom.tasks.tagging import TaggingModelConfig
from seqloom.tasks.translation import TranslationModelConfig
from seqloom.types import PairBatch, TokenBatch

VOCAB, OUTPUTS, LENGTH = 11, 7, 6
FAMILIES = ("transformer", "recurrent", "convolutional")
TASKS = {
    "language-model": LanguageModelConfig,
    "masked-language-model": MaskedLanguageModelConfig,
    "bidirectional-language-model": BidirectionalLanguageModelConfig,
    "translation": TranslationModelConfig,
    "classification": ClassificationModelConfig,
    "tagging": TaggingModelConfig,
}
close = {"rtol": 1e-9, "atol": 1e-9}
every_model = pytest.mark.parametrize(("task", "family"), [(task, family) for task in TASKS for family in FAMILIES])


def make(task: str, family: str, **options: Any) -> nn.Module:
    stack = {"family": family, "num_layers": 2, "model_dim": 8}
    stacks = {"decoder" if task == "language-model" else "encoder": stack} | options
    torch.manual_seed(0)
    labels = OUTPUTS if task in ("classification", "tagging") else None
    return shake(TASKS[task].model_validate(stacks).build(VOCAB, labels))


def batch_of(rows: list[list[int]], width: int = LENGTH, fill: int = 0, documents: Tensor | None = None) -> TokenBatch:
    ids = torch.tensor([row + [fill] * (width - len(row)) for row in rows])
    return TokenBatch(ids, torch.arange(width) < torch.tensor([len(row) for row in rows])[:, None], documents)


def scores(model: nn.Module, task: str, batch: TokenBatch) -> Tensor:
    """What the model says, one row of numbers (or of positions × numbers) for each row of the batch."""
    match task:
        case "language-model":
            return model.output(model(batch))
        case "masked-language-model":
            chosen = batch.mask & (batch.ids % 2 == 1)
            return (
                torch.zeros(*batch.ids.shape, VOCAB).double().index_put((chosen,), model.output(model(batch, chosen)))
            )
        case "bidirectional-language-model":
            return torch.cat([model.output(states) for states in model(batch)], dim=-1)
        case "translation":
            return model.output(model(PairBatch(batch, TokenBatch(batch.ids.flip(0), batch.mask.flip(0)))))
        case _:
            return model(batch)


ROWS = [[1, 5, 3, 9], [7], [2, 4, 6, 8, 10, 3]]


@every_model
def test_every_parameter_gets_a_gradient(task, family):
    model = make(task, family)
    out = scores(model, task, batch_of(ROWS))
    (out * torch.randn_like(out)).sum().backward()
    assert [name for name, p in model.named_parameters() if p.grad is None or not p.grad.any()] == []


@every_model
@torch.no_grad()
def test_padding_says_nothing(task, family):
    model, batch = make(task, family), batch_of(ROWS)
    expected = scores(model, task, batch)
    other = scores(model, task, batch_of(ROWS, LENGTH + 3, fill=VOCAB - 1))
    if task != "classification":
        mask = batch.mask.flip(0) if task == "translation" else batch.mask
        other, expected = other[:, :LENGTH][mask], expected[mask]
    torch.testing.assert_close(other, expected, **close)


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("task", ["language-model", "masked-language-model", "bidirectional-language-model", "tagging"])
@torch.no_grad()
def test_documents_in_one_row_do_not_meet(task, family):
    model = make(task, family)
    together = scores(model, task, batch_of([[1, 5, 3, 9, 2, 7]], documents=torch.tensor([[0, 0, 0, 0, 1, 1]])))
    for document, start in (([1, 5, 3, 9], 0), ([2, 7], 4)):
        alone = scores(model, task, batch_of([document], len(document)))
        torch.testing.assert_close(together[:, start : start + len(document)], alone, **close)


def changed(before: Tensor, after: Tensor) -> list[bool]:
    """Which positions of the one row differ."""
    return ((before - after).abs().amax(-1)[0] > 1e-9).tolist()


@pytest.mark.parametrize("family", FAMILIES)
class TestOneDirection:
    """Another token at place 3 is felt only where it may be."""

    before, after = batch_of([[1, 2, 3, 4, 5, 6]]), batch_of([[1, 2, 3, 9, 5, 6]])

    def test_language_model(self, family):
        model = make("language-model", family)
        assert changed(model(self.before), model(self.after)) == [False, False, False, True, True, True]

    def test_bidirectional_language_model(self, family):
        model = make("bidirectional-language-model", family)
        (ahead, behind), (ahead_, behind_) = model(self.before), model(self.after)
        assert changed(ahead, ahead_) == [False, False, False, True, True, True]
        assert changed(behind, behind_) == [True, True, True, True, False, False]

    def test_translation(self, family):
        model, source = make("translation", family), batch_of([[4, 4, 2]])
        before, after = (model(PairBatch(source, target)) for target in (self.before, self.after))
        assert changed(before, after) == [False, False, False, True, True, True]


@pytest.mark.parametrize("family", FAMILIES)
@torch.no_grad()
def test_language_model_steps_equal_all_at_once(family):
    model, ids = make("language-model", family), torch.tensor([[1, 2, 3, 4], [5, 6, 7, 8]])
    first, state = model.step(ids[:, :1], model.start(2, 4))
    last, _ = model.step(ids[:, 1:], state)
    expected = model.output(model(TokenBatch(ids, torch.ones_like(ids, dtype=torch.bool))))
    torch.testing.assert_close(torch.stack([first, last], dim=1), expected[:, [0, 3]], **close)


@pytest.mark.parametrize("encoder", FAMILIES)
@pytest.mark.parametrize("decoder", FAMILIES)
def test_any_encoder_beside_any_decoder(encoder, decoder):
    """Also of different widths; step by step and all at once; with a gradient for every parameter."""
    config = TranslationModelConfig.model_validate(
        {
            "encoder": {"family": encoder, "num_layers": 1, "model_dim": 16},
            "decoder": {"family": decoder, "num_layers": 2, "model_dim": 8},
            "tie_embeddings": "output",
        }
    )
    model = shake(config.build(VOCAB, OUTPUTS))
    source, target = batch_of(ROWS), TokenBatch(torch.randint(OUTPUTS, (3, 4)), torch.ones(3, 4, dtype=torch.bool))
    expected = model.output(model(PairBatch(source, target)))
    assert expected.shape == (3, 4, OUTPUTS)
    (expected * torch.randn_like(expected)).sum().backward()
    assert [name for name, p in model.named_parameters() if p.grad is None or not p.grad.any()] == []
    with torch.no_grad():
        state, stepped = model.start(model.encode(source), 4), []
        for ids in target.ids.split(1, dim=1):
            logits, state = model.step(ids, state)
            stepped.append(logits)
    torch.testing.assert_close(torch.stack(stepped, dim=1), expected.detach(), **close)


@pytest.mark.parametrize("family", FAMILIES)
@torch.no_grad()
def test_both_directions_side_by_side(family):
    """Peters et al. 2018, §3.1: the features of a token are the two directions of each layer."""
    model, batch = make("bidirectional-language-model", family), batch_of(ROWS)
    encoded, (ahead, behind) = model.encode(batch), model(batch)
    torch.testing.assert_close(encoded.states, torch.cat([ahead, behind], dim=-1), **close)
    assert [layer.shape for layer in encoded.layers] == [(3, LENGTH, 16)] * 3
    torch.testing.assert_close(encoded.layers[-1], encoded.states)


@pytest.mark.parametrize("task", ["language-model", "masked-language-model", "tagging"])
def test_an_id_outside_the_vocabulary_is_named(task):
    with pytest.raises(ShapeError, match=r"ids holds 11, outside the vocabulary 0 … 10"):
        scores(make(task, "transformer"), task, batch_of([[1, 11]]))
