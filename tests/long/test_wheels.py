"""The package as it is installed: a wheel with kernels where nothing can be compiled, and one that was built without.

The environments see the packages of the one that runs the tests, so that only Seqloom itself is installed into them.
"""

import json
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import venv
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
RATE = "train.optimizer.learning_rate=0.01"
LINES = 'batch.rows={kind = "lines", max_length = 16}'
COMPILERS = re.compile(r"(.*-)?(cc|gcc|g\+\+|c\+\+|clang|clang\+\+|c89|c99|tcc|icx|icc)(-[\d.]+)?")


@pytest.fixture(scope="module")
def bare_path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of links to every command but compilers."""
    folder = tmp_path_factory.mktemp("commands")
    for place in os.environ["PATH"].split(os.pathsep):
        for command in Path(place).iterdir() if Path(place).is_dir() else ():
            link = folder / command.name
            if not COMPILERS.fullmatch(command.name) and not link.is_symlink():
                link.symlink_to(command)
    assert not any(shutil.which(name, path=str(folder)) for name in ("cc", "gcc", "clang"))
    return folder


@pytest.fixture(scope="module")
def bare(bare_path: Path) -> dict[str, str]:
    """The environment of a machine without a compiler."""
    kept = {name: value for name, value in os.environ.items() if name not in ("CC", "CFLAGS", "LDFLAGS", "PYTHONPATH")}
    return kept | {"PATH": str(bare_path)}


@pytest.fixture(scope="module")
def sources(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The package's sources alone, without what an installation in place has built."""
    folder = tmp_path_factory.mktemp("sources")
    listed = subprocess.run(
        ["git", "ls-files", "-co", "--exclude-standard"], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout.splitlines()
    for name in listed:
        if (ROOT / name).is_file():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, folder / name)
    return folder


def build_wheel(sources: Path, to: Path, environment: dict[str, str] | None = None) -> Path:
    command = [sys.executable, "-m", "pip", "wheel", "--quiet", "--disable-pip-version-check", "--no-deps"]
    done = subprocess.run([*command, "-w", str(to), str(sources)], env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return next(to.glob("*.whl"))


class Installed:
    """An environment of its own with a wheel in it."""

    def __init__(self, folder: Path, wheel: Path, environment: dict[str, str]) -> None:
        venv.create(folder, with_pip=False)
        self.folder, self.environment = folder, environment
        site = next((folder / "lib").glob("python*/site-packages"))
        (site / "outer.pth").write_text(sysconfig.get_paths()["purelib"] + "\n")
        python = str(folder / "bin" / "python")
        command = [
            sys.executable,
            "-m",
            "pip",
            "--python",
            python,
            "install",
            "--quiet",
            "--no-deps",
            "--ignore-installed",
        ]
        subprocess.run([*command, str(wheel)], check=True, env=environment)
        assert (site / "seqloom").is_dir()

    def run(self, *arguments: str, stdin: str = "") -> str:
        """What `seqloom ARGUMENTS` prints."""
        done = subprocess.run(
            [str(self.folder / "bin" / "seqloom"), *arguments],
            cwd=self.folder,
            env=self.environment,
            input=stdin,
            capture_output=True,
            text=True,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def describe_kernels(self) -> dict[str, object]:
        found: dict[str, object] = json.loads(self.run("info", "--json"))["kernels"]
        return found

    def train_and_answer(self) -> str:
        """What a small model that has read `abab …` writes after `ab`."""
        for name in ("train.txt", "valid.txt", "test.txt"):
            (self.folder / name).write_text("abababab\n" * 64)
        self.run("new", "language-model", "-o", "model.toml")
        self.run(
            "train", "model.toml", "size=tiny", "tokenizer=characters", LINES, "train.steps=200", RATE, "--out", "run"
        )
        return self.run("generate", "run", stdin="ab\n")


@pytest.fixture(scope="module")
def wheel(sources: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_wheel(sources, tmp_path_factory.mktemp("wheel"))


@pytest.fixture(scope="module")
def wheel_without(sources: Path, bare: dict[str, str], tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_wheel(sources, tmp_path_factory.mktemp("wheel-without"), bare)


def test_a_wheel_holds_the_library_and_no_sources_of_it(wheel: Path) -> None:
    assert re.fullmatch(r"seqloom-[\d.]+-py3-none-\w+\.whl", wheel.name)
    names = zipfile.ZipFile(wheel).namelist()
    assert "seqloom/native/libseqloom_kernels.so" in names
    assert "seqloom/native/build.json" in names
    assert "seqloom/py.typed" in names
    assert {"seqloom/page/static/index.html", "seqloom/page/static/style.css", "seqloom/page/static/app.js"} <= {*names}
    others = {Path(name).suffix for name in names if name.startswith("seqloom/native/")}
    assert others == {".py", ".so", ".json"}


def test_a_wheel_runs_its_kernels_where_there_is_no_compiler(wheel: Path, bare: dict[str, str], tmp_path: Path) -> None:
    installed = Installed(tmp_path / "venv", wheel, bare)
    kernels = installed.describe_kernels()
    assert kernels["level"] is not None, kernels
    assert kernels["level"] in kernels["levels"]  # type: ignore[operator]
    assert installed.train_and_answer().startswith("ab")


def test_a_package_built_without_a_compiler_says_so_and_works(
    wheel_without: Path, bare: dict[str, str], tmp_path: Path
) -> None:
    assert not [name for name in zipfile.ZipFile(wheel_without).namelist() if name.endswith(".so")]
    installed = Installed(tmp_path / "venv", wheel_without, bare)
    kernels = installed.describe_kernels()
    assert kernels["level"] is None
    assert kernels["reason"] == "PyTorch computes everything: the package was built without a C compiler."
    assert installed.train_and_answer().startswith("ab")


def test_a_source_distribution_builds(sources: Path, tmp_path: Path) -> None:
    pip = [
        sys.executable,
        "-m",
        "pip",
        "install",
        "--quiet",
        "--target",
        str(tmp_path / "backend"),
        "scikit-build-core",
    ]
    subprocess.run(pip, check=True)
    code = f"import scikit_build_core.build as backend; backend.build_sdist({str(tmp_path)!r})"
    environment = os.environ | {"PYTHONPATH": str(tmp_path / "backend")}
    subprocess.run([sys.executable, "-c", code], cwd=sources, env=environment, check=True, capture_output=True)
    wheel = build_wheel(next(tmp_path.glob("*.tar.gz")), tmp_path)
    assert "seqloom/native/libseqloom_kernels.so" in zipfile.ZipFile(wheel).namelist()
