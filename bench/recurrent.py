"""Recurrent and convolutional layers and models in training, beside the peers: `python bench/recurrent.py [--write]`

Forward and backward of a stack of layers on sequences of 5 to 40 tokens, of any lengths together. The peers are
`nn.LSTM` and `nn.GRU` on packed sequences and on padded ones; and convolutions as fairseq has them: padded, channels
before positions, weight norm, `F.glu`. Then whole steps of translation, forward, backward and update: a GRU with
additive attention beside JoeyNMT's (Bahdanau attention, with and without input feeding), which takes part where it can
be imported, such as from a folder on PYTHONPATH. All take turns in one process, and a peer has its best number of
threads.
"""

import argparse
import math
import os
import random
from collections.abc import Callable

import torch
import torch.nn.functional as F
from engines import is_installed
from results import draw_table, write_section
from timing import interleave
from torch import Tensor, nn
from torch.nn.utils.parametrizations import weight_norm
from torch.nn.utils.rnn import PackedSequence, pack_padded_sequence
from train import VOCAB, Batch, make_batches, update_by

from seqloom.cli.process import disable_trimming
from seqloom.encoders.convolutional import ConvolutionalEncoder
from seqloom.encoders.recurrent import RecurrentEncoder
from seqloom.nn.convolution import GatedConvolution
from seqloom.nn.packing import Packing
from seqloom.nn.recurrent import Cell
from seqloom.tasks import TASKS
from seqloom.tasks.configuration import validate
from seqloom.training.distributed import ProcessGroup
from seqloom.training.step import Learner, take_step
from seqloom.types import PairBatch, TokenBatch

Run = Callable[[], object]
CELLS: dict[str, Cell] = {"LSTM": "lstm", "GRU": "gru"}
STACKS = [  # width, layers, directions, tokens
    (256, 1, 1, 2000),
    (256, 2, 2, 4000),
    (512, 1, 1, 4000),
    (512, 2, 2, 2000),
]
KERNEL, LAYERS, DIM, EMBEDDED = 3, 3, 256, 256


def draw_lengths(tokens: int) -> list[int]:
    """From 5 to 40, longest first."""
    numbers, lengths = random.Random(0), list[int]()
    while sum(lengths) < tokens:
        lengths.append(numbers.randint(5, 40))
    return sorted(lengths, reverse=True)


def lay_out(lengths: list[int], width: int) -> tuple[Tensor, Tensor]:
    """A mask, and padded rows."""
    mask = torch.arange(lengths[0]) < torch.tensor(lengths).unsqueeze(1)
    return mask, torch.randn(*mask.shape, width) * mask.unsqueeze(-1)


