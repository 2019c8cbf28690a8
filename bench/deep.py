"""Deep stacks of tiny width: do they learn, and how long is the gradient of each layer?

python bench/deep.py --write       # 12, 24 and 96 layers, about 3 minutes; the picture goes to docs/deep.svg
"""

import argparse
import gzip
import json
import os
import re
import tempfile
from pathlib import Path

from results import FILE, draw_table, write_section
from rich.console import Console

from seqloom.training.job import train
from seqloom.training.monitor import PlainMonitor

SHARED = Path(os.environ.get("SEQLOOM_SHARED_DATA", Path(__file__).parents[2] / "shared" / "data"))
STEPS = 101  # the gradients of the layers are looked at every hundredth step
CONFIG = f"""
task = "language-model"
tokenizer = "characters"
[data]
valid_fraction = 0.05
train.files = "text"
[batch]
tokens = 1024
rows = {{kind = "windows", length = 64}}
[model.decoder]
model_dim = 32
dropout = 0.0
[train]
steps = {STEPS}
validate_every = {STEPS}
label_smoothing = 0.0
warmup = 20
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", action="store_true", help="write the section of docs/results.md and the picture")
    options = parser.parse_args()
    rows = []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        with gzip.open(SHARED / "tinyshakespeare" / "input.txt.gz") as text:
            (folder / "text").write_bytes(text.read())
        (folder / "config.toml").write_text(CONFIG)
        for layers in (12, 24, 96):
            out = folder / f"{layers}"
            train(
                folder / "config.toml", [f"model.decoder.num_layers={layers}"], out=out, monitor=PlainMonitor(Console())
            )
            rows.append(describe(layers, out))
        page = (folder / "96" / "report.html").read_text()
    picture = re.search(r"by layer, at the last look</h2>(<svg.*?</svg>)", page)
    assert picture is not None
    table = draw_table(
        ["layers", "weights", "loss at step 1", "validation loss", "gradient, first layer", "last"], rows
    )
    print(table)
    if options.write:
        style = "<style>text { font: 11px sans-serif; fill: #555 }</style>"
        svg = picture[1].replace("<svg ", '<svg xmlns="http://www.w3.org/2000/svg" ').replace(">", f">{style}", 1)
        (FILE.parent / "deep.svg").write_text(svg + "\n")
        write_section("bench/deep.py", TEXT.format(steps=STEPS, table=table))


TEXT = """## Deep stacks

Pre-norm Transformers of width 32 on the characters of tiny Shakespeare, {steps} steps of 1,024 characters.

{table}

The gradient of each of 96 layers at the last look, from the run's report:

![Bars: the length of the gradient of each layer](deep.svg)
"""


def describe(layers: int, run: Path) -> list[str]:
    lines = [json.loads(line) for line in (run / "log.jsonl").read_text().splitlines()]
    gradients = [line["layers"] for line in lines if "layers" in line][-1]
    blocks = [value for name, value in gradients.items() if "blocks" in name]
    weights = re.search(r"weights</th><td>([\d,]+)", (run / "report.html").read_text())
    assert weights is not None
    valid = [line["valid"]["loss"] for line in lines if "valid" in line][-1]
    return [str(layers), weights[1], f"{lines[0]['loss']:.3f}", f"{valid:.3f}", f"{blocks[0]:.3f}", f"{blocks[-1]:.3f}"]


if __name__ == "__main__":
    main()
