"""What a request may ask for, checked before any work is done for it."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from seqloom.serve.faults import RefusalError


@dataclass(frozen=True)
class Limits:
    """How much one request may ask for; each has an option of the command line."""

    body: int = 4 << 20
    """Bytes of a request."""
    items: int = 1024
    """Texts of a request."""
    characters: int = 200_000
    """Characters of all its texts."""
    tokens: int = 2048
    """Tokens of an answer, where the request says how many."""
    beams: int = 16
    """Beams of a search."""
    answers: int = 16
    """Answers to each text."""
    seconds: int = 120
    """How long an answer may take."""

    def check_texts(self, texts: Sequence[Any]) -> None:
        """Refuse too many texts, too many characters, and what is not text."""
        if len(texts) > self.items:
            raise RefusalError(f"{len(texts):,} texts, but a request may have {self.items:,}; send fewer", status=413)
        total = 0
        for number, text in enumerate(texts, start=1):
            for part in (text,) if isinstance(text, str) else text:
                total += len(part)
                _check_text(number, part)
        if total > self.characters:
            raise RefusalError(
                f"the texts have {total:,} characters, but a request may have {self.characters:,}; send less",
                status=413,
            )

    def check_search(self, search: dict[str, Any]) -> None:
        """Refuse a search that is wider or longer than allowed."""
        for name, most in (("beam", self.beams), ("nbest", self.answers), ("max_length", self.tokens)):
            value = search.get(name)
            if isinstance(value, int) and value > most:
                raise RefusalError(f"{name}: {value} is more than the {most} that this server allows")
        if isinstance(search.get("min_length"), int) and search["min_length"] > self.tokens:
            raise RefusalError(f"min_length: {search['min_length']} is more than the {self.tokens} allowed here")
        spelled = [*search.get("constraints", ()), *search.get("avoid", ()), search.get("prefix", "")]
        self.check_texts(spelled)


def _check_text(number: int, text: str) -> None:
    """Refuse what the command line refuses as well: U+0000, and halves of characters, which no encoding can write."""
    place = text.find("\0")
    if place >= 0:
        raise RefusalError(f"text {number}: U+0000 at character {place + 1}; remove it")
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise RefusalError(f"text {number}: half of a character (a surrogate) at character {error.start + 1}") from None
