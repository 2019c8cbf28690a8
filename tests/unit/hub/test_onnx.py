"""Somebody else's encoder or model has no ONNX graph, and is told so before anything is traced."""

import pytest
from torch import Tensor, nn

from seqloom.encoders.base import Encoder
from seqloom.errors import RunError
from seqloom.hub.onnx.graphs import list_graphs
from seqloom.models.labelling import Tagger
from seqloom.nn.embeddings import TokenEmbedding
from seqloom.nn.packing import Packing


class Nothing(Encoder):
    """Gives back what it is given."""

    input_dim = output_dim = 4

    def encode(self, x: Tensor, packing: Packing) -> list[Tensor]:
        return [x]


def test_an_unknown_encoder_is_refused() -> None:
    tagger = Tagger(TokenEmbedding(5, 4, scale=False, dropout=0.0), Nothing(), 3, 0.0)
    with pytest.raises(RunError, match="no ONNX graph for an encoder of the class Nothing"):
        list_graphs(tagger)


def test_an_unknown_model_is_refused() -> None:
    with pytest.raises(RunError, match="no ONNX graph for a model of the class Linear"):
        list_graphs(nn.Linear(1, 1))
