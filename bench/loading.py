"""Does loading hold training back? `python bench/loading.py SOURCE TARGET [--tokens 4096] [--steps 200] [--write]`

Two files of parallel text (plain or .gz) become batches; a small Transformer language model trains on their targets.
Blocks of steps with batches that lie in memory alternate with blocks of steps fed by the loader, so that both meet the
same machine. The first batch of a process that starts at step 1,000,000 is made beside that of one at step 0, and for
a corpus of ten million pairs with the same lengths the samples of both steps are found.
"""

import argparse
import statistics
import tempfile
import time
from collections.abc import Callable
from itertools import count
from pathlib import Path

import numpy as np
import torch
from results import draw_table, write_section
from timing import interleave
from torch import nn

from seqloom.config.data import ParallelFiles
from seqloom.config.tokenizer import Bpe
from seqloom.data.batching import Batches, Loader, PairSamples
from seqloom.data.columns import TextColumn
from seqloom.data.corpus import Corpus
from seqloom.data.encoding import encode_corpus
from seqloom.data.order import Mixture, Order
from seqloom.data.rows import Frame, Limit
from seqloom.data.shards import Records
from seqloom.text import Tokenizer
from seqloom.types import PairBatch

BLOCK = 20
LARGE = 10_000_000


def prepare(source: Path, target: Path, tokens: int, folder: Path) -> tuple[Callable[[], Batches[PairBatch]], int]:
    files = ParallelFiles(format="parallel", source=(str(source.resolve()),), target=(str(target.resolve()),))
    tokenizer = Tokenizer.train([source, target], Bpe(size=8000))
    column = TextColumn(tokenizer)
    encode_corpus(Corpus(files, folder, 1 << 20), {"source": column, "target": column}, folder)
    records, roles = Records([folder]), tokenizer.roles
    assert roles.pad is not None
    assert roles.bos is not None
    assert roles.eos is not None
    sides = {"source": Frame((), (roles.eos,))}, {"target": Frame((roles.bos,), (roles.eos,))}
    samples = PairSamples(records, sides, Limit(256, "drop"), roles.pad)
    return lambda: Batches(samples, tokens=tokens, seed=1), tokenizer.vocab_size


def make_step(vocabulary: int, dim: int = 64) -> Callable[[PairBatch], None]:
    layer = nn.TransformerEncoderLayer(dim, 4, 4 * dim, dropout=0.0, batch_first=True, norm_first=True)
    model = nn.ModuleList(
        [
            nn.Embedding(vocabulary, dim),
            nn.TransformerEncoder(layer, 2, enable_nested_tensor=False),
            nn.Linear(dim, 1000),
        ]
    )
    optimizer = torch.optim.AdamW(model.parameters(), fused=True)

    def step(batch: PairBatch) -> None:
        ids, mask = batch.target.ids, batch.target.mask
        causal = nn.Transformer.generate_square_subsequent_mask(ids.shape[1] - 1)
        states = model[1](model[0](ids[:, :-1]), mask=causal, is_causal=True)[mask[:, 1:]]
        nn.functional.cross_entropy(model[2](states), ids[:, 1:][mask[:, 1:]] % 1000).backward()
        optimizer.step()
        optimizer.zero_grad()

    return step


def time_once(function: Callable[[], object]) -> float:
    started = time.perf_counter()
    function()
    return time.perf_counter() - started


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("source", type=Path)
    parser.add_argument("target", type=Path)
    parser.add_argument("--tokens", type=int, default=4096)
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--write", action="store_true", help="renew the section in docs/results.md")
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    with tempfile.TemporaryDirectory() as name:
        start, vocabulary = prepare(arguments.source, arguments.target, arguments.tokens, Path(name))
        batches, step = start(), make_step(vocabulary)
        epoch = [batches.build(number) for number in range(len(batches))]
        padded = sum(side.mask.numel() for batch in epoch for side in (batch.source, batch.target))
        real = sum(int(side.mask.sum()) for batch in epoch for side in (batch.source, batch.target))
        making = time_once(lambda: [batches.build(len(batches) + n) for n in range(len(batches))]) / len(batches)
        for batch in epoch[:BLOCK]:
            step(batch)
        in_memory, loaded = [], []
        with Loader(start().build, 0) as loader:
            next(loader)
            loader.waited = 0.0
            for block in range(arguments.steps // BLOCK):
                ready = [epoch[(block * BLOCK + n) % len(epoch)] for n in range(BLOCK)]
                in_memory.append(time_once(lambda ready=ready: [step(batch) for batch in ready]) / BLOCK)
                loaded.append(time_once(lambda: [step(next(loader)) for _ in range(BLOCK)]) / BLOCK)
            waited = loader.waited / (sum(loaded) * BLOCK)
        starts = interleave({str(n): lambda n=n: start().build(n) for n in (0, 1_000_000)})
    many = np.random.default_rng(0).choice(batches.samples.lengths, LARGE).astype(np.int32)
    order = Order(many, Mixture.weigh([LARGE], [1.0]), tokens=arguments.tokens, seed=1)
    # each call at a distance from the last, so that no pool is found ready
    far = {step: count(step, 1009 * order.batches_per_epoch) for step in (0, 1_000_000)}
    jumps = interleave({str(step): lambda steps=steps: order.draw(next(steps)) for step, steps in far.items()})
    table = draw_table(
        ["what", "measured"],
        [
            ["batches in an epoch", f"{len(batches):,}"],
            ["padding", f"{100 * (1 - real / padded):.2f}%"],
            ["making a batch", f"{1e3 * making:.2f} ms"],
            ["a step on batches in memory", f"{1e3 * statistics.median(in_memory):.1f} ms"],
            ["a step on batches of the loader", f"{1e3 * statistics.median(loaded):.1f} ms"],
            ["share of the time spent waiting for the loader", f"{100 * waited:.3f}%"],
            ["the first batch of a process that starts at step 0", str(starts["0"])],
            ["the first batch of a process that starts at step 1,000,000", str(starts["1000000"])],
            [f"finding the samples of step 0 among {LARGE:,} pairs", str(jumps["0"])],
            [f"finding the samples of step 1,000,000 among {LARGE:,} pairs", str(jumps["1000000"])],
        ],
    )
    text = f"## Loading\n\n{arguments.tokens:,} tokens a batch, {arguments.threads} threads.\n\n{table}"
    print(text)
    if arguments.write:
        write_section("bench/loading.py", text)


if __name__ == "__main__":
    main()
