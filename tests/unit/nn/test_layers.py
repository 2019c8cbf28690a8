"""The small parts against their formulas."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn

from seqloom.errors import ShapeError
from seqloom.models.labelling import ScalarMix
from seqloom.nn.attention import Pool
from seqloom.nn.dropout import Dropout
from seqloom.nn.embeddings import OutputLayer, SegmentEmbedding, TokenEmbedding
from seqloom.nn.feedforward import FeedForward
from seqloom.nn.transformer import Norm, Residual


def normal(x: Tensor) -> Tensor:
    """Φ(x), the share of a normal distribution below x."""
    return 0.5 * (1 + torch.erf(x / math.sqrt(2)))


BENDS = {
    "relu": lambda h: h.clamp(min=0),
    "gelu": lambda h: h * normal(h),
    "gelu-tanh": lambda h: h / 2 * (1 + torch.tanh(math.sqrt(2 / math.pi) * (h + 0.044715 * h**3))),
    "silu": lambda h: h / (1 + torch.exp(-h)),
    "tanh": lambda h: (h.exp() - (-h).exp()) / (h.exp() + (-h).exp()),
    "squared-relu": lambda h: h.clamp(min=0) ** 2,
    "relu-gated": lambda h: h[..., :6].clamp(min=0) * h[..., 6:],
    "gelu-gated": lambda h: h[..., :6] * normal(h[..., :6]) * h[..., 6:],
    "silu-gated": lambda h: h[..., :6] / (1 + torch.exp(-h[..., :6])) * h[..., 6:],
}


@pytest.mark.parametrize("activation", BENDS)
def test_feed_forward_is_two_layers_and_an_activation(activation):
    layer, x = FeedForward(4, 6, activation).double(), torch.randn(2, 3, 4).double()
    hidden = BENDS[activation](x @ layer.expand.weight.T + layer.expand.bias)
    torch.testing.assert_close(layer(x), hidden @ layer.contract.weight.T + layer.contract.bias)


def layer_norm(x: Tensor) -> Tensor:
    return (x - x.mean(-1, keepdim=True)) / (x.var(-1, keepdim=True, unbiased=False) + 1e-5).sqrt()


def rms_norm(x: Tensor) -> Tensor:
    return x / (x.square().mean(-1, keepdim=True) + 1e-6).sqrt()


@pytest.mark.parametrize(("kind", "norm"), [("layer", layer_norm), ("rms", rms_norm)])
def test_residual_normalises_before_or_after(kind, norm):
    """Xiong et al. 2020, Figure 1: f(LN(h)) + h, and LN(f(h) + h)."""
    x, sublayer = torch.randn(3, 5).double(), nn.Linear(5, 5).double()
    before, after = (Residual(5, Norm(kind, position), 0.0).double() for position in ("pre", "post"))
    torch.testing.assert_close(before(x, sublayer), sublayer(norm(x)) + x)
    torch.testing.assert_close(after(x, sublayer), norm(sublayer(x) + x))


@given(st.integers(0, 2**32), st.integers(1, 4), st.integers(0, 5), st.sampled_from([0.0, 0.5, 1.0]))
def test_pooling_sees_real_tokens_only(seed, batch, length, density):
    """For attention, α = softmax(W_a·h), h̄ = Σ α h. Zeros where there is nothing but padding."""
    torch.manual_seed(seed)
    states, mask = torch.randn(batch, length, 3).double(), torch.rand(batch, length) < density
    spoilt = states.masked_fill(~mask[:, :, None], 1e6)
    pools = {kind: Pool(kind, 3).double() for kind in ("attention", "mean", "max", "first")}
    nn.init.normal_(pools["attention"].query)
    pooled = {kind: pool(spoilt, mask) for kind, pool in pools.items()}
    for row, real in enumerate(mask):
        own = states[row, real]
        if not len(own):
            assert not any(result[row].any() for result in pooled.values())
            continue
        power = torch.exp(own @ pools["attention"].query[0])
        expected = {
            "attention": (power / power.sum()) @ own,
            "mean": own.mean(0),
            "max": own.max(0).values,
            "first": own[0],
        }
        for kind, vector in expected.items():
            torch.testing.assert_close(pooled[kind][row], vector)


def test_attention_pooling_starts_as_the_mean():
    states, mask = torch.randn(2, 4, 3), torch.ones(2, 4, dtype=torch.bool)
    torch.testing.assert_close(Pool("attention", 3)(states, mask), states.mean(1))


def test_a_mix_starts_as_the_mean_and_is_a_softmax():
    """Peters et al. 2018, eq. 1: γ Σ softmax(w)_l h_l."""
    layers, mix = tuple(torch.randn(2, 3, 4).double() for _ in range(3)), ScalarMix(3).double()
    torch.testing.assert_close(mix(layers), sum(layers) / 3)
    with torch.no_grad():
        mix.weights.copy_(torch.tensor([0.0, math.log(2.0), math.log(5.0)], dtype=torch.float64))
        mix.scale.fill_(8.0)
    torch.testing.assert_close(mix(layers), layers[0] + 2 * layers[1] + 5 * layers[2])
    with pytest.raises(ShapeError, match="layers holds 2 tensors but the mix was built for 3"):
        mix(layers[:2])


class TestEmbeddings:
    def test_an_id_is_a_row_times_the_root_of_the_width(self):
        plain, scaled = TokenEmbedding(5, 4), TokenEmbedding(5, 4, scale=True)
        assert torch.equal(plain(torch.tensor([[3, 0]]))[0, 0], plain.weight[3])
        torch.testing.assert_close(scaled(torch.tensor([3])), 2 * scaled.weight[3:4])

    def test_a_tied_output_layer_reads_the_embedding_backwards(self):
        embedding = TokenEmbedding(5, 4)
        output, states = OutputLayer(4, 5, embedding), torch.randn(2, 3, 4)
        torch.testing.assert_close(output(states), states @ embedding.weight.T + output.bias)
        assert output.weight is embedding.weight

    @pytest.mark.parametrize(("ids", "named"), [([0, 7], 7), ([-1, 2], -1), ([5], 5)])
    def test_an_id_outside_the_vocabulary_is_named(self, ids, named):
        with pytest.raises(ShapeError, match=rf"ids holds {named}, outside the vocabulary 0 … 4"):
            TokenEmbedding(5, 4)(torch.tensor(ids))

    def test_no_ids_are_no_fault(self):
        assert TokenEmbedding(5, 4)(torch.zeros(2, 0, dtype=torch.long)).shape == (2, 0, 4)

    def test_a_tied_table_of_another_size_is_refused(self):
        with pytest.raises(ShapeError, match=r"tied embedding has shape \(5, 4\), but the output layer needs \(6, 4\)"):
            OutputLayer(4, 6, TokenEmbedding(5, 4))


class TestSegments:
    """Devlin et al. 2019, §3: what follows a separator is of the next part."""

    def parts(self, ids, documents=None):
        segments = SegmentEmbedding(3, 1, separator=9)
        segments.weight.data = torch.arange(3.0)[:, None]
        documents = None if documents is None else torch.tensor([documents])
        return segments(torch.tensor([ids]), documents)[0, :, 0].int().tolist()

    def test_a_separator_ends_its_part(self):
        assert self.parts([1, 2, 9, 4, 9, 6, 9, 8]) == [0, 0, 0, 1, 1, 2, 2, 2]

    def test_each_document_starts_with_the_first_part(self):
        assert self.parts([1, 9, 3, 9, 5, 9, 7, 9], [0, 0, 0, 0, 1, 1, 1, 1]) == [0, 0, 1, 1, 0, 0, 1, 1]
        assert self.parts([9, 1, 9, 9, 2], [0, 0, 1, 2, 2]) == [0, 1, 0, 0, 1]

    def test_the_vectors_are_added(self):
        torch.manual_seed(0)
        ids = torch.tensor([[1, 9, 2]])
        embedding = TokenEmbedding(10, 4, segments=SegmentEmbedding(2, 4, 9))
        expected = embedding.weight[ids] + embedding.segments.weight[torch.tensor([[0, 0, 1]])]
        torch.testing.assert_close(embedding(ids), expected)


def test_word_dropout_hides_whole_tokens_while_training() -> None:
    torch.manual_seed(0)
    embedding = TokenEmbedding(5, 8, word_dropout=0.25)
    ids = torch.zeros(4, 1000, dtype=torch.long)
    hidden = (embedding(ids) == 0).float().mean(-1)
    assert set(hidden.unique().tolist()) == {0.0, 1.0}
    assert abs(float(hidden.mean()) - 0.25) < 0.03
    assert (embedding.eval()(ids) == embedding.weight[0]).all()


@pytest.mark.parametrize("rate", [0.1, 0.5, 0.9])
@pytest.mark.parametrize("kind", [torch.float32, torch.float64])
def test_dropout_drops_its_share_keeps_the_mean_and_gives_the_gradient_of_what_stayed(
    rate: float, kind: torch.dtype
) -> None:
    torch.manual_seed(0)
    x = torch.ones(1000, 1001, dtype=kind, requires_grad=True)
    dropped = Dropout(rate)(x)
    assert abs(float((dropped == 0).double().mean()) - rate) < 2e-3
    torch.testing.assert_close(dropped[dropped != 0], torch.full_like(dropped[dropped != 0], 1 / (1 - rate)))
    (dropped * 3).sum().backward()
    torch.testing.assert_close(x.grad, 3 * dropped.detach())
    rows = (dropped != 0).double()
    for one, other in ((rows[0], rows[1]), (rows.flatten()[:-1], rows.flatten()[1:])):  # drawn independently
        assert abs(float(torch.corrcoef(torch.stack([one, other]))[0, 1])) < 5 / len(one) ** 0.5
    torch.manual_seed(0)
    assert torch.equal(Dropout(rate)(x), dropped)
    assert Dropout(rate).eval()(x) is x
