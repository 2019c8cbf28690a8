"""Where each axis of bench/growth.py ends: what runs out first, at which size, with the arithmetic."""

from collections.abc import Callable

from growth_fits import Fit, Grown, Line, MissingError, spell_bytes, spell_size, spell_time

MEMORY, PATIENCE = 16e9, 60.0  # of one machine; for one step
NETWORK = 1.25e9  # bytes a second: 10 Gbit/s
FORMERLY = {"ALiBi": "6.8", "relative": "7.8"}  # GB, for one text of 8,000 tokens
COMPARED, INDEXED = 1 << 24, 28  # records that the doctor compares with each other, and bytes for each of them


def wall_of_steps(time: Fit | Line, memory: Fit | Line, unit: str) -> str:
    """What ends first where one step grows: patience, or memory."""
    slow, full = time.reach(PATIENCE), memory.reach(MEMORY / 1e6)
    first, other = ("Time", "memory") if slow < full else ("Memory", "time")
    return (
        f"{first} runs out before {other}. By the fits, a step takes a minute of one thread at {spell_size(slow)} "
        f"{unit} (60 s = {time}), and 16 GB are full at {spell_size(full)} (16,000 MB = {memory})."
    )


def wall_of_length(grown: Grown) -> str:
    """Time, quadratic or not; and what positions that act on the scores no longer cost."""
    sizes = [{*grown.sizes("length", f"training, {kind}")} for kind in ("rotary", *FORMERLY)]
    largest = max(set.intersection(*sizes), default=0)
    times = {kind: grown.get("length", f"training, {kind}", largest, "seconds") for kind in ("rotary", *FORMERLY)}
    slower = " and ".join(f"{times[kind] / times['rotary']:.1f} ({kind})" for kind in FORMERLY)
    kinds = ("window of 256", "LSTM")
    straight = [f"{kind} n^{grown.fit('length', f'training, {kind}', 'seconds').exponent:.2f}" for kind in kinds]
    scored = {kind: grown.get("length", f"scoring, {kind}", 8192, "peak") for kind in ("rotary", *FORMERLY)}
    time = grown.fit("length", "training, rotary", "seconds")
    memory = grown.line("length", "training, rotary", "peak")
    megabytes = ", ".join(f"{kind} {peak:.0f} MB" for kind, peak in scored.items())
    return (
        f"{wall_of_steps(time, memory, 'tokens with rotary positions')} At {largest:,} tokens a "
        f"step takes {slower} times as long as with rotary positions. What stays near linear in time: "
        f"{', '.join(straight)}. No position encoding costs quadratic memory: 8,192 tokens are scored with "
        f"{megabytes}. ALiBi and relative positions formerly took {' and '.join(FORMERLY.values())} GB for 8,000."
    )


def wall_of_model(grown: Grown, axis: str, unit: str) -> str:
    """The same for the size of a model, with what a weight costs."""
    fit = grown.fit if axis == "width" else grown.line
    time, memory = (fit(axis, "Transformer", key) for key in ("seconds", "peak"))
    (_, less), (_, more) = grown.points(axis, "Transformer", "weights")[-2:]
    (_, before), (largest, after) = ((size, peak) for size, peak in grown.points(axis, "Transformer", "peak")[-2:])
    each = 1e6 * (after - before) / (more - less)
    return (
        f"{wall_of_steps(time, memory, unit)} Up to {largest:,}, the largest that was measured, {more - less:,.0f} "
        f"more weights take {after - before:,.0f} MB more, {each:.0f} bytes each: 4 for the weight, 4 for its "
        "gradient, 4 or 8 for what the optimizer keeps, and the rest is what the batch and the update need meanwhile."
    )


def wall_of_preparation(grown: Grown) -> str:
    """What one process does alone."""
    parts = []
    for part in ("check", "learn the tokeniser", "encode", "hand out chunks"):
        time = grown.fit("preparation", part, "seconds")
        pace = max(time.sizes) / grown.last("preparation", part, "seconds")
        parts.append(f"{part} {spell_size(pace)} pairs/s (x^{time.exponent:.2f})")
    learn = grown.fit("preparation", "learn the tokeniser", "peak")
    return (
        f"Patience with one process. One thread's pace at the largest size: {'; '.join(parts)}. A cluster can encode; "
        "checking and learning the tokeniser stay with the command, and so does handing out. Learning the tokeniser "
        f"needs memory for each different word, here as x^{learn.exponent:.2f}: 16 GB are full at "
        f"{spell_size(learn.reach(MEMORY / 1e6))} pairs, and text whose words repeat goes further. Checking keeps "
        f"{INDEXED} bytes a pair up to 2²⁴ = {COMPARED:,} pairs, {spell_bytes(INDEXED * COMPARED)}, and nothing for "
        "those after them, which are not compared with each other."
    )


