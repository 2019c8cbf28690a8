"""Translation in float32, bfloat16 and int8 beside CTranslate2 at its best: `python bench/precision.py [--write]`

The model and the cases are those of bench/decode.py. Engines may use all cores in any way: each runs in every setting
of a grid, W×T being W workers of T threads each, and CTranslate2 also with both policies of waiting (OMP_WAIT_POLICY).
For each case, the best setting of an engine counts, and is named. A setting is a process of its own; they take turns,
so that ratios are of one run. Workers share the lines of a batch evenly, in both engines.

With `--bleu RUN SOURCE TARGET`, a trained model (such as bench/multi30k.py's) is judged in each precision instead.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from decode import CASES, DIM, LAYERS, LENGTH, VOCAB, build_bundle, make_sources
from engines import interleave_engines, is_installed, serve
from results import draw_table, write_section
from settings import Best, Setting, describe_machine, draw_cells, find_best, list_grid, open_engines

OURS, THEIRS = "Seqloom", "CTranslate2"
PROMISED, LARGEST_LOSS = 1.1, 0.2
WAYS: dict[str, tuple[str, ...]] = {
    "Seqloom float32": (),
    "Seqloom bfloat16": ("--precision", "bfloat16"),
    "Seqloom int8": ("--precision", "int8"),
    "CTranslate2 float32": ("--engine", "ctranslate2"),
    "CTranslate2 int8": ("--engine", "ctranslate2-int8"),
}


def list_settings(cores: int) -> list[Setting]:
    """The grid."""
    found = list_grid(OURS, ("float32", "bfloat16", "int8"), cores, "BRIEF")
    if is_installed("ctranslate2"):
        import ctranslate2

        supported = ctranslate2.get_supported_compute_types("cpu")
        kinds = [kind for kind in ("float32", "bfloat16", "int8", "int8_bfloat16") if kind in supported]
        found += list_grid(THEIRS, kinds, cores, "PASSIVE", "ACTIVE")
    return found


def prepare_seqloom(setting: Setting) -> Callable[[str], Callable[[], object]]:
    from seqloom.cli.process import disable_trimming
    from seqloom.decode.options import Request, SearchOptions
    from seqloom.decode.search import search
    from seqloom.predict.compiler import compile_network
    from seqloom.predict.workers import share
    from seqloom.types import TokenBatch

    torch.set_num_threads(setting.threads)
    model: Any = compile_network(build_bundle().network, setting.precision)  # type: ignore[arg-type]
    disable_trimming()

    def prepare(case: str) -> Callable[[], object]:
        beam, batch = CASES[case]
        parts = [part for part in make_sources(batch).chunk(setting.workers) if len(part)]
        options = SearchOptions(beam=beam, min_length=LENGTH)

        @torch.inference_mode()
        def translate(ids: torch.Tensor) -> None:
            state = model.start(model.encode(TokenBatch(ids, torch.ones_like(ids, dtype=torch.bool))), LENGTH)
            search(model.step, state, [Request(1, LENGTH)] * len(ids), options, ends=(2,))

        return lambda: list(share(parts, translate, setting.workers))

    return prepare


def prepare_ctranslate2(setting: Setting) -> Callable[[str], Callable[[], object]]:
    import ctranslate2

    from seqloom.hub.ctranslate2 import name_tokens, write_folder

    torch.set_num_threads(1)  # PyTorch's own threads would wait beside those of CTranslate2
    model = build_bundle()
    names = name_tokens(model.tokenizer, VOCAB)
    with tempfile.TemporaryDirectory() as folder:
        write_folder(model, Path(folder))
        plan = {"inter_threads": setting.workers, "intra_threads": setting.threads}
        translator = ctranslate2.Translator(folder, compute_type=setting.precision, **plan)

    def prepare(case: str) -> Callable[[], object]:
        beam, batch = CASES[case]
        sources = [[names[id] for id in row] for row in make_sources(batch).tolist()]
        options = {"beam_size": beam, "min_decoding_length": LENGTH, "max_decoding_length": LENGTH}
        each = -(-batch // setting.workers)
        return lambda: translator.translate_batch(sources, max_batch_size=each, **options)

    return prepare


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", action="store_true", help="renew the section of docs/results.md")
    parser.add_argument("--cores", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--turn", type=float, default=1.0, help="seconds of a turn, at least")
    parser.add_argument(
        "--bleu", nargs=3, type=Path, metavar=("RUN", "SOURCE", "TARGET"), help="what rounding costs a trained model"
    )
    parser.add_argument("--engine", help=argparse.SUPPRESS)
    parser.add_argument("--threads", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.engine:
        setting = Setting.parse(options.engine)
        serve((prepare_seqloom if setting.engine == OURS else prepare_ctranslate2)(setting), options.turn)
        return
    if options.bleu:
        text, section = compare_quality(*options.bleu), "bench/precision.py --bleu"
    else:
        text, section = compare_speeds(options.cores, options.rounds, options.turn), "bench/precision.py"
    print(text)
    if options.write:
        write_section(section, text)


def compare_speeds(cores: int, rounds: int, turn: float) -> str:
    """The section of docs/results.md about tokens a second."""
    settings = list_settings(cores)
    engines = open_engines(settings, turn)
    contenders = list(dict.fromkeys(one.contender for one in settings))
    rows, disturbed = [], 0.0
    for case, (_, batch) in CASES.items():
        times = interleave_engines(engines, case, rounds=rounds)
        disturbed = max(disturbed, *(time.foreign for time in times.values()))
        best = find_best(times, batch * LENGTH)
        rows.append([case, *draw_cells(best, times), *_compare(best)])
        print(*rows[-1], sep="  ", flush=True)
    for engine in engines.values():
        engine.close()
    ratios = ["Seqloom's best / CTranslate2's best", "int8 / int8", "float32 / float32"] if len(contenders) > 3 else []
    return "\n\n".join(
        [
            f"## Translation in each precision\n\nTokens a second on {cores} cores, encoding included: "
            f"d = {DIM}, {LAYERS} + {LAYERS} layers, vocabulary {VOCAB:,}, {LENGTH} tokens forced, "
            f"PyTorch {torch.__version__}, {describe_machine()}. "
            f"In brackets the best setting: workers × threads; “active” is OMP_WAIT_POLICY. "
            f"CPU used by others: at most {disturbed:.0%}.",
            draw_table(["case", *contenders, *ratios], rows),
        ]
    )


def _compare(best: Best) -> list[str]:
    ours, theirs = (
        {one.precision: speed for speed, one in best.values() if one.engine == who} for who in (OURS, THEIRS)
    )
    if not theirs:
        return []
    pairs = [(max(ours.values()), max(theirs.values())), *((ours[kind], theirs[kind]) for kind in ("int8", "float32"))]
    return [f"{own / other:.2f} (≥ {PROMISED})" for own, other in pairs]


def compare_quality(run: Path, source: Path, target: Path) -> str:
    """The section about BLEU: what rounding costs."""
    rows, exact = [], {"1": 0.0, "5": 0.0}
    for name, way in WAYS.items():
        if way and way[1].startswith("ctranslate2") and not is_installed("ctranslate2"):
            continue
        row = [name]
        for beam in exact:
            value, low, high = evaluate(run, source, target, "--beam", beam, *way)
            exact[beam] = exact[beam] if rows else value
            row += [f"{value:.2f} ({low:.2f} to {high:.2f})", f"{value - exact[beam]:+.2f} (≥ −{LARGEST_LOSS})"]
        rows.append(row)
        print(*row, sep="  ", flush=True)
    about = (
        f"## What rounding costs\n\nBLEU of {run.name} on {target.name}, with its 95% interval; {describe_machine()}."
    )
    head = ["engine", "greedy", "beside float32", "beam of 5", "beside float32"]
    return f"{about}\n\n{draw_table(head, rows)}"


def evaluate(run: Path, source: Path, target: Path, *options: str) -> tuple[float, float, float]:
    """BLEU of tokenised texts, and its interval."""
    given = ["--data", str(source), str(target), "--tokenized", "--metrics", "bleu", "--json", *options]
    command = [sys.executable, "-m", "seqloom", "eval", str(run), *given]
    bleu = json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout)["metrics"][0]
    return bleu["value"], bleu["low"], bleu["high"]


if __name__ == "__main__":
    main()
