"""Text to ids and back: nothing is lost where nothing may be, and offsets lead back into the text as given."""

import random
import unicodedata
from collections.abc import Callable

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tokenizers import normalizers

from seqloom.config.tokenizer import Bpe, Bytes, Characters, Unigram
from seqloom.text import Encoding, Tokenizer

Train = Callable[..., Tokenizer]

# Where trouble lives: controls, marks, Indic, conjoining Jamo, spaces and signs, kana, Hangul, private use and
# non-characters, other planes. Surrogates are no characters.
BLOCKS = [
    (0x00, 0x80), (0x00, 0x300), (0x300, 0x370), (0x370, 0x600), (0x600, 0xE00), (0x1100, 0x1200), (0x2000, 0x2C00),
    (0x3000, 0x3200), (0x4E00, 0xA000), (0xAC00, 0xD7A4), (0xE000, 0x10000), (0x10000, 0x20000), (0x20000, 0x110000),
]  # fmt: skip
CHARACTERS = [*"\t\n\r \0\u2028\u0085'’[]<>", "\N{COMBINING ACUTE ACCENT}", "İ", "ﬁ", "Å", "\u0344"]


@pytest.fixture(scope="module")
def random_texts() -> list[str]:
    """100,000 texts of up to 12 characters: a random stream of characters, cut at random."""
    chance = random.Random(0)
    blocks = chance.choices([*BLOCKS, None], weights=[*[1] * len(BLOCKS), 3], k=640_000)
    stream = "".join(chr(chance.randrange(*block)) if block else chance.choice(CHARACTERS) for block in blocks)
    texts, start = [], 0
    for size in chance.choices(range(13), k=100_000):
        texts.append(stream[start : start + size])
        start += size
    assert start < len(stream)
    return texts


def check_offsets(text: str, encoding: Encoding) -> None:
    """Within the text, in order, none empty, and together all of it."""
    reached = last_start = 0
    for start, end in encoding.offsets:
        assert last_start <= start <= reached < end or start < end == reached, (text, encoding)
        last_start, reached = start, max(reached, end)
    assert reached == len(text), (text, encoding)


@pytest.mark.parametrize("kind", ["bytes", "characters", "bpe"])
def test_100_000_random_texts_round_trip_with_valid_offsets(
    kind: str, random_texts: list[str], trained: dict[str, Tokenizer]
) -> None:
    tokenizer, nfc = trained[kind], normalizers.NFC()
    encodings = [tokenizer.encode(text) for text in random_texts]
    decoded = tokenizer.decode_batch([encoding.ids for encoding in encodings])
    assert decoded == [nfc.normalize_str(text) for text in random_texts]
    for text, encoding in zip(random_texts, encodings, strict=True):
        check_offsets(text, encoding)


@pytest.mark.parametrize("kind", ["bytes", "characters", "bpe", "unigram"])
@settings(max_examples=300)
@given(text=st.text())
@example(text="")
@example(text=" ")
@example(text="  two  spaces  ")
@example(text="e\u0301")
@example(text="\u1112\u1161\u11ab")
@example(text="a\u0315\u0300")
@example(text="<0x41> <0xE2>")
@example(text="[MASK]</s><|endoftext|>")
def test_any_text_round_trips(kind: str, text: str, trained: dict[str, Tokenizer]) -> None:
    tokenizer = trained[kind]
    encoding = tokenizer.encode(text)
    expected = normalizers.NFC().normalize_str(text)
    assert tokenizer.decode(encoding.ids) == (expected.replace("▁", " ") if kind == "unigram" else expected)
    check_offsets(text, encoding)


@given(text=st.text(st.characters(max_codepoint=0xFFFF, categories=["L", "M", "N", "P", "S", "Z"])))
def test_nfc_is_pythons(text: str, trained: dict[str, Tokenizer]) -> None:
    assert trained["bpe"].decode(trained["bpe"].encode(text).ids) == unicodedata.normalize("NFC", text)


@pytest.mark.parametrize("section", [Bytes, Characters, Bpe, Unigram])
@pytest.mark.parametrize("lowercase", [False, True])
@pytest.mark.parametrize("normalisation", ["none", "nfc", "nfkc"])
def test_decoding_gives_the_declared_normalisation(section, normalisation, lowercase, train: Train) -> None:
    tokenizer = train(section(normalisation=normalisation, lowercase=lowercase), ["some text, Some Text"])
    text = "ﬁne Ä A\u0308 Ⅷ ２ İstanbul 𝐀 Ẹ\u0301"
    expected = text if normalisation == "none" else unicodedata.normalize(normalisation.upper(), text)
    if lowercase:
        expected = expected.lower()
        expected = expected if normalisation == "none" else unicodedata.normalize("NFC", expected)
    assert tokenizer.decode(tokenizer.encode(text).ids) == expected


@pytest.mark.parametrize("normalisation", ["nfc", "nfkc"])
def test_normalising_twice_changes_nothing_more(normalisation: str, train: Train) -> None:
    tokenizer = train(Bytes(normalisation=normalisation, lowercase=True))
    with_case_or_forms = ((0x00, 0x3400), (0xA640, 0xAC00), (0xF900, 0x10000), (0x10400, 0x10D00), (0x1D400, 0x1EA00))
    texts = [chr(code) for block in with_case_or_forms for code in range(*block)]
    once = tokenizer.decode_batch(tokenizer.encode_batch(texts))
    assert tokenizer.decode_batch(tokenizer.encode_batch(once)) == once


def test_words_and_wordpiece_lose_what_they_say(trained: dict[str, Tokenizer]) -> None:
    text = "The  lazy dog, a Ђ"
    for kind in ("words", "wordpiece"):
        assert trained[kind].decode(trained[kind].encode(text).ids) in (
            "The lazy dog , [UNK] [UNK]",
            "The lazy dog , a [UNK]",
        )


def test_offsets_of_all_kinds_lead_into_the_text_as_given(tokenizer: Tokenizer) -> None:
    text = "  The dog, e\u0301te\u0301!"
    offsets = tokenizer.encode(text).offsets
    covered = {place for start, end in offsets for place in range(start, end)}
    assert all(0 <= start < end <= len(text) for start, end in offsets)
    assert covered >= {place for place, character in enumerate(text) if character != " "}
    assert not any(end == text.index("\u0301") for _, end in offsets), "an accent was torn from its letter"