def wall_of_corpus(grown: Grown) -> str:
    """Memory of the index, in every process."""
    sizes = grown.sizes("corpus", "pairs")
    largest, least = max(sizes, default=0), min(sizes, default=0)
    keys = ("pairs", "peak", "kept", "seconds", "open", "jump")
    pairs, peak, kept, opened, hashed, jump = (grown.get("corpus", "pairs", largest, key) for key in keys)
    full, near = MEMORY * pairs / (1e6 * peak), grown.get("corpus", "pairs", least, "jump")
    return (
        f"Memory. Every process holds {1e6 * kept / pairs:.0f} bytes a pair ({kept:,.0f} MB / {pairs:,.0f}: the "
        "lengths of both rows, the tokens in them, the number of the record), and up to "
        f"{1e6 * peak / pairs:.0f} while it opens the corpus. So 16 GB are full at {spell_size(full)} pairs, divided "
        f"by the processes of the machine. Opening takes {1e6 * opened / pairs:.2f} s for a million pairs, "
        f"{hashed / opened:.0%} of it to hash the shards. Finding the samples of a far step does not grow: "
        f"{spell_time(near)} among {least:,} pairs, {spell_time(jump)} among {largest:,}. A batch takes longer where "
        "its pairs come from more shards, and they come from no more shards than there are pairs in it."
    )


def wall_of_bulk(grown: Grown) -> str:
    """How many workers one command can feed."""
    part, sizes = "hand out lines", grown.sizes("bulk", "hand out lines")
    translated = max(grown.sizes("bulk", "translate"), default=0)
    translate = translated / grown.get("bulk", "translate", translated, "seconds")
    alone = max(sizes, default=0) / grown.last("bulk", part, "seconds")
    handed, answered = (describe_memory(grown, one) for one in ("hand out lines", "translate"))
    return (
        f"The command that reads, hands out and writes. One thread translates {translate:,.0f} lines/s, and the "
        f"command hands out and collects {alone:,.0f}, so more than {alone:,.0f} / {translate:,.0f} = "
        f"{alone / translate:,.0f} such workers gain nothing; Ray's own work makes it fewer. Memory for handing out "
        f"levels off: {handed}. Translating took {answered}; no longer job was tried here."
    )


def describe_memory(grown: Grown, part: str) -> str:
    """The peaks of a bulk job at its two largest sizes."""
    return " and ".join(f"{peak:.0f} MB for {size:,} lines" for size, peak in grown.points("bulk", part, "peak")[-2:])


def wall_of_processes(grown: Grown) -> str:
    """The sum of the gradients."""
    one, four = (grown.get("processes", "Transformer", size, "seconds") for size in (1, 4))
    weights = grown.get("processes", "Transformer", 1, "weights")
    sent, wanted, each = grown.get("processes", "Transformer", 4, "sent"), 2 * 3 * 4 * weights, 8 * weights
    return (
        f"The network. To sum the gradients of P = {weights:,.0f} weights, N processes send 2·(N − 1)·4·P bytes a "
        f"step: {spell_bytes(wanted)} for N = 4, where {spell_bytes(sent)} were counted. So each sends almost 8·P = "
        f"{spell_bytes(each)}, whatever N is. At 10 Gbit/s that takes {spell_time(each / NETWORK)}, and the "
        f"{spell_time(one)} of this step, divided by N, are as short at N = {one * NETWORK / each:,.0f}: with more "
        f"processes, batches have to grow. Here 4 processes spent {four / one:.2f} times the processor time of one on "
        "the same batch, waiting not counted."
    )


WALLS: dict[str, Callable[[Grown], str]] = {
    "length": wall_of_length,
    "width": lambda grown: wall_of_model(grown, "width", "coordinates"),
    "depth": lambda grown: wall_of_model(grown, "depth", "layers"),
    "vocabulary": lambda grown: wall_of_model(grown, "vocabulary", "tokens"),
    "preparation": wall_of_preparation,
    "corpus": wall_of_corpus,
    "bulk": wall_of_bulk,
    "processes": wall_of_processes,
}


def describe_wall(grown: Grown, axis: str) -> str:
    """A paragraph, or that a number is missing."""
    try:
        return f"**The wall.** {WALLS[axis](grown)}"
    except MissingError as missing:
        return f"**The wall** is not known yet: {missing} was not measured."
