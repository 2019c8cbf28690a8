"""Text to ids beside the library that decides them: `python bench/tokenising.py [--keep FILE] [--most N] [--write]`

Up to 60,000 lines of a file, on one thread, in calls of two million characters, as training encodes them: by
`Tokenizer.encode_batch` with nothing met before, by the same again when all has been met, and by `encode_batch_fast` of
the `tokenizers` library on the same `tokenizer.json`, whose own cache is warm. All take turns, and give the same ids.
With `--keep`, rows are kept in a file and not measured again; `--most` measures so many rows and ends.

(Named so because a `tokenize.py` in this folder would stand in for Python's own.)
"""

import os

os.environ["RAYON_NUM_THREADS"] = "1"  # read by the library when it is loaded
os.environ["TOKENIZERS_PARALLELISM"] = "false"

import argparse
import gzip
import json
import lzma
import warnings
from itertools import islice
from pathlib import Path

from results import draw_table, write_section
from timing import interleave

from seqloom.config.tokenizer import Bpe, Characters, TokenizerConfig, Unigram, WordPiece, Words
from seqloom.data.columns import cut_calls
from seqloom.text import Tokenizer
from seqloom.text.cuts import classify

DATA = Path(os.environ.get("SEQLOOM_SHARED_DATA", Path(__file__).parents[2] / "shared" / "data"))
FILES = {
    "Multi30k, German": "multi30k/train.de.gz",
    "Tatoeba, two languages": "tatoeba/eng-deu.tsv.gz",
    "enwik8": "enwik8/enwik8.first10MB.xz",
}
CONFIGS: list[TokenizerConfig] = [Bpe(), WordPiece(), Unigram()]
MORE: list[TokenizerConfig] = [Words(), Characters()]
LINES, LEARNED = 60_000, 20_000
HEAD = ["text", "kind", "MB", "library MB/s", "nothing met MB/s", "times", "all met MB/s", "times", "alone"]


def read_lines(name: str) -> list[str]:
    """The first lines of a corpus."""
    open_it = lzma.open if name.endswith(".xz") else gzip.open
    with open_it(DATA / name) as file:
        return [line.decode("utf-8").rstrip("\n") for line in islice(file, LINES)]


def compare(corpus: str, lines: list[str], config: TokenizerConfig) -> list[str]:
    """One row of the table."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        met = Tokenizer.train(lines[:LEARNED], config)
    calls = list(cut_calls(lines))
    spec = json.loads(met._spec)
    raw = type(met.plain).from_str(json.dumps({**spec, "post_processor": None}))

    def encode_by_library() -> list[list[int]]:
        return [e.ids for call in calls for e in raw.encode_batch_fast(call, add_special_tokens=False)]

    def encode(tokenizer: Tokenizer) -> list[list[int]]:
        return [ids for call in calls for ids in tokenizer.encode_batch(call)]

    classify()  # once a process, a tenth of a second
    contenders = {
        "library": encode_by_library,
        "nothing met": lambda: encode(fresh.pop()),
        "all met": lambda: encode(met),
    }
    fresh = [Tokenizer(met._spec)]
    assert encode(fresh.pop()) == encode(met) == encode_by_library()
    fresh += [Tokenizer(met._spec) for _ in range(30)]  # reading a tokeniser is no part of using it
    times = interleave(contenders, rounds=3, turn=0.01, patience=1)
    megabytes = sum(len(line.encode()) + 1 for line in lines) / 1e6
    speeds = {name: megabytes / timing.seconds for name, timing in times.items()}
    row = [corpus, str(config.kind), f"{megabytes:.1f}", f"{speeds['library']:.2f}"]
    for name in ("nothing met", "all met"):
        row += [f"{speeds[name]:.1f}", f"{speeds[name] / speeds['library']:.1f}"]
    return [*row, "yes" if all(timing.clean for timing in times.values()) else "no"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--keep", type=Path, help="a file for the rows that are measured")
    parser.add_argument("--most", type=int, default=99, help="how many rows to measure")
    parser.add_argument("--write", action="store_true", help="put the table into docs/results.md")
    arguments = parser.parse_args()
    kept = json.loads(arguments.keep.read_text()) if arguments.keep and arguments.keep.exists() else {}
    wanted = [(corpus, config) for corpus in FILES for config in CONFIGS] + [("enwik8", config) for config in MORE]
    rows = []
    for corpus, config in wanted:
        key = f"{corpus}, {config.kind}"
        if key not in kept and arguments.most:
            arguments.most -= 1
            kept[key] = compare(corpus, read_lines(FILES[corpus]), config)
            print(*kept[key], flush=True)
            if arguments.keep:
                arguments.keep.write_text(json.dumps(kept))
        rows.append(kept.get(key, [corpus, config.kind, *[""] * (len(HEAD) - 3), "not measured"]))
    table = draw_table(HEAD, rows)
    print(table)
    if arguments.write:
        text = (
            "## Text to ids beside the `tokenizers` library\n\nOn one thread, with the same ids. Where the machine was"
            f" not ours alone, speeds are by seconds of CPU.\n\n{table}"
        )
        write_section("bench/tokenising.py", text)


if __name__ == "__main__":
    main()
