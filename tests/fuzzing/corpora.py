"""A small corpus of each task in every format, in several scripts, and `[data]` tables that name the files."""

import json
import random
from pathlib import Path
from typing import Any

Table = dict[str, Any]

WORDS = (
    "the",
    "a",
    "cat",
    "dog",
    "bird",
    "sees",
    "hears",
    "likes",
    "old",
    "new",
    "größe",
    "été",
    "кот",
    "猫",
    "42",
    ".",
)
LABELS = ("short", "long", "других")
TAGS = ("O", "B-PER", "I-PER", "B-LOC")


def write_corpora(folder: Path) -> None:
    """The files of every task: 48 records to learn from, 12 to judge by."""
    folder.mkdir(parents=True, exist_ok=True)
    rng = random.Random(5)
    for split, count in (("train", 48), ("valid", 12)):
        texts = [" ".join(rng.choice(WORDS) for _ in range(rng.randint(1, 11))) for _ in range(count)]
        targets = [" ".join(reversed(text.upper().split())) for text in texts]
        labels = [
            LABELS[min(len(text) // 16, 2)] if number > 2 else LABELS[number] for number, text in enumerate(texts)
        ]
        numbers = [f"{len(text) / 10:.2f}" for text in texts]
        tags = [[TAGS[len(word) % len(TAGS)] for word in text.split()] for text in texts]
        links = [" ".join(f"{i}-{len(t.split()) - 1 - i}" for i in range(len(t.split()))) for t in texts]
        columns = {
            "text": texts,
            "source": texts,
            "second": targets,
            "target": targets,
            "label": labels,
            "number": numbers,
        }
        rows = [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]
        keyed = [
            row | {"words": text.split(), "tags": list(tag)} for row, text, tag in zip(rows, texts, tags, strict=True)
        ]
        files = {
            "txt": texts,
            "target": targets,
            "links": links,
            "tags": [" ".join(tag) for tag in tags],
            "tsv": ["\t".join(columns), *("\t".join(row.values()) for row in rows)],
            "csv": [",".join(columns), *(",".join(f'"{value}"' for value in row.values()) for row in rows)],
            "jsonl": [json.dumps(row, ensure_ascii=False) for row in keyed],
            "first": [f"{label} {text}" for label, text in zip(labels, texts, strict=True)],
            "conll": [
                "".join(f"{word} {tag}\n" for word, tag in zip(text.split(), tagged, strict=True))
                for text, tagged in zip(texts, tags, strict=True)
            ],
        }
        for ending, lines in files.items():
            (folder / f"{split}.{ending}").write_text("\n".join(lines) + "\n", encoding="utf-8")


def draw_data(task: str, rng: random.Random, corpora: Path) -> Table:
    """The `[data]` table of a task: one of its formats, with or without validation."""
    kind = rng.choice(_FORMATS.get(task, _FORMATS["language-model"]))
    numbers = task == "classification" and rng.random() < 0.25
    pairs = task == "classification" and rng.random() < 0.3
    if numbers and kind["format"] == "label-first":
        kind = {"format": "tsv", "files": "tsv"}

    def name(split: str) -> Table:
        table = {key: f"{corpora}/{split}.{value}" if key != "format" else value for key, value in kind.items()}
        if task == "classification" and kind["format"] != "label-first":
            table["columns"] = {"label": "number" if numbers else "label"} | ({"second": "second"} if pairs else {})
        return table

    data: Table = {"train": name("train"), "checks": dict.fromkeys(("duplicate", "overlap"), "off")}
    match rng.randrange(4):
        case 0:
            data["valid_fraction"] = 0.2
        case 1:
            data["train"] = [name("train"), name("valid") | {"weight": rng.choice((0.5, 2.0))}]
        case _:
            data["valid"] = name("valid")
    if numbers:
        data["labels"] = "numbers"
    return data


_TABLES = tuple({"format": ending, "files": ending} for ending in ("tsv", "csv", "jsonl"))
_FORMATS: dict[str, tuple[dict[str, str], ...]] = {
    "translation": (
        {"format": "parallel", "source": "txt", "target": "target"},
        {"format": "parallel", "source": "txt", "target": "target", "alignment": "links"},
        *_TABLES,
    ),
    "classification": ({"format": "label-first", "files": "first"}, *_TABLES),
    "tagging": (
        {"format": "conll", "files": "conll"},
        {"format": "parallel", "words": "txt", "tags": "tags"},
        {"format": "jsonl", "files": "jsonl"},
    ),
    "language-model": ({"format": "text", "files": "txt"}, *_TABLES),
}
