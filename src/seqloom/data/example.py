"""One record of a corpus, and the place it came from."""

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Example:
    """A record as text: `values` is keyed by role.

    Plain text has `text`; parallel text `source` and `target`; labelled text `text`, for pairs also `second`, and
    `label`; tagged text `words` and `tags`, tuples of equal length.
    """

    values: Mapping[str, str | tuple[str, ...]]
    path: str
    line: int
