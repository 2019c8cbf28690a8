"""What the cells of bench/growth.py measure beside models: corpora, bulk jobs and several processes.

The text is random: words by Zipf's law, so a longer text has more different ones, 9 to a line on average. A corpus of
many millions of pairs is simulated: its index names one shard of 65,536 random pairs again and again, and everything
else is as it would be, except that the disk holds, and the system caches, a single file.
"""

import json
import os
import pickle
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from itertools import islice
from pathlib import Path

import numpy as np
import torch
import torch.distributed as dist
from growth_cells import ROW, Found, build_learner, clock, make_batch, watch_memory

from seqloom.cli.process import disable_trimming
from seqloom.config.data import ParallelData, ParallelFiles
from seqloom.config.tokenizer import Bpe
from seqloom.data.batching import Batches, PairSamples
from seqloom.data.columns import TextColumn
from seqloom.data.corpus import Corpus
from seqloom.data.doctor import examine
from seqloom.data.encoding import CHUNK_RECORDS, ChunkEncoder, encode_corpus
from seqloom.data.examples import Chunk
from seqloom.data.rows import Frame, Limit
from seqloom.data.shards import Manifest, Ragged, Records, ShardEntry, describe_shard, write_manifest, write_shard
from seqloom.decode.options import Search
from seqloom.predict.bulk import Line, LineResult, Runner, read_lines, run_here
from seqloom.predict.formats import TextFormat
from seqloom.predict.job import run_to_file
from seqloom.predict.load import open_predictor
from seqloom.predict.predictor import Predictor
from seqloom.predict.results import Translation
from seqloom.predict.translate import translate
from seqloom.text import Tokenizer
from seqloom.training.distributed import join_process_group
from seqloom.training.step import take_step

PROGRAM = Path(__file__).with_name("growth.py")
SIDES = ("source", "target")
WORDS = 9
STEPS, TOKENS = 3, 4096
ANSWER = 12  # tokens of every translation
MODEL = """task = "translation"
tokenizer = {kind = "bpe", size = 8000}
data = {train = {source = "model.source", target = "model.target"}, valid_fraction = 0.05}
model.encoder = {num_layers = 3, model_dim = 256, num_heads = 8}
model.decoder = {num_layers = 3, model_dim = 256, num_heads = 8}
train = {steps = 2, threads = 1}
"""


def run_apart(function: Callable[[], object]) -> None:
    """Run it in a process that takes its memory along, so that what is measured here afterwards finds none to use."""
    child = os.fork()
    if not child:
        try:
            function()
            os._exit(0)
        finally:
            os._exit(1)
    assert os.waitpid(child, 0)[1] == 0


def write_text(path: Path, lines: int, seed: int) -> Path:
    """A file of so many lines, unless it is there; a shorter one has the first lines of a longer one."""
    if not path.exists():
        run_apart(partial(_write_text, path, lines, seed))
    return path


def _write_text(path: Path, lines: int, seed: int) -> None:
    generator, written = np.random.default_rng(seed), path.with_name(f"{path.name}.part")
    letters = ["".join(pair) for pair in np.stack(np.meshgrid([*"bdfgklmnprst"], [*"aeiou"]), -1).reshape(-1, 2)]
    with written.open("w", encoding="utf-8") as file:
        for first in range(0, lines, CHUNK_RECORDS):
            counts = generator.integers(3, 2 * WORDS - 2, CHUNK_RECORDS)
            ranks = np.minimum(generator.zipf(1.3, counts.sum()), 10**9).tolist()
            words = iter([_spell(rank, letters) for rank in ranks])
            texts = [" ".join(islice(words, count)) for count in counts[: lines - first].tolist()]
            file.writelines(f"{text}.\n" for text in texts)
    written.rename(path)


def _spell(rank: int, letters: list[str]) -> str:
    word = ""
    while rank:
        rank, digit = divmod(rank, len(letters))
        word += letters[digit]
    return word


