"""Training beside the peers: `python bench/train.py [--task translation] [--threads 2] [--tuned] [--write]`

Forward, backward and update of the same architecture on the same batches, each engine in a process of its own, in
turns: target tokens a second, and the GFLOP/s of the products that the architecture needs, whoever pads more or less.
Translation: d = 256, 3 + 3 layers, 8 heads, vocabulary 8,000, about 2,000 target tokens a batch, which holds lines of
similar length, or of any. Language models, causal and masked (15% of the tokens): 6 layers, rows of 256 tokens. With
dropout each uses its own. AdamW, fused, for all. JoeyNMT takes part where it can be imported, such as from a folder on
PYTHONPATH; so does nanoGPT, whose `model.py` is looked for there. Memory is the largest each process ever held.
`--tuned` tells the C library of all of them to keep memory, as Seqloom does by itself. What could be reached is
measured in the same turns: as much work in products alone.
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
    "translation": {
        "similar lengths": (True, 0.0),
        "any lengths": (False, 0.0),
        "similar lengths, dropout 0.2": (True, 0.2),
    },
    "language-model": {"rows of 256": (True, 0.0), "rows of 256, dropout 0.1": (True, 0.1)},
    "masked-language-model": {"rows of 256": (True, 0.0), "rows of 256, dropout 0.1": (True, 0.1)},
}
ROWS, WIDTH, MASKED = 8, 256, 0.15
KEEP = {"MALLOC_MMAP_MAX_": "0", "MALLOC_TRIM_THRESHOLD_": str(2**31 - 1), "MALLOC_TOP_PAD_": str(2**26)}
Step = Callable[["Batch"], None]


class Batch(NamedTuple):
    """Padded ids and where they are real; without a source for language models."""

    source: Tensor
    source_mask: Tensor
    target: Tensor
    target_mask: Tensor


def make_batches(task: str, *, similar: bool) -> list[Batch]:
    """Lines of 5 to 60 tokens, most of them short, source and target about as long; or full rows.

    Of a language model the target is all of the row; of a masked one its mask says what is predicted.
    """
    if task != "translation":
        generator = torch.Generator().manual_seed(0)
        ids = torch.randint(4, VOCAB, (BATCHES, ROWS, WIDTH), generator=generator)
        chosen = torch.rand(ids.shape, generator=generator) < (MASKED if task.startswith("masked") else 1.0)
        return [
            Batch(row, torch.ones_like(row, dtype=torch.bool), row, mask) for row, mask in zip(ids, chosen, strict=True)
        ]
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


def count_flops(task: str, batch: Batch, layers: int) -> float:
    """Of the products, attention's own among them: forward once, backward twice; a causal one needs half the pairs."""
    source, target = batch.source_mask.sum(1).double(), batch.target_mask.sum(1).double()
    token = 4 * DIM**2 + 2 * DIM * HIDDEN  # multiplications a token and block: projections, feed-forward
    pair = 2 * DIM  # a query and a key: their score, and what the value adds
    if task != "translation":
        pairs = source * source if task.startswith("masked") else source * (source + 1) / 2
        needed = layers * (token * source + pair * pairs) + DIM * VOCAB * target
    else:
        encoder = token * source + pair * source * source
        decoder = token * target + pair * target * (target + 1) / 2
        across = 2 * DIM**2 * (target + source) + pair * target * source
        needed = layers * (encoder + decoder + across) + DIM * VOCAB * target
    return 6 * float(needed.sum())


