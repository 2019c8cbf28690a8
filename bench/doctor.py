"""How fast the data doctor reads, and how much memory it needs.

    python bench/doctor.py FILE [MEGABYTES]

The text of FILE is repeated, with a number before each line so that no two lines are the same, until it has the size
asked for. Processor time is reported beside wall time, since other programs may be running.
"""

import json
import resource
import sys
import tempfile
import time
from pathlib import Path

from seqloom.config.data import ParallelData, TextData
from seqloom.data.doctor import examine
from seqloom.data.files import read_blocks


def grow(source: Path, text: Path, other: Path, size: int) -> None:
    """Write the text, and beside it a text whose lines have the same words in reverse order."""
    lines = [line for block in read_blocks(str(source), 1 << 24) for line in block.lines if line]
    number = 0
    with text.open("w", encoding="utf-8", newline="\n") as out, other.open("w", encoding="utf-8", newline="\n") as back:
        while out.tell() < size:
            for line in lines:
                number += 1
                out.write(f"{number} {line}\n")
                back.write(f"{' '.join(reversed(line.split()))} {number}\n")


def main() -> None:
    source, megabytes = Path(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 200
    with tempfile.TemporaryDirectory() as folder:
        base = Path(folder)
        grow(source, base / "text", base / "other", megabytes * 1_000_000)
        configurations = {
            "plain text": TextData.model_validate({"train": {"files": "text"}}),
            "parallel files": ParallelData.model_validate({"train": {"source": "text", "target": "other"}}),
        }
        for name, data in configurations.items():
            sides = 2 if isinstance(data, ParallelData) else 1
            size = sides * (base / "text").stat().st_size / 1e6
            wall, processor = time.perf_counter(), time.process_time()
            report = examine(data, base)
            wall, processor = time.perf_counter() - wall, time.process_time() - processor
            result = {
                "input": name,
                "megabytes": round(size),
                "records": report.splits[0].records,
                "MB/s wall": round(size / wall, 1),
                "MB/s processor": round(size / processor, 1),
                "peak resident MB so far": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024,
            }
            print(json.dumps(result))


if __name__ == "__main__":
    main()
