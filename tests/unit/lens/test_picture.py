"""A map in the terminal."""

import torch

from seqloom.lens.picture import picture


def test_a_picture_is_darkest_where_the_weight_is() -> None:
    text = picture(torch.tensor([[1.0, 0.0], [0.5, 0.5]]), ["a", "b"], ["x", "yy"]).plain
    assert text.splitlines() == ["  xyy", "a █  ", "b ▒▒▒"]