def update_by(model: nn.Module, loss: Callable[[Batch], Tensor]) -> Step:
    """Gradients and a fused step of AdamW."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
    model.train()

    def step(batch: Batch) -> None:
        loss(batch).backward()
        optimizer.step()
        optimizer.zero_grad()

    return step


def open_seqloom(task: str, layers: int, dropout: float) -> Step:
    """Its own step, as `seqloom train` takes it."""
    from seqloom.cli.process import disable_trimming
    from seqloom.data.masking import MaskedBatch
    from seqloom.tasks import TASKS
    from seqloom.tasks.configuration import validate
    from seqloom.training.distributed import ProcessGroup
    from seqloom.training.step import Learner, take_step
    from seqloom.types import PairBatch, TokenBatch

    disable_trimming()
    stack: dict[str, Any] = {
        "num_layers": layers,
        "model_dim": DIM,
        "num_heads": HEADS,
        "hidden_dim": HIDDEN,
        "dropout": dropout,
        "positions": "sinusoidal",
    }
    sides = {
        "translation": ("encoder", "decoder"),
        "language-model": ("decoder",),
        "masked-language-model": ("encoder",),
    }
    if task != "translation":
        stack["activation"] = "gelu-tanh" if task == "language-model" else "gelu"
    stacks: dict[str, Any] = {side: {"family": "transformer", **stack} for side in sides[task]}
    said = {
        "data": {"train": TASKS[task].example_files},
        "model": {**stacks, "embedding_dropout": dropout},
        "train": {"optimizer": {"kind": "adamw", "learning_rate": 1e-4}, "label_smoothing": 0.0},
    }
    config = validate(said, TASKS[task], "", "bench")
    learner = Learner(config.model.build(VOCAB).train(), config, ProcessGroup())
    count = 0

    def step(batch: Batch) -> None:
        nonlocal count
        count += 1
        source, target = TokenBatch(batch.source, batch.source_mask), TokenBatch(batch.target, batch.target_mask)
        given = {
            "translation": PairBatch(source, target),
            "language-model": target,
            "masked-language-model": MaskedBatch(source, batch.target_mask, batch.target),
        }
        take_step(learner, [given[task]], count)

    return step


def lose_labels(model: nn.Module, batch: Batch) -> Tensor:
    """What a model of Hugging Face's loses on a batch."""
    labels = batch.target.masked_fill(~batch.target_mask, -100)
    found: Tensor = model(input_ids=batch.source, attention_mask=batch.source_mask.long(), labels=labels).loss
    return found


def open_marian(task: str, layers: int, dropout: float) -> Step:
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
    return update_by(model, lambda batch: lose_labels(model, batch))


def open_torch(task: str, layers: int, dropout: float) -> Step:
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


def open_joeynmt(task: str, layers: int, dropout: float) -> Step:
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


def open_gpt2(task: str, layers: int, dropout: float) -> Step:
    """Hugging Face's GPT-2."""
    from transformers import GPT2Config, GPT2LMHeadModel

    rates = dict.fromkeys(("resid_pdrop", "embd_pdrop", "attn_pdrop"), dropout)
    config = GPT2Config(
        vocab_size=VOCAB, n_embd=DIM, n_layer=layers, n_head=HEADS, n_positions=WIDTH, use_cache=False, **rates
    )
    model = GPT2LMHeadModel(config)
    return update_by(model, lambda batch: model(input_ids=batch.target, labels=batch.target).loss)


def open_nanogpt(task: str, layers: int, dropout: float) -> Step:
    """nanoGPT's model."""
    from model import GPT, GPTConfig

    config = GPTConfig(
        block_size=WIDTH, vocab_size=VOCAB, n_layer=layers, n_head=HEADS, n_embd=DIM, dropout=dropout, bias=True
    )
    model = GPT(config)
    return update_by(model, lambda batch: model(batch.target[:, :-1], batch.target[:, 1:].contiguous())[1])


def open_bert(task: str, layers: int, dropout: float) -> Step:
    """Hugging Face's BERT."""
    from transformers import BertConfig, BertForMaskedLM

    rates = dict.fromkeys(("hidden_dropout_prob", "attention_probs_dropout_prob"), dropout)
    config = BertConfig(
        vocab_size=VOCAB, hidden_size=DIM, num_hidden_layers=layers, num_attention_heads=HEADS,
        intermediate_size=HIDDEN, max_position_embeddings=WIDTH, **rates,
    )  # fmt: skip
    model = BertForMaskedLM(config)
    return update_by(model, lambda batch: lose_labels(model, batch))


def open_products(task: str, layers: int, dropout: float) -> Step:
    """As much work in products alone, of the widest matrix of a block: the most that can be had."""
    x, weight, out = torch.randn(TOKENS, DIM), torch.randn(HIDDEN, DIM), torch.empty(TOKENS, HIDDEN)

    def step(batch: Batch) -> None:
        for _ in range(round(count_flops(task, batch, layers) / (2 * TOKENS * DIM * HIDDEN))):
            torch.mm(x, weight.T, out=out)

    return step


