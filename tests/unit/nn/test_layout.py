"""A model in use computes what it did before."""

import torch
from torch import nn

from seqloom.nn.embeddings import OutputLayer, TokenEmbedding
from seqloom.nn.layout import lay_out


def test_only_the_order_in_memory_changes() -> None:
    embedding = TokenEmbedding(9, 4)
    model = nn.ModuleDict(
        {
            "embedding": embedding,
            "wide": nn.Linear(4, 6),
            "narrow": nn.Linear(6, 4),
            "output": OutputLayer(4, 9, embedding),
        }
    ).eval()

    def run() -> torch.Tensor:
        logits: torch.Tensor = model["output"](model["narrow"](model["wide"](embedding(torch.arange(9)))))
        return logits

    before, names = run(), list(model.state_dict())
    lay_out(model)
    torch.testing.assert_close(run(), before)
    assert list(model.state_dict()) == names
    assert model["wide"].weight.t().is_contiguous()
    assert model["narrow"].weight.is_contiguous()
    assert embedding.weight is model["output"].weight
    assert embedding.weight.is_contiguous()
