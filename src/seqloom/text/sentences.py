"""Where sentences end: by sentencex's rules for hundreds of languages, and by the spaces of tokenised text.

    find_sentences("Ich habe Hunger. Wo ist Dr. Kern?", "de") → [(0, 16), (17, 33)]

A part without a letter is no sentence: the closing quote in `he said " hi . "` belongs to the sentence before it, the
number in `1. Stir.` to the one after it.
"""

import html
import re
from itertools import pairwise

_SPACED_STOP = re.compile(r"(?<=\s)[.!?]\s+(?=[^\W\d_])")
"""The end of a sentence in tokenised text, where abbreviations keep their full stop."""
_ATTACHED_STOP = re.compile(r"(?<=\w)\.\s+(?=\w)")
_LETTER = re.compile(r"[^\W\d_]")


def find_sentences(text: str, language: str | None = None) -> list[tuple[int, int]]:
    """The start and end of each sentence, without the white space around it; none for a blank text.

    `language` is a BCP 47 tag. If it is not known, the rules are the English ones, but for `bzw. steht`: in a text that
    begins with a capital or ends with a spaced stop, a full stop before a small letter ends an abbreviation.
    """
    starts = _find_starts(text, language or "en")
    if language is None and (text.lstrip()[:1].isupper() or text.rstrip()[-2:-1].isspace()):
        starts -= {match.end() for match in _ATTACHED_STOP.finditer(text) if text[match.end()].islower()}
    bounds = [*sorted(starts), len(text)]
    spans: list[tuple[int, int]] = []
    first = 0
    for start, end in pairwise(bounds):
        part = html.unescape(text[start:end])  # tokenised text often has &quot; for a quote
        if _LETTER.search(part):
            spans.append((first, end))
        elif spans and not part[:1].isdecimal():
            spans[-1] = (spans[-1][0], end)
        else:  # it belongs to the sentence after it
            continue
        first = end
    if first < len(text):
        spans = [*spans[:-1], (spans[-1][0] if spans else 0, len(text))]
    stripped = ((end - len(text[start:end].lstrip()), start + len(text[start:end].rstrip())) for start, end in spans)
    return [(start, end) for start, end in stripped if start < end]


def _find_starts(text: str, language: str) -> set[int]:
    from sentencex import segment  # type: ignore[import-untyped]  # most commands split nothing

    starts, place = {0}, 0
    for part in segment(language.partition("-")[0].lower(), text):
        starts.add(place)
        place += len(part)
    if place != len(text):  # these are not places of this text
        return {0}
    if text == text.lower():  # the rules of some languages wait for a capital, which lower-cased text does not have
        starts |= {match.end() for match in _SPACED_STOP.finditer(text)}
    return starts
