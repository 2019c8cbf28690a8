"""Generation with a cache beside Hugging Face's GPT-2, CTranslate2 and llama.cpp: `python bench/generate.py [--write]`

A language model of the same sizes for each (d = 256, 6 layers, 8 heads, vocabulary 8,000), with random weights; prompts
of 16 tokens, 100 tokens forced, greedy. Each engine runs in a process of its own, in turns. Seqloom and CTranslate2
have the same weights, in float32 and in int8; llama.cpp (`pip install llama-cpp-python gguf`), which takes part where
it is installed, has weights of the same shapes. Engines may use all cores in any way: each runs in every setting of a
grid (bench/settings.py), of which the best counts, and is named. Workers share the prompts of a batch evenly; llama.cpp
has threads only.
"""

import argparse
import os
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from engines import interleave_engines, is_installed, serve
from results import draw_table, write_section
from settings import Best, Setting, describe_machine, draw_cells, find_best, list_grid, open_engines

if TYPE_CHECKING:
    from seqloom.hub.bundle import Bundle

DIM, LAYERS, HEADS, VOCAB, PROMPT, LENGTH = 256, 6, 8, 8000, 16, 100
CASES = {"batch 1": 1, "batch 16": 16}
PROMISED = {"Hugging Face": 3.0, "CTranslate2": 1.1, "llama.cpp": 1.1}
TABLE = 256
"""Positions."""


def build_bundle() -> "Bundle":
    """The model with its first weights, the same each time; its tokeniser knows a few of the tokens."""
    from seqloom.hub.bundle import Bundle
    from seqloom.tasks.configuration import parse
    from seqloom.text import Tokenizer

    sizes = {"num_layers": LAYERS, "model_dim": DIM, "num_heads": HEADS, "hidden_dim": 4 * DIM}
    kinds = {"family": "transformer", "activation": "gelu-tanh", "positions": f"{{kind='learned',table={TABLE}}}"}
    given = [f"model.decoder.{key}={value}" for key, value in (sizes | kinds).items()]
    text = 'task = "language-model"\ntokenizer = "characters"\n[data.train]\nfiles = "a"\n'
    config = parse(text, [*given, "model.tie_output=true"])
    torch.manual_seed(0)
    network = config.model.build(VOCAB, VOCAB).eval()
    return Bundle(config, Tokenizer.train(["abc"], config.tokenizer), (), network)


