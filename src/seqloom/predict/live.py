"""Answers written while they are found: a line in, its answer bit by bit, and a line feed when it is whole."""

from collections import Counter
from collections.abc import Callable, Generator, Iterable
from typing import BinaryIO

from seqloom.errors import SeqloomError
from seqloom.predict.bulk import Failure, Outcome, count_flags
from seqloom.predict.forms import flatten
from seqloom.predict.job import Tell
from seqloom.predict.lines import Line
from seqloom.predict.results import Result

LiveVerb = Callable[[int, str], Generator[str, None, Result]]
"""The number of a line and its text; bits of an answer, and at the end what is to be known of it."""


def run_live(blocks: Iterable[list[Line]], verb: LiveVerb, stream: BinaryIO, tell: Tell) -> Counter[str]:
    """Answer lines one by one; what is written is in the end what all at once would have been."""
    counts: Counter[str] = Counter()
    for number, line in enumerate((line for block in blocks for line in block), start=1):
        outcome = _write(number, line, verb, stream)
        counts += count_flags([outcome])
        tell(number, [outcome])
    return counts


def _write(number: int, line: Line, verb: LiveVerb, stream: BinaryIO) -> Outcome:
    outcome: Outcome = Failure(line.kind, line.fault)
    if not line.fault:
        bits, held = verb(number, line.texts[0]), ""
        try:
            while True:
                bit = held + next(bits)
                held = bit[len(bit.removesuffix("\r")) :]  # may be the first half of a line break
                stream.write(flatten(bit.removesuffix("\r")).encode())
                stream.flush()
        except StopIteration as end:
            stream.write(held.encode())
            outcome = end.value
        except SeqloomError as error:
            outcome = Failure("refused", str(error))
    mark = f"[failed: {outcome.kind}]" if isinstance(outcome, Failure) else ""
    stream.write(f"{mark}\n".encode())
    stream.flush()
    return outcome