OPEN = {
    "translation": {
        "Seqloom": open_seqloom,
        "JoeyNMT": open_joeynmt,
        "Hugging Face": open_marian,
        "nn.Transformer": open_torch,
        "bare products": open_products,
    },
    "language-model": {
        "Seqloom": open_seqloom,
        "nanoGPT": open_nanogpt,
        "Hugging Face": open_gpt2,
        "bare products": open_products,
    },
    "masked-language-model": {"Seqloom": open_seqloom, "Hugging Face": open_bert, "bare products": open_products},
}
NEEDS = {
    "bare products": "torch",
    "Seqloom": "seqloom",
    "JoeyNMT": "joeynmt",
    "nanoGPT": "model",
    "Hugging Face": "transformers",
    "nn.Transformer": "torch",
}


def count_layers(task: str) -> int:
    """Of each side."""
    return 3 if task == "translation" else 6


def read_peak(engine: Engine) -> float:
    """The most memory a process ever held, in MB."""
    lines = Path(f"/proc/{engine.process.pid}/status").read_text().splitlines()
    return float(next(line for line in lines if line.startswith("VmHWM")).split()[1]) / 1024


def compare(options: argparse.Namespace) -> Iterator[list[str]]:
    """A row for each case and engine."""
    task, layers = options.task, count_layers(options.task)
    there = [name for name in OPEN[task] if importlib.util.find_spec(NEEDS[name]) is not None]
    for case, (similar, _) in CASES[task].items():
        if options.case and options.case not in case:
            continue
        engines = {name: Engine(name, options.threads, "--layers", str(layers), "--task", task) for name in there}
        times = interleave_engines(engines, case, rounds=options.rounds)
        peaks = {name: read_peak(engine) for name, engine in engines.items()}
        for engine in engines.values():
            engine.close()
        batches = make_batches(task, similar=similar)
        tokens = sum(int(batch.target_mask.sum()) for batch in batches)
        flops = sum(count_flops(task, batch, layers) for batch in batches)
        for name, time in times.items():
            unit = "" if time.clean else " of CPU"
            ratio = "" if name == "Seqloom" else f"{time.seconds / times['Seqloom'].seconds:.2f}"
            row = [case, name, f"{tokens / time.seconds:,.0f}{unit}", f"{flops / time.seconds / 1e9:,.0f}"]
            yield [*row, f"{peaks[name]:,.0f} MB", ratio]


def main() -> None:
    """Compare them."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", action="store_true", help="renew the section of docs/results.md")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--task", choices=OPEN, default="translation")
    parser.add_argument("--tuned", action="store_true", help="malloc keeps memory in all of them")
    parser.add_argument("--layers", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--case", help="only cases whose name contains this")
    parser.add_argument("--engine", help=argparse.SUPPRESS)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    if options.engine:

        def prepare(case: str) -> Callable[[], object]:
            similar, dropout = CASES[options.task][case]
            batches = make_batches(options.task, similar=similar)
            step = OPEN[options.task][options.engine](options.task, options.layers, dropout)
            return lambda: [step(batch) for batch in batches]

        serve(prepare, 0.1)
        return
    if options.tuned:
        os.environ.update(KEEP)
    rows = []
    for row in compare(options):
        rows.append(row)
        print(*row, sep="  ", flush=True)
    head = ["batches", "engine", "target tokens/s", "GFLOP/s", "memory", "Seqloom is as many times as fast"]
    text = "\n\n".join(
        [
            f"## Training: {options.task}{', malloc tuned for all' if options.tuned else ''}\n\n"
            f"d = {DIM}, {count_layers(options.task)} layers{' a side' if options.task == 'translation' else ''}, "
            f"vocabulary {VOCAB:,}, about {TOKENS:,} tokens a batch, float32, threads: {options.threads} of "
            f"{os.cpu_count()}, PyTorch {torch.__version__}. Bare products: as much work, all of it in products.",
            draw_table(head, rows),
        ]
    )
    print(text)
    if options.write:
        write_section(f"bench/train.py --task {options.task}{' --tuned' if options.tuned else ''}", text)


if __name__ == "__main__":
    main()
