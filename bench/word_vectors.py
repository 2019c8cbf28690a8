"""Word vectors beside gensim: the same text, settings and machine. Ours are trained by one thread, gensim's by several.

    python bench/word_vectors.py                       # 10 MB of Wikipedia, about 5 minutes
    python bench/word_vectors.py --threads 1 --set dim=200 --set subsample=1e-4

Each training runs in a process of its own, ours and gensim's in turn. Times are medians over the runs during which
other processes took at most 8% of the machine or, if there was none, over all. Time is from the first word read to the
last update, imports left out; speed is words of the text × epochs / time.
"""

import argparse
import gzip
import json
import lzma
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

SHARED = Path(os.environ.get("SEQLOOM_SHARED_DATA", Path(__file__).parents[2] / "shared" / "data"))
CONTENDERS = ("seqloom", "gensim", "gensim corpus_file")
MOST_FOREIGN = 0.08


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--corpus", type=Path, default=SHARED / "enwik8" / "enwik8.first10MB.xz")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--threads", type=int, default=os.cpu_count(), help="for gensim")
    parser.add_argument(
        "--set", action="append", default=[], metavar="KEY=VALUE", help="a setting of WordVectorsConfig"
    )
    parser.add_argument("--only", choices=CONTENDERS, action="append")
    parser.add_argument("--run", nargs=2, metavar=("CONTENDER", "TEXT"), help=argparse.SUPPRESS)
    parser.add_argument("--seed", type=int, default=0, help=argparse.SUPPRESS)
    options = parser.parse_args()
    settings = {key: json.loads(value) for key, value in (pair.split("=", 1) for pair in options.set)}
    if options.run:
        print(json.dumps(run(*options.run, {**settings, "seed": options.seed}, options.threads)))
    else:
        compare(options, options.only or CONTENDERS)


def compare(options: argparse.Namespace, contenders: tuple[str, ...]) -> None:
    results: dict[str, list[dict[str, float]]] = {name: [] for name in contenders}
    with tempfile.TemporaryDirectory() as folder:
        text = Path(folder) / "text"
        words = write_text(options.corpus, text)
        changed = " ".join(options.set) or "default settings"
        print(f"{options.corpus.name}: {words:,} words; {changed}; {options.threads} threads for gensim")
        common = ["--threads", str(options.threads), *(f"--set={pair}" for pair in options.set)]
        environment = {**os.environ, "OMP_NUM_THREADS": "1"}
        for repeat in range(options.repeats):
            for name in contenders:
                command = [sys.executable, __file__, "--run", name, str(text), "--seed", str(repeat), *common]
                done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True, env=environment)
                results[name].append(json.loads(done.stdout))
                print(f"  {repeat} {name}: {json.dumps(results[name][-1])}", file=sys.stderr, flush=True)
    print_table(results)


def print_table(results: dict[str, list[dict[str, float]]]) -> None:
    print("| | seconds | words/s | CPU seconds | CPU used by others | runs timed | WordSim-353 Spearman | analogies |")
    print("|---|---|---|---|---|---|---|---|")
    for name, runs in results.items():
        timed = [r for r in runs if r["foreign"] <= MOST_FOREIGN] or runs
        seconds, cpu, foreign = (statistics.median(r[key] for r in timed) for key in ("seconds", "cpu", "foreign"))
        spearman, analogies = ([r[key] for r in runs] for key in ("spearman", "analogies"))
        print(
            f"| {name} | {seconds:.1f} | {runs[0]['words'] / seconds:,.0f} | {cpu:.1f} | {foreign:.0%} | "
            f"{len(timed)} of {len(runs)} | {spread(spearman)} | {spread(analogies)} |"
        )


def spread(values: list[float]) -> str:
    return f"{statistics.mean(values):.3f} ({min(values):.3f} to {max(values):.3f})"


def write_text(source: Path, target: Path) -> int:
    """Wikipedia's XML as lower-case words of a to z, a paragraph a line, about as crude as text8; returns its words."""
    opener = {".xz": lzma.open, ".gz": gzip.open}.get(source.suffix, open)
    with opener(source, "rb") as file:
        text = file.read().decode("utf-8", "ignore")
    for noise in (r"<[^>]*>", r"&\w+;", r"\[\[[a-z-]+:[^\]]*\]\]", r"\[\[[^\]|]*\|", r"https?:\S+"):
        text = re.sub(noise, " ", text)
    words = 0
    with target.open("w") as lines:
        for line in re.sub(r"[^a-z\n]+", " ", text.lower()).split("\n"):
            if line := line.strip():
                words += line.count(" ") + 1
                lines.write(line + "\n")
    return words


def run(contender: str, text: str, settings: dict[str, float], threads: int) -> dict[str, float]:
    """One training, and how good it came out."""
    from seqloom.models.word_vectors import (
        evaluate_analogies,
        evaluate_similarity,
        read_questions,
        read_ratings,
    )
    from seqloom.tasks.word_vectors import WordVectorsConfig

    config = WordVectorsConfig(**settings)  # type: ignore[arg-type]
    train = train_seqloom if contender == "seqloom" else train_gensim
    before, vectors, words, after = train(contender, text, config, threads)
    elapsed, cpu, busy = (b - a for a, b in zip(before, after, strict=True))
    similarity = evaluate_similarity(vectors, read_ratings(SHARED / "word-similarity" / "wordsim353.tsv.gz"))
    analogies = evaluate_analogies(vectors, read_questions(SHARED / "word-similarity" / "questions-words.txt.gz"))
    return {
        "seconds": round(elapsed, 2),
        "cpu": round(cpu, 2),
        "foreign": round(max(0.0, busy - cpu) / elapsed / os.cpu_count(), 3),  # type: ignore[operator]
        "words": words * config.epochs,
        "spearman": round(similarity.spearman, 4),
        "analogies": round(analogies.accuracy, 4),
    }


def train_seqloom(contender, text, config, threads):  # type: ignore[no-untyped-def]
    from seqloom.training.word_vectors import train_word_vectors

    before = clocks()
    vectors = train_word_vectors(config, lambda: sentences(text))
    after = clocks()
    return before, vectors, sum(map(len, sentences(text))), after


def train_gensim(contender, text, config, threads):  # type: ignore[no-untyped-def]
    import torch
    from gensim.models import Word2Vec
    from gensim.models.word2vec import LineSentence

    from seqloom.models.word_vectors import WordVectors

    source = {"corpus_file": text} if "corpus_file" in contender else {"sentences": LineSentence(text)}
    before = clocks()
    model = Word2Vec(
        **source,
        sg=1,
        vector_size=config.dim,
        window=config.window,
        negative=config.negatives,
        min_count=config.min_count,
        sample=config.subsample,
        epochs=config.epochs,
        alpha=config.learning_rate,
        seed=config.seed,
        workers=threads,
    )
    after = clocks()
    return (
        before,
        WordVectors(model.wv.index_to_key, torch.from_numpy(model.wv.vectors)),
        model.corpus_total_words,
        after,
    )


def sentences(path: str) -> Iterator[list[str]]:
    with open(path) as lines:
        yield from map(str.split, lines)


def clocks() -> tuple[float, float, float]:
    """Seconds on the wall, of this process, and of all processes together."""
    with open("/proc/stat") as stat:
        user, nice, system, _idle, _iowait, irq, softirq, steal = map(int, stat.readline().split()[1:9])
    busy = (user + nice + system + irq + softirq + steal) / os.sysconf("SC_CLK_TCK")
    return time.perf_counter(), time.process_time(), busy


if __name__ == "__main__":
    main()
