"""Small corpora of every kind, made by rule: a model that has learned the rule beats one that has not."""

import random
from pathlib import Path

import pytest

NOUNS = ("cat", "dog", "bird", "fish", "horse", "mouse", "sheep", "goat")
VERBS = ("sees", "hears", "likes", "finds")
TAGS = {**dict.fromkeys(NOUNS, "NOUN"), **dict.fromkeys(VERBS, "VERB"), "the": "DET", "a": "DET", ".": "PUNCT"}


def sentences(count: int, seed: int) -> list[str]:
    rng = random.Random(seed)
    pick = rng.choice
    return [f"{pick(('the', 'a'))} {pick(NOUNS)} {pick(VERBS)} the {pick(NOUNS)} ." for _ in range(count)]


@pytest.fixture(scope="session")
def corpora(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with train and valid files for each task."""
    folder = tmp_path_factory.mktemp("corpora")
    for split, count, seed in (("train", 400, 1), ("valid", 60, 2)):
        lines = sentences(count, seed)
        write = {
            "txt": lines,
            "source": lines,
            "target": [" ".join(word.upper() for word in reversed(line.split())) for line in lines],
            "tsv": ["text\tlabel", *(f"{line}\t{'short' if len(line) < 22 else 'long'}" for line in lines)],
            "numbers.tsv": ["text\tlabel", *(f"{line}\t{line.count('the') / 2}" for line in lines)],
            "conll": ["\n".join(f"{word} {TAGS[word]}" for word in line.split()) + "\n" for line in lines],
        }
        for ending, content in write.items():
            (folder / f"{split}.{ending}").write_text("\n".join(content) + "\n", encoding="utf-8")
    return folder


DATA = {
    "translation": 'source = "{}.source"\ntarget = "{}.target"',
    "language-model": 'files = "{}.txt"',
    "masked-language-model": 'files = "{}.txt"',
    "bidirectional-language-model": 'files = "{}.txt"',
    "classification": 'files = "{}.tsv"',
    "tagging": 'format = "conll"\nfiles = "{}.conll"',
}


def write_config(folder: Path, corpora: Path, task: str, family: str, extra: str = "") -> Path:
    """A small model of a family for a task, on the corpora; without snapshots, which take longer than the steps."""
    stack = "decoder" if task == "language-model" else "encoder"
    batch = 'rows = {kind = "lines", max_length = 32}' if "language-model" in task else "max_length = 32"
    data = DATA[task].replace('"{}', f'"{corpora}/{{}}')
    text = f"""
task = "{task}"
tokenizer = {{kind = "words", min_frequency = 1}}
data.checks.duplicate = "off"
data.checks.overlap = "off"
[data.train]
{data.format("train", "train")}
[data.valid]
{data.format("valid", "valid")}
[batch]
tokens = 512
{batch}
[model.{stack}]
family = "{family}"
num_layers = 1
model_dim = 32
[train]
threads = 1
warmup = 5
save_every = 7
{extra}
"""
    if "validate_every" not in extra:
        text += "validate_every = 20\n"
    if "snapshots" not in extra:
        text += "snapshots = 0\n"
    path = folder / f"{task}-{family}.toml"
    path.write_text(text, encoding="utf-8")
    return path
