"""A block's step in C gives the numbers of its step in PyTorch."""

from collections.abc import Iterator
from typing import Any, get_args

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from weft.nn import native, stepping
from weft.nn.feedforward import Activation, FeedForward
from weft.nn.multihead import CrossAttention, SelfAttention
from weft.nn.positions import Rotary
from weft.nn.stepping import MOST_ROWS, hasten_block, hasten_linear
from weft.nn.transformer import TransformerBlock

compiled = pytest.mark.skipif(native.load_library("stepping") is None, reason="there is no C compiler on this machine")


def make_block(**changes: Any) -> TransformerBlock:
    """A block of odd sizes: head width 6, 4 heads, model width 24, hidden 37."""
    with_source = changes.pop("source", True)
    activation = changes.pop("activation", "relu")
    rotary = Rotary(6) if changes.pop("rotary", False) else None
    residual = {"norm": changes.pop("norm", "layer"), "norm_position": changes.pop("norm_position", "pre")}
    torch.manual_seed(0)
    block = TransformerBlock(
        SelfAttention(24, 4, causal=True, rotary=rotary, **changes),
        CrossAttention(24, 10, 4) if with_source else None,
        FeedForward(24, 37, activation),
        model_dim=24,
        dropout=0.0,
        **residual,
    ).eval()
    for parameter in block.parameters():  # gains and biases that matter
        parameter.data += 0.3 * torch.randn_like(parameter)
    return block


@torch.inference_mode()
def assert_same_steps(block: TransformerBlock, *, batch: int, beams: int, padded: bool) -> None:
    """Six steps, each from what both have written so far; beams are reordered in between."""
    torch.manual_seed(1)
    slow = block.bind()
    block.hasten = hasten_block(block)
    assert block.hasten is not None
    fast = block.bind()
    memory: tuple[Any, ...] = ()
    if block.cross is not None:
        bias = torch.zeros(batch, 1, 1, 7)
        bias[:, :, :, 5:] = -torch.inf if padded else 0.0
        memory = (block.cross.project(torch.randn(batch, 7, 10)), bias if padded else None, None)
    shape = (batch, 2 * block.attention.num_kv_heads, 9, beams, 6)
    pasts = torch.zeros(shape), torch.zeros(shape)
    ancestry = None
    for position in range(6):
        if beams > 1:
            own = torch.eye(beams).log()[None, :, None].expand(batch, -1, 1, -1)
            ancestry = own if ancestry is None else torch.cat([ancestry, own], 2)
            ancestry = ancestry.contiguous()
        x = torch.randn(batch * beams, 24)
        before = x.clone()
        outs = [step(x, past, position, ancestry, *memory) for step, past in zip((slow, fast), pasts, strict=True)]
        torch.testing.assert_close(outs[0], outs[1], rtol=1e-4, atol=1e-5)
        torch.testing.assert_close(pasts[0], pasts[1], rtol=1e-4, atol=1e-5)
        assert torch.equal(x, before)
        if ancestry is not None:
            origins = torch.randint(beams, (batch, beams, 1, 1))
            ancestry = ancestry.gather(1, origins.expand(-1, -1, *ancestry.shape[2:]))


@compiled
@pytest.mark.parametrize("activation", get_args(Activation))
def test_every_activation(activation: Activation) -> None:
    assert_same_steps(make_block(activation=activation), batch=1, beams=1, padded=False)


@compiled
@given(
    norm=st.sampled_from(["layer", "rms"]),
    norm_position=st.sampled_from(["pre", "post"]),
    rotary=st.booleans(),
    num_kv_heads=st.sampled_from([1, 2, 4]),
    bias=st.booleans(),
    source=st.booleans(),
    padded=st.booleans(),
    shape=st.sampled_from([(1, 1), (3, 1), (8, 1), (1, 4), (2, 3), (1, 8), (11, 3)]),
)
def test_every_kind_of_block(shape: tuple[int, int], padded: bool, **options: Any) -> None:
    assert_same_steps(make_block(**options), batch=shape[0], beams=shape[1], padded=padded)


@compiled
@torch.inference_mode()
@pytest.mark.parametrize("rows", [*range(9), 13, 64])
@pytest.mark.parametrize("outputs", [1, 15, 16, 17, 63, 64, 65, 100, 1200])
@pytest.mark.parametrize("inputs", [19, 300])
def test_a_product_of_any_size(rows: int, outputs: int, inputs: int) -> None:
    weight, bias, x = torch.randn(outputs, inputs), torch.randn(outputs), torch.randn(rows, inputs)

    def refuse(x: torch.Tensor) -> torch.Tensor:
        raise AssertionError("was not asked to")

    product = hasten_linear(refuse, weight, bias)
    torch.testing.assert_close(product(x), x @ weight.T + bias, atol=1e-4, rtol=1e-4)


@compiled
@torch.inference_mode()
def test_a_row_does_not_depend_on_its_neighbours_or_on_threads() -> None:
    weight, bias, x = torch.randn(8000, 64), torch.randn(8000), torch.randn(64, 64)
    product = hasten_linear(lambda x: x, weight, bias)
    together, threads = product(x), torch.get_num_threads()
    try:
        torch.set_num_threads(1)
        assert torch.equal(product(x), together)
    finally:
        torch.set_num_threads(threads)
    for count in (1, 2, 5, 6, 7):
        assert torch.equal(product(x[:count]), together[:count])


@compiled
def test_a_product_has_any_shape_and_is_left_to_pytorch_where_it_may_be_differentiated() -> None:
    layer, x = torch.nn.Linear(7, 5), torch.randn(2, 3, 7, requires_grad=True)
    product = hasten_linear(layer.forward, layer.weight, layer.bias)
    with torch.inference_mode():
        torch.testing.assert_close(product(x), layer(x))
    assert product(x).grad_fn is not None


@compiled
@pytest.mark.parametrize("options", [{"alibi": True}, {"window": 3}, {"normalise_qk": True}])
def test_what_it_does_not_know_it_leaves_to_pytorch(options: dict[str, Any]) -> None:
    assert hasten_block(make_block(**options)) is None


@compiled
def test_very_many_rows_and_asked_for_attention_are_left_to_pytorch() -> None:
    block = make_block()
    block.hasten = hasten_block(block)
    step, looks = block.bind(), list[torch.Tensor]()
    rows = MOST_ROWS + 1
    with torch.inference_mode():
        memory = block.cross.project(torch.randn(rows, 7, 10))  # type: ignore[union-attr]
        one = tuple(part[:1] for part in memory)
        step(torch.randn(1, 24), torch.zeros(1, 8, 9, 1, 6), 0, None, one, None, looks)
        assert step(torch.randn(rows, 24), torch.zeros(rows, 8, 9, 1, 6), 0, None, memory, None, None).shape == (
            rows,
            24,
        )
    assert len(looks) == 1


@pytest.fixture
def no_compiler(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("CC", "no-such-compiler")
    for function in (native.load_library, stepping._load):
        function.cache_clear()
    yield
    for function in (native.load_library, stepping._load):
        function.cache_clear()


@pytest.mark.usefixtures("no_compiler")
def test_without_a_compiler_pytorch_does_it_all() -> None:
    assert hasten_block(make_block()) is None
    weight, bias, x = torch.randn(5, 19), torch.randn(5), torch.randn(2, 19)
    product = hasten_linear(lambda x: x @ weight.T + bias, weight, bias)
    torch.testing.assert_close(product(x), x @ weight.T + bias)
