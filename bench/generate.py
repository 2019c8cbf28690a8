"""Generation with a cache beside Hugging Face's GPT-2, CTranslate2 and llama.cpp: `python bench/generate.py [--write]`

A language model of the same sizes for each (d = 256, 6 layers, 8 heads, vocabulary 8,000), with random weights; prompts
of 16 tokens, 100 tokens forced, greedy. Each engine runs in a process of its own, in turns. Seqloom and CTranslate2
have the same weights, in float32 and in int8; llama.cpp (`pip install llama-cpp-python gguf`), which takes part where
it is installed, has weights of the same shapes. With more than one thread, CTranslate2 and llama.cpp also run with one;
the better setting counts, and is named.
"""

import argparse
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from engines import Engine, interleave_engines, is_installed, serve
from results import draw_table, write_section

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


def prepare_seqloom(precision: Any) -> Callable[[str], Callable[[], object]]:
    from seqloom.cli.process import disable_trimming
    from seqloom.decode.options import Request, SearchOptions
    from seqloom.decode.search import search
    from seqloom.predict.compiler import compile_network

    model: Any = compile_network(build_bundle().network, precision)
    disable_trimming()

    def prepare(case: str) -> Callable[[], object]:
        prompts = make_prompts(CASES[case]).tolist()
        requests = [Request(first, PROMPT - 1 + LENGTH, tuple(rest)) for first, *rest in prompts]
        options = SearchOptions(min_length=PROMPT - 1 + LENGTH)

        @torch.inference_mode()
        def run() -> None:
            search(model.step, model.start(len(requests), PROMPT + LENGTH), requests, options, ends=(2,))

        return run

    return prepare


def prepare_ctranslate2(precision: str, threads: int) -> Callable[[str], Callable[[], object]]:
    import ctranslate2

    from seqloom.hub.ctranslate2 import name_tokens, write_folder

    torch.set_num_threads(1)  # PyTorch's own threads would wait beside those of CTranslate2
    model = build_bundle()
    names = name_tokens(model.tokenizer, VOCAB)
    with tempfile.TemporaryDirectory() as folder:
        write_folder(model, Path(folder))
        generator = ctranslate2.Generator(folder, compute_type=precision, intra_threads=threads, inter_threads=1)

    def prepare(case: str) -> Callable[[], object]:
        prompts = [[names[id] for id in row] for row in make_prompts(CASES[case]).tolist()]
        lengths = {"min_length": LENGTH, "max_length": LENGTH, "include_prompt_in_result": False}

        def run() -> None:
            found = generator.generate_batch(prompts, sampling_topk=1, beam_size=1, **lengths)
            assert len(found[0].sequences_ids[0]) == LENGTH

        return run

    return prepare


def prepare_llama(precision: str, threads: int) -> Callable[[str], Callable[[], object]]:
    from llama import open_model, write_model

    folder = tempfile.TemporaryDirectory()
    path = Path(folder.name) / "model.gguf"
    write_model(path, int8=precision == "int8", dim=DIM, layers=LAYERS, heads=HEADS, vocab=VOCAB, table=TABLE)
    generate = open_model(path, threads=threads, vocab=VOCAB, table=TABLE)
    folder.cleanup()

    def prepare(case: str) -> Callable[[], object]:
        prompts = make_prompts(CASES[case]).tolist()

        def run() -> None:
            assert len(generate(prompts, LENGTH)[0]) == LENGTH

        return run

    return prepare


def prepare_huggingface() -> Callable[[str], Callable[[], object]]:
    from transformers import GPT2Config, GPT2LMHeadModel

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
    parser.add_argument("--threads", type=int, default=1, help="more than one only on a quiet machine")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--turn", type=float, default=1.0, help="seconds of a turn, at least")
    parser.add_argument("--engine", help=argparse.SUPPRESS)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    if options.engine:
        name, precision, threads = options.engine.rsplit(" ", 2)
        match name:
            case "Seqloom":
                prepare = prepare_seqloom(precision)
            case "Hugging Face":
                prepare = prepare_huggingface()
            case "llama.cpp":
                prepare = prepare_llama(precision, int(threads))
            case _:
                prepare = prepare_ctranslate2(precision, int(threads))
        serve(prepare, options.turn)
        return
    settings = {f"{name} {threads}": (name, threads) for name, threads in list_settings(options.threads)}
    more = ("--turn", str(options.turn))
    engines = {name: Engine(name, threads, *more) for name, (_, threads) in settings.items()}
    columns = list(dict.fromkeys(name for name, _ in settings.values()))
    rows, disturbed = [], 0.0
    for case, batch in CASES.items():
        times = interleave_engines(engines, case, rounds=options.rounds)
        disturbed = max(disturbed, *(time.foreign for time in times.values()))
        best: dict[str, tuple[float, int]] = {}
        for setting, time in times.items():
            name, threads = settings[setting]
            best[name] = max(best.get(name, (0.0, 0)), (batch * LENGTH / time.seconds, threads))
        unit = "" if all(time.clean for time in times.values()) else " of CPU"
        cells = [f"{speed:,.0f}{unit} ({threads})" for speed, threads in (best[name] for name in columns)]
        rows.append([case, *cells, *_compare({name: speed for name, (speed, _) in best.items()})])
        print(*rows[-1], sep="  ", flush=True)
    for engine in engines.values():
        engine.close()
    peers = [f"Seqloom / {peer}" for peer in columns if not peer.startswith("Seqloom")]
    text = "\n\n".join(
        [
            f"## Generation\n\nTokens a second, prompt of {PROMPT} tokens included: d = {DIM}, {LAYERS} layers, "
            f"vocabulary {VOCAB:,}, {LENGTH} tokens forced, PyTorch {torch.__version__}. In brackets: threads, the "
            f"best of what was tried. CPU used by others: at most {disturbed:.0%}.",
            draw_table(["case", *columns, *peers], rows),
        ]
    )
    print(text)
    if options.write:
        write_section("bench/generate.py", text)


def list_settings(threads: int) -> list[tuple[str, int]]:
    """Engine with its precision, and threads."""
    found = [("Seqloom float32", threads), ("Seqloom int8", threads), ("Hugging Face float32", threads)]
    for peer, package in (("CTranslate2", "ctranslate2"), ("llama.cpp", "llama_cpp")):
        if is_installed(package):
            kinds = (f"{peer} float32", f"{peer} int8")
            found += [(kind, count) for kind in kinds for count in sorted({1, threads})]
    return found


def _compare(speeds: dict[str, float]) -> list[str]:
    """Ours over each peer's, of one precision."""
    cells = []
    for peer, speed in speeds.items():
        name, precision = peer.rsplit(" ", 1)
        if name != "Seqloom":
            cells.append(f"{speeds[f'Seqloom {precision}'] / speed:.2f} (≥ {PROMISED[name]})")
    return cells


if __name__ == "__main__":
    main()
