"""The page of `seqloom explore` on a long text: 1,024 tokens in a model of 12 layers with 12 heads each.

    python bench/explore.py --write      # a minute; needs Chromium; the machine alone

A model with random weights is served as `seqloom explore` does, and a real browser opens one view after the other.
Measured are the time from the trace's arrival to the first frame that shows a part of the view, and to the last part,
which may wait for the server; the longest task on the page's main thread, by the clock and by the processor time that
it took, both from the browser's own trace; and the largest answer. Then the same model's trace of 64 tokens is saved as
one file.
"""

import argparse
import json
import random
import shutil
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import torch
import uvicorn
from playwright.sync_api import Page, sync_playwright

import seqloom
from seqloom.config.tokenizer import Words
from seqloom.serve.explore import make_app
from seqloom.serve.start import bind
from seqloom.serve.subject import Subject
from seqloom.tasks import TASKS
from seqloom.tasks.configuration import validate

LAYERS, HEADS, TOKENS, SAVED = 12, 12, 1024, 64
VIEWS = ("answer", "mixing", "why", "search", "change")
HEAD = ["view", "first paint (s)", "complete (s)", "longest task (ms)", "of processor time (ms)", "largest answer (MB)"]
WATCH = """
const look = () => {
  const app = document.querySelector("seq-app");
  const view = document.querySelector("main > :last-child");
  if (app?.trace && view?.childElementCount) window.painted ??= performance.now();
  if (app?.dataset.state === "ready" && !view?.hasAttribute("aria-busy")) {
    window.complete ??= performance.now();
    document.documentElement.dataset.complete = "";
  }
  requestAnimationFrame(look);
};
requestAnimationFrame(look);
"""
TIMES = """() => {
  const arrived = performance.getEntriesByType("resource").find((one) => one.name.endsWith("/trace")).responseEnd;
  return [(window.painted - arrived) / 1000, (window.complete - arrived) / 1000];
}"""


def main() -> None:
    from results import draw_table, write_section

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", action="store_true", help="write docs/results.md")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        run = make_model(Path(folder))
        rows = measure(run, write_text(TOKENS))
        size = save_file(run, write_text(SAVED))
    table = draw_table(HEAD, rows)
    about = (
        f"A language model with {LAYERS} layers of {HEADS} heads and random weights reads {TOKENS:,} tokens; Chromium "
        "without a window opens each view. Times run from the arrival of the trace to the first and to the last part "
        "that is shown; tasks are those of the page's main thread."
    )
    saved = f"The trace of {SAVED} tokens × {LAYERS * HEADS} heads, saved as one file: {size / 1e6:.2f} MB."
    text = f"## The explorer on a long text\n\n{about}\n\n{table}\n\n{saved}"
    print(text)
    if options.write:
        write_section("bench/explore.py", text)


def make_model(folder: Path) -> Path:
    """A language model with random weights, saved as a run."""
    words = [f"word{number}" for number in range(500)]
    tokenizer = seqloom.Tokenizer.train(words, Words(min_frequency=1))
    decoder = {"num_layers": LAYERS, "num_heads": HEADS, "model_dim": 8 * HEADS, "hidden_dim": 64}
    config = {
        "task": "language-model",
        "tokenizer": {"kind": "file", "path": "tokenizer.json"},
        "data": {"train": {"files": ["train.txt"]}},
        "batch": {"rows": {"kind": "lines", "max_length": TOKENS + 8}},
        "model": {"decoder": decoder},
    }
    torch.manual_seed(0)
    task: Any = validate(config, TASKS["language-model"], "", "bench")
    network = task.build(tokenizer)
    return seqloom.assemble(task, tokenizer, network.state_dict()).save(folder / "large")


def write_text(count: int) -> str:
    """Words in a random order."""
    rng = random.Random(1)
    return " ".join(f"word{rng.randrange(500)}" for _ in range(count))


@contextmanager
def serve(run: Path) -> Iterator[str]:
    """The address of a server of the run, without its state."""
    with bind(0) as listening:
        port = listening.getsockname()[1]
        app = make_app(Subject(run), port=port, token="bench")
        server = uvicorn.Server(uvicorn.Config(app, log_level="warning", access_log=False, lifespan="off"))
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]}, daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{port}/"
        server.should_exit = True
        thread.join()


def measure(run: Path, text: str) -> list[list[str]]:
    """For each view: seconds to the first and the last part, the longest task, the largest answer."""
    path = shutil.which("chromium")
    if path is None:
        raise SystemExit("this bench needs Chromium: apt-get install chromium")
    rows = []
    with serve(run) as address, sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=["--no-sandbox"])
        for view in VIEWS:
            page = browser.new_page()
            browser.start_tracing(page=page, categories=["toplevel", "disabled-by-default-devtools.timeline"])
            url = f"{address}#{urlencode({'token': 'bench', 'text': text, 'view': view})}"
            painted, complete, largest = open_view(page, url)
            tasks = find_tasks(browser.stop_tracing())
            longest, busiest = (max(times) for times in zip(*tasks, strict=True))
            rows.append([view, painted, complete, f"{longest:.0f}", f"{busiest:.0f}", largest])
            page.close()
        browser.close()
    return rows


def open_view(page: Page, url: str) -> list[str]:
    """Seconds to the first and to the last part, and the largest answer."""
    sizes: list[int] = []
    page.set_default_timeout(300_000)
    page.add_init_script(WATCH)
    page.on("response", lambda response: sizes.append(len(response.body())))
    page.goto(url)
    page.wait_for_selector("html[data-complete]", state="attached")
    page.wait_for_timeout(1000)
    painted, complete = page.evaluate(TIMES)
    return [f"{painted:.2f}", f"{complete:.2f}", f"{max(sizes) / 1e6:.2f}"]


def find_tasks(trace: bytes) -> list[tuple[float, float]]:
    """Each task of the page's main thread: milliseconds by the clock, and of processor time."""
    events = json.loads(trace)["traceEvents"]
    named = {(one["pid"], one["tid"]): one["args"]["name"] for one in events if one["name"] == "thread_name"}
    own = [one for one in events if named.get((one["pid"], one["tid"])) == "CrRendererMain" and one["ph"] == "X"]
    return [(one["dur"] / 1000, one.get("tdur", 0) / 1000) for one in own if "RunTask" in one["name"]]


def save_file(run: Path, text: str) -> int:
    """The size of a trace as one file."""
    trace = seqloom.load(run).trace(text)
    path = run.parent / "saved.html"
    trace.save(path)
    return path.stat().st_size


if __name__ == "__main__":
    main()
