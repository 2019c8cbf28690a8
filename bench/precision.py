"""Translation in float32, bfloat16 and int8 beside CTranslate2 at its best: `python bench/precision.py [--write]`

The model and the cases are those of bench/decode.py. Engines may use all cores in any way: each runs in every setting
of a grid, W×T being W workers of T threads each, and CTranslate2 also with both policies of waiting (OMP_WAIT_POLICY).
For each case, the best setting of an engine counts, and is named. A setting is a process of its own; they take turns,
so that ratios are of one run. Workers share the lines of a batch evenly, in both engines.
"""

import argparse
import os
import platform
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import torch
from decode import CASES, DIM, LAYERS, LENGTH, VOCAB, build_bundle, make_sources
from engines import Engine, interleave_engines, is_installed, serve
from results import draw_table, write_section

OURS, THEIRS = "Seqloom", "CTranslate2"
PROMISED = 1.1


class Setting(NamedTuple):
    """An engine, what it computes in, and how it uses the cores."""

    engine: str
    precision: str
    workers: int
    threads: int
    waiting: str = "PASSIVE"

    @property
    def name(self) -> str:
        """All of it."""
        return " ".join((self.engine, self.precision, self.plan, self.waiting))

    @property
    def plan(self) -> str:
        """Workers × threads."""
        return f"{self.workers}×{self.threads}"

    @property
    def contender(self) -> str:
        """What the table has a column for."""
        return f"{self.engine} {self.precision}"

    @classmethod
    def parse(cls, name: str) -> "Setting":
        """From its name."""
        engine, precision, plan, waiting = name.split(" ")
        workers, threads = map(int, plan.split("×"))
        return cls(engine, precision, workers, threads, waiting)


def list_settings(cores: int) -> list[Setting]:
    """The grid."""
    plans = sorted({(1, 1), (1, cores), (cores, 1)})
    found = [Setting(OURS, kind, *plan) for kind in ("float32", "bfloat16", "int8") for plan in plans]
    if is_installed("ctranslate2"):
        import ctranslate2

        supported = ctranslate2.get_supported_compute_types("cpu")
        for kind in ("float32", "bfloat16", "int8", "int8_bfloat16"):
            if kind in supported:
                found += [Setting(THEIRS, kind, *plan) for plan in plans]
                found += [Setting(THEIRS, kind, *plan, "ACTIVE") for plan in plans if plan != (1, 1)]
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
    parser.add_argument("--engine", help=argparse.SUPPRESS)
    parser.add_argument("--threads", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.engine:
        setting = Setting.parse(options.engine)
        serve((prepare_seqloom if setting.engine == OURS else prepare_ctranslate2)(setting), options.turn)
        return
    settings = {one.name: one for one in list_settings(options.cores)}
    more = ("--turn", str(options.turn))
    engines = {name: Engine(name, one.threads, *more, waiting=one.waiting) for name, one in settings.items()}
    contenders = list(dict.fromkeys(one.contender for one in settings.values()))
    rows, disturbed = [], 0.0
    for case, (_, batch) in CASES.items():
        times = interleave_engines(engines, case, rounds=options.rounds)
        disturbed = max(disturbed, *(time.foreign for time in times.values()))
        best: dict[str, tuple[float, Setting]] = {}
        for name, time in times.items():
            own = settings[name]
            best[own.contender] = max(best.get(own.contender, (0.0, own)), (batch * LENGTH / time.seconds, own))
        unit = "" if all(time.clean for time in times.values()) else " of CPU"
        cells = [f"{speed:,.0f}{unit} ({_describe(own)})" for speed, own in (best[name] for name in contenders)]
        rows.append([case, *cells, *_compare({name: speed for name, (speed, _) in best.items()})])
        print(*rows[-1], sep="  ", flush=True)
    for engine in engines.values():
        engine.close()
    ratios = ["Seqloom's best / CTranslate2's best", "float32 / float32"] if len(contenders) > 3 else []
    text = "\n\n".join(
        [
            f"## Translation in each precision\n\nTokens a second on {options.cores} cores, encoding included: "
            f"d = {DIM}, {LAYERS} + {LAYERS} layers, vocabulary {VOCAB:,}, {LENGTH} tokens forced, "
            f"PyTorch {torch.__version__}, {describe_machine()}. "
            f"In brackets the best setting: workers × threads; “active” is OMP_WAIT_POLICY. "
            f"CPU used by others: at most {disturbed:.0%}.",
            draw_table(["case", *contenders, *ratios], rows),
        ]
    )
    print(text)
    if options.write:
        write_section("bench/precision.py", text)


def _describe(setting: Setting) -> str:
    return setting.plan + (", active" if setting.waiting == "ACTIVE" else "")


def _compare(speeds: dict[str, float]) -> list[str]:
    ours, theirs = ([speed for name, speed in speeds.items() if name.startswith(who)] for who in (OURS, THEIRS))
    if not theirs:
        return []
    same = speeds[f"{OURS} float32"] / speeds[f"{THEIRS} float32"]
    return [f"{max(ours) / max(theirs):.2f} (≥ {PROMISED})", f"{same:.2f} (≥ {PROMISED})"]


def describe_machine() -> str:
    """The instructions that kernels of few bits need, as this processor has them."""
    from seqloom.native.library import describe

    return f"kernels {describe().level}, {platform.machine()}"


if __name__ == "__main__":
    main()
