"""Learning a tokeniser from text: one function a kind, each ending in a `tokenizer.json`.

The same texts and configuration give the same bytes. The library's BPE and word trainers keep that promise; its
WordPiece and Unigram trainers follow the random order of hash maps, so WordPiece is derived here from BPE merges and
Unigram has a trainer of its own (`seqloom.text.unigram`).
"""

import gzip
import warnings
import zlib
from collections import Counter
from collections.abc import Iterable, Iterator
from itertools import chain, islice
from pathlib import Path
from typing import BinaryIO, assert_never

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers

from seqloom.config.tokenizer import Bpe, Bytes, Characters, Unigram, WordPiece, Words
from seqloom.errors import DataError
from seqloom.text.patterns import WORD
from seqloom.text.roles import SPECIAL_TOKENS
from seqloom.text.tokenizer import find_bad_text
from seqloom.text.unigram import learn_pieces

Trainable = Bpe | Characters | Bytes | Words | WordPiece | Unigram

UNKNOWN, MASK = "[UNK]", "[MASK]"
SPACE = "▁"
"""U+2581: a space in Unigram pieces, and the start of a word while WordPiece is learned."""
BYTES = tuple(f"<0x{byte:02X}>" for byte in range(256))
"""The tokens that spell a character which has none."""
LONGEST_WORD = 64
"""WordPiece and Unigram learn from longer words in parts."""


def train_spec(texts: Iterable[str | Path], config: Trainable) -> str:
    """The `tokenizer.json` of a new tokeniser."""
    normaliser = _build_normaliser(config)
    normal = _normalise(texts, normaliser)
    match config:
        case Bytes():
            tokenizer = _spell_bytes()
        case Characters():
            tokenizer = _learn_characters(normal, config)
        case Words():
            tokenizer = _learn_words(normal, config)
        case Bpe():
            tokenizer = _learn_bpe(normal, config)
        case WordPiece():
            tokenizer = _learn_wordpiece(normal, config)
        case Unigram():
            tokenizer = _learn_unigram(normal, config)
        case _:
            assert_never(config)
    own = [tokenizer.normalizer] if tokenizer.normalizer else []
    if normaliser or own:
        tokenizer.normalizer = normalizers.Sequence([*normaliser, *own])
    tokenizer.add_special_tokens(_name_specials(config))
    size = tokenizer.get_vocab_size()
    if isinstance(config, Words | Bpe | WordPiece | Unigram) and size < config.size:
        warnings.warn(
            f"the vocabulary has {size:,} tokens, fewer than its limit (size = {config.size:,}): the text has no more "
            f"that occur {config.min_frequency} times or more often",
            stacklevel=3,
        )
    spec: str = tokenizer.to_str(pretty=True)
    return spec


def _name_specials(config: Trainable) -> list[AddedToken]:
    """All but [UNK], which a decoded text should show.

    [MASK] stands for a token, and tokens hold the space before them: "the [MASK] sat" has none left over, nor does the
    text after it get a second one where the tokeniser itself puts a space in front.
    """
    before, after = isinstance(config, Bpe | Unigram), isinstance(config, Unigram)
    mask = AddedToken(MASK, special=True, normalized=False, lstrip=before, rstrip=after)
    others = (token for token in SPECIAL_TOKENS if token not in (UNKNOWN, MASK))
    return [mask, *(AddedToken(token, special=True, normalized=False) for token in others)]


def _build_normaliser(config: Trainable) -> list[normalizers.Normalizer]:
    """The declared normalisation, such that doing it twice changes nothing more."""
    steps: list[normalizers.Normalizer] = [normalizers.NFKC()] if config.normalisation == "nfkc" else []
    if config.lowercase:  # after NFKC, which may produce capitals; before NFC, because İ decomposes in lower case
        steps.append(normalizers.Lowercase())
    if config.normalisation != "none" and (config.lowercase or config.normalisation == "nfc"):
        steps.append(normalizers.NFC())
    return steps


