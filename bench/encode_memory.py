"""What encoding costs: `python bench/encode_memory.py TEXT [--gigabytes 1] [--write]`

A BPE of 16,000 is trained on TEXT (plain, .gz or .xz). Speed: the text, encoded into shards from a file on the
disk, and by one call of the `tokenizers` library on lines that are in memory already, in turns. Memory: TEXT is
repeated up to the given size in a temporary folder, and a process of its own encodes it into shards and reports the
peak of its resident set; it starts no other processes.
"""

import argparse
import json
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from results import draw_table, write_section
from timing import interleave

from seqloom.config.data import TextFiles
from seqloom.config.tokenizer import Bpe
from seqloom.data.columns import TextColumn
from seqloom.data.corpus import Corpus
from seqloom.data.encoding import EncodedCorpus, encode_corpus
from seqloom.data.files import read_blocks
from seqloom.text import Tokenizer

BUSY = "Other processes used the machine meanwhile, so the seconds of the table are of CPU, over all threads.\n\n"


def encode(text: Path, tokenizer: Tokenizer, folder: Path) -> EncodedCorpus:
    corpus = Corpus(TextFiles(format="text", files=(str(text),)), text.parent, 1 << 20)
    return encode_corpus(corpus, {"text": TextColumn(tokenizer)}, folder)


def measure_memory(text: Path, tokenizer: Path, folder: Path) -> None:
    started = time.perf_counter()
    done = encode(text, Tokenizer.load(tokenizer), folder)
    # not getrusage: its peak is inherited from the process that started this one
    status = Path("/proc/self/status").read_text().splitlines()
    (peak,) = (line.split()[1] for line in status if line.startswith("VmHWM"))
    result = {
        "text_mb": text.stat().st_size / 1e6,
        "records": sum(entry.records for entry in done.manifest.shards),
        "tokens": sum(entry.values["text"] for entry in done.manifest.shards),
        "shards_mb": sum(file.stat().st_size for file in folder.iterdir()) / 1e6,
        "seconds": time.perf_counter() - started,
        "peak_mb": int(peak) / 1024,
    }
    print(json.dumps(result))


def measure_speed(lines: list[str], tokenizer: Tokenizer, folder: Path) -> tuple[dict[str, float], bool]:
    """Megabytes a second, and whether the machine was ours alone."""
    text, shards = folder / "once.txt", folder / "once"
    text.write_text("\n".join(lines) + "\n", encoding="utf-8")

    def encode_afresh() -> None:
        shutil.rmtree(shards, ignore_errors=True)
        encode(text, tokenizer, shards)

    contenders = {
        "text file to shards": encode_afresh,
        "`encode_batch`, lines in memory": lambda: tokenizer.plain.encode_batch(lines, add_special_tokens=False),
        "`encode_batch_fast`, lines in memory": lambda: tokenizer.plain.encode_batch_fast(
            lines, add_special_tokens=False
        ),
    }
    megabytes = text.stat().st_size / 1e6
    timings = interleave(contenders, rounds=5)
    clean = all(taken.clean for taken in timings.values())
    return {name: megabytes / taken.seconds for name, taken in timings.items()}, clean


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("text", type=Path)
    parser.add_argument("--gigabytes", type=float, default=1.0)
    parser.add_argument("--write", action="store_true", help="renew the section in docs/results.md")
    parser.add_argument("--encode", nargs=2, type=Path, metavar=("TOKENIZER", "FOLDER"), help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.encode:
        measure_memory(arguments.text, *arguments.encode)
        return
    lines = [line for block in read_blocks(str(arguments.text), 1 << 20) for line in block.lines]
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        tokenizer = Tokenizer.train(lines, Bpe(size=16_000))
        tokenizer.save(folder / "tokenizer.json")
        speeds, clean = measure_speed(lines, tokenizer, folder)
        content = ("\n".join(lines) + "\n").encode()
        with (folder / "text.txt").open("wb") as file:
            while file.tell() < arguments.gigabytes * 1e9:
                file.write(content)
        paths = [str(folder / part) for part in ("text.txt", "tokenizer.json", "shards")]
        command = [sys.executable, __file__, paths[0], "--encode", *paths[1:]]
        memory = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    ours, *others = speeds.values()
    ratios = ["", *(f"{ours / other:.2f}" for other in others)]
    table = draw_table(
        ["encoding", "MB/s", "shards are … times as fast"],
        [[name, f"{speed:.2f}", ratio] for (name, speed), ratio in zip(speeds.items(), ratios, strict=True)],
    )
    text = (
        f"## Encoding\n\n{table}\n\n{'' if clean else BUSY}"
        f"{memory['text_mb']:,.0f} MB of text ({memory['records']:,} records, {memory['tokens']:,} tokens)"
        f" became {memory['shards_mb']:,.0f} MB of shards in {memory['seconds']:,.0f} s;"
        f" the most memory in use was {memory['peak_mb']:,.0f} MB."
    )
    print(text)
    if arguments.write:
        write_section("bench/encode_memory.py", text)


if __name__ == "__main__":
    main()
