"""Clients from npm, unchanged: openai, deepl-node and translate, installed into a temporary folder."""

import hashlib
import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

import seqloom
from seqloom.serve.keys import Keys
from unit.serve.served import Served, make_folders

pytestmark = pytest.mark.usefixtures("as_users_run")  # whole models: shapes are checked elsewhere

PACKAGES = ("openai@7.55.0", "deepl-node@1.28.0", "translate@3.1.0")
KEY, TEXT = "a-key-of-our-own", "the cat sees a dog"


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    return make_folders(tmp_path_factory.mktemp("served"), ("translation", "language-model", "classification"))


@pytest.fixture(scope="module")
def address(folders: dict[str, Path]) -> Iterator[str]:
    keys = folders["translation"].parent / "keys.txt"
    keys.write_text(f"{hashlib.sha256(KEY.encode()).hexdigest()}  node\n")
    with Served(folders, keys=Keys(keys)) as served, served.listen() as found:
        yield found


def test_clients_from_npm(address: str, folders: dict[str, Path], tmp_path: Path) -> None:
    npm, node = shutil.which("npm"), shutil.which("node")
    if npm is None or node is None:
        pytest.skip("node and npm are not installed")
    (tmp_path / "package.json").write_text('{"private": true, "type": "module"}')
    shutil.copy(Path(__file__).with_name("clients.mjs"), tmp_path)
    # Peers are optional here, and are asked of the registry one by one; versions of Node are only advice.
    quiet = ("--no-audit", "--no-fund", "--no-package-lock", "--legacy-peer-deps", "--ignore-scripts")
    subprocess.run([npm, "install", *quiet, *PACKAGES], cwd=tmp_path, check=True, capture_output=True, timeout=900)
    command = [node, "clients.mjs", address, KEY, TEXT]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=300, env=dict(os.environ))
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    lm, mt = seqloom.load(folders["language-model"]), seqloom.load(folders["translation"])
    generated = lm.generate(TEXT, max_length=9)
    assert found["completion"] == "".join(found["stream"]) == generated.text
    assert found["logprobs"] == [pytest.approx(generated.token_scores[: len(generated.tokens)], abs=1e-5)] * 2
    vectors = seqloom.load(folders["classification"]).embed([TEXT, "a dog"])
    np.testing.assert_allclose(found["embeddings"], vectors, atol=1e-5)  # the client asks for base64 of its own accord
    assert found["models"] == sorted(folders)
    assert found["deepl"] == [[one.text, "de"] for one in mt.translate([TEXT, "a dog"])]
    assert found["used"] >= len(TEXT)
    assert found["translate"] == mt.translate(TEXT).text
