"""In-context learning: a small language model answers by the examples it is shown, with no weight changed.

python bench/in_context.py --write       # about a minute; the table and picture of docs/in-context.md

Every line of its training gives four of eight words a label each, drawn anew, and goes on naming words and labels.
So no word has a label of its own: what there is to learn is to look back.
"""

import argparse
import random
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

from rich.console import Console

from seqloom.predict.load import load
from seqloom.predict.model import Model
from seqloom.training.job import train
from seqloom.training.monitor import PlainMonitor

WORDS = ("blick", "dax", "fep", "gorp", "kiki", "lug", "mip", "wug")
LABELS = ("red", "blue", "green", "black")
CONFIG = """
task = "language-model"
tokenizer = {{kind = "words", min_frequency = 1}}
data.valid_fraction = 0.02
data.train.files = "lines"
data.checks.duplicate = "off"
[batch]
tokens = 1024
rows = {{kind = "lines", max_length = 40}}
[model]
embedding_dropout = 0.0
[model.decoder]
num_layers = 2
num_heads = 4
model_dim = 64
dropout = 0.0
positions = "rotary"
[train]
steps = {steps}
warmup = 30
threads = 1
label_smoothing = 0.0
optimizer = "muon"
validate_every = 100
"""
Shot = tuple[str, str]
Share = float | None


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", action="store_true", help="write the section of docs/in-context.md and its picture")
    parser.add_argument("--steps", type=int, default=600)
    options = parser.parse_args()
    from results import FILE, draw_table, write_section

    with tempfile.TemporaryDirectory() as name:
        run = train_model(Path(name), options.steps)
        model = load(run)
        rows = [(count, *judge(model, count, tasks=250)) for count in range(9)]
        told = "\n\n".join(ask_on_the_command_line(run, labels) for labels in (LABELS, LABELS[::-1]))
    table = draw_table(
        ["examples", "all words", "word among them", "word not among them"],
        [[str(count), *(f"{share:.1%}" if share is not None else "–" for share in shares)] for count, *shares in rows],
    )
    print(table, told, sep="\n\n")
    if options.write:
        picture = FILE.with_name("in-context.svg")
        picture.write_text(draw(rows))
        write_section(
            "bench/in_context.py",
            TEXT.format(steps=options.steps, table=table, told=told),
            picture.with_suffix(".md"),
        )


TEXT = """{steps} steps of 1,024 tokens; 250 fresh lists of four words at each number of examples, all four asked.

{table}

![Curves over the number of examples: at the top for words among them, at chance for the others](in-context.svg)

The same two words with other examples, on the command line:

```text
{told}
```
"""


def draw_task(rng: random.Random) -> dict[str, str]:
    """Some words, each with a label that is drawn for it."""
    return {word: rng.choice(LABELS) for word in rng.sample(WORDS, 4)}


def train_model(folder: Path, steps: int) -> Path:
    """A model that has seen 10,000 lines, each with meanings of its own."""
    rng = random.Random(1)
    with (folder / "lines").open("w") as file:
        for _ in range(10_000):
            meaning = draw_task(rng)
            print(*(f"{word} {meaning[word]}" for word in rng.choices(list(meaning), k=16)), file=file)
    (folder / "config.toml").write_text(CONFIG.format(steps=steps))
    return train(folder / "config.toml", [], out=folder / "run", monitor=PlainMonitor(Console(stderr=True))).folder


def judge(model: Model, count: int, tasks: int) -> tuple[Share, Share, Share]:
    """The share of right answers: about all words, those among `count` examples, and those that are not."""
    right: dict[bool, list[bool]] = {True: [], False: []}
    rng = random.Random(count + 99)
    for _ in range(tasks):
        meaning = draw_task(rng)
        shots: list[Shot] = [(word, meaning[word]) for word in rng.choices(list(meaning), k=count)]
        for word, answer in zip(meaning, model.classify(list(meaning), shots=shots, labels=LABELS), strict=True):
            right[word in dict(shots)].append(answer.label == meaning[word])  # type: ignore[union-attr]
    groups = (right[True] + right[False], right[True], right[False])
    every, shown, unseen = (sum(answers) / len(answers) if answers else None for answers in groups)
    return every, shown, unseen


def ask_on_the_command_line(run: Path, labels: Sequence[str]) -> str:
    """A session of `seqloom classify --shots`."""
    shots = "".join(f"{word}\t{label}\n" for word, label in zip(WORDS, labels, strict=False))
    (run.parent / "shots.tsv").write_text(shots)
    command = [
        sys.executable,
        "-c",
        "from seqloom.cli.main import main; main()",
        "classify",
        run,
        "--shots",
        "shots.tsv",
    ]
    asked = "\n".join(WORDS[:2]) + "\n"
    done = subprocess.run(command, input=asked, capture_output=True, text=True, check=True, cwd=run.parent)
    typed = "printf 'blick\\ndax\\n' | seqloom classify runs/words --shots shots.tsv"
    return f"$ cat shots.tsv\n{shots}$ {typed}\n{done.stdout}".rstrip()


def draw(rows: Sequence[tuple[int, Share, Share, Share]]) -> str:
    """Accuracy over the number of examples."""
    width, height, left, low = 560, 260, 50, 220

    def place(count: int, share: float) -> tuple[float, float]:
        return round(left + count * 58, 1), round(low - share * 190, 1)

    def curve(side: int, colour: str, name: str, below: int) -> Iterator[str]:
        known = [(row[0], share) for row in rows if (share := row[side]) is not None]
        points = [place(*point) for point in known]
        path = " ".join(f"{x},{y}" for x, y in points)
        yield f'<polyline fill="none" stroke="{colour}" stroke-width="2" points="{path}"/>'
        yield from (f'<circle cx="{x}" cy="{y}" r="3.5" fill="{colour}"/>' for x, y in points)
        x, y = points[-1]
        yield f'<text x="{x - 4}" y="{y + below}" text-anchor="end" style="fill:{colour}">{name}</text>'

    parts = ["<style>text { font: 11px sans-serif; fill: #555 } line { stroke: #ccc }</style>"]
    for share in (0.0, 0.25, 0.5, 0.75, 1.0):
        _, y = place(0, share)
        dash = ' stroke-dasharray="4 4"' if share == 1 / len(LABELS) else ""
        parts.append(f'<line x1="{left}" x2="{width - 20}" y1="{y}" y2="{y}"{dash}/>')
        parts.append(f'<text x="{left - 6}" y="{y + 4}" text-anchor="end">{share:.0%}</text>')
    parts += (f'<text x="{place(row[0], 0)[0]}" y="{low + 16}" text-anchor="middle">{row[0]}</text>' for row in rows)
    parts.append(f'<text x="{left}" y="{height - 6}">examples in the prompt (dashed: chance)</text>')
    parts += curve(1, "#777", "all four words", 24)
    parts += curve(2, "#0b6e99", "words among the examples", -10)
    parts += curve(3, "#c4441a", "words not among them", 28)
    return f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" role="img">{"".join(parts)}</svg>\n'


if __name__ == "__main__":
    main()
