"""What the lens computes in the open is what every encoder and decoder computes, and its sums are whole."""

from typing import Any

import pytest
import torch
from torch import Tensor

from contracts.zoo import DECODERS, DIM, ENCODERS, make_decoder, make_encoder, make_memory, ones, randn
from seqloom.lens.mixing import AttentionMixer
from seqloom.lens.networks import open_stack
from seqloom.lens.passes import Pass
from seqloom.lens.stacks import Memory, OpenStack

pytestmark = pytest.mark.usefixtures("as_users_run")
CLOSE = {"rtol": 0.0, "atol": 1e-10}
LENGTH = 6


def run(opened: OpenStack, p: Pass, x: Tensor, memory: Memory | None) -> Tensor:
    """A pass in which the source is a leaf, like the embeddings."""
    if memory is not None and p.frozen:
        memory = Memory(*(None if part is None else p.embed(name, part) for name, part in vars(memory).items()))
    return opened.finish(p, opened.run(p, p.embed("embedding", x), memory))


def check(opened: OpenStack, x: Tensor, expected: Tensor, memory: Memory | None = None) -> Pass:
    """The pass gives what the stack gives; its maps rebuild their sublayers, and its shares any function of it."""
    values: dict[str, Tensor] = {}
    with torch.no_grad():
        p = Pass(x, watch=True, listen=values.__setitem__)
        torch.testing.assert_close(run(opened, p, x, memory), expected, **CLOSE)
        check_maps(opened, p, values)
    for kind in ("frozen", "direct"):
        held = Pass(x, kind=kind)
        out = run(opened, held, x, memory)
        torch.testing.assert_close(out, expected, **CLOSE)
        total = (out * randn(*out.shape)).sum()
        leaves = [held.one, *held.embeddings.values(), *held.positions.values(), *held.components.values()]
        gradients = torch.autograd.grad(total, leaves, allow_unused=True)
        shares = [(leaf * own).sum() for leaf, own in zip(leaves, gradients, strict=True) if own is not None]
        torch.testing.assert_close(torch.stack(shares).sum(), total, **CLOSE)
    return p


def check_maps(opened: OpenStack, p: Pass, values: dict[str, Tensor]) -> None:
    rows = range(LENGTH)
    listed = [site for stack in opened.describe() for layer in stack.layers for site in layer.sites]
    assert sorted(listed) == sorted(site for mixer in p.mixers.values() for site in mixer.sites)
    for mixer in p.mixers.values():
        weights, norms = mixer.weights(), mixer.norms()
        assert ((weights >= 0) & (weights <= 1 + 1e-12)).all()
        for index, site in enumerate(mixer.sites):
            vectors, rest = mixer.terms(index, rows)
            torch.testing.assert_close(vectors.norm(dim=-1), norms[index], **CLOSE)
            whole = values[site]
            if isinstance(mixer, AttentionMixer):
                whole = mixer.project(whole, index)
            torch.testing.assert_close(vectors.sum(1) + rest, whole, **CLOSE)
        if isinstance(mixer, AttentionMixer):
            group = mixer.sites[0].rpartition(".")[0]
            name = group if group in values else f"{group.removesuffix('.head')}.attention"
            vectors, rest = mixer.sum_terms(rows)
            torch.testing.assert_close(vectors.sum(1) + rest, values[name], **CLOSE)
            torch.testing.assert_close(weights.sum(-1), torch.ones_like(weights.sum(-1)), **CLOSE)


@pytest.mark.parametrize("options", ENCODERS.values(), ids=ENCODERS)
def test_every_encoder(options: dict[str, Any]) -> None:
    encoder, x = make_encoder(options), randn(LENGTH, DIM)
    with torch.no_grad():
        expected = encoder(x[None], ones(1, LENGTH), all_layers=True)
    opened = open_stack("encoder", encoder, "text")
    p = check(opened, x, expected.states[0])
    assert len(p.layers["encoder"]) == len(expected.layers)
    for (_, ours), theirs in zip(p.layers["encoder"][:-1], expected.layers[:-1], strict=True):
        torch.testing.assert_close(ours, theirs[0], **CLOSE)
    torch.testing.assert_close(opened.summarise(expected.states[0]), expected.summary[0], **CLOSE)


@pytest.mark.parametrize(("options", "source"), DECODERS.values(), ids=DECODERS)
def test_every_decoder(options: dict[str, Any], source: bool) -> None:
    decoder, x, encoded = make_decoder(options, source), randn(LENGTH, DIM), make_memory(options, source, [5])
    with torch.no_grad():
        expected = decoder(x[None], ones(1, LENGTH), encoded)[0]
    memory = None
    if encoded is not None:
        final = None if encoded.final is None else encoded.final[0].detach()
        memory = Memory(encoded.states[0].detach(), encoded.summary[0].detach(), final)
    check(open_stack("decoder", decoder, "target", "source" if source else None), x, expected, memory)
