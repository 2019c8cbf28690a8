"""Where sentences end."""

import gzip

import pytest

from seqloom.text.sentences import find_sentences
from shared_data import corpus


@pytest.mark.parametrize(
    ("language", "sentences"),
    [
        ("de", ["Ich habe Hunger.", "Tom ist mein Freund.", "Wo ist der Bahnhof?"]),
        (None, ["Ich habe Hunger.", "Tom ist mein Freund.", "Wo ist der Bahnhof?"]),
        ("de-AT", ["Am 3. Oktober war z. B. Dr. Kern da.", "Er ging."]),
        ("en", ["Mr. Smith paid $3.50 at Prince St. Cafe.", "He left."]),
        (None, ["Das Sortiment an Bananen, Melonen usw. eines Händlers.", "Er sitzt bzw. steht."]),
        ("en", ["i am hungry.", "tom is my friend."]),
        ("en", ["a dog .", "the bird at prince st. cafe .", "where ?"]),
        ("de", ["ein mann .", "eine frau ."]),
        (None, ["a sign that says &quot; stop . &quot;"]),
        (None, ["1. Stir the soup.", "2. Wait."]),
        ("zh-Hant", ["我饿了。", "汤姆是我的朋友。", "车站在哪里？"]),
        ("hi", ["मुझे भूख लगी है।", "टॉम मेरा दोस्त है।"]),
        (None, ["Prince St. Cafe"]),
        (None, ["..."]),
        (None, []),
    ],
)
def test_sentences(language: str | None, sentences: list[str]) -> None:
    text = f"  {('' if language == 'zh-Hant' else ' ').join(sentences)} "
    assert [text[start:end] for start, end in find_sentences(text, language)] == sentences


@pytest.mark.parametrize("language", ["de", "en"])
@pytest.mark.parametrize("kind", ["", ".lc.norm.tok"])
def test_captions_are_single_sentences(language: str, kind: str) -> None:
    path = corpus(f"multi30k/test_2016_flickr{kind}.{language}.gz")
    with gzip.open(path, "rt", encoding="utf-8") as file:
        lines = file.read().splitlines()
    for known in (language, None):
        assert [line for line in lines if len(find_sentences(line, known)) != 1] == []