def _normalise(texts: Iterable[str | Path], steps: list[normalizers.Normalizer]) -> Iterator[str]:
    normaliser = normalizers.Sequence(steps)
    empty = True
    for number, text in enumerate(_read(texts), start=1):
        try:
            normal = normaliser.normalize_str(text)
        except (TypeError, UnicodeEncodeError):
            raise DataError(f"text {number} to learn a tokeniser from: {find_bad_text([text])}") from None
        empty = empty and not normal
        yield normal
    if empty:
        raise DataError(
            "there is no text to learn a tokeniser from; give it files or texts with at least one character"
        )


def _read(texts: Iterable[str | Path]) -> Iterator[str]:
    if isinstance(texts, str | Path):
        raise DataError(f"expected a list of texts or paths, not {texts!r} alone; for a file: [Path({str(texts)!r})]")
    for text in texts:
        if isinstance(text, Path):
            yield from read_lines(text)
        else:
            yield text


def read_lines(path: Path) -> Iterator[str]:
    r"""The lines of a file: UTF-8, gzip by its name; only `\n` ends a line."""
    try:
        with gzip.open(path) if path.suffix == ".gz" else path.open("rb") as file:
            yield from decode_lines(file, str(path))  # type: ignore[arg-type]  # GzipFile is a binary stream too
    except FileNotFoundError:
        raise DataError(f"{path}: there is no such file") from None
    except (EOFError, zlib.error, OSError) as error:
        raise DataError(f"{path}: the file cannot be read: {error}") from None


def decode_lines(file: BinaryIO, name: str) -> Iterator[str]:
    """The lines of an open file; `name` stands in errors."""
    for number, line in enumerate(file, start=1):
        try:
            yield line.removesuffix(b"\n").decode("utf-8")
        except UnicodeDecodeError as error:
            raise DataError(
                f"{name}:{number}: byte {error.start + 1} of the line (0x{line[error.start]:02x}) is not UTF-8;"
                " convert the file, for example: iconv -f LATIN1 -t UTF-8"
            ) from None


def _number(*groups: Iterable[str]) -> dict[str, int]:
    """A vocabulary: special tokens first, and never a second time should the text contain their names."""
    return {token: id for id, token in enumerate(dict.fromkeys(chain(SPECIAL_TOKENS, *groups)))}


def _spell_bytes() -> Tokenizer:
    # The library writes byte b as a visible character: itself, or for the invisible ones the next free from U+0100.
    visible = {*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)}
    invisible = iter(range(0x100, 0x200))
    letters = (chr(byte if byte in visible else next(invisible)) for byte in range(256))
    tokenizer = Tokenizer(models.BPE(vocab=_number(letters), merges=[], unk_token=UNKNOWN))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.decoder = decoders.ByteLevel()
    return tokenizer


def _learn_characters(texts: Iterator[str], config: Characters) -> Tokenizer:
    counts = Counter(chain.from_iterable(texts))
    vocabulary = _number(BYTES, (c for c in _rank(counts) if counts[c] >= config.min_frequency))
    tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=[], unk_token=UNKNOWN, byte_fallback=True))
    tokenizer.decoder = decoders.Sequence([decoders.ByteFallback(), decoders.Fuse()])
    return tokenizer


def _learn_words(texts: Iterator[str], config: Words) -> Tokenizer:
    split = pre_tokenizers.Whitespace() if config.punctuation == "split" else pre_tokenizers.WhitespaceSplit()
    learner = Tokenizer(models.WordLevel())
    learner.pre_tokenizer = split
    learner.train_from_iterator(
        texts,
        trainers.WordLevelTrainer(vocab_size=config.size, min_frequency=config.min_frequency, show_progress=False),
    )
    vocabulary = _number(_by_id(learner))
    known = {word: id for word, id in vocabulary.items() if id < config.size}
    tokenizer = Tokenizer(models.WordLevel(vocab=known, unk_token=UNKNOWN))
    tokenizer.pre_tokenizer = split
    return tokenizer


def _learn_bpe(texts: Iterator[str], config: Bpe) -> Tokenizer:
    learner = Tokenizer(models.BPE(unk_token=UNKNOWN))
    learner.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(WORD), "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    trainer = trainers.BpeTrainer(
        vocab_size=config.size,
        min_frequency=config.min_frequency,
        special_tokens=list(SPECIAL_TOKENS),
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    learner.train_from_iterator(texts, trainer)
    tokenizer = Tokenizer(learner.model)
    tokenizer.pre_tokenizer = learner.pre_tokenizer
    tokenizer.decoder = decoders.ByteLevel()
    return tokenizer


