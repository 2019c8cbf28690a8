"""What the lens sees of a loaded model is what its verbs ran; and all of this without the parts written in C."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import seqloom
from contracts.random_models import NAMES, find_folder
from seqloom.lens.networks import open_network
from seqloom.nn.attention import GlobalAttention, Pool
from seqloom.nn.convolution import Convolution
from seqloom.nn.multihead import CrossAttention, SelfAttention
from seqloom.nn.recurrent import RecurrentLayer

pytestmark = pytest.mark.usefixtures("as_users_run")
ENGINES = pytest.mark.parametrize("engine", ["compiled", "open"])
MIXING = SelfAttention | CrossAttention | GlobalAttention | Pool | RecurrentLayer | Convolution
SEARCHED = ("translation", "marian", "t5")


def ask(name: str, model: Any, length: int = 5) -> Any:
    """A trace of a text that suits the model."""
    masked = name == "bert" or name.startswith("masked")
    text = "w1 w2 [MASK] w4 w5" if masked else "w1 w2 w3 w2 w5"
    return model.trace(text, **({"max_length": length} if name.startswith(SEARCHED) else {}))


def count_maps(network: nn.Module) -> int:
    """One for each head of each module that mixes positions."""
    modules = [module for module in network.modules() if isinstance(module, MIXING)]
    return sum(getattr(module, "num_heads", 1) for module in modules)


@ENGINES
@pytest.mark.parametrize("name", NAMES)
@torch.no_grad()
def test_the_lens_sees_what_a_verb_computes(name: str, engine: Any) -> None:
    model = seqloom.load(find_folder(name), engine=engine)
    trace = ask(name, model)
    assert len(trace.sites) == count_maps(model.network)
    network = model._predictor.compile()
    assert (network is model.network) == (engine == "open" or os.environ.get("SEQLOOM_KERNELS") == "none")
    opened, seen = open_network(model.network), trace._seen
    opened.network = network  # the compiled copy answers
    for direction, expected in opened.answer(seen.reading.ids).items():
        found = seen.open.compare(seen.make_pass(), seen.passed.finals[direction])
        torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-5)
    probabilities = [prediction.probability for prediction in trace.predictions]
    scores = getattr(trace.answer, "token_scores", ())
    known = [score for score in scores if score is not None]
    if name.startswith(SEARCHED):
        torch.testing.assert_close(
            torch.tensor(probabilities[: len(known)]).log(), torch.tensor(known), rtol=1e-4, atol=1e-4
        )
    for site in trace.sites:
        weights = trace.mixing(site)
        assert weights.dtype == torch.float32
        assert ((weights >= 0) & (weights <= 1 + 1e-5)).all()
    assert json.loads(json.dumps(trace.to_json()))["stacks"]


WITHOUT_KERNELS = (
    "network[language-model/transformer and (state_dict or element or linear or global or double or self-attention) "
    "or network[translation/transformer and (numpy-view or feed-forward) or network[translation/recurrent and lookup "
    "or network[classification/recurrent or network[tagging/transformer "
    "or a_stream and transformer-in-place "
    "or lens and compiled"
)
"""Which tests: a sample of what is done to the network, and the lens."""


@pytest.mark.long
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
