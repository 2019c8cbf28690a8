"""What Seqloom adds to the library it encodes with: `python bench/tokenising.py [--write]`

The ids of the first 20,000 lines of a file, by `Tokenizer.encode_batch` and by the `tokenizers` library itself on the
same `tokenizer.json`: its batch call (`encode_batch`, which also computes offsets) and its faster one
(`encode_batch_fast`). All of them run in turn, on all cores, in calls of 1,000 lines.

(Named so because a `tokenize.py` in this folder would stand in for Python's own.)
"""

import argparse
import gzip
import lzma
import os
import tempfile
import warnings
from itertools import islice
from pathlib import Path

import tokenizers
from results import draw_table, write_section
from timing import interleave

from seqloom.config.tokenizer import Bpe, TokenizerConfig, Unigram, WordPiece
from seqloom.text import Tokenizer

DATA = Path(os.environ.get("SEQLOOM_SHARED_DATA", Path(__file__).parents[2] / "shared" / "data"))
FILES = {
    "Multi30k, German": "multi30k/train.de.gz",
    "enwik8": "enwik8/enwik8.first10MB.xz",
}
CONFIGS: list[TokenizerConfig] = [Bpe(), WordPiece(), Unigram()]
LINES, LINES_A_CALL = 20_000, 1000


def read_lines(name: str) -> list[str]:
    """The first lines of a corpus."""
    open_it = lzma.open if name.endswith(".xz") else gzip.open
    with open_it(DATA / name) as file:
        return [line.decode("utf-8").rstrip("\n") for line in islice(file, LINES)]


def compare(corpus: str, lines: list[str], config: TokenizerConfig) -> list[str]:
    """One row of the table."""
    with warnings.catch_warnings(), tempfile.TemporaryDirectory() as folder:
        warnings.simplefilter("ignore")
        ours = Tokenizer.train(lines, config)
        ours.save(f"{folder}/tokenizer.json")
        raw = tokenizers.Tokenizer.from_file(f"{folder}/tokenizer.json")
    calls = [lines[start : start + LINES_A_CALL] for start in range(0, len(lines), LINES_A_CALL)]
    contenders = {
        "ours": lambda: [ours.encode_batch(call) for call in calls],
        "batch": lambda: [[e.ids for e in raw.encode_batch(call, add_special_tokens=False)] for call in calls],
        "fast": lambda: [[e.ids for e in raw.encode_batch_fast(call, add_special_tokens=False)] for call in calls],
    }
    assert contenders["ours"]() == contenders["batch"]() == contenders["fast"]()
    times = interleave(contenders)
    megabytes = sum(len(line.encode()) + 1 for line in lines) / 1e6
    speeds = {name: megabytes / timing.seconds for name, timing in times.items()}
    return [
        corpus,
        str(config.kind),
        *(f"{speeds[name]:.1f}" for name in ("ours", "batch", "fast")),
        *(f"{speeds['ours'] / speeds[name]:.2f}" for name in ("batch", "fast")),
        "yes" if all(timing.clean for timing in times.values()) else "no",
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", action="store_true", help="put the table into docs/results.md")
    write = parser.parse_args().write
    rows = []
    for corpus, name in FILES.items():
        lines = read_lines(name)
        for config in CONFIGS:
            rows.append(compare(corpus, lines, config))
            print(" ".join(rows[-1]), flush=True)
    head = ["text", "kind", "Seqloom MB/s", "batch MB/s", "fast batch MB/s", "of batch", "of fast batch", "alone"]
    table = draw_table(head, rows)
    print(table)
    if write:
        write_section("bench/tokenising.py", f"## Encoding text beside the `tokenizers` library\n\n{table}")


if __name__ == "__main__":
    main()