def measure_preparation(variant: str, size: int, folder: Path) -> Found:
    """What `seqloom prepare` does with pairs of lines before the first step, one part of it."""
    paths = [write_text(folder / f"text-{size}.{side}", size, seed) for seed, side in enumerate(SIDES)]
    sides = {side: path.name for side, path in zip(SIDES, paths, strict=True)}
    found = Found(bytes=sum(path.stat().st_size for path in paths))
    corpus = Corpus(
        ParallelFiles(format="parallel", source=(sides["source"],), target=(sides["target"],)), folder, 1 << 20
    )
    learned, shards = folder / "tokenizer.json", folder / f"{variant.replace(' ', '-')}-{size}"
    if variant in ("encode", "hand out chunks") and not learned.exists():
        first = [write_text(folder / f"text-first.{side}", 20_000, seed) for seed, side in enumerate(SIDES)]
        run_apart(lambda: Tokenizer.train(first, Bpe(size=8000)).save(learned))
    with watch_memory() as memory:
        match variant:
            case "check":
                data = ParallelData.model_validate({"train": sides})
                found["seconds"] = clock(lambda: examine(data, folder))
            case "learn the tokeniser":
                texts = (example.values[side] for example in corpus for side in SIDES)
                found["seconds"] = clock(lambda: Tokenizer.train(texts, Bpe(size=8000)))
            case _:
                columns = {side: TextColumn(Tokenizer.load(learned)) for side in SIDES}
                spread = hand_out_chunks if variant == "hand out chunks" else None
                found["seconds"] = clock(lambda: encode_corpus(corpus, columns, shards, spread))
    found |= memory
    if variant == "encode":
        found["disk"] = sum(path.stat().st_size for path in shards.iterdir())
    for path in shards.iterdir() if shards.exists() else ():
        path.unlink()
    return found


def hand_out_chunks(encoder: ChunkEncoder, chunks: Iterable[Chunk]) -> Iterator[tuple[ShardEntry, bool]]:
    """What the command itself does where a cluster encodes: everything but encoding, and but Ray's own work."""
    for chunk in chunks:
        yield ShardEntry(str(len(pickle.dumps(chunk))), "", chunk.path, len(chunk), {}), True


