"""tokenizer.json files made to hurt: read, or refused with a reason; never a crash, never a table without end."""

import copy
import json
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import tokenizers

from seqloom.errors import DataError, SeqloomError
from seqloom.hub.huggingface.settings import Settings
from seqloom.hub.huggingface.tokenizer import read_tokenizer

EMPTY = Settings(Path("config.json"), {})
ABSURD: list[Any] = [
    None,
    -1,
    0,
    2**31,
    2**63,
    2**64,
    1.5,
    "",
    [],
    {},
    True,
    "x",
    {"Regex": "("},
    {"String": ""},
    "AAAA",
]
TEXTS = ["the cat [UNK] é 日本", "", " " * 50, "a" * 300]


def make_specs() -> list[dict[str, Any]]:
    lines = ["the cat sat on the mat", "a dog ate it"] * 3
    pieces = tokenizers.BertWordPieceTokenizer()
    pieces.train_from_iterator(lines, vocab_size=60, show_progress=False)
    merged = tokenizers.ByteLevelBPETokenizer()
    merged.train_from_iterator(lines, vocab_size=280, show_progress=False)
    return [json.loads(made.to_str()) for made in (pieces, merged)]


def find_places(value: Any, dice: random.Random, here: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    if here:
        yield here
    if isinstance(value, dict | list):
        keys = list(value) if isinstance(value, dict) else list(range(len(value)))
        for key in dice.sample(keys, min(len(keys), 8)):
            yield from find_places(value[key], dice, (*here, key))


def test_300_spoiled_files(tmp_path: Path) -> None:
    dice, specs = random.Random(0), make_specs()
    counts = {"read": 0, "refused": 0}
    for _ in range(300):
        spec = copy.deepcopy(dice.choice(specs))
        *way, last = dice.choice(list(find_places(spec, dice)))
        inner = spec
        for key in way:
            inner = inner[key]
        inner[last] = dice.choice(ABSURD)
        (tmp_path / "tokenizer.json").write_text(json.dumps(spec))
        try:
            tokenizer = read_tokenizer(tmp_path, EMPTY)
            for text in TEXTS:
                tokenizer.decode(tokenizer.encode(text).ids)
            counts["read"] += 1
        except SeqloomError:
            counts["refused"] += 1
    assert min(counts.values()) > 10


def test_a_number_without_measure_is_refused(tmp_path: Path) -> None:
    spec = make_specs()[1]
    spec["model"]["vocab"]["new"] = 2**31
    (tmp_path / "tokenizer.json").write_text(json.dumps(spec))
    with pytest.raises(DataError, match="tokens, but the id of one is 2147483648"):
        read_tokenizer(tmp_path, EMPTY)


def test_a_list_that_is_missing(tmp_path: Path) -> None:
    spec = make_specs()[0]
    del spec["added_tokens"]
    (tmp_path / "tokenizer.json").write_text(json.dumps(spec))
    with pytest.raises(DataError, match="the key added_tokens is missing"):
        read_tokenizer(tmp_path, EMPTY)
