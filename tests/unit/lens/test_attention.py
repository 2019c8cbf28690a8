"""What the lens shows is what the model mixed with."""

import pytest
import torch

from seqloom.errors import SeqloomError
from seqloom.lens.attention import capture, picture
from seqloom.tasks import configuration
from seqloom.types import PairBatch, TokenBatch


def batch(lengths: list[int]) -> TokenBatch:
    mask = torch.arange(max(lengths)) < torch.tensor(lengths)[:, None]
    return TokenBatch(torch.randint(0, 20, mask.shape), mask)


@pytest.mark.parametrize(
    ("family", "names"),
    [
        ("transformer", ["encoder.blocks.0.attention", "decoder.blocks.0.attention", "decoder.blocks.0.cross"]),
        ("recurrent", ["decoder.lookup"]),
        ("convolutional", ["decoder.cross.0"]),
    ],
)
def test_weights_are_distributions_over_real_tokens(family: str, names: list[str]) -> None:
    data = 'task = "translation"\ndata.train = {source = "a", target = "b"}\n'
    text = f'{data}[model.encoder]\nfamily = "{family}"\nnum_layers = 1\nmodel_dim = 16\n'
    model = configuration.parse(text).model.build(20).eval()
    source, target = batch([5, 3]), batch([2, 4])
    with capture(model) as seen:
        model(PairBatch(source, target))
    assert seen.names == names
    weights = seen.weights(names[-1])
    assert weights.shape[::2] == (2, 4)
    assert weights.shape[3] == 5
    torch.testing.assert_close(weights.sum(-1), target.mask[:, None, :].expand(weights.shape[:3]).float())
    assert (weights[1, :, :, 3:] == 0).all()
    with capture(model) as unused, pytest.raises(SeqloomError, match="none"):
        unused.weights("decoder")


def test_a_picture_is_darkest_where_the_weight_is() -> None:
    text = picture(torch.tensor([[1.0, 0.0], [0.5, 0.5]]), ["a", "b"], ["x", "yy"]).plain
    assert text.splitlines() == ["  xyy", "a █  ", "b ▒▒▒"]
