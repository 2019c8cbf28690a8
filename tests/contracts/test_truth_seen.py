"""What the lens sees of a loaded model is what its verbs ran; and all of this without the parts written in C."""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import seqloom
from contracts.answers import LENGTH, TARGETS, TEXTS, compare, list_values
from contracts.random_models import find_folder
from seqloom.lens.attention import capture
from seqloom.nn.attention import GlobalAttention, Pool
from seqloom.nn.multihead import CrossAttention, SelfAttention

pytestmark = pytest.mark.usefixtures("as_users_run")
ENGINES = pytest.mark.parametrize("engine", ["compiled", "open"])
TRANSLATORS = (*(f"translation/{kind}" for kind in ("transformer", "recurrent", "convolutional", "post-norm")), "t5")
VERBS: dict[str, tuple[Callable[[Any], Any], tuple[str, ...], tuple[str, ...]]] = {
    "embed": (
        lambda model: model.embed(TEXTS),
        (
            *("translation/transformer", "classification/transformer", "tagging/transformer", "bert", "marian", "t5"),
            *(
                "language-model/transformer",
                "masked-language-model/transformer",
                "bidirectional-language-model/transformer",
            ),
        ),
        ("decoder.blocks.0.cross", "decoder", "pool"),
    ),
    "score pairs": (
        lambda model: model.score(TEXTS, TARGETS),
        TRANSLATORS,
        (),
    ),
    "score": (
        lambda model: model.score(TEXTS),
        (
            *("language-model/transformer", "language-model/grouped", "language-model/window", "gpt2", "llama"),
            *("masked-language-model/transformer", "bidirectional-language-model/transformer"),
        ),
        ("backwards",),
    ),
    "translate": (
        lambda model: model.translate(TEXTS, align=False, max_length=LENGTH),
        TRANSLATORS,
        (),
    ),
    "translate by beam": (
        lambda model: model.translate(TEXTS, align=False, max_length=LENGTH, beam=4),
        ("translation/transformer", "translation/recurrent", "translation/convolutional"),
        (),
    ),
    "generate": (
        lambda model: model.generate(TEXTS, max_length=LENGTH),
        ("language-model/transformer", "language-model/grouped", "language-model/window", "gpt2", "llama"),
        (),
    ),
    "classify": (
        lambda model: model.classify(TEXTS),
        (
            "classification/transformer",
            "classification/recurrent",
            "classification/convolutional",
            "regression/transformer",
        ),
        (),
    ),
    "embed pooled": (
        lambda model: model.embed(TEXTS, pooling="attention"),
        ("classification/transformer", "classification/recurrent"),
        (),
    ),
    "tag": (lambda model: model.tag(TEXTS), ("tagging/transformer",), ()),
}
"""A verb, the models that have it, and the parts of a network that it does not run."""
CASES = [(verb, name) for verb, (_, names, _) in VERBS.items() for name in names]


def list_attention(network: nn.Module) -> list[str]:
    """The names of all modules that attend."""
    return [
        name
        for name, module in network.named_modules()
        if isinstance(module, SelfAttention | CrossAttention | GlobalAttention)
        or (isinstance(module, Pool) and module.kind == "attention")
    ]


@ENGINES
@pytest.mark.parametrize(("verb", "name"), CASES, ids=lambda value: value.replace(" ", "-"))
def test_the_lens_sees_all_attention_that_a_verb_runs(verb: str, name: str, engine: Any) -> None:
    run, _, idle = VERBS[verb]
    model = seqloom.load(find_folder(name), engine=engine)
    before = list_values(run(model))
    left_out = () if name.startswith(("language-model", "gpt2", "llama")) else idle
    expected = [path for path in list_attention(model.network) if not path.startswith(left_out)]
    assert expected, f"{name} has attention"
    with capture(model.network) as seen:
        found = list_values(run(model))
    assert not (difference := compare(found, before)), f"looking at {verb} on {name} ({engine}) changes {difference}"
    assert sorted(seen.names) == sorted(expected), f"what {verb} on {name} ({engine}) ran"
    for path in expected:
        weights = seen.weights(path)
        sums = weights.sum(-1)
        assert weights.dtype == torch.float32, f"{path} in {verb} on {name}"
        assert (weights >= 0).all(), f"{path} in {verb} on {name}"
        padding = sums == 0.0
        assert not padding.all(), f"{path} in {verb} on {name}: no weights at all"
        assert torch.allclose(sums[~padding], torch.ones(()), atol=1e-5), f"{path} in {verb} on {name}"


WITHOUT_KERNELS = (
    "network[language-model/transformer and (state_dict or element or linear or global or double or self-attention) "
    "or network[translation/transformer and (numpy-view or feed-forward) or network[translation/recurrent and lookup "
    "or network[classification/recurrent or network[tagging/transformer "
    "or a_stream and transformer-in-place "
    "or lens and compiled and (score or generate) and (language-model/transformer or translation/recurrent)"
)
"""Which tests: a sample of what is done to the network, and the lens."""


@pytest.mark.skipif(os.environ.get("SEQLOOM_KERNELS") == "none", reason="this is that run")
def test_all_of_this_holds_without_kernels() -> None:
    here = Path(__file__).parent
    files = [str(here / f"test_truth{part}.py") for part in ("", "_in_use", "_seen")]
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-p",
        "no:cacheprovider",
        "-n0",
        "--tb=line",
        *files,
        "-k",
        WITHOUT_KERNELS,
    ]
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_XDIST")}
    done = subprocess.run(
        command,
        env=environment | {"SEQLOOM_KERNELS": "none", "OMP_NUM_THREADS": "1"},
        cwd=here.parent.parent,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, f"without kernels:\n{done.stdout[-4000:]}{done.stderr[-2000:]}"
