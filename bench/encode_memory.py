"""Peak memory of encoding a large file: `python bench/encode_memory.py TEXT [--gigabytes 1]`.

TEXT (plain, .gz or .xz) is repeated up to the given size in a temporary folder, a BPE of 16,000 is trained on it, and
a process of its own encodes the file, so that its peak resident memory is that of encoding alone.
"""

import argparse
import hashlib
import json
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from tokenizers import Tokenizer, models, pre_tokenizers, trainers

from weft.config.data import TextFiles
from weft.data.columns import TextColumn
from weft.data.corpus import Corpus
from weft.data.encoding import encode_corpus
from weft.data.lines import read_blocks


class LibraryTokenizer:
    """The `tokenizers` library as encoding sees it."""

    def __init__(self, path: Path) -> None:
        self.inner = Tokenizer.from_file(str(path))
        self.fingerprint = hashlib.sha256(path.read_bytes()).hexdigest()
        self.vocab_size = self.inner.get_vocab_size()

    def encode_batch(self, texts: list[str]) -> list[list[int]]:
        """The ids of each text."""
        return [encoding.ids for encoding in self.inner.encode_batch_fast(texts, add_special_tokens=False)]


def encode(text: Path, tokenizer: Path, folder: Path) -> None:
    started = time.perf_counter()
    corpus = Corpus(TextFiles(format="text", files=(str(text),)), text.parent, 1 << 20)
    done = encode_corpus(corpus, {"text": TextColumn(LibraryTokenizer(tokenizer))}, folder)
    peaks = [resource.getrusage(who).ru_maxrss for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    result = {
        "seconds": round(time.perf_counter() - started, 1),
        "peak_mb": round(sum(peaks) / 1024, 1),
        "shards": done.written,
        "records": sum(entry.records for entry in done.manifest.shards),
        "tokens": sum(entry.values["text"] for entry in done.manifest.shards),
        "text_mb": round(text.stat().st_size / 1e6, 1),
        "shards_mb": round(sum(file.stat().st_size for file in folder.iterdir()) / 1e6, 1),
    }
    print(json.dumps(result))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("text", type=Path)
    parser.add_argument("--gigabytes", type=float, default=1.0)
    parser.add_argument("--encode", nargs=2, type=Path, metavar=("TOKENIZER", "FOLDER"), help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.encode:
        encode(arguments.text, *arguments.encode)
        return
    lines = [line for block in read_blocks(str(arguments.text), 1 << 20) for line in block.lines]
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        bpe = Tokenizer(models.BPE())
        bpe.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
        bpe.train_from_iterator(lines, trainers.BpeTrainer(vocab_size=16_000, show_progress=False))
        bpe.save(str(folder / "tokenizer.json"))
        content = ("\n".join(lines) + "\n").encode()
        with (folder / "text.txt").open("wb") as file:
            while file.tell() < arguments.gigabytes * 1e9:
                file.write(content)
        paths = [str(folder / part) for part in ("text.txt", "tokenizer.json", "shards")]
        subprocess.run([sys.executable, __file__, paths[0], "--encode", *paths[1:]], check=True)


if __name__ == "__main__":
    main()
