"""What the data doctor searches for, and how severe each finding is.

These are the findings that a person may overrule. What makes a record unreadable (a missing file, bytes that are not
UTF-8, unequal line counts, a missing column) is always an error: no setting could make training on it right.
"""

from typing import Literal

from seqloom.config.base import Section

Severity = Literal["error", "warn", "off"]
"""`error`: training refuses. `warn`: counted and shown. `off`: not looked for."""


class Checks(Section):
    """The severity of each finding: `data.checks.NAME = "error" | "warn" | "off"`."""

    one_sided_blank: Severity = "error"
    """One side of a pair is blank while the other is not, or a labelled text is blank."""
    blank: Severity = "warn"
    """A blank line: an empty record in plain text, an empty pair in parallel text, no record in a table."""
    nul: Severity = "error"
    """U+0000 inside text: most often UTF-16 or binary data read as UTF-8."""
    control_character: Severity = "warn"
    """A control character other than tab inside text."""
    line_separator: Severity = "warn"
    """A character that other tools take for a line end: VT, FF, FS, GS, RS, U+0085, U+2028, U+2029, or LF in a cell."""
    crlf: Severity = "warn"
    """Lines that end with CR LF; the CR is not part of the text."""
    lone_cr: Severity = "warn"
    """A CR inside a line; it is kept as text, while other tools break the line there."""
    bom: Severity = "warn"
    """A byte order mark at the start of a file; it is not part of the text."""
    invisible_character: Severity = "warn"
    """A zero-width or direction character: U+200B, U+2060, U+FEFF, U+00AD, U+202A-202E, U+2066-2069."""
    replacement_character: Severity = "warn"
    """U+FFFD: text was lost in an earlier conversion."""
    private_character: Severity = "warn"
    """A private-use character, or a code point that is not a character."""
    mojibake: Severity = "warn"
    """UTF-8 that was once read as Windows-1252 and written again, such as `Ã©` for `é`."""
    entity: Severity = "warn"
    """A character written as an entity, such as `&apos;` or `&#39;`."""
    not_nfc: Severity = "warn"
    """Text that is not in Unicode normal form C: letters that look the same have two spellings."""
    long_record: Severity = "warn"
    """A text longer than `data.max_length` characters."""
    length_ratio: Severity = "warn"
    """A pair whose lengths differ by more than `data.max_ratio`, after allowing for the usual ratio of the corpus."""
    untranslated: Severity = "warn"
    """A pair whose target is the same as its source."""
    misaligned: Severity = "warn"
    """Lines that fit far better when one side is shifted, although both files have the same number of lines."""
    duplicate: Severity = "warn"
    """A record that is in the same split already."""
    overlap: Severity = "warn"
    """A record of the validation or test split whose input is also in the training split."""
    conflicting_label: Severity = "warn"
    """A text that is in the same split already with another label."""
    unknown_label: Severity = "error"
    """A label of the validation or test split that the training split does not have."""
    unknown_tag: Severity = "warn"
    """A tag of the validation or test split that the training split does not have."""
    single_label: Severity = "error"
    """Every training record has the same label: there is nothing to learn."""
    many_labels: Severity = "warn"
    """More than half of the training records have a label of their own: is that the label column?"""
    mixed_tokenisation: Severity = "warn"
    """Some of the text is tokenised (`a word .`) and some is not (`a word.`)."""
