"""Learning tokenisers: the same bytes each time, from files or texts, of any size, from whatever text."""

import gzip
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from seqloom.config.tokenizer import (
    Bpe,
    Bytes,
    Characters,
    TokenizerConfig,
    TokenizerFile,
    Unigram,
    WordPiece,
    Words,
)
from seqloom.errors import DataError
from seqloom.text import Tokenizer

Train = Callable[..., Tokenizer]

LEARNED = [Bpe(), Characters(), Words(), WordPiece(), Unigram()]
KINDS = [config.kind for config in LEARNED]
LEARN_ALL = """
import sys, warnings
from pathlib import Path
from seqloom.config.tokenizer import *
from seqloom.text import Tokenizer
warnings.simplefilter("ignore")
for config in (Bytes(), Characters(), Words(), Bpe(size=400), WordPiece(size=400), Unigram(size=400)):
    Tokenizer.train([Path(sys.argv[1])], config).save(f"{sys.argv[2]}/{config.kind}.json")
"""


def test_other_processes_learn_the_same_bytes(texts: list[str], tmp_path: Path) -> None:
    """Hash maps are walked in another order by every process."""
    (tmp_path / "corpus.txt").write_text("\n".join(texts), encoding="utf-8")
    results = []
    for seed in ("1", "2", "3"):
        folder = tmp_path / seed
        folder.mkdir()
        subprocess.run(
            [sys.executable, "-c", LEARN_ALL, tmp_path / "corpus.txt", folder],
            env={**os.environ, "PYTHONHASHSEED": seed},
            check=True,
        )
        results.append({path.name: path.read_bytes() for path in folder.iterdir()})
    assert len(results[0]) == 6
    assert results[0] == results[1] == results[2]


@pytest.mark.parametrize("config", LEARNED, ids=KINDS)
def test_files_and_texts_give_the_same_tokeniser(
    config: TokenizerConfig, texts: list[str], tmp_path: Path, train: Train
) -> None:
    half = len(texts) // 2
    with gzip.open(tmp_path / "one.txt.gz", "wt", encoding="utf-8", newline="\n") as file:
        file.writelines(f"{text}\n" for text in texts[:half])
    (tmp_path / "two.txt").write_text("\n".join(texts[half:]), encoding="utf-8")
    from_files = train(config, [tmp_path / "one.txt.gz", tmp_path / "two.txt"])
    assert from_files.fingerprint == train(config, iter(texts)).fingerprint


@pytest.mark.parametrize("config", [Bpe(size=300), Words(size=40), WordPiece(size=500), Unigram(size=420)])
def test_the_size_is_exact_when_the_text_has_enough(config: TokenizerConfig, train: Train) -> None:
    assert train(config).vocab_size == config.size  # type: ignore[union-attr]


@pytest.mark.parametrize("config", [Bpe(), Words(), WordPiece(), Unigram()], ids=lambda config: config.kind)
def test_a_size_out_of_reach_still_works_and_says_so(config: TokenizerConfig) -> None:
    with pytest.warns(UserWarning, match=r"has \d+ tokens, fewer than its limit \(size = (8|30),000\)"):
        tokenizer = Tokenizer.train(["a tiny text", "a tiny text"], config)
    assert tokenizer.decode(tokenizer.encode("a tiny text").ids) == "a tiny text"


@pytest.mark.parametrize("config", LEARNED, ids=KINDS)
@pytest.mark.parametrize("text", ["a", " ", "\0", "▁", "東", "\u0301", "[MASK] [MASK]", "<0x41>", "\U0010ffff"])
def test_the_smallest_texts_suffice(text: str, config: TokenizerConfig, train: Train) -> None:
    tokenizer = train(config, [text, text])
    tokenizer.decode(tokenizer.encode(text).ids)
    assert tokenizer.roles.mask == 4


@pytest.mark.parametrize("config", LEARNED, ids=KINDS)
@pytest.mark.parametrize("nothing", [[], [""], ["", ""]])
def test_no_text_at_all_is_refused(nothing: list[str], config: TokenizerConfig) -> None:
    with pytest.raises(DataError, match="no text to learn"):
        Tokenizer.train(nothing, config)


