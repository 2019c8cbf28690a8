"""Training beside the peers: `python bench/train.py [--task translation] [--threads 2] [--write]`

Forward, backward and update of the same architecture on the same batches, each engine in a process of its own, in
turns: target tokens a second, and the GFLOP/s of the products that the architecture needs, whoever pads more or less.
Translation: d = 256, 3 + 3 layers, 8 heads, vocabulary 8,000, about 2,000 target tokens a batch. A batch holds lines of
similar length, or of any; with dropout each uses its own. AdamW, fused, for all. JoeyNMT takes part where it can be
imported, such as from a folder on PYTHONPATH. Memory is the largest each process ever held.
"""

import argparse
import importlib.util
import os
import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import torch
from engines import Engine, interleave_engines, serve
from results import draw_table, write_section
from torch import Tensor, nn

DIM, HEADS, HIDDEN, VOCAB, TOKENS, BATCHES = 256, 8, 1024, 8000, 2000, 4
CASES = {
    "similar lengths": (True, 0.0),
    "any lengths": (False, 0.0),
    "similar lengths, dropout 0.2": (True, 0.2),
}
Step = Callable[["Batch"], None]


class Batch(NamedTuple):
    """Padded ids and where they are real; without a source for language models."""

    source: Tensor
    source_mask: Tensor
    target: Tensor
    target_mask: Tensor


