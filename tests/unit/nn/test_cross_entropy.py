"""The chunked loss against PyTorch's, which holds every logit."""

import pytest
import torch
import torch.nn.functional as F

from seqloom.errors import ShapeError
from seqloom.nn.cross_entropy import _CHUNK, linear_cross_entropy
from seqloom.nn.embeddings import OutputLayer


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
@pytest.mark.parametrize("tokens", [1, _CHUNK, 2 * _CHUNK + 7])
def test_loss_and_gradients_equal_the_plain_ones(tokens: int, smoothing: float) -> None:
    torch.manual_seed(0)
    output = OutputLayer(8, 11).double()
    torch.nn.init.normal_(output.bias)
    targets = torch.randint(0, 11, (tokens,))
    results = []
    for plain in (True, False):
        states = torch.linspace(-1, 1, tokens * 8, dtype=torch.float64).view(tokens, 8).sin().requires_grad_()
        if plain:
            loss = F.cross_entropy(output(states), targets, reduction="sum", label_smoothing=smoothing)
        else:
            loss = linear_cross_entropy(output, states, targets, smoothing=smoothing)
        gradients = torch.autograd.grad(loss * 0.5, [states, output.weight, output.bias])
        results.append((loss, *gradients))
    for expected, actual in zip(*results, strict=True):
        torch.testing.assert_close(actual, expected)


def test_nothing_but_the_loss_is_computed_without_gradients() -> None:
    output = OutputLayer(4, 5)
    states, targets = torch.randn(6, 4), torch.randint(0, 5, (6,))
    with torch.no_grad():
        loss = linear_cross_entropy(output, states, targets)
    torch.testing.assert_close(loss, F.cross_entropy(output(states), targets, reduction="sum"))


@pytest.mark.usefixtures("as_users_run")
def test_wrong_sizes_are_named() -> None:
    output = OutputLayer(4, 5)
    with pytest.raises(ShapeError, match="states has 3 tokens but targets has 2"):
        linear_cross_entropy(output, torch.zeros(3, 4), torch.zeros(2, dtype=torch.long))
    with pytest.raises(ShapeError, match=r"targets holds 5, outside the vocabulary 0 … 4"):
        linear_cross_entropy(output, torch.zeros(1, 4), torch.tensor([5]))
