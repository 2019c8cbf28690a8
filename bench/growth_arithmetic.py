"""From what bench/growth.py measured to a billion pairs of sentences on a cluster: each number with its arithmetic."""

from collections.abc import Callable, Iterator

from growth_fits import Grown, MissingError, spell_bytes, spell_size, spell_time
from growth_walls import NETWORK
from results import draw_table

PAIRS, CORES = 1e9, 100
SHARD = 1 << 16
BATCH = 4096  # tokens of a step in each process

Row = tuple[str, str, str]
"""The measured row, the arithmetic, and what comes of it."""


def take_share(grown: Grown, axis: str, variant: str, key: str) -> tuple[int, float]:
    """The largest size, and what one of its pairs or lines takes."""
    size = max(grown.sizes(axis, variant), default=0)
    return size, grown.get(axis, variant, size, key) / max(1, size)


def count_single(grown: Grown) -> Iterator[Row]:
    """What one process does, before anything can be spread."""
    size, each = take_share(grown, "preparation", "check", "bytes")
    yield f"check, {size:,}", f"{each:.0f} bytes a pair · 10⁹", f"{spell_bytes(each * PAIRS)} of text"
    size, each = take_share(grown, "preparation", "check", "seconds")
    yield f"check, {size:,}", f"{1e6 * each:.1f} µs a pair · 10⁹", f"{spell_time(each * PAIRS)} to check the text"
    time, memory = (grown.fit("preparation", "learn the tokeniser", key) for key in ("seconds", "peak"))
    for words, number in (("10⁹", PAIRS), ("10⁷", 1e7)):
        arithmetic = f"{time.factor:.2g} s · ({words})^{time.exponent:.2f}; {memory.factor:.2g} MB · ({words})^"
        needed = f"{spell_time(time.predict(number))} and {spell_bytes(1e6 * memory.predict(number))}"
        whom = "all pairs" if number == PAIRS else "10⁷ of them, named in `tokenizer.path`"
        row = f"learn the tokeniser, to {max(time.sizes):,}"
        yield row, f"{arithmetic}{memory.exponent:.2f}", f"{needed} to learn the tokeniser of {whom}"


def count_encoding(grown: Grown) -> Iterator[Row]:
    """Text to shards, on all cores."""
    size, each = take_share(grown, "preparation", "encode", "seconds")
    yield (
        f"encode, {size:,}",
        f"{1e6 * each:.1f} µs a pair · 10⁹ / {CORES}",
        f"{spell_time(each * PAIRS / CORES)} on {CORES} cores, if they are fed",
    )
    size, alone = take_share(grown, "preparation", "hand out chunks", "seconds")
    yield (
        f"hand out chunks, {size:,}",
        f"{1e6 * alone:.1f} µs a pair · 10⁹",
        f"{spell_time(alone * PAIRS)} to feed them: one command keeps {each / alone:.1f} workers busy, so divide the "
        "files among several runs of `seqloom prepare`",
    )
    size, disk = take_share(grown, "preparation", "encode", "disk")
    yield (
        f"encode, {size:,}",
        f"{disk:.0f} bytes a pair · 10⁹; 10⁹ / {SHARD:,}",
        f"{spell_bytes(disk * PAIRS)} of shards in {PAIRS / SHARD:,.0f} files",
    )


def count_index(grown: Grown) -> Iterator[Row]:
    """What every process of a training holds and does before its first step."""
    size = max(grown.sizes("corpus", "pairs"), default=0)
    keys = ("pairs", "kept", "peak", "seconds", "jump")
    pairs, kept, peak, seconds, jump = (grown.get("corpus", "pairs", size, key) for key in keys)
    held, most = 1e6 * kept / pairs, 1e6 * peak / pairs
    yield (
        f"pairs, {size:,}",
        f"{held:.1f} bytes a pair · 10⁹; {most:.1f} while opening",
        f"{spell_bytes(held * PAIRS)} in every process, {spell_bytes(most * PAIRS)} at its start: one process for each "
        "machine, with all its cores as threads",
    )
    yield (
        f"pairs, {size:,}",
        f"{1e9 * seconds / pairs:.0f} ns a pair · 10⁹",
        f"{spell_time(seconds / pairs * PAIRS)} of processor time to open the corpus, at every start and resumption; "
        f"any step is then found in {spell_time(jump)}",
    )


def count_training(grown: Grown) -> Iterator[Row]:
    """An epoch with data parallelism."""
    seconds, weights = (grown.get("processes", "Transformer", 1, key) for key in ("seconds", "weights"))
    tokens = grown.last("corpus", "pairs", "tokens")
    steps, sent = PAIRS * tokens / BATCH, 8 * weights * (CORES - 1) / CORES
    exchange, million = sent / NETWORK, weights / 1e6
    yield (
        "processes, 1; pairs",
        f"10⁹ · {tokens:.1f} tokens / {BATCH:,} = {spell_size(steps)} steps · {seconds:.1f} s",
        f"{spell_time(steps * seconds)} of one core for an epoch of a model of {million:.1f} million weights",
    )
    yield (
        "processes, 1",
        f"8 · {million:.1f} million · {CORES - 1}/{CORES} = {spell_bytes(sent)} a step and process; at 10 Gbit/s "
        f"{spell_time(exchange)}",
        f"{spell_bytes(sent * steps / CORES)} leave each of {CORES} processes in an epoch",
    )
    yield (
        "processes, 1",
        f"{spell_size(steps)} steps / {CORES} · ({seconds:.1f} s + {spell_time(exchange)})",
        f"{spell_time(steps / CORES * (seconds + exchange))} for the epoch on {CORES} cores, {BATCH:,} tokens a step "
        f"each: batches of {CORES * BATCH:,} tokens, larger than any that was tried here",
    )


def count_translation(grown: Grown) -> Iterator[Row]:
    """A billion lines through a bulk job."""
    size, each = take_share(grown, "bulk", "translate", "seconds")
    yield (
        f"translate, {size:,}",
        f"{1e3 * each:.2f} ms a line · 10⁹ / {CORES}",
        f"{spell_time(each * PAIRS / CORES)} for {CORES} workers, 12 tokens a line",
    )
    size, alone = take_share(grown, "bulk", "hand out lines", "seconds")
    enough = "less: the workers decide" if alone < each / CORES else "more: divide the file among several jobs"
    yield (
        f"hand out lines, {size:,}",
        f"{1e6 * alone:.1f} µs a line · 10⁹",
        f"{spell_time(alone * PAIRS)} for the command to read, hand out and write, which is {enough}",
    )


PARTS: dict[str, Callable[[Grown], Iterator[Row]]] = {
    "one process": count_single,
    "encoding": count_encoding,
    "the index": count_index,
    "training": count_training,
    "bulk translation": count_translation,
}


def write_arithmetic(grown: Grown) -> str:
    """The table, with what is missing left open."""
    rows = []
    for name, count in PARTS.items():
        try:
            rows += [[name, *row] for row in count(grown)]
        except MissingError as missing:
            rows.append([name, str(missing), "", "not measured"])
    return draw_table(["what", "measured row", "arithmetic", "extrapolated"], rows)
