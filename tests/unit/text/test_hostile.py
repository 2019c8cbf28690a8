"""Text made to hurt. A test that hangs here has failed."""

from collections.abc import Callable

import pytest

from seqloom.config.tokenizer import Bpe, Characters, TokenizerConfig, Unigram, WordPiece, Words
from seqloom.text import BpeDropout, Tokenizer

Train = Callable[..., Tokenizer]

N = 100_000
HOSTILE = {
    "one letter": "a" * 10 * N,
    "spaces": " " * N,
    "marks": "a" + "\u0301" * N,
    "marks out of order": "a" + "\u0301\u0323\u0315" * (N // 3),
    "signs": "-" * N,
    "apostrophes": "a'" * (N // 2),
    "joiners": "👩\u200d" * (N // 2),
    "Jamo": "\u1112\u1161\u11ab" * (N // 3),
    "byte names": "<0x41>" * (N // 6),
}


@pytest.mark.parametrize("text", HOSTILE.values(), ids=HOSTILE.keys())
def test_hostile_text_is_encoded(text: str, tokenizer: Tokenizer) -> None:
    assert len(tokenizer.encode_batch([text])[0]) <= 4 * len(text)
    offsets = tokenizer.encode(text[:N]).offsets
    assert all(0 <= start < end <= N for start, end in offsets)


@pytest.mark.parametrize(
    "config", [Bpe(), Characters(), Words(), WordPiece(), Unigram()], ids=lambda config: config.kind
)
@pytest.mark.parametrize("name", ["one letter", "marks out of order", "apostrophes"])
def test_hostile_text_can_be_learned_from(name: str, config: TokenizerConfig, train: Train) -> None:
    tokenizer = train(config, [HOSTILE[name], "fine text, fine text"])
    assert tokenizer.decode(tokenizer.encode("fine text").ids) == "fine text"


def test_hostile_text_meets_dropout(trained: dict[str, Tokenizer]) -> None:
    dropout = BpeDropout(trained["bpe"], 0.1)
    assert trained["bpe"].decode(dropout.encode("a" * N, seed=1)) == "a" * N
