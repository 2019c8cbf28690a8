"""A verb over many lines: line N in is line N out, whatever happens to it.

A line that fails, by itself or in the model, is found by halving its window until it stands alone; the others have
their answers all the same.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

from seqloom.errors import SeqloomError
from seqloom.predict.lines import Line
from seqloom.predict.results import Result

Verb = Callable[..., Sequence[Result]]
"""The numbers of some lines and a list of texts for each column of them; one result for each line."""
Ask = Callable[..., Sequence[Result]]
"""A verb that is told which model to ask, which comes first: all of it can be sent to another machine."""


@dataclass(frozen=True, slots=True)
class Failure:
    """Why a line has no answer."""

    kind: str
    message: str


Outcome = Result | Failure
Answerer = Callable[[Iterable[list[Line]], int], Iterator[tuple[list[Line], list[Outcome]]]]
"""Windows of lines and the number of their first line; each window with its outcomes, in order."""


def answer_in_turn(verb: Verb) -> Answerer:
    """One window after the other, here."""

    def answer_windows(windows: Iterable[list[Line]], first: int) -> Iterator[tuple[list[Line], list[Outcome]]]:
        for window in windows:
            yield window, answer(window, verb, first)
            first += len(window)

    return answer_windows


def answer(lines: Sequence[Line], verb: Verb, first: int = 1) -> list[Outcome]:
    """The outcome of each line; `first` is the number of the first."""
    numbers = [number for number, line in enumerate(lines, first) if not line.fault]
    answers = iter(_try(numbers, [lines[number - first] for number in numbers], verb))
    return [Failure(line.kind, line.fault) if line.fault else next(answers) for line in lines]


def _try(numbers: Sequence[int], lines: Sequence[Line], verb: Verb) -> list[Outcome]:
    if not lines:
        return []
    try:
        columns = zip(*(line.texts for line in lines), strict=True)
        return list(verb(numbers, *(list(column) for column in columns)))
    except SeqloomError as error:
        if len(lines) == 1:
            return [Failure("refused", str(error))]
    half = len(lines) // 2
    return _try(numbers[:half], lines[:half], verb) + _try(numbers[half:], lines[half:], verb)


def count_flags(outcomes: Iterable[Outcome]) -> Counter[str]:
    """How many lines failed, were split, and so on."""
    counts: Counter[str] = Counter()
    for outcome in outcomes:
        counts.update(("failed",) if isinstance(outcome, Failure) else outcome.flags)
    return counts


def describe_flags(first: int, outcomes: Iterable[Outcome]) -> Iterator[str]:
    """A sentence for each line that failed or has a flag; `first` is the number of the first line."""
    for number, outcome in enumerate(outcomes, start=first):
        match outcome:
            case Failure(kind, message):
                yield f"line {number}: failed: {kind}: {message}"
            case Result(flags=flags) if "split" in flags:
                yield f"line {number}: too long for the model: processed in {outcome.pieces} pieces"
            case Result(flags=flags) if "shortened" in flags:
                yield f"line {number}: too long for the model: it read the last of {outcome.pieces} pieces"
