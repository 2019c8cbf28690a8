"""What each experiment shows in its smallest form, whatever the seed."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from seqloom.lab.catalogue import find_experiment
from seqloom.lab.grammar import PHENOMENA
from seqloom.lab.session import Shown, run_experiment

EXPECTED: dict[str, dict[str, bool]] = {
    "scale": {
        "large products make the softmax's gradients small": True,
        "at the start, pre-norm makes the last layer's gradient smaller": True,
    },
    "distance": {
        "gradients vanish over long distances in recurrent networks": True,
        "self-attention has a constant path": True,
        "convolutions need several layers": True,
        "convolutions connect n positions in log_k n layers": False,
    },
    "collapse": {
        "repeated attention without a feed-forward network computes only weighted averages": True,
        "a feed-forward network is enough to prevent that": False,
        "residual connections let each layer update only a small subspace": False,
    },
    "order": {
        "sinusoids work for sequences longer than those of training": False,
        "normalised indices do not do": False,
    },
    "bottleneck": {
        "attention looks each letter up": True,
        "a whole line does not fit into one vector": True,
    },
    "heads": {
        "a language model learns from its prompt": True,
        "that is what induction heads are for": True,
        "they need heads that attend to the token before": True,
    },
    "context": {
        "a word moves closer to words that mean the same here": True,
        "the same word in two meanings moves apart": True,
        "a static vector is the same in every sentence": True,
    },
    "cost": {
        "counted multiplications equal the formulas": True,
        "a layer costs n²d, rnd, nd² and knd² multiplications": True,
        "only a recurrence computes one position after the other": True,
        "self-attention is cheap for usual sequences": True,
    },
    "probe": {"the meaning of an ambiguous word is in its context": True},
    "pairs": {"a verb agrees with its subject across words of the other number as well as beside it": False},
}
"""Which claims hold, by how they begin. Those that are not named depend on the seed at this size."""


def conduct(name: str, folder: Path, seed: int = 1, **changes: Any) -> Shown:
    """An experiment in its smallest form, in this process."""
    parameters = {**find_experiment(name).smallest, **changes}
    spelled = [f"{key}={json.dumps(value)}" for key, value in parameters.items()]
    return run_experiment(name, spelled, seed=seed, folder=folder, jobs=1)


def check(name: str, folder: Path, seed: int) -> None:
    """An experiment says what is expected of it, and its numbers are what theory says where there is one."""
    facts = conduct(name, folder, seed).facts
    for said, holds in EXPECTED[name].items():
        claims = [claim for claim in facts["claims"] if claim["said"].startswith(said)]
        assert claims, f"no claim begins with: {said}"
        assert all(claim["holds"] == holds for claim in claims), claims
    NUMBERS.get(name, lambda parameters, results: None)(facts["parameters"], facts["results"])


def check_paths(parameters: dict[str, Any], results: dict[str, Any]) -> None:
    """A position more for each place that a layer reaches back; a power of the kernel's width where it is dilated."""
    (layers,) = results["layers"]
    lengths = parameters["lengths"]
    assert layers["attention"] == [1 for _ in lengths]
    assert layers["window of 8"] == [-(-(n - 1) // 7) for n in lengths]
    assert layers["kernel of 3"] == [-(-(n - 1) // 2) for n in lengths]
    assert layers["dilated kernel of 3"] == [next(m for m in range(9) if 3**m >= n) for n in lengths]


def check_counts(parameters: dict[str, Any], results: dict[str, Any]) -> None:
    """Multiplications as they can be counted by hand, with a window of 4 and a kernel of 3."""
    by_hand: dict[str, Callable[[int, int], int]] = {
        "self-attention": lambda n, d: n * n * d + n * n * d,  # scores, then weighted values
        "window attention": lambda n, d: 2 * (n // 4) * (4 * 7) * d,  # blocks of 4 queries, each with 7 keys
        "lstm": lambda n, d: n * 4 * (d * d + d * d),  # four gates, of the input and of the state
        "convolution": lambda n, d: n * 3 * d * d,
    }
    exponents = {"self-attention": (2, 1), "window attention": (1, 1), "lstm": (1, 2), "convolution": (1, 2)}
    for layer, count in by_hand.items():
        (found,) = results[layer]
        expected = [[count(n, d) for d in parameters["counted_dims"]] for n in parameters["counted_lengths"]]
        assert found["multiplications"] == expected, layer
        assert [found["exponent of n"], found["exponent of d"]] == pytest.approx(exponents[layer], abs=0.05)


def check_grammar(parameters: dict[str, Any], results: dict[str, Any]) -> None:
    """What stands side by side is learned first."""
    (found,) = results["transformer"]
    near = next(at for at, name in enumerate(PHENOMENA) if name.startswith("subject and verb ("))
    assert found["accuracy"][near] > 0.8


NUMBERS: dict[str, Callable[[dict[str, Any], dict[str, Any]], None]] = {
    "distance": check_paths,
    "cost": check_counts,
    "pairs": check_grammar,
}
