"""Guided attention follows the alignment it is given."""

from pathlib import Path

import pytest
import torch
from rich.console import Console
from torch import Tensor

import seqloom
from seqloom.errors import ConfigError
from seqloom.models.seq2seq import Seq2Seq
from seqloom.tasks import TranslationTask
from seqloom.tasks.configuration import parse
from seqloom.training.job import train
from seqloom.training.monitor import PlainMonitor
from seqloom.types import Alignment, PairBatch, TokenBatch
from small_corpora import corpora, sentences, write_config

__all__ = ["corpora"]


def build(decoder: str, encoder: str = "transformer") -> tuple[TranslationTask, Seq2Seq]:
    stack = "num_layers = 2, model_dim = 16, dropout = 0.0"
    config = parse(
        f'''task = "translation"
        model.embedding_dropout = 0.0
        model.encoder = {{family = "{encoder}", {stack}}}
        model.decoder = {{{decoder}, {stack}}}
        data.train = {{source = "s", target = "t"}}'''
    )
    assert isinstance(config, TranslationTask)
    torch.manual_seed(1)
    model = config.model.build(20)
    assert isinstance(model, Seq2Seq)
    return config, model


def make_batch() -> PairBatch:
    ids, mask = torch.randint(1, 20, (3, 6)), torch.ones(3, 6, dtype=torch.bool)
    mask[1, 4:] = False
    entries = torch.tensor([[0, 0, 5], [0, 1, 2], [1, 2, 3], [2, 4, 0], [2, 4, 1]])
    alignment = Alignment(entries, torch.tensor([1.0, 1.0, 2.0, 0.5, 0.5]))
    return PairBatch(TokenBatch(ids, mask), TokenBatch(ids.flip(0), mask.flip(0)), alignment)


@torch.no_grad()
def attend(model: Seq2Seq, batch: PairBatch) -> Tensor:
    """The last attention to the source, averaged over heads."""
    weights = model.align(PairBatch(batch.source, TokenBatch(batch.target.ids[:, :-1], batch.target.mask[:, 1:])))
    assert weights is not None
    return weights


@pytest.mark.parametrize("family", ["transformer", "recurrent", "convolutional"])
def test_the_loss_grows_by_the_cross_entropy_of_attention(family: str) -> None:
    (task, model), batch = build(f'family = "{family}"'), make_batch()
    plain = PairBatch(batch.source, batch.target)
    weights = attend(model, batch)
    assert batch.alignment is not None
    expected = -sum(
        weight * weights[row, target, source].log()
        for (row, target, source), weight in zip(
            batch.alignment.entries.tolist(), batch.alignment.weights.tolist(), strict=True
        )
    )
    guided, alone = task.compute_loss(model, batch), task.compute_loss(model, plain)
    assert guided.count == alone.count
    torch.testing.assert_close(guided.total - alone.total, expected, rtol=1e-4, atol=1e-4)


def test_gradients_turn_attention_towards_the_alignment() -> None:
    (task, model), batch = build('family = "transformer"'), make_batch()
    assert batch.alignment is not None
    rows, targets, sources = batch.alignment.entries.unbind(1)
    seen = []
    for _ in range(2):
        guided, alone = (task.compute_loss(model, one) for one in (batch, PairBatch(batch.source, batch.target)))
        (guided.total - alone.total).backward()
        seen.append(attend(model, batch)[rows, targets, sources].log().sum())
        with torch.no_grad():
            for parameter in model.parameters():
                if parameter.grad is not None:
                    parameter -= 0.02 * parameter.grad
    assert seen[1] > seen[0]


def test_a_decoder_without_attention_cannot_be_guided() -> None:
    task, model = build('family = "recurrent", context = "every-step"', encoder="recurrent")
    with pytest.raises(ConfigError, match="has none"):
        task.compute_loss(model, make_batch())


def test_guided_attention_aligns_words(corpora: Path, tmp_path: Path) -> None:
    """Sixty steps are too few to find out by oneself that the target is the source backwards."""
    right = {}
    with (tmp_path / "align").open("w") as file:
        for line in (corpora / "train.source").read_text().splitlines():
            count = len(line.split())
            print(*(f"{word}-{count - 1 - word}" for word in range(count)), file=file)
    path = write_config(tmp_path, corpora, "translation", "transformer", "steps = 60\noptimizer.learning_rate = 0.01")
    for weight in (0.0, 1.0):
        given = [f"data.train.alignment={tmp_path / 'align'}", f"data.alignment_weight={weight}"]
        run = train(path, given, out=tmp_path / str(weight), monitor=PlainMonitor(Console(quiet=True)))
        model, hits = seqloom.load(run), []
        for text in sentences(20, seed=7):
            target = " ".join(word.upper() for word in reversed(text.split()))
            best = model.align(text, target).weights.argmax(1)
            hits += (best == torch.arange(len(best)).flip(0)).tolist()
        right[weight] = sum(hits) / len(hits)
    assert right[1.0] > 0.9
    assert right[1.0] > right[0.0]
