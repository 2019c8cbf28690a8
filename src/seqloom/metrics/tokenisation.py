"""Is a text cut into tokens? Scores of tokenised text against text as people write it mean nothing.

A line shows that it is tokenised by a full stop or comma with a space before it, a part of a word that stands alone
(n't), an escaped apostrophe, or the marks of subwords (@@, ▁); and that it is not, by a full stop or comma right after
a word. A side is what most of the lines that show anything show. A side without any such line is not judged: it may be
text without punctuation, or a model that has not learned to write; but marks that no person writes need no opposite.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass

from seqloom.errors import DataError

_WRITTEN_BY_NOBODY = r"@@(?= |$)|@-@|▁|&(?:apos|quot|#91|#93|#124);"
_TOKENISED = re.compile(rf"(?<=\w) (?:[.,](?= |$)|n't\b|'(?:s|re|ve|ll|d|m)\b)|{_WRITTEN_BY_NOBODY}")
_CERTAIN = re.compile(_WRITTEN_BY_NOBODY)
_WRITTEN = re.compile(r"\w[.,](?= |$)")
_LEAST = 0.1  # of the lines must show it


@dataclass(frozen=True)
class _Side:
    """What the lines of one side show."""

    size: int
    tokenised: list[int]
    """The lines, from 0, that are tokenised."""
    written: list[int]
    certain: bool
    """Whether marks that nobody writes show it in most of them."""

    @property
    def is_tokenised(self) -> bool:
        return len(self.tokenised) > max(len(self.written), _LEAST * self.size)

    @property
    def is_written(self) -> bool:
        return len(self.written) > max(len(self.tokenised), _LEAST * self.size)


def refuse_mismatch(outputs: Sequence[str], references: Sequence[str]) -> None:
    """Raise where one side is tokenised and the other is not."""
    sides = {"output": (_look(outputs), outputs), "reference": (_look(references), references)}
    for one, other in (("output", "reference"), ("reference", "output")):
        (side, lines), (opposite, written) = sides[one], sides[other]
        if side.is_tokenised and (opposite.is_written or (side.certain and not opposite.tokenised)):
            number = side.tokenised[0]
            shown = opposite.written[0] if opposite.written else number
            raise DataError(
                f"the {one}s are tokenised, the {other}s are not, and a score would mean nothing: {one} {number + 1} "
                f'is "{_show(lines[number], _TOKENISED)}", {other} {shown + 1} is "{_show(written[shown], _WRITTEN)}". '
                f"Detokenise the {one}s; or, if both are to be taken as they are, set `tokenized`"
            )


def find_tokenised(texts: Sequence[str]) -> int | None:
    """The number, from 1, of a line that shows that the texts are tokenised; None where they are not."""
    side = _look(texts)
    return side.tokenised[0] + 1 if side.is_tokenised else None


def _look(texts: Sequence[str]) -> _Side:
    tokenised = [number for number, text in enumerate(texts) if _TOKENISED.search(text)]
    shown = set(tokenised)
    written = [number for number, text in enumerate(texts) if number not in shown and _WRITTEN.search(text)]
    certain = sum(_CERTAIN.search(texts[number]) is not None for number in tokenised)
    return _Side(len(texts), tokenised, written, 2 * certain > len(tokenised))


def _show(text: str, pattern: re.Pattern[str]) -> str:
    """The text around the match."""
    found = pattern.search(text)
    start = max(0, (found.start() if found else 0) - 30)
    return ("…" if start else "") + text[start : start + 60] + ("…" if len(text) > start + 60 else "")