def make_batches(*, similar: bool) -> list[Batch]:
    """Lines of 5 to 60 tokens, most of them short, source and target about as long."""
    numbers = random.Random(0)
    lengths = [min(60, 5 + int(numbers.expovariate(1 / 14))) for _ in range(BATCHES * TOKENS // 15)]
    if similar:
        lengths.sort()
    batches, group = [], list[int]()
    for length in lengths:
        group.append(length)
        if sum(group) >= TOKENS:
            batches.append(_pad(group, numbers))
            group = []
    return numbers.sample(batches, BATCHES)


def _pad(lengths: list[int], numbers: random.Random) -> Batch:
    sources = [max(3, round(length * numbers.uniform(0.8, 1.2))) for length in lengths]
    parts = []
    for sizes in (sources, lengths):
        mask = torch.arange(max(sizes)) < torch.tensor(sizes).unsqueeze(1)
        generator = torch.Generator().manual_seed(len(parts))
        ids = torch.randint(4, VOCAB, mask.shape, generator=generator)
        parts += [ids.masked_fill(~mask, 0), mask]
    return Batch(*parts)


def count_flops(batch: Batch, layers: int) -> float:
    """Of the products: forward once, backward twice."""
    source, target = float(batch.source_mask.sum()), float(batch.target_mask.sum())
    encoder = layers * (4 * DIM**2 + 2 * DIM * HIDDEN) * source
    decoder = layers * ((6 * DIM**2 + 2 * DIM * HIDDEN) * target + 2 * DIM**2 * source)
    return 6 * (encoder + decoder + DIM * VOCAB * target)


def update_by(model: nn.Module, loss: Callable[[Batch], Tensor]) -> Step:
    """Gradients and a fused step of AdamW."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
    model.train()

    def step(batch: Batch) -> None:
        loss(batch).backward()
        optimizer.step()
        optimizer.zero_grad()

    return step


def open_weft(layers: int, dropout: float) -> Step:
    """Its own step, as `weft train` takes it."""
    from weft.config.model import TranslationModelConfig
    from weft.config.train import AdamW, TrainConfig
    from weft.models.build import build_model
    from weft.train.step import Learner, take_step
    from weft.train.team import Team
    from weft.types import PairBatch, TokenBatch

    stack = {"num_layers": layers, "model_dim": DIM, "num_heads": HEADS, "hidden_dim": HIDDEN, "dropout": dropout}
    sides: dict[str, Any] = {side: {"family": "transformer", **stack} for side in ("encoder", "decoder")}
    config = TranslationModelConfig.model_validate({**sides, "embedding_dropout": dropout})
    model = build_model(config, VOCAB, VOCAB).train()
    learner = Learner(model, TrainConfig(optimizer=AdamW(learning_rate=1e-4), label_smoothing=0.0), Team())
    count = 0

    def step(batch: Batch) -> None:
        nonlocal count
        count += 1
        source, target = TokenBatch(batch.source, batch.source_mask), TokenBatch(batch.target, batch.target_mask)
        take_step(learner, [PairBatch(source, target)], count)

    return step


def open_huggingface(layers: int, dropout: float) -> Step:
    """Marian, which makes the decoder's input of the labels."""
    from transformers import MarianConfig, MarianMTModel

    sides = {
        f"{side}_{name}": value
        for side in ("encoder", "decoder")
        for name, value in {"layers": layers, "attention_heads": HEADS, "ffn_dim": HIDDEN}.items()
    }
    config = MarianConfig(
        vocab_size=VOCAB, d_model=DIM, max_position_embeddings=128, activation_function="relu", dropout=dropout,
        attention_dropout=dropout, activation_dropout=0.0, scale_embedding=True, pad_token_id=0, eos_token_id=2,
        decoder_start_token_id=1, use_cache=False, **sides,
    )  # fmt: skip
    model = MarianMTModel(config)

    def loss(batch: Batch) -> Tensor:
        labels = batch.target.masked_fill(~batch.target_mask, -100)
        found: Tensor = model(input_ids=batch.source, attention_mask=batch.source_mask.long(), labels=labels).loss
        return found

    return update_by(model, loss)


def open_torch(layers: int, dropout: float) -> Step:
    """nn.Transformer, with an embedding and an output layer."""

    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embedding = nn.Embedding(VOCAB, DIM)
            self.body = nn.Transformer(DIM, HEADS, layers, layers, HIDDEN, dropout, batch_first=True)
            self.output = nn.Linear(DIM, VOCAB)

        def forward(self, batch: Batch) -> Tensor:
            given = batch.target.roll(1, 1)
            causal = nn.Transformer.generate_square_subsequent_mask(given.shape[1], dtype=torch.bool)
            states = self.body(
                self.embedding(batch.source),
                self.embedding(given),
                tgt_mask=causal,
                src_key_padding_mask=~batch.source_mask,
                tgt_key_padding_mask=~batch.target_mask,
                memory_key_padding_mask=~batch.source_mask,
                tgt_is_causal=True,
            )
            return nn.functional.cross_entropy(
                self.output(states).flatten(0, 1), batch.target.flatten(), ignore_index=0
            )

    model = Model()
    return update_by(model, model)


def open_joeynmt(layers: int, dropout: float) -> Step:
    """Its encoder, decoder, embeddings and loss."""
    from joeynmt.decoders import TransformerDecoder
    from joeynmt.embeddings import Embeddings
    from joeynmt.encoders import TransformerEncoder
    from joeynmt.loss import XentLoss

    sizes = {"hidden_size": DIM, "ff_size": HIDDEN, "num_layers": layers, "num_heads": HEADS, "layer_norm": "pre"}
    sizes |= {"dropout": dropout, "emb_dropout": dropout}
    model = nn.ModuleDict(
        {
            "encoder": TransformerEncoder(**sizes),
            "decoder": TransformerDecoder(vocab_size=VOCAB, **sizes),
            "source": Embeddings(DIM, True, VOCAB, 0),
            "target": Embeddings(DIM, True, VOCAB, 0),
        }
    )
    criterion = XentLoss(pad_index=0)

    def loss(batch: Batch) -> Tensor:
        mask = batch.source_mask.unsqueeze(1)
        memory, hidden = model["encoder"](model["source"](batch.source), batch.source_mask.sum(1), mask)
        given = model["target"](batch.target.roll(1, 1))
        logits, *_ = model["decoder"](given, memory, hidden, mask, given.shape[1], None, batch.target_mask.unsqueeze(1))
        total: Tensor = criterion(logits.log_softmax(-1), trg=batch.target)
        return total / batch.target_mask.sum()

    return update_by(model, loss)


OPEN = {"Weft": open_weft, "JoeyNMT": open_joeynmt, "Hugging Face": open_huggingface, "nn.Transformer": open_torch}
NEEDS = {"Weft": "weft", "JoeyNMT": "joeynmt", "Hugging Face": "transformers", "nn.Transformer": "torch"}


def measure_products(rounds: int = 30) -> float:
    """GFLOP/s of the products of a layer, the most that can be had."""
    import time

    x, w = torch.randn(TOKENS, DIM), torch.randn(HIDDEN, DIM)
    best = 0.0
    for _ in range(rounds):
        started = time.perf_counter()
        for _ in range(20):
            x @ w.T
        best = max(best, 20 * 2 * TOKENS * DIM * HIDDEN / (time.perf_counter() - started))
    return best / 1e9


def read_peak(engine: Engine) -> float:
    """The most memory a process ever held, in MB."""
    lines = Path(f"/proc/{engine.process.pid}/status").read_text().splitlines()
    return float(next(line for line in lines if line.startswith("VmHWM")).split()[1]) / 1024


def compare(options: argparse.Namespace) -> Iterator[list[str]]:
    """A row for each case and engine."""
    there = [name for name in OPEN if importlib.util.find_spec(NEEDS[name]) is not None]
    for case, (similar, _) in CASES.items():
        if options.case and options.case not in case:
            continue
        engines = {name: Engine(name, options.threads, "--layers", str(options.layers)) for name in there}
        times = interleave_engines(engines, case, rounds=options.rounds)
        peaks = {name: read_peak(engine) for name, engine in engines.items()}
        for engine in engines.values():
            engine.close()
        batches = make_batches(similar=similar)
        tokens = sum(int(batch.target_mask.sum()) for batch in batches)
        flops = sum(count_flops(batch, options.layers) for batch in batches)
        for name, time in times.items():
            unit = "" if time.clean else " of CPU"
            ratio = "" if name == "Weft" else f"{time.seconds / times['Weft'].seconds:.2f}"
            row = [case, name, f"{tokens / time.seconds:,.0f}{unit}", f"{flops / time.seconds / 1e9:,.0f}"]
            yield [*row, f"{peaks[name]:,.0f} MB", ratio]


def main() -> None:
    """Compare them."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", action="store_true", help="renew the section of docs/results.md")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--layers", type=int, default=3)
    parser.add_argument("--case", help="only cases whose name contains this")
    parser.add_argument("--engine", help=argparse.SUPPRESS)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    if options.engine:

        def prepare(case: str) -> Callable[[], object]:
            similar, dropout = CASES[case]
            batches, step = make_batches(similar=similar), OPEN[options.engine](options.layers, dropout)
            return lambda: [step(batch) for batch in batches]

        serve(prepare, 0.1)
        return
    limit = measure_products()
    rows = []
    for row in compare(options):
        rows.append(row)
        print(*row, sep="  ", flush=True)
    head = ["batches", "engine", "target tokens/s", "GFLOP/s", "memory", "Weft is as many times as fast"]
    text = "\n\n".join(
        [
            f"## Training, translation\n\nd = {DIM}, {options.layers} + {options.layers} layers, vocabulary {VOCAB:,}, "
            f"about {TOKENS:,} target tokens a batch, float32, threads: {options.threads} of {os.cpu_count()}, PyTorch "
            f"{torch.__version__}. Bare products of these sizes: {limit:,.0f} GFLOP/s.",
            draw_table(head, rows),
        ]
    )
    print(text)
    if options.write:
        write_section("bench/train.py", text)


if __name__ == "__main__":
    main()
