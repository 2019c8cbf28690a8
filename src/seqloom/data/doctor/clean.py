"""Copies a text file and repairs its encoding, line ends and stray characters.

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
from seqloom.data.files import Recode, read_blocks

REPLACED = {"nul": "", "control_character": "", "line_separator": " ", "lone_cr": " "}
"""The replacement of a character of each kind."""

Clean = Callable[[str, Checks], tuple[str, list[str]]]
"""A line -> the repaired line, and the kinds of findings that were repaired."""
Log = Callable[..., None]
"""Called with the line, the kind of finding, the change and further details."""


def clean_text(text: str, checks: Checks) -> tuple[str, list[str]]:
    """Remove stray characters and normalise to form C; also returns the kinds of findings that were repaired."""
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
    """Do the same for a JSON object, whose strings may contain escaped characters."""
    if "\\" not in text:
        return clean_text(text, checks)
    kinds: list[str] = []

    def clean(value: Any) -> Any:
        if isinstance(value, str):
            value, found = clean_text(value, checks)
            kinds.extend(found)
        elif isinstance(value, list):
            value = [clean(item) for item in value]
        elif isinstance(value, dict):
            value = {clean(key): clean(item) for key, item in value.items()}
        return value

    try:
        item = clean(json.loads(text))
    except (ValueError, RecursionError):
        return text, []
    return (json.dumps(item, ensure_ascii=False), kinds) if kinds else (text, [])


@dataclass(slots=True)
class Diagnosis:
    """How a file is encoded."""

    bad_lines: dict[int, str] = field(default_factory=dict)
    """Lines that are not UTF-8, with the message about each."""
    has_other_letters: bool = False
    """Whether some line is UTF-8 and not ASCII."""
    ends_with_cr: bool = False
    """Whether CR alone ends the lines."""
    is_utf16: bool = False

    def recoding(self) -> tuple[Recode | None, str]:
        """The conversion that makes the file UTF-8 and its name, if one is needed."""
        if self.is_utf16:
            return partial(_transcode, encoding="utf-16"), "UTF-16"
        if self.bad_lines and not self.has_other_letters:
            return partial(_transcode, encoding="cp1252"), "Windows-1252"
        if self.bad_lines:
            return partial(_transcode, encoding="utf-8"), "UTF-8 with U+FFFD for each wrong byte"
        if self.ends_with_cr:
            return _end_lines, "text whose lines end with CR"
        return None, ""


def diagnose(path: str, max_line: int) -> Diagnosis:
    """Read a file to find out how it is encoded."""
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
    found = []

    def search(pieces: Iterable[bytes]) -> Iterator[bytes]:
        for piece in pieces:
            found.append(b"\n" in piece)
            yield b""

    list(read_blocks(path, 1, recode=search))
    return any(found)


def copy_clean(
    path: str, copy: Path, checks: Checks, max_line: int, log: Log, *, clean: Clean = clean_text, stand_in: str = ""
) -> None:
    """Write a clean copy; `stand_in` replaces lines that are too long."""
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
                elif fault.line == 0:  # the file as a whole is damaged; keep the readable part
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
