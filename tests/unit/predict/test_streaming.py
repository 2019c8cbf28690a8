"""Text that is handed out as it is found is in the end the text that is found all at once; weights play no part."""

import io
import warnings
from collections.abc import Iterator
from functools import cache

import pytest
import torch

from seqloom.decode.options import Search
from seqloom.hub.bundle import Bundle
from seqloom.predict.bulk import Line
from seqloom.predict.generate import stream_text
from seqloom.predict.job import run_streaming
from seqloom.predict.model import Model
from seqloom.predict.predictor import Predictor
from seqloom.predict.results import Result
from seqloom.tasks import LanguageModelTask
from seqloom.tasks.configuration import parse
from seqloom.text import Tokenizer

KINDS = ("bpe", "unigram", "wordpiece", "words", "characters", "bytes")
LINES = ["naïve cafés, déjà vu", "größer als 中文 🙂", "the cat sees the dog", "二つの言語"]


@cache
def build(kind: str) -> Model:
    """A language model with random weights, whose texts are a wild mixture of tokens."""
    stack = "{num_layers = 1, model_dim = 16, num_heads = 2}"
    config = parse(f'task = "language-model"\ntokenizer = "{kind}"\nmodel.decoder = {stack}\ndata.train.files = "t"\n')
    assert isinstance(config, LanguageModelTask)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # so little text gives fewer tokens than asked for
        tokenizer = Tokenizer.train(LINES * 20, config.tokenizer)
    torch.manual_seed(1)
    return Model(Predictor(Bundle(config, tokenizer, (), config.model.build(tokenizer.vocab_size))))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("prompt", ["déjà", "🙂 the ", "中"])
def test_bits_make_the_text_that_is_found_all_at_once(kind: str, prompt: str) -> None:
    model, unlike = build(kind), 0
    for seed in range(12):
        bits = list(model.stream(prompt, sample=True, seed=seed, max_length=12))
        whole = model.generate(prompt, sample=True, seed=seed, max_length=12).text
        assert "".join(bits) == whole
        assert not any(bit.endswith("\ufffd") for bit in bits[:-1]), "a character is handed out whole"
        unlike += len(bits) > 2
    assert unlike > 0, "bit by bit, not at the end"


def test_bytes_wait_for_the_rest_of_their_character() -> None:
    model = build("bytes")
    bits = list(model.stream("a", prefix="é", sample=True, max_length=200, seed=3))
    assert bits[0] == "é"
    assert any(ord(character) > 0x7F for bit in bits[1:] for character in bit)
    tokens = len(model.generate("a", prefix="é", sample=True, max_length=200, seed=3).tokens)
    assert 1 < len(bits) < tokens + 1


def test_the_number_of_a_line_decides_what_is_drawn() -> None:
    model, wanted = build("words"), Search(sample=True, max_length=8)
    texts = ["".join(stream_text(model._predictor, "the", wanted, number=number)) for number in (1, 2, 3)]
    assert texts == [found.text for found in model.generate(["the"] * 3, sample=True, max_length=8)]
    assert len(set(texts)) > 1


def test_an_answer_is_written_bit_by_bit_on_one_line() -> None:
    class Slow(io.BytesIO):
        def flush(self) -> None:
            seen.append(self.getvalue())

    def say(number: int, _: str) -> Iterator[str]:
        yield from ("one\r", "\ntwo", "\n", "three\r")
        return Result(pieces=number)

    seen: list[bytes] = []
    outcomes: list[object] = []
    lines = [Line(("a",)), Line(("b",), "nul", "U+0000"), Line(("c",))]
    counts = run_streaming([lines[:1], lines[1:]], say, Slow(), lambda number, found: outcomes.append((number, *found)))  # type: ignore[arg-type]
    assert seen[:4] == [b"one", b"one two", b"one two ", b"one two three"]
    assert seen[-1].decode() == "one two three\r\n[failed: nul]\none two three\r\n"
    assert counts == {"failed": 1, "split": 1}
    assert [number for number, _ in outcomes] == [1, 2, 3]  # type: ignore[attr-defined]
