"""Text that the `tokenizers` library does not take, explained."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from seqloom.errors import DataError


@contextmanager
def refusing(texts: Sequence[Any]) -> Iterator[None]:
    """Around a call of the library with some texts: turn its complaint into one that says which text and where."""
    try:
        yield
    except Exception as error:  # the library raises TypeError for lone surrogates and Exception for the rest
        raise DataError(explain(texts) or f"the tokeniser does not take the text: {error}") from None


def explain(texts: Sequence[Any]) -> str:
    """What is wrong with the first text that is not valid Unicode; empty if all are."""
    if isinstance(texts, str):
        return "expected a list of texts, not a single text"
    for index, text in enumerate(texts):
        where = f"text {index + 1} of {len(texts)}" if len(texts) > 1 else "the text"
        if not isinstance(text, str):
            return f"{where} is {type(text).__name__}, not a string"
        try:
            text.encode("utf-8")
        except UnicodeEncodeError as error:
            return (
                f"{where} has half of a surrogate pair, U+{ord(text[error.start]):04X}, at character"
                f" {error.start + 1}, which no UTF-8 text can hold; whatever made the text decoded it wrongly"
            )
    return ""