@pytest.mark.parametrize("config", LEARNED, ids=KINDS)
def test_bad_texts_are_refused_with_their_number(config: TokenizerConfig) -> None:
    with pytest.raises(DataError, match=r"text 2 .*U\+D83D.*at character 3"):
        Tokenizer.train(["fine", "ab\ud83d"], config)
    with pytest.raises(DataError, match="expected a list"):
        Tokenizer.train("corpus.txt", config)


def test_a_line_that_is_not_utf8_is_named(tmp_path: Path) -> None:
    (tmp_path / "corpus.txt").write_bytes(b"gut\n" + "über".encode("latin-1"))
    with pytest.raises(DataError, match=r"corpus\.txt:2: byte 1 of the line \(0xfc\) is not UTF-8"):
        Tokenizer.train([tmp_path / "corpus.txt"], Bpe())


@pytest.mark.parametrize(
    ("name", "content"), [("no.txt", None), ("cut.gz", gzip.compress(b"text", mtime=0)[:-9]), ("no.gz", b"text")]
)
def test_files_that_cannot_be_read_are_named(name: str, content: bytes | None, tmp_path: Path) -> None:
    if content is not None:
        (tmp_path / name).write_bytes(content)
    with pytest.raises(DataError, match=name):
        Tokenizer.train([tmp_path / name], Bpe())


def test_only_a_newline_ends_a_line(tmp_path: Path, train: Train) -> None:
    (tmp_path / "corpus.txt").write_bytes("a\r\u2028\0\x0b\x85b\nc".encode())
    tokenizer = train(Characters(), [tmp_path / "corpus.txt"])
    assert all(tokenizer.id(character) is not None for character in "a\r\u2028\0\x0b\x85bc")
    assert tokenizer.id("\n") is None


def test_bytes_are_numbered_by_their_value(train: Train) -> None:
    tokenizer = train(Bytes(normalisation="none"), [])
    text = "aé東\U0001f600\0"
    assert [id - 7 for id in tokenizer.encode(text).ids] == list(text.encode("utf-8"))


def test_frequent_characters_come_first_and_rare_ones_are_spelled_in_bytes(train: Train) -> None:
    tokenizer = train(Characters(min_frequency=2), ["bbb aa c"])
    assert [tokenizer.token(id) for id in range(263, tokenizer.vocab_size)] == ["b", " ", "a"]
    assert tokenizer.encode("c").tokens == ["<0x63>"]


def test_frequent_words_win(train: Train) -> None:
    tokenizer = train(Words(size=9), ["one two two three three three.", "two. three four four"])
    assert [tokenizer.token(id) for id in (7, 8)] == ["three", "two"]
    assert tokenizer.encode("one three").tokens == ["[UNK]", "three"]


def test_punctuation_can_stay_on_words(train: Train) -> None:
    text = "well-known @-@ &apos;s dog."
    assert train(Words(min_frequency=1), [text]).decode(train(Words(), [text] * 2).encode(text).ids) != text
    keep = train(Words(punctuation="keep"), [text] * 2)
    assert keep.decode(keep.encode(text).ids) == text


def test_bpe_does_not_tear_marks_from_letters(train: Train) -> None:
    text = "कुत्ता ẹ̀kọ́ l'homme doesn't"
    tokenizer = train(Bpe(), [text] * 8)
    assert [text[start:end] for start, end in tokenizer.encode(text).offsets] == [
        "कुत्ता",
        " ẹ̀kọ́",
        " l'homme",
        " doesn't",
    ]


def test_wordpiece_cuts_words_into_the_longest_known_pieces(train: Train) -> None:
    tokenizer = train(WordPiece(), ["play plays played player playing sing singing sings singer"] * 4)
    assert tokenizer.encode("singing").tokens == ["singing"]
    assert tokenizer.encode("playsing").tokens == ["plays", "##ing"]
    assert tokenizer.encode("x" * 101).tokens == ["[UNK]"]


def test_a_file_is_brought_in_by_configuration(trained: dict[str, Tokenizer], tmp_path: Path) -> None:
    trained["bpe"].save(tmp_path / "tok.json")
    config = TokenizerFile(path=str(tmp_path / "tok.json"))
    assert Tokenizer.train([], config).fingerprint == trained["bpe"].fingerprint
