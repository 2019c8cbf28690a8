"""In-context learning, the short form of bench/in_context.py: the answer is in the prompt, not in the weights."""

import random
import runpy
from pathlib import Path

import pytest

from forked import seqloom
from seqloom.predict.load import load

BENCH = runpy.run_path(str(Path(__file__).parents[2] / "bench" / "in_context.py"))
WORDS, LABELS = BENCH["WORDS"], BENCH["LABELS"]


@pytest.mark.long
@pytest.mark.usefixtures("as_users_run")
def test_fresh_labels_are_read_from_the_prompt_alone(tmp_path: Path) -> None:
    run = BENCH["train_model"](tmp_path, steps=300)
    model = load(run)
    _, shown, _ = BENCH["judge"](model, 8, tasks=50)
    *_, unseen = BENCH["judge"](model, 0, tasks=100)
    assert shown >= 0.9
    assert abs(unseen - 1 / len(LABELS)) < 0.1, "without examples, a guess"

    right = asked = 0
    for seed in range(4):  # the same on the command line, whatever the labels are
        meaning = dict(zip(WORDS, random.Random(seed).choices(LABELS, k=4), strict=False))
        shots = [pair for pair in meaning.items() for _ in range(2)]
        random.Random(seed).shuffle(shots)
        (tmp_path / "shots.tsv").write_text("".join(f"{word}\t{label}\n" for word, label in shots))
        labels = [option for label in LABELS for option in ("--labels", label)]
        done = seqloom("classify", run, "--shots", tmp_path / "shots.tsv", *labels, stdin="\n".join(meaning).encode())
        assert done.returncode == 0, done.stderr
        right += sum(
            found == label for found, label in zip(done.stdout.decode().split(), meaning.values(), strict=True)
        )
        asked += len(meaning)
    assert right / asked >= 0.9
