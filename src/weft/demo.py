"""The demo: dates as people write them, turned into ISO 8601 by a model trained while you watch.

"Tuesday, March 5th, 1996" → "1996-03-05". Characters in, characters out; the answer can be checked, and what the model
attends to can be seen: the year looks at the year, wherever it stands.
"""

import random
import time
from datetime import date, timedelta

import torch
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

from weft.config.model import TranslationModelConfig
from weft.config.stacks import RecurrentDecoderConfig, RecurrentEncoderConfig
from weft.decode.greedy import greedy
from weft.lens.capture import capture
from weft.lens.picture import picture
from weft.models.build import build_model
from weft.models.seq2seq import Seq2Seq
from weft.nn.cross_entropy import linear_cross_entropy
from weft.types import PairBatch, TokenBatch

_PAD, _START, _END = 0, 1, 2
_MONTHS = [date(2000, month, 1).strftime("%B") for month in range(1, 13)]
_DAYS = [date(2000, 1, day).strftime("%A") for day in range(3, 10)]  # 3 January 2000 was a Monday
_STEPS, _BATCH = 400, 128


def write_date(day: date, rng: random.Random) -> str:
    """A date in one of the ways people write it."""
    month, weekday = _MONTHS[day.month - 1], _DAYS[day.weekday()]
    ordinal = f"{day.day}{'th' if 11 <= day.day <= 13 else {1: 'st', 2: 'nd', 3: 'rd'}.get(day.day % 10, 'th')}"
    forms = [
        f"{day.day} {month} {day.year}",
        f"{month} {day.day}, {day.year}",
        f"{weekday}, {month} {ordinal}, {day.year}",
        f"the {ordinal} of {month} {day.year}",
        f"{month[:3]} {day.day} {day.year}",
        f"{day.day}-{month[:3]}-{day.year}",
        f"{day.day:02d}.{day.month:02d}.{day.year}",
        f"{weekday[:3]} {day.day} {month[:3]} {day.year}",
        f"{day.year}, {month} {day.day}",
    ]
    text = rng.choice(forms)
    return rng.choice([text, text.lower(), text.upper()])


def run(console: Console) -> float:
    """Train, test, show; returns the share of unseen dates that come out exactly right."""
    rng = random.Random(7)
    torch.manual_seed(7)
    days = [date(1900, 1, 1) + timedelta(days=n) for n in range(200 * 365)]
    rng.shuffle(days)
    unseen, known = days[:1000], days[1000:]
    characters = sorted({c for day in known for c in write_date(day, rng) + day.isoformat()})
    ids = {c: n for n, c in enumerate(characters, start=3)}
    model = _build(len(ids) + 3)
    console.print(f"Weft demo: {sum(p.numel() for p in model.parameters()):,} weights learn to read dates.")
    for day in known[:3]:
        console.print(f"  {write_date(day, rng):36} → {day.isoformat()}", highlight=False)
    started = time.perf_counter()
    _train(model, known, ids, rng, console)
    seconds = time.perf_counter() - started
    texts = [write_date(day, rng) for day in unseen]
    answers = _translate(model, texts, ids)
    share = sum(answer == day.isoformat() for answer, day in zip(answers, unseen, strict=True)) / len(unseen)
    console.print(
        f"Trained in {seconds:.0f} s. {share:.1%} of {len(unseen):,} dates it never saw come out exactly right."
    )
    for text, answer in list(zip(texts, answers, strict=True))[:4]:
        console.print(f"  {text:36} → {answer}", highlight=False)
    console.print("\nWhat it looks at (across: what it reads; down: what it writes):")
    console.print(_look(model, "Tuesday, March 5th, 1996", ids))
    console.print("\nNext: weft new translation writes a configuration for your own files.", highlight=False)
    return share


def _build(vocab_size: int) -> Seq2Seq:
    config = TranslationModelConfig(
        encoder=RecurrentEncoderConfig(num_layers=1, model_dim=128, cell="gru"),
        decoder=RecurrentDecoderConfig(num_layers=1, model_dim=128, cell="gru", score="additive"),
    )
    model = build_model(config, vocab_size)
    assert isinstance(model, Seq2Seq)
    return model


def _train(model: Seq2Seq, days: list[date], ids: dict[str, int], rng: random.Random, console: Console) -> None:
    optimizer = torch.optim.AdamW(model.parameters(), lr=5e-3, betas=(0.9, 0.98), fused=True)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 5e-3, total_steps=_STEPS, pct_start=0.1)
    columns = ("[progress.description]{task.description}", BarColumn(), TextColumn("loss {task.fields[loss]:.3f}"))
    with Progress(*columns, TimeRemainingColumn(), console=console) as progress:
        task = progress.add_task("training", total=_STEPS, loss=float("nan"))
        for _ in range(_STEPS):
            chosen = rng.sample(days, _BATCH)
            source = _batch([write_date(day, rng) for day in chosen], ids)
            target = _batch([day.isoformat() for day in chosen], ids)
            states = model(PairBatch(source, TokenBatch(target.ids[:, :-1], target.mask[:, 1:])))
            real = target.mask[:, 1:]
            loss = linear_cross_entropy(model.output, states[real], target.ids[:, 1:][real]) / real.sum()
            optimizer.zero_grad()
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            schedule.step()
            progress.update(task, advance=1, loss=float(loss.detach()))
    model.eval()


def _batch(texts: list[str], ids: dict[str, int]) -> TokenBatch:
    rows = [[_START, *(ids.get(c, _PAD) for c in text), _END] for text in texts]
    width = max(map(len, rows))
    padded = torch.tensor([row + [_PAD] * (width - len(row)) for row in rows])
    return TokenBatch(padded, padded != _PAD)


def _translate(model: Seq2Seq, texts: list[str], ids: dict[str, int]) -> list[str]:
    characters = {n: c for c, n in ids.items()}
    with torch.inference_mode():
        memory = model.encode(_batch(texts, ids))
        rows = greedy(model.step, model.start(memory, 16), len(texts), start_id=_START, end_id=_END, max_length=16)
    return ["".join(characters.get(n, "?") for n in row) for row in rows]


def _look(model: Seq2Seq, text: str, ids: dict[str, int]) -> object:
    answer = _translate(model, [text], ids)[0]
    source, target = _batch([text], ids), _batch([answer], ids)
    with torch.inference_mode(), capture(model) as seen:
        model(PairBatch(source, TokenBatch(target.ids[:, :-1], target.mask[:, :-1])))
    weights = seen.weights("decoder.lookup")[0, 0, : len(answer), 1 : len(text) + 1]
    return picture(weights, list(answer), list(text))
