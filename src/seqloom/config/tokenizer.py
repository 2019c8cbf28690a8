"""How text becomes tokens. `tokenizer = "characters"` is short for `{kind = "characters"}`."""

from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, Tag

from seqloom.config.base import Positive, Rate, Section, chosen_by, from_word


class _Normalised(Section):
    normalisation: Literal["nfc", "nfkc", "none"] = "nfc"
    """Unicode form that text is brought to: "nfc" makes equal-looking text equal, "nfkc" also folds compatibility
    characters (ﬁ to fi, ２ to 2, full-width to plain) and cannot be undone, "none" keeps every code point."""
    lowercase: bool = False
    """Fold upper case into lower case; it cannot be undone."""


class Characters(_Normalised):
    """A token a character. Characters that the training text lacks are spelled in bytes, so nothing is lost."""

    kind: Literal["characters"] = "characters"
    min_frequency: Positive = 1
    """Characters seen less often are spelled in bytes too."""


class Bytes(_Normalised):
    """A token a byte of UTF-8: nothing to train, nothing lost, long sequences."""

    kind: Literal["bytes"] = "bytes"


class Words(_Normalised):
    """A token a word. Lost: words outside the vocabulary (all become [UNK]) and how words were spaced."""

    kind: Literal["words"] = "words"
    size: Annotated[int, Field(ge=8)] = 30_000
    """Tokens at most, special ones included; the most frequent words win."""
    min_frequency: Positive = 2
    """Words seen less often are left out; above 1, training meets [UNK] and learns what to do with it."""
    punctuation: Literal["split", "keep"] = "split"
    """Punctuation as words of its own, or as part of the word it touches (for text that is tokenised already)."""


class Bpe(_Normalised):
    """Byte-level BPE: frequent sequences of bytes are merged, step by step, into tokens. Nothing is lost."""

    kind: Literal["bpe"] = "bpe"
    size: Annotated[int, Field(ge=263)] = 8_000
    """Tokens at most: 7 special ones, 256 bytes, the rest merges."""
    min_frequency: Positive = 2
    """Pairs seen less often are not merged."""
    dropout: Rate = 0.0
    """Share of merges left out at random while a model trains (BPE dropout), so that it meets many spellings of a
    word; 0.1 is usual for little data. Never applied when a model is used."""


class WordPiece(_Normalised):
    """Words cut into the longest known pieces, as in BERT.

    Lost: how words and punctuation were spaced, and words that have a character which training never saw or that are
    longer than 100 characters: they become [UNK].
    """

    kind: Literal["wordpiece"] = "wordpiece"
    size: Annotated[int, Field(ge=64)] = 8_000
    """Tokens at most, special ones included."""
    min_frequency: Positive = 2
    """Pairs seen less often are not merged."""


class Unigram(_Normalised):
    """The likeliest cut of each word under a unigram model, as in SentencePiece.

    Unknown characters are spelled in bytes; the one loss is the character ▁ (U+2581), which comes back as a space.
    """

    kind: Literal["unigram"] = "unigram"
    size: Annotated[int, Field(ge=320)] = 8_000
    """Tokens at most: 7 special ones, 256 bytes, the rest pieces."""
    min_frequency: Positive = 2
    """Characters and pieces seen less often are left out."""


class TokenizerFile(Section):
    """A tokeniser that exists: a `tokenizer.json`, a Hugging Face folder or a SentencePiece `.model`."""

    kind: Literal["file"] = "file"
    path: Annotated[str, Field(min_length=1)]
    """Where it is."""
    dropout: Rate = 0.0
    """BPE dropout while a model trains; for BPE files only."""


_Kinds = (
    Annotated[Bpe, Tag("bpe")]
    | Annotated[Characters, Tag("characters")]
    | Annotated[Bytes, Tag("bytes")]
    | Annotated[Words, Tag("words")]
    | Annotated[WordPiece, Tag("wordpiece")]
    | Annotated[Unigram, Tag("unigram")]
    | Annotated[TokenizerFile, Tag("file")]
)
TokenizerConfig = Annotated[_Kinds, chosen_by("kind", "bpe"), from_word]


class TokenizerPair(Section):
    """A tokeniser for sources and another for targets, each with a vocabulary of its own."""

    kind: Literal["pair"] = "pair"
    source: TokenizerConfig = Bpe()
    """How sources become tokens."""
    target: TokenizerConfig = Bpe()
    """How targets become tokens."""


def name_pair(value: Any) -> Any:
    """The tables `[tokenizer.source]` and `[tokenizer.target]` are a pair; `kind` need not say so."""
    sides = isinstance(value, dict) and not value.keys().isdisjoint(("source", "target"))
    return {"kind": "pair", **value} if sides else value


TranslationTokenizer = Annotated[
    _Kinds | Annotated[TokenizerPair, Tag("pair")],
    chosen_by("kind", "bpe"),
    from_word,
    BeforeValidator(name_pair),
]
"""One tokeniser for both sides, or one for each."""
