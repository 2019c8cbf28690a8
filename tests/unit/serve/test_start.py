"""The verb from outside: an address is printed, the page answers there, Ctrl-C ends it; faults are sentences."""

import re
import signal
import subprocess
import sys
import urllib.error
import urllib.request
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from seqloom.cli.main import app
from seqloom.errors import RunError, SeqloomError
from seqloom.serve.start import bind
from unit.serve.conftest import make_run


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_run(tmp_path_factory.mktemp("run") / "lm", "language-model")


def explore(*arguments: object) -> Result:
    return CliRunner().invoke(app, ["explore", *map(str, arguments)])


def test_a_server_from_start_to_end(run: Path) -> None:
    command = [sys.executable, "-m", "seqloom", "explore", str(run), "--no-browser", "--text", "the cat sees"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as server:
        assert server.stdout is not None
        first = server.stdout.readline()
        found = re.fullmatch(rf"exploring {re.escape(str(run))} at (http://127\.0\.0\.1:\d+)/#token=(\S+)\n", first)
        assert found, first
        try:
            with urllib.request.urlopen(found[1], timeout=60) as page:
                assert b"<seq-app>" in page.read()
            address, key = f"{found[1]}/seqloom/v1/model", {"Authorization": f"Bearer {found[2]}"}
            with urllib.request.urlopen(urllib.request.Request(address, headers=key), timeout=60) as model:
                assert b'"text":"the cat sees"' in model.read()
            with pytest.raises(urllib.error.HTTPError, match="401"):
                urllib.request.urlopen(address, timeout=60)
        finally:
            server.send_signal(signal.SIGINT)
        rest = server.stdout.read()
        assert rest.splitlines()[-1] == "stopped"
    assert server.returncode == 0


def test_a_port_in_use_and_one_that_is_not_ours() -> None:
    with bind(0) as taken:
        port = taken.getsockname()[1]
        assert taken.getsockname()[0] == "127.0.0.1"
        with pytest.raises(RunError, match=f"port {port} is in use; choose another one"):
            bind(port)


def test_the_browser_is_sent_through_a_file_of_the_users_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """A process's arguments are seen by all users, so the token must not be among them."""
    from seqloom.serve import start

    seen: list[tuple[str, int, str]] = []

    def open_(address: str) -> bool:
        path = Path(address.removeprefix("file://"))
        seen.append((address, path.stat().st_mode & 0o077, path.read_text()))
        return False

    monkeypatch.setattr(start.webbrowser, "open", open_)
    said: list[str] = []
    with start._browser("http://127.0.0.1:1/#token=secret", said.append):
        [(address, others, page)] = seen
        assert "secret" not in address
        assert "secret" in page
        assert others == 0
    assert said == ["no browser could be opened here; open the address yourself"]
    assert not Path(address.removeprefix("file://")).exists()


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["{run}", "--text", " "], "the text is blank"),
        (["{run}", "--text", "the cat . " * 400], "give a shorter text"),
        (["{folder}/nothing"], "there is no run here"),
        (["{run}", "--save", "{folder}/no/such/page.html"], "cannot be written"),
        (["{run}", "--second", "a"], "--second goes with --text"),
    ],
)
def test_what_goes_wrong_is_said(run: Path, tmp_path: Path, arguments: list[str], said: str) -> None:
    done = explore(*(one.format(run=run, folder=tmp_path) for one in arguments), "--no-browser")
    assert done.exit_code != 0
    assert said in (str(done.exception) if isinstance(done.exception, SeqloomError) else done.output)


def test_a_page_is_saved(run: Path, tmp_path: Path) -> None:
    done = explore(run, "--text", "the cat sees the dog .", "--save", tmp_path / "page.html")
    assert done.exit_code == 0, done.exception
    assert "any browser opens it" in done.output
    assert "seqloom-data" in (tmp_path / "page.html").read_text(encoding="utf-8")