def prepare_seqloom(setting: Setting) -> Callable[[str], Callable[[], object]]:
    from seqloom.cli.process import disable_trimming
    from seqloom.decode.options import Request, SearchOptions
    from seqloom.decode.search import search
    from seqloom.predict.compiler import compile_network
    from seqloom.predict.workers import share

    torch.set_num_threads(setting.threads)
    model: Any = compile_network(build_bundle().network, setting.precision)  # type: ignore[arg-type]
    disable_trimming()

    def prepare(case: str) -> Callable[[], object]:
        parts = [part.tolist() for part in make_prompts(CASES[case]).chunk(setting.workers) if len(part)]
        options = SearchOptions(min_length=PROMPT - 1 + LENGTH)

        @torch.inference_mode()
        def generate(prompts: list[list[int]]) -> None:
            requests = [Request(first, PROMPT - 1 + LENGTH, tuple(rest)) for first, *rest in prompts]
            search(model.step, model.start(len(requests), PROMPT + LENGTH), requests, options, ends=(2,))

        return lambda: list(share(parts, generate, setting.workers))

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
        generator = ctranslate2.Generator(folder, compute_type=setting.precision, **plan)

    def prepare(case: str) -> Callable[[], object]:
        prompts = [[names[id] for id in row] for row in make_prompts(CASES[case]).tolist()]
        given: dict[str, Any] = {"min_length": LENGTH, "max_length": LENGTH, "include_prompt_in_result": False}
        given |= {"sampling_topk": 1, "beam_size": 1, "max_batch_size": -(-len(prompts) // setting.workers)}

        def run() -> None:
            found = generator.generate_batch(prompts, **given)
            assert len(found[0].sequences_ids[0]) == LENGTH

        return run

    return prepare


def prepare_llama(setting: Setting) -> Callable[[str], Callable[[], object]]:
    from llama import open_model, write_model

    folder = tempfile.TemporaryDirectory()
    path = Path(folder.name) / "model.gguf"
    write_model(path, int8=setting.precision == "int8", dim=DIM, layers=LAYERS, heads=HEADS, vocab=VOCAB, table=TABLE)
    generate = open_model(path, threads=setting.threads, vocab=VOCAB, table=TABLE)
    folder.cleanup()

    def prepare(case: str) -> Callable[[], object]:
        prompts = make_prompts(CASES[case]).tolist()

        def run() -> None:
            assert len(generate(prompts, LENGTH)[0]) == LENGTH

        return run

    return prepare


def prepare_huggingface(setting: Setting) -> Callable[[str], Callable[[], object]]:
    from transformers import GPT2Config, GPT2LMHeadModel

    torch.set_num_threads(setting.threads)

    config = GPT2Config(
        vocab_size=VOCAB,
        n_embd=DIM,
        n_layer=LAYERS,
        n_head=HEADS,
        n_positions=TABLE,
        eos_token_id=2,
        bos_token_id=1,
        pad_token_id=0,
    )
    model = GPT2LMHeadModel(config).eval()

    def prepare(case: str) -> Callable[[], object]:
        ids = make_prompts(CASES[case])
        lengths = {"min_new_tokens": LENGTH, "max_new_tokens": LENGTH}

        @torch.inference_mode()
        def run() -> None:
            out = model.generate(ids, attention_mask=torch.ones_like(ids), do_sample=False, **lengths)
            assert out.shape[1] == PROMPT + LENGTH

        return run

    return prepare


def make_prompts(batch: int) -> torch.Tensor:
    return torch.randint(3, VOCAB, (batch, PROMPT), generator=torch.Generator().manual_seed(0))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", action="store_true", help="renew the section of docs/results.md")
    parser.add_argument("--cores", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--turn", type=float, default=1.0, help="seconds of a turn, at least")
    parser.add_argument("--engine", help=argparse.SUPPRESS)
    parser.add_argument("--threads", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.engine:
        setting = Setting.parse(options.engine)
        serve(PREPARE[setting.engine](setting), options.turn)
        return
    settings = list_settings(options.cores)
    engines = open_engines(settings, options.turn)
    columns = list(dict.fromkeys(one.contender for one in settings))
    rows, disturbed = [], 0.0
    for case, batch in CASES.items():
        times = interleave_engines(engines, case, rounds=options.rounds)
        disturbed = max(disturbed, *(time.foreign for time in times.values()))
        best = find_best(times, batch * LENGTH)
        rows.append([case, *draw_cells(best, times), *_compare(best)])
        print(*rows[-1], sep="  ", flush=True)
    for engine in engines.values():
        engine.close()
    peers = [f"Seqloom / {peer}" for peer in columns if not peer.startswith("Seqloom")]
    text = "\n\n".join(
        [
            f"## Generation\n\nTokens a second on {options.cores} cores, prompt of {PROMPT} tokens included: "
            f"d = {DIM}, {LAYERS} layers, vocabulary {VOCAB:,}, {LENGTH} tokens forced, PyTorch {torch.__version__}, "
            f"{describe_machine()}. In brackets the best setting: workers × threads; “active” is OMP_WAIT_POLICY. "
            f"CPU used by others: at most {disturbed:.0%}.",
            draw_table(["case", *columns, *peers], rows),
        ]
    )
    print(text)
    if options.write:
        write_section("bench/generate.py", text)


PREPARE = {
    "Seqloom": prepare_seqloom,
    "Hugging Face": prepare_huggingface,
    "CTranslate2": prepare_ctranslate2,
    "llama.cpp": prepare_llama,
}


def list_settings(cores: int) -> list[Setting]:
    """The grid."""
    kinds = ("float32", "int8")
    found = list_grid("Seqloom", ("float32", "bfloat16", "int8"), cores, "BRIEF")
    if is_installed("ctranslate2"):
        found += list_grid("CTranslate2", kinds, cores, "PASSIVE", "ACTIVE")
    alone = [list_grid("Hugging Face", ("float32",), cores, "PASSIVE", "ACTIVE")]
    if is_installed("llama_cpp"):
        alone.append(list_grid("llama.cpp", kinds, cores, "PASSIVE", "ACTIVE"))
    return found + [setting for grid in alone for setting in grid if setting.workers == 1]


def _compare(best: Best) -> list[str]:
    """Ours over each peer's, of one precision."""
    cells = []
    for speed, setting in best.values():
        if setting.engine != "Seqloom":
            ours = best[f"Seqloom {setting.precision}"][0]
            cells.append(f"{ours / speed:.2f} (≥ {PROMISED[setting.engine]})")
    return cells


if __name__ == "__main__":
    main()
