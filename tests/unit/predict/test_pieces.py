"""A text that is too long is cut where a reader would pause, and nothing of it is lost."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from seqloom.predict.predictor import cut_texts, split_text
from unit.predict.test_spelling import build


def words(text: str) -> list[tuple[int, int]]:
    return [match.span() for match in re.finditer(r"\S+", text)]


def cut(text: str, room: int) -> list[str]:
    return [piece.text for piece in split_text(0, text, words(text), room)]


@given(st.text(st.sampled_from("ab .,!?。、\n\t")), st.integers(1, 6))
def test_the_pieces_are_the_text(text: str, room: int) -> None:
    pieces = split_text(7, text, words(text), room)
    assert "".join(piece.text + piece.gap for piece in pieces) == text.strip()
    for piece in pieces:
        assert text[piece.start :].startswith(piece.text)
        assert piece.text == piece.text.strip() != ""
        assert piece.gap.strip() == ""
        assert len(words(piece.text)) <= room
        assert piece.owner == 7


@pytest.mark.parametrize("kind", ["bpe", "unigram", "bytes", "characters", "wordpiece"])
@given(text=st.text(st.sampled_from("abthe .,。é😀\n"), min_size=1), room=st.integers(6, 9))
def test_pieces_fit_as_they_are_spelled(kind: str, text: str, room: int) -> None:
    model = build("masked-language-model", kind)
    pieces = cut_texts(model.tokenizer, [text, "x"], room)
    *mine, last = pieces
    assert (last.owner, last.text) == (1, "x")
    assert all(len(piece.ids) <= room for piece in pieces)
    assert all(text[piece.start :].startswith(piece.text) for piece in mine)
    if len(mine) > 1:
        assert "".join(piece.text + piece.gap for piece in mine) == text.strip()


def test_sentences_come_before_clauses_and_clauses_before_words() -> None:
    assert cut("One two. Three four, five six seven", 6) == ["One two.", "Three four, five six seven"]
    assert cut("one two, three four five six", 4) == ["one two,", "three four five six"]
    assert cut("one two three four five", 3) == ["one two three", "four five"]
    assert cut('He said "Stop." Then he left. All was quiet.', 6) == ['He said "Stop." Then he left.', "All was quiet."]


def test_a_script_without_spaces_has_sentences_too() -> None:
    text = "今日は雨。明日は晴れ。"
    letters = [(place, place + 1) for place in range(len(text))]
    assert [p.text for p in split_text(0, text, letters, 7)] == ["今日は雨。", "明日は晴れ。"]


def test_a_number_is_not_the_end_of_a_sentence() -> None:
    assert cut("it costs 3.50 or so . then", 3)[0] == "it costs 3.50"