def _learn_wordpiece(texts: Iterator[str], config: WordPiece) -> Tokenizer:
    """BPE over words that begin with a mark: merges that hold the mark start a word, all others continue one."""
    split = pre_tokenizers.BertPreTokenizer()
    learner = Tokenizer(models.BPE())
    learner.pre_tokenizer = pre_tokenizers.Sequence(
        [
            split,
            pre_tokenizers.FixedLength(LONGEST_WORD),
            pre_tokenizers.Metaspace(SPACE, prepend_scheme="always", split=False),
        ]
    )
    counts: Counter[str] = Counter()

    def count(texts: Iterator[str]) -> Iterator[str]:
        for text in texts:
            counts.update(text)
            yield text

    trainer = trainers.BpeTrainer(vocab_size=config.size, min_frequency=config.min_frequency, show_progress=False)
    learner.train_from_iterator(count(texts), trainer)
    # Each character may need two tokens; rare ones (of thousands, in Chinese) must leave half of the room for pieces.
    room = config.size - len(SPECIAL_TOKENS)
    alphabet = [c for c in _rank(counts) if split.pre_tokenize_str(c)][: room // 4]
    inside = (f"##{c}" for c in alphabet if len(split.pre_tokenize_str(f"a{c}")) == 1)
    merged = (m[1:] if m.startswith(SPACE) else f"##{m}" for m in _by_id(learner) if set(alphabet) >= {*m} - {SPACE})
    known = {token: id for token, id in _number(alphabet, inside, filter(None, merged)).items() if id < config.size}
    tokenizer = Tokenizer(models.WordPiece(vocab=known, unk_token=UNKNOWN, max_input_chars_per_word=100))
    tokenizer.pre_tokenizer = split
    tokenizer.decoder = decoders.WordPiece(prefix="##", cleanup=False)
    return tokenizer


def _learn_unigram(texts: Iterator[str], config: Unigram) -> Tokenizer:
    words: Counter[str] = Counter()
    for text in texts:
        words.update(text.split(" "))
    characters: Counter[str] = Counter()
    for word, count in words.items():
        for character in word:
            characters[character] += count
    room = config.size - len(SPECIAL_TOKENS) - len(BYTES)
    frequent = (c for c in _rank(characters) if characters[c] >= config.min_frequency and c != "\0")
    alphabet = [SPACE, *islice(frequent, room // 2)]
    # A character without a piece will be spelled in bytes: for the learner, words end there.
    breaks = dict.fromkeys(map(ord, characters.keys() - set(alphabet)), " ")
    parts: Counter[str] = Counter()
    for word, count in words.items():
        for part in f"{SPACE}{word}".translate(breaks).split(" "):
            for start in range(0, len(part), LONGEST_WORD):
                parts[part[start : start + LONGEST_WORD]] += count
    pieces = dict.fromkeys(SPECIAL_TOKENS, 0.0)
    learned = learn_pieces(parts, room, config.min_frequency)
    for piece, score in [*((byte, learned[-1][1]) for byte in BYTES), *learned]:
        pieces.setdefault(piece, score)
    tokenizer = Tokenizer(
        models.Unigram(list(pieces.items()), unk_id=SPECIAL_TOKENS.index(UNKNOWN), byte_fallback=True)
    )
    tokenizer.normalizer = normalizers.Sequence([normalizers.Prepend(SPACE), normalizers.Replace(" ", SPACE)])
    # The second split keeps a literal "<0x41>" in the text from being taken for the byte of that name.
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Split(SPACE, "merged_with_next"), pre_tokenizers.Split("<0x", "isolated")]
    )
    tokenizer.decoder = decoders.Sequence(
        [decoders.Replace(SPACE, " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    )
    return tokenizer


def _rank(counts: Counter[str]) -> list[str]:
    """Most frequent first, and by code point where that does not decide."""
    return sorted(counts, key=lambda token: (-counts[token], token))


def _by_id(tokenizer: Tokenizer) -> list[str]:
    vocabulary = tokenizer.get_vocab()
    return sorted(vocabulary, key=vocabulary.__getitem__)
