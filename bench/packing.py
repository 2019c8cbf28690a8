"""What packing gains: `python bench/packing.py [--threads 1] [--write]`

Forward and backward of a Transformer encoder (3 layers, d = 256, 4 heads, no dropout), packed as models here run it,
and padded in `nn.TransformerEncoder` with the same weights, on the same batches of about 2,000 tokens. Lengths are
drawn like those of Multi30k's German sentences, and come sorted into batches by length, or mixed.
"""

import argparse

import numpy as np
import torch
from results import draw_table, write_section
from timing import interleave
from torch import Tensor, nn

from seqloom.config.stacks import TransformerEncoderConfig
from seqloom.encoders.transformer import TransformerEncoder
from seqloom.models.stacks import build_encoder

DIM, HEADS, LAYERS, TOKENS, BATCHES = 256, 4, 3, 2000, 2
QUANTILES = [0, 0.01, 0.1, 0.25, 0.5, 0.75, 0.9, 0.99, 1]
LENGTHS = [2, 6, 8, 9, 12, 14, 17, 24, 40]
"""Words and an end mark: Multi30k, training set of task 1, 29,000 sentences, mean 12.1."""


def draw_batches(order: str) -> list[Tensor]:
    """Masks of `BATCHES` batches."""
    generator = np.random.default_rng(0)
    lengths = np.interp(generator.random(29_000), QUANTILES, LENGTHS).round().astype(np.int64)
    if order == "sorted":
        lengths = np.sort(lengths)
    cuts = np.flatnonzero(np.diff(np.cumsum(lengths) // TOKENS)) + 1
    batches = np.split(lengths, cuts)[:-1]
    chosen = generator.choice(len(batches), BATCHES, replace=False)
    lengths = [torch.from_numpy(batches[i]) for i in chosen]
    return [torch.arange(int(row.max())) < row.unsqueeze(-1) for row in lengths]


def pair_up() -> tuple[TransformerEncoder, nn.TransformerEncoder]:
    """The two encoders, with the same weights."""
    torch.manual_seed(0)
    config = TransformerEncoderConfig(
        num_layers=LAYERS, model_dim=DIM, num_heads=HEADS, dropout=0.0, positions={"kind": "none"}
    )
    ours = build_encoder(config)
    assert isinstance(ours, TransformerEncoder)
    layer = nn.TransformerEncoderLayer(DIM, HEADS, 4 * DIM, 0.0, batch_first=True, norm_first=True)
    theirs = nn.TransformerEncoder(layer, LAYERS, nn.LayerNorm(DIM), enable_nested_tensor=False)
    with torch.no_grad():
        for block, peer in zip(ours.blocks, theirs.layers, strict=True):
            peer.self_attn.in_proj_weight.copy_(block.attention.in_projection.weight)
            peer.self_attn.in_proj_bias.copy_(block.attention.in_projection.bias)
            peer.self_attn.out_proj.load_state_dict(block.attention.out_projection.state_dict())
            peer.linear1.load_state_dict(block.feedforward.expand.state_dict())
            peer.linear2.load_state_dict(block.feedforward.contract.state_dict())
    return ours, theirs


def compare(ours: TransformerEncoder, theirs: nn.TransformerEncoder, order: str) -> list[str]:
    """One row of the table."""
    masks = draw_batches(order)
    batches = [(torch.randn(*mask.shape, DIM), mask) for mask in masks]
    for x, mask in batches:
        expected = theirs(x, src_key_padding_mask=~mask)[mask]
        torch.testing.assert_close(ours(x, mask).states[mask], expected, rtol=1e-4, atol=1e-4)

    def run_packed() -> None:
        for x, mask in batches:
            ours(x, mask).states.sum().backward()

    def run_padded() -> None:
        for x, mask in batches:
            (theirs(x, src_key_padding_mask=~mask) * mask.unsqueeze(-1)).sum().backward()

    times = interleave({"packed": run_packed, "padded": run_padded})
    tokens = sum(int(mask.sum()) for mask in masks)
    unit = "" if times["packed"].clean else " of CPU"
    return [
        order,
        f"{1 - tokens / sum(mask.numel() for mask in masks):.0%}",
        *(f"{tokens / times[name].seconds:,.0f}{unit}" for name in ("packed", "padded")),
        f"{times['padded'].seconds / times['packed'].seconds:.2f}",
        f"{max(timing.foreign for timing in times.values()):.0%}",
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", action="store_true", help="renew the section of docs/results.md")
    parser.add_argument("--threads", type=int, default=1, help="more than one only on a quiet machine")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    encoders = pair_up()
    head = ["batches", "padding", "packed, tokens/s", "padded, tokens/s", "times faster", "CPU used by others"]
    text = (
        "## Packed and padded\n\n"
        f"Forward and backward, {LAYERS} layers, d = {DIM}, {HEADS} heads, about {TOKENS:,} tokens a batch, float32, "
        f"threads: {torch.get_num_threads()}, PyTorch {torch.__version__}.\n"
        "Padded is `nn.TransformerEncoder` with the same weights.\n\n"
        + draw_table(head, [compare(*encoders, order) for order in ("sorted", "mixed")])
    )
    print(text)
    if options.write:
        write_section("bench/packing.py", text)


if __name__ == "__main__":
    main()
