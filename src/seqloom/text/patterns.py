"""Regular expressions in somebody else's tokenizer.json: only those whose time is at most quadratic in the text.

The engine behind the `tokenizers` library backtracks. A repetition inside a repetition, `(a+)+`, takes time exponential
in the text, a row of them, `a*a*a*`, a high power of it, and a reference back anything at all. So a pattern is read
branch by branch (at `|`): each may have one open-ended repetition, of something that does not itself repeat or choose,
and beside it few choices. Branches that break this rule and are in wide use are known by name; their parts do not
compete.
"""

import re
from collections.abc import Iterator
from typing import Any

from seqloom.errors import DataError

WORD = (
    r" ?[\p{L}\p{M}]{1,128}(?:['’][\p{L}\p{M}]{1,128}){0,3}| ?\p{N}{1,128}| ?[^\s\p{L}\p{M}\p{N}]{1,128}"
    r"|\s{1,128}(?!\S)|\s{1,128}"
)
"""What BPE merges within: letters with their marks and apostrophes, numbers, other signs, each after at most one space,
and white space. GPT-2's pattern separates marks from letters, which breaks up Hindi or Yoruba words, and has English
contractions built in. The bounds keep a million letters in a row cheap."""

_KNOWN = {
    r" ?[^\s\p{L}\p{N}]+[\r\n]*",  # cl100k, LLaMA 3, Qwen
    r" ?[^\s\p{L}\p{N}]+[\r\n/]*",  # o200k
    r" ?[\p{P}\p{S}]+[\r\n]*",
    r"\s*[\r\n]+",
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+",
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*",
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?",
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?",
}
_MOST_WAYS = 256  # in which a branch may match at one place, its one open-ended repetition aside
_ENDLESS = 1 << 30
_MODIFIED = "a lazy or possessive repetition"
_LONGEST = 20_000


def check_patterns(spec: Any, name: str) -> None:
    """Refuse a tokeniser whose patterns could take forever."""
    for pattern in _find_patterns(spec):
        if len(pattern) > _LONGEST:
            raise DataError(f"{name}: a regular expression has {len(pattern)} characters; at most {_LONGEST} are taken")
        for branch in _split_branches(pattern):
            if branch not in _KNOWN and branch not in _OWN and (fault := _find_fault(branch)):
                raise DataError(
                    f"{name}: the regular expression {pattern[:80]!r} is refused because {fault}: "
                    "on some texts it could run forever"
                )


def _find_patterns(spec: Any) -> Iterator[str]:
    """Every `{"Regex": …}`; not in the vocabulary, which is large and has none."""
    waiting = [spec.get(part) for part in ("normalizer", "pre_tokenizer", "post_processor", "decoder")]
    while waiting:
        match waiting.pop():
            case {"Regex": str(pattern)}:
                yield pattern
            case dict(inner):
                waiting += inner.values()
            case list(inner):
                waiting += inner


def _split_branches(pattern: str) -> list[str]:
    """The parts between the outermost `|`."""
    parts, depth, start = [], 0, 0
    for place, atom in _read_atoms(pattern):
        depth += (atom == "(") - (atom == ")")
        if atom == "|" and depth == 0:
            parts.append(pattern[start:place])
            start = place + 1
    return [*parts, pattern[start:]]


def _find_fault(branch: str) -> str | None:
    """Why a branch is refused, if it is."""
    groups: list[int] = []  # of each open group: in how many ways it may match, 0 where without end
    last_ways, ways, before = 1, 1, ""
    open_ended = False
    for place, atom in _read_atoms(branch):
        if fault := _find_trick(branch, place, atom):
            return fault
        low, high = _measure_repeat(atom)
        if before == "(" and atom == "?":  # (?: and the like
            pass
        elif (
            high
            and before != _MODIFIED
            and _measure_repeat(before)[1]
            and (atom == "?" or (atom == "+" and before[:1] != "{"))
        ):
            atom = _MODIFIED  # lazy, possessive
        elif high:
            if before == _MODIFIED or _measure_repeat(before)[1] or (high > 1 and before == ")" and last_ways != 1):
                return "it repeats something that repeats or chooses"
            if high - low > _MOST_WAYS:
                if open_ended:
                    return "it has two open-ended repetitions in one branch"
                open_ended = True
                if groups:
                    groups[-1] = 0
            else:
                ways *= high - low + 1
                if groups:
                    groups[-1] *= high - low + 1
        elif atom == "(":
            groups.append(1)
        elif atom == ")" and groups:
            last_ways = groups.pop()
            if groups:
                groups[-1] *= last_ways
        elif atom == "|" and groups:
            ways *= 2
            groups[-1] *= 2
        if ways > _MOST_WAYS:
            return "it has too many choices in one branch"
        before = atom
    return None


def _find_trick(branch: str, place: int, atom: str) -> str | None:
    """What would make the engine read a pattern otherwise than it is read here, or do more than find."""
    if atom[:1] == "\\" and (atom[1:2].isdigit() or atom[1:2] in tuple("kgcCM")):
        return f"it has {atom!r}"
    if atom == "(" and re.match(r"\(\?([a-z-]*x|[#(~])", branch[place:]):
        return "it changes how it is read"
    if atom[:1] == "[" and (re.match(r"\[\^?\]", atom) or re.search(r"(?<!^)(?<!\\)\[(?!:)", atom)):
        return "it has a class inside a class"
    return None


def _measure_repeat(atom: str) -> tuple[int, int]:
    """How often a repetition goes at least and at most; (0, 0) if this is none."""
    match atom[:1]:
        case "*" | "+":
            return 0, _ENDLESS
        case "?":
            return 0, 1
        case "{" if len(atom) > 1:
            low, comma, high = atom[1:-1].partition(",")
            return int(low or 0), int(high or _ENDLESS) if comma else int(low)
    return 0, 0


def _read_atoms(pattern: str) -> Iterator[tuple[int, str]]:
    """The pattern in pieces: an escape, a class in brackets, a count in braces, or one character."""
    place = 0
    while place < len(pattern):
        size = 1
        match pattern[place]:
            case "\\":
                size = 2
                if pattern[place + 2 : place + 3] == "{" and pattern[place + 1 : place + 2] in ("p", "P", "x"):
                    size = _find(pattern, "}", place) - place + 1
            case "[":
                size = _measure_class(pattern, place)
            case "{":
                end = _find(pattern, "}", place)
                inside = pattern[place + 1 : end]
                if inside.replace(",", "", 1).isdecimal() and inside.isascii():
                    size = end - place + 1
        yield place, pattern[place : place + size]
        place += size


def _measure_class(pattern: str, start: int) -> int:
    """The length of `[…]`, classes inside it counted with it."""
    depth, place = 0, start
    while place < len(pattern):
        match pattern[place]:
            case "\\":
                place += 1
            case "[":
                depth += 1
            case "]":
                depth -= 1
        place += 1
        if not depth:
            break
    return place - start


def _find(text: str, what: str, start: int) -> int:
    found = text.find(what, start)
    return len(text) - 1 if found < 0 else found


_OWN = frozenset(_split_branches(WORD))
