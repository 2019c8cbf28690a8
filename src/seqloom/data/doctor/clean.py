"""A file of text -> the same lines without what can be repaired: wrong encodings, line ends and stray characters.

Line N of the copy is line N of the file, unless the file had no LF and its lines ended with CR alone.
"""

import codecs
import json
import unicodedata
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from seqloom.config.checks import Checks
from seqloom.data.doctor.characters import PATTERNS
from seqloom.data.files import Recode, as_stored, read_blocks

REPLACED = {"nul": "", "control_character": "", "line_separator": " ", "lone_cr": " "}
"""What takes the place of a character of these kinds."""

Clean = Callable[[str, Checks], tuple[str, list[str]]]
"""A line -> the line as it should be, and the kinds of what was repaired."""
Log = Callable[..., None]
"""Called with line, kind, change and what else is worth noting."""


def clean_text(text: str, checks: Checks) -> tuple[str, list[str]]:
    """A text without stray characters and in normal form C, and the kinds of what was repaired."""
    kinds = []
    if not (text.isascii() and text.isprintable()):
        for kind, replacement in REPLACED.items():
            if getattr(checks, kind) != "off" and PATTERNS[kind].search(text):
                text = PATTERNS[kind].sub(replacement, text)
                kinds.append(kind)
        if checks.not_nfc != "off" and not unicodedata.is_normalized("NFC", text):
            text = unicodedata.normalize("NFC", text)
            kinds.append("not_nfc")
    return text, kinds


def clean_json(text: str, checks: Checks) -> tuple[str, list[str]]:
    """The same for a JSON object, whose strings may hold characters as escapes."""
    if "\\" not in text:
        return clean_text(text, checks)
    kinds: list[str] = []

    def clean(value: Any) -> Any:
        match value:
            case str():
                value, found = clean_text(value, checks)
                kinds.extend(found)
                return value
            case list():
                return [clean(item) for item in value]
            case dict():
                return {clean(key): clean(item) for key, item in value.items()}
            case _:
                return value

    try:
        item = clean(json.loads(text))
    except (ValueError, RecursionError):
        return text, []
    return (json.dumps(item, ensure_ascii=False), kinds) if kinds else (text, [])


@dataclass(slots=True)
class Diagnosis:
    """What reading a file as it is stored showed."""

    bad_lines: dict[int, str] = field(default_factory=dict)
    """Lines that are not UTF-8, and what stands there."""
    has_other_letters: bool = False
    """Whether some line is UTF-8 and not ASCII."""
    ends_with_cr: bool = False
    """Whether CR alone ends the lines."""
    is_utf16: bool = False

    def recoding(self) -> tuple[Recode, str]:
        """How to read the file as UTF-8, and its name; no name: there is nothing to do."""
        if self.is_utf16:
            return partial(_transcode, encoding="utf-16"), "UTF-16"
        if self.bad_lines and not self.has_other_letters:
            return partial(_transcode, encoding="cp1252"), "Windows-1252"
        if self.bad_lines:
            return partial(_transcode, encoding="utf-8"), "UTF-8 with U+FFFD for each wrong byte"
        if self.ends_with_cr:
            return _end_lines, "text whose lines end with CR"
        return as_stored, ""


def diagnose(path: str, max_line: int) -> Diagnosis:
    """Read a file to see how it must be read."""
    diagnosis, lines, returns = Diagnosis(), 0, False
    for block in read_blocks(path, max_line):
        lines += len(block.lines)
        returns |= any("\r" in line for line in block.lines)
        for fault in block.faults:
            if fault.kind == "bad_utf8":
                diagnosis.bad_lines[fault.line] = fault.message
            diagnosis.is_utf16 |= fault.kind == "not_text" and "UTF-16" in fault.message
        diagnosis.has_other_letters |= any(
            not line.isascii() for n, line in enumerate(block.lines, block.first) if n not in diagnosis.bad_lines
        )
    diagnosis.ends_with_cr = lines == 1 and returns and not _has_line_feed(path)
    return diagnosis


def _has_line_feed(path: str) -> bool:
    found = False

    def look(pieces: Iterable[bytes]) -> Iterator[bytes]:
        nonlocal found
        for piece in pieces:
            found |= b"\n" in piece
            yield b""

    list(read_blocks(path, 1, recode=look))
    return found


def copy_clean(
    path: str, copy: Path, checks: Checks, max_line: int, log: Log, *, clean: Clean = clean_text, stand_in: str = ""
) -> None:
    """Write a clean copy, with `stand_in` for lines that are too long."""
    diagnosis = diagnose(path, max_line)
    recode, name = diagnosis.recoding()
    for line, message in diagnosis.bad_lines.items():
        log(line, "bad_utf8", "repaired", before=message, after=f"read as {name}")
    if name and not diagnosis.bad_lines:
        log(0, "not_text" if diagnosis.is_utf16 else "lone_cr", "repaired", after=f"read as {name}")
    with copy.open("w", encoding="utf-8", newline="\n") as out:
        for block in read_blocks(path, max_line, recode=recode):
            for fault in block.faults:
                if fault.kind in ("bom", "crlf"):
                    log(fault.line, fault.kind, "repaired", lines=fault.count)
                elif fault.line == 0:  # damage to the file as a whole; what can be read is kept
                    log(0, fault.kind, "cut", before=fault.message)
            endless = {fault.line: fault.message for fault in block.faults if fault.kind == "endless_line"}
            for number, before in enumerate(block.lines, block.first):
                if number in endless:
                    log(number, "endless_line", "emptied", before=endless[number], after=stand_in)
                    out.write(stand_in + "\n")
                    continue
                text, kinds = clean(before, checks)
                for kind in kinds:
                    log(number, kind, "repaired", before=before, after=text)
                out.write(text + "\n")


def _transcode(pieces: Iterable[bytes], encoding: str) -> Iterator[bytes]:
    for text in codecs.iterdecode(pieces, encoding, "replace"):
        yield text.encode()


def _end_lines(pieces: Iterable[bytes]) -> Iterator[bytes]:
    return (piece.replace(b"\r", b"\n") for piece in pieces)
