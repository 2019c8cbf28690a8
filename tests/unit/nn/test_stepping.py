"""A block's step in C gives the numbers of its step in PyTorch."""

from collections.abc import Iterator
from typing import Any, get_args

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from seqloom.nn import native, stepping
from seqloom.nn.feedforward import Activation, FeedForward
from seqloom.nn.layout import lay_out
from seqloom.nn.multihead import CrossAttention, SelfAttention
from seqloom.nn.packing import Packing
from seqloom.nn.positions import Rotary
from seqloom.nn.stepping import hasten_block, hasten_linear
from seqloom.nn.transformer import TransformerBlock

compiled = pytest.mark.skipif(native.load_library("stepping") is None, reason="there is no C compiler on this machine")


def make_block(**changes: Any) -> TransformerBlock:
    """A block of odd sizes: head width 6, 4 heads, model width 24, hidden 37."""
    with_source = changes.pop("source", True)
    activation = changes.pop("activation", "relu")
    rotary = Rotary(6) if changes.pop("rotary", False) else None
    residual = {"norm": changes.pop("norm", "layer"), "norm_position": changes.pop("norm_position", "pre")}
    torch.manual_seed(0)
    block = TransformerBlock(
        SelfAttention(24, 4, **{"causal": True, "rotary": rotary} | changes),
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
    slow, quick = block.bind(), hasten_block(block)
    assert quick is not None
    block.hasten = quick.hasten
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
@pytest.mark.parametrize("rows", [*range(9), 13, 64, 500])
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
    without_source = hasten_block(make_block(source=False, **options))
    assert without_source is not None
    assert without_source.hasten is None


@compiled
def test_attention_that_is_asked_for_is_left_to_pytorch() -> None:
    block = make_block()
    block.hasten = hasten_block(block).hasten  # type: ignore[union-attr]
    step, looks = block.bind(), list[torch.Tensor]()
    with torch.inference_mode():
        memory = block.cross.project(torch.randn(1, 7, 10))  # type: ignore[union-attr]
        step(torch.randn(1, 24), torch.zeros(1, 8, 9, 1, 6), 0, None, memory, None, looks)
    assert len(looks) == 1


@compiled
@pytest.mark.parametrize("lengths", [[1], [5, 3, 9], [37] * 20])
@pytest.mark.parametrize("norm_position", ["pre", "post"])
@pytest.mark.parametrize("activation", ["gelu", "silu-gated"])
@pytest.mark.parametrize("options", [{"causal": False}, {"causal": False, "window": 3}, {"alibi": True}])
def test_whole_sequences(lengths: list[int], norm_position: str, activation: str, options: dict[str, Any]) -> None:
    """More rows than a chunk, and fewer; the same numbers, whatever the threads and neighbours."""
    block = make_block(source=False, norm_position=norm_position, activation=activation, **options)
    mask = torch.arange(max(lengths)) < torch.tensor(lengths).unsqueeze(1)
    packing, x, threads = Packing(mask), torch.randn(sum(lengths), 24), torch.get_num_threads()
    with torch.no_grad():
        slow = block(x, packing)
        lay_out(block)
        assert block.finish is not None
        fast, alone = block(x, packing), block(x[: lengths[0]], Packing(mask[:1, : lengths[0]]))
        torch.set_num_threads(1)
        by_one = block(x, packing)
        torch.set_num_threads(threads)
    torch.testing.assert_close(fast, slow, rtol=1e-4, atol=1e-5)
    assert torch.equal(by_one, fast)
    torch.testing.assert_close(alone, fast[: lengths[0]], rtol=1e-5, atol=1e-6)
    assert block(x, packing).grad_fn is not None


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