def open_recurrent(cell: str, width: int, layers: int, ways: int, tokens: int) -> dict[str, Run]:
    """A stack, and PyTorch's."""
    lengths = draw_lengths(tokens)
    mask, rows = lay_out(lengths, width)
    sizes = {"num_layers": layers, "batch_first": True, "bidirectional": ways == 2}
    theirs: nn.RNNBase = getattr(nn, cell)(width, width // ways, **sizes)
    ours = RecurrentEncoder(
        CELLS[cell],
        model_dim=width,
        num_layers=layers,
        direction="both" if ways == 2 else "forward",
        residual=False,
        dropout=0.0,
    )
    packing = Packing(mask)
    x, padded = packing.pack(rows).requires_grad_(), rows.clone().requires_grad_()
    packed = pack_padded_sequence(rows, torch.tensor(lengths), batch_first=True)
    data = packed.data.clone().requires_grad_()
    grad, padded_grad = torch.randn_like(x), torch.randn_like(padded)

    def run_packed() -> None:
        theirs(PackedSequence(data, packed.batch_sizes))[0].data.backward(grad)

    return {
        "Seqloom": lambda: ours.encode(x, packing)[-1].backward(grad),
        f"nn.{cell}, packed": run_packed,
        f"nn.{cell}, padded": lambda: theirs(padded)[0].backward(padded_grad),
    }


class PaddedConvolutions(nn.Module):
    """As fairseq's encoder has them: B × C × T, weight norm, a gated linear unit, residuals scaled by √½."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.layers = nn.ModuleList(
            weight_norm(nn.Conv1d(width, 2 * width, KERNEL, padding=KERNEL // 2)) for _ in range(LAYERS)
        )

    def forward(self, x: Tensor, padding: Tensor) -> Tensor:
        """The states of padded rows, channels before positions; padding is zero before each layer."""
        for layer in self.layers:
            x = (x + F.glu(layer(x.masked_fill(padding, 0.0)), dim=1)) * math.sqrt(0.5)
        return x


def open_convolutional(width: int, tokens: int) -> dict[str, Run]:
    """A stack of gated convolutions, and fairseq's."""
    mask, rows = lay_out(draw_lengths(tokens), width)
    layers = [GatedConvolution(width, width, KERNEL, "both") for _ in range(LAYERS)]
    ours, theirs = ConvolutionalEncoder([*layers], None, model_dim=width, dropout=0.0), PaddedConvolutions(width)
    packing = Packing(mask)
    x, padded = packing.pack(rows).requires_grad_(), rows.transpose(1, 2).contiguous().requires_grad_()
    grad, padded_grad, padding = torch.randn_like(x), torch.randn_like(padded), ~mask.unsqueeze(1)
    return {
        "Seqloom": lambda: ours.encode(x, packing)[-1].backward(grad),
        "nn.Conv1d": lambda: theirs(padded, padding).backward(padded_grad),
    }


def open_translation() -> dict[str, Run]:
    """A training step of the recipe `gru-attention`, and of JoeyNMT's model of the same sizes."""
    batch = make_batches("translation", similar=True)[0]
    said = {
        "data": {"train": TASKS["translation"].example_files},
        "model": {
            "encoder": {"family": "recurrent", "cell": "gru", "num_layers": 2, "model_dim": DIM, "dropout": 0.0},
            "decoder": {"family": "recurrent", "cell": "gru", "context": "attention", "score": "additive"}
            | {"num_layers": 2, "model_dim": DIM, "dropout": 0.0},
            "embedding_dropout": 0.0,
        },
        "train": {"optimizer": {"kind": "adamw", "learning_rate": 1e-4}, "label_smoothing": 0.0},
    }
    config = validate(said, TASKS["translation"], "", "bench")
    learner = Learner(config.model.build(VOCAB).train(), config, ProcessGroup())
    given = PairBatch(TokenBatch(batch.source, batch.source_mask), TokenBatch(batch.target, batch.target_mask))
    contenders: dict[str, Run] = {"Seqloom": lambda: take_step(learner, [given], 1)}
    if is_installed("joeynmt"):
        for name, feeding in (("JoeyNMT", False), ("JoeyNMT, input feeding", True)):
            contenders[name] = open_joeynmt(sort_by_source(batch), feeding=feeding)
    return contenders


def sort_by_source(batch: Batch) -> Batch:
    """JoeyNMT wants the longest source first."""
    order = batch.source_mask.sum(1).argsort(descending=True, stable=True)
    return Batch(*(part[order] for part in batch))


def open_joeynmt(batch: Batch, *, feeding: bool) -> Run:
    """Its recurrent encoder, decoder, embeddings and loss."""
    from joeynmt.decoders import RecurrentDecoder
    from joeynmt.embeddings import Embeddings
    from joeynmt.encoders import RecurrentEncoder as Encoder
    from joeynmt.loss import XentLoss

    sizes = {"rnn_type": "gru", "num_layers": 2, "emb_size": EMBEDDED}
    encoder = Encoder(hidden_size=DIM // 2, **sizes)
    decoder = RecurrentDecoder(
        hidden_size=DIM, encoder=encoder, attention="bahdanau", vocab_size=VOCAB, input_feeding=feeding, **sizes
    )
    source, target = (Embeddings(EMBEDDED, False, VOCAB, 0) for _ in range(2))
    model = nn.ModuleDict({"encoder": encoder, "decoder": decoder, "source": source, "target": target})
    criterion = XentLoss(pad_index=0)

    def loss(batch: Batch) -> Tensor:
        mask = batch.source_mask.unsqueeze(1)
        memory, hidden = encoder(source(batch.source), batch.source_mask.sum(1), mask)
        given = target(batch.target.roll(1, 1))
        logits, *_ = decoder(given, memory, hidden, mask, given.shape[1])
        total: Tensor = criterion(logits.log_softmax(-1), trg=batch.target)
        return total / batch.target_mask.sum()

    step = update_by(model, loss)
    return lambda: step(batch)


def with_threads(run: Run, threads: int) -> Run:
    """The same, with so many threads."""

    def changed() -> None:
        torch.set_num_threads(threads)
        run()

    return changed


def compare(case: str, contenders: dict[str, Run], threads: int, rounds: int) -> list[list[str]]:
    """A row for each, with its best number of threads."""
    counts = sorted({1, threads})
    runs = {(name, count): with_threads(run, count) for name, run in contenders.items() for count in counts}
    times = interleave({f"{name} {count}": run for (name, count), run in runs.items()}, rounds=rounds, turn=0.1)
    best = {name: min(counts, key=lambda count, n=name: times[f"{n} {count}"].seconds) for name in contenders}
    own = times[f"Seqloom {best['Seqloom']}"].seconds
    rows = []
    for name, count in best.items():
        time = times[f"{name} {count}"]
        rows.append([case, name, str(time), str(count), "" if name == "Seqloom" else f"{time.seconds / own:.2f}"])
    return rows


def main() -> None:
    """Compare them."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", action="store_true", help="renew the section of docs/results.md")
    parser.add_argument("--threads", type=int, default=os.cpu_count() or 1, help="the most that any may use")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--case", default="", help="only cases whose name contains this")
    options = parser.parse_args()
    disable_trimming()
    cases: dict[str, Callable[[], dict[str, Run]]] = {
        f"{cell}, d = {width}, layers: {layers}, directions: {ways}, {tokens:,} tokens": (
            lambda given=(cell, width, layers, ways, tokens): open_recurrent(*given)
        )
        for width, layers, ways, tokens in STACKS
        for cell in CELLS
    }
    for width, tokens in ((256, 2000), (512, 4000)):
        cases[f"convolutions, d = {width}, layers: {LAYERS}, {tokens:,} tokens"] = lambda given=(width, tokens): (
            open_convolutional(*given)
        )
    cases["translation, GRU with additive attention, a step"] = open_translation
    rows = []
    for case, prepare in cases.items():
        if options.case in case:
            torch.manual_seed(0)
            for row in compare(case, prepare(), options.threads, options.rounds):
                rows.append(row)
                print(*row, sep="  ", flush=True)
    head = ["forward and backward", "engine", "time", "threads", "Seqloom is as many times as fast"]
    text = "\n\n".join(
        [
            "## Training: recurrent and convolutional\n\nSequences of 5 to 40 tokens, float32; two directions share "
            f"the width. The step of translation: 2 + 2 layers, d = {DIM}, vocabulary {VOCAB:,}, about 2,000 target "
            "tokens of similar lengths, AdamW. Each has its best number of threads.",
            draw_table(head, rows),
        ]
    )
    print(text)
    if options.write:
        write_section("bench/recurrent.py", text)


if __name__ == "__main__":
    main()
