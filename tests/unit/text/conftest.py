import warnings
from collections.abc import Callable, Iterable
from pathlib import Path

import pytest

from seqloom.config.tokenizer import Bpe, Bytes, Characters, TokenizerConfig, Unigram, WordPiece, Words
from seqloom.text import Tokenizer

Train = Callable[..., Tokenizer]

TEXTS = [
    "The quick brown fox jumps over the lazy dog, and the dog doesn't mind.",
    "She sells sea shells on the sea shore; the shells she sells are sea shells, I'm sure.",
    "Zwei junge weiße Männer sind im Freien in der Nähe vieler Büsche.",
    "Ein kleines Mädchen klettert in ein Spielhaus aus Holz, während die Männer zusehen.",
    "Ọmọ náà ń kàwé ní ilé-ẹ̀kọ́ pẹ̀lú àwọn ọ̀rẹ́ rẹ̀.",
    "बच्चे बगीचे में खेल रहे हैं और कुत्ता सो रहा है।",
    "東京の空は今日も青い。東京の人は今日も忙しい。",
    "Что посеешь, то и пожнёшь, а что пожнёшь, то и съешь.",
    "In 1985 there were 1,234 of them; in 2026 there are 56,789.",
    "<p>Some [markup] and {code}: x += 1  # twice</p>",
] * 4

CONFIGS: dict[str, TokenizerConfig] = {
    "bytes": Bytes(),
    "characters": Characters(),
    "words": Words(),
    "bpe": Bpe(size=600),
    "wordpiece": WordPiece(size=600),
    "unigram": Unigram(size=600),
}


def train_quietly(config: TokenizerConfig, texts: Iterable[str | Path] = TEXTS) -> Tokenizer:
    """Train without the warning that a small text gives a small vocabulary."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return Tokenizer.train(texts, config)


@pytest.fixture(scope="session")
def texts() -> list[str]:
    return TEXTS


@pytest.fixture(scope="session")
def train() -> Train:
    return train_quietly


@pytest.fixture(scope="session")
def trained() -> dict[str, Tokenizer]:
    """One tokeniser of each kind."""
    return {kind: train_quietly(config) for kind, config in CONFIGS.items()}


@pytest.fixture(params=list(CONFIGS))
def tokenizer(request: pytest.FixtureRequest, trained: dict[str, Tokenizer]) -> Tokenizer:
    """Each kind in turn."""
    return trained[request.param]
