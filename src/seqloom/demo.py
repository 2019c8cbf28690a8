"""The demo: dates as people write them in a dozen languages, turned into ISO 8601 by a model trained while you watch.

"terça-feira, 5 de março de 1996" → "1996-03-05". The languages are real (from CLDR, through Babel), the answers can be
checked, and the attention weights show that the year attends to the year, wherever it is. The demo does what a user
does: it writes files and a configuration, and trains a run.
"""

import random
import shutil
import sys
from datetime import date, timedelta
from pathlib import Path

from rich.console import Console

from seqloom.errors import import_extra
from seqloom.lens.picture import picture
from seqloom.predict.load import load
from seqloom.training.job import train
from seqloom.training.monitor import open_monitor

LANGUAGES = ("cs", "de", "en", "es", "fi", "fr", "it", "nl", "pl", "pt", "sv", "tr")
_STYLES = ("full", "long", "medium")
_SIZES = {"train": 20_000, "valid": 200, "test": 1_000}
_CONFIG = """\
# Dates in a dozen languages to ISO 8601, character by character.
task = "translation"
tokenizer = "characters"

[data.train]
source = "train.written"
target = "train.iso"

[data.valid]
source = "valid.written"
target = "valid.iso"

[batch]
tokens = 5000

[model.encoder]
family = "recurrent"
num_layers = 1
model_dim = 128

[train]
steps = 500
warmup = 50
optimizer.learning_rate = 5e-3
label_smoothing = 0.0
validate_every = 100
save_every = 100
"""


def run(console: Console, folder: Path) -> float:
    """Write the data, train, test and show; returns the share of unseen dates that come out exactly right."""
    console.print(f"Seqloom reads dates in {len(LANGUAGES)} languages. Everything it makes is in {folder}.")
    config = folder / "dates.toml"
    if not config.exists():
        _write_corpus(folder)
        config.write_text(_CONFIG, encoding="utf-8")
    sides = [(folder / f"test.{side}").read_text(encoding="utf-8").splitlines() for side in ("written", "iso")]
    pairs: list[tuple[str, str]] = list(zip(*sides, strict=True))
    for written, iso in pairs[:4]:
        console.print(f"  {written:34} → {iso}", highlight=False)
    with open_monitor(console) as monitor:
        done = train(config, out=folder / "run", monitor=monitor)
    model = load(done.folder)
    answers = model.translate([written for written, _ in pairs], align=False)
    share = sum(answer.text == iso for answer, (_, iso) in zip(answers, pairs, strict=True)) / len(pairs)
    console.print(f"\n{share:.1%} of {len(pairs):,} dates it never saw come out exactly right.")
    text = "terça-feira, 5 de março de 1996"
    alignment = model.align(text, model.translate(text).text)
    console.print("\nWhat it attends to (columns: the characters it reads; rows: those it writes):")
    console.print(picture(alignment.weights, alignment.target, alignment.source))
    console.print(
        f"\nNext:{say_where()}\n  seqloom explore {done.folder}      # look inside, in the browser"
        f"\n  echo '24. Dezember 2031' | seqloom translate {done.folder}      # your own dates"
        f"\n  seqloom train {config} model.encoder.family=transformer --out {folder}/transformer"
        "      # another family\n  seqloom new translation -o mine.toml      # your own files",
        highlight=False,
        soft_wrap=True,
    )
    return share


def say_where() -> str:
    """A line that lets the shell find `seqloom`, where it does not: after `make demo`, it is in `.venv`."""
    script = Path(sys.prefix, "bin", "activate")
    if shutil.which("seqloom") or not script.exists():
        return ""
    here = script.relative_to(Path.cwd()) if script.is_relative_to(Path.cwd()) else script
    return f"\n  source {here}      # so that your shell finds seqloom"


def write_date(day: date, language: str, style: str) -> str:
    """A date as that language writes it."""
    text: str = import_extra("babel.dates", "demo").format_date(day, style, locale=language)
    return text


def _write_corpus(folder: Path) -> None:
    """Every date is in one split only, so the test dates were never seen in training."""
    rng = random.Random(1)
    days = [date(1900, 1, 1) + timedelta(days=number) for number in range(200 * 365)]
    rng.shuffle(days)
    folder.mkdir(parents=True, exist_ok=True)
    for split, size in _SIZES.items():
        chosen, days = days[:size], days[size:]
        written = [write_date(day, rng.choice(LANGUAGES), rng.choice(_STYLES)) for day in chosen]
        for side, lines in {"written": written, "iso": [day.isoformat() for day in chosen]}.items():
            (folder / f"{split}.{side}").write_text("\n".join(lines) + "\n", encoding="utf-8")