def simulate_corpus(target: Path, size: int) -> None:
    """A folder whose index names one shard as often as needed."""
    generator, content = np.random.default_rng(0), {}
    path = target / "shard.safetensors"
    for side in SIDES:
        lengths = np.clip(generator.lognormal(2.6, 0.5, CHUNK_RECORDS), 2, 200).astype(np.int64)
        values = generator.integers(4, 8000, lengths.sum()).astype(np.uint16)
        content[side] = Ragged(values, np.concatenate([[0], np.cumsum(lengths)]))
    write_shard(path, content, range(CHUNK_RECORDS))
    entry = describe_shard(path, "text")
    write_manifest(target, Manifest({}, "", {}, (entry,) * -(-size // CHUNK_RECORDS)))


def measure_corpus(_: str, size: int, folder: Path) -> Found:
    """Opening the shards of a training, making its order, and finding the samples of steps."""
    place, found = folder / f"corpus-{size}", Found()
    run_apart(partial(simulate_corpus, place, size))
    roles = [{"source": Frame((), (2,))}, {"target": Frame((1,), (2,))}]
    with watch_memory() as memory:
        held: list[Records] = []
        found["open"] = clock(lambda: held.append(Records([place])))
        samples: list[PairSamples] = []
        found["lengths"] = clock(lambda: samples.append(PairSamples(held[0], roles, Limit(256, "drop"), 0)))
        batches: list[Batches] = []
        found["order"] = clock(lambda: batches.append(Batches(samples[0], tokens=TOKENS, weights=[1.0], seed=1)))
        far = [10**6 + number * 1009 * len(batches[0]) for number in range(9)]
        for step in far:
            found["jump"] = min(found.get("jump", np.inf), clock(partial(batches[0].order.draw, step)))
        steps = far[-1] // 256 * 256 + np.arange(64)
        batches[0].build(int(steps[0]))
        found["batch"] = clock(lambda: [batches[0].build(int(step)) for step in steps]) / len(steps)
    pairs = len(samples[0].lengths)
    disk = (place / "shard.safetensors").stat().st_size / CHUNK_RECORDS
    tokens = float(samples[0].lengths[:CHUNK_RECORDS].sum(axis=1).mean())
    return found | memory | {"seconds": sum(found[part] for part in ("open", "lengths", "order")), "pairs": pairs,
                             "record": disk, "tokens": tokens}  # fmt: skip


def train_model(folder: Path) -> Path:
    """A model of 3 + 3 layers that has learned next to nothing: the length of its answers is given."""
    run = folder / "model"
    if not run.exists():
        for seed, side in enumerate(SIDES):
            write_text(folder / f"model.{side}", 20_000, seed)
        (folder / "model.toml").write_text(MODEL)
        command = [sys.executable, "-m", "seqloom", "train", str(folder / "model.toml"), "--out", str(run)]
        subprocess.run(command, check=True, stdout=sys.stderr)
    return run


def measure_bulk(variant: str, size: int, folder: Path) -> Found:
    """A bulk translation into a file, or all of it but the answers: what one command can hand out and collect."""
    disable_trimming()
    path, out = write_text(folder / f"lines-{size}", size, 3), folder / f"answers-{size}"
    for left in folder.glob(f"{out.name}*"):
        left.unlink()
    answer: Runner = hand_out_lines
    if variant == "translate":
        answer = run_here(partial(translate_lines, open_predictor(train_model(folder))))
        list(answer(iter([[Line(("ba da.",))]]), 1))
    show = TextFormat(lambda result: result.text)
    with watch_memory() as found:
        job = partial(run_to_file, read_lines(str(path)), answer, show, out, {}, resume=False, report=lambda *_: None)
        found["seconds"] = clock(job)
    return found


def translate_lines(model: Predictor, numbers: list[int], texts: list[str]) -> list[Translation]:
    """A window's translations, all of one length."""
    return translate(model, texts, Search(min_length=ANSWER, max_length=ANSWER), align=False, numbers=numbers)


def hand_out_lines(windows: Iterable[list[Line]], first: int) -> Iterator[tuple[list[Line], list[LineResult]]]:
    """Windows there and back, as they are sent to a cluster's workers, which answer at once."""
    for window in windows:
        sent = pickle.loads(pickle.dumps(window))
        yield window, pickle.loads(pickle.dumps([Translation(line.texts[0], -1.0) for line in sent]))


def measure_processes(_: str, size: int, __: Path) -> Found:
    """The step of a batch that so many processes share; where the system allows it, in a network of their own."""
    alone = ["unshare", "--map-root-user", "--net"]
    apart = alone if subprocess.run([*alone, "true"], capture_output=True).returncode == 0 else []
    command = [*apart, sys.executable, str(PROGRAM), "--start-ranks", str(size)]
    found: Found = json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout)
    if not apart:  # others use this network, too
        del found["sent"]
    return found


def start_ranks(size: int) -> Found:
    """The seconds of all of them together, and the most memory of one."""
    subprocess.run(["ip", "link", "set", "lo", "up"], capture_output=True)
    setting = os.environ | {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29517", "TORCH_CPP_LOG_LEVEL": "ERROR"}
    ranks = []
    for rank in map(str, range(size)):
        who = {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": str(size), "LOCAL_WORLD_SIZE": str(size)}
        command = [sys.executable, str(PROGRAM), "--rank"]
        ranks.append(subprocess.Popen(command, env=setting | who, stdout=subprocess.PIPE))
    answers = [json.loads(rank.communicate()[0]) for rank in ranks]
    seconds, peak = sum(one["seconds"] for one in answers), max(one["peak"] for one in answers)
    return answers[0] | {"seconds": seconds, "peak": peak}


def take_part() -> Found:
    """One of those processes: seconds of a step, and bytes that crossed the loopback card."""
    torch.set_num_threads(1)
    disable_trimming()
    with join_process_group() as group, watch_memory() as found:
        learner = build_learner(8000, group, model_dim=256, num_heads=8, num_layers=4)
        batch = make_batch(TOKENS // ROW // group.size, ROW, 8000)
        take_step(learner, [batch], 1)
        _meet(group.size)
        before = _count_sent()
        found["seconds"] = clock(lambda: [take_step(learner, [batch], 2 + step) for step in range(STEPS)]) / STEPS
        _meet(group.size)
        found["sent"] = (_count_sent() - before) / STEPS
        found["weights"] = sum(weight.numel() for weight in learner.model.parameters())
    return found


def _meet(size: int) -> None:
    if size > 1:
        dist.barrier()


def _count_sent() -> int:
    """Bytes that the loopback card has sent."""
    lines = Path("/proc/self/net/dev").read_text().splitlines()
    return next(int(line.split(":")[1].split()[8]) for line in lines if line.strip().startswith("lo:"))
