"""Translation beside Hugging Face: `python bench/decode.py [--threads 2] [--write]`

One encoder-decoder for both (d = 256, 3 + 3 layers, 8 heads, vocabulary 8,000, Marian's layout), with random weights;
sources of 25 tokens, 25 tokens forced. Each engine runs in a process of its own, in turns. CTranslate2, and our own
bfloat16 and int8, have the same four cases in bench/precision.py, where each has its best setting.
"""

import argparse
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch
from engines import Engine, compare_speeds, serve
from results import write_section

if TYPE_CHECKING:
    from seqloom.hub.bundle import Bundle

DIM, LAYERS, HEADS, HIDDEN, VOCAB, LENGTH = 256, 3, 8, 1024, 8000, 25
CASES = {f"beam {beam}, batch {batch}": (beam, batch) for beam, batch in ((1, 1), (4, 1), (1, 64), (4, 64))}
PROMISED = {"beam 1, batch 1": 3.0, "beam 4, batch 1": 3.0, "beam 1, batch 64": 1.7, "beam 4, batch 64": 2.3}


def build_bundle() -> "Bundle":
    """The model with its first weights, the same each time; its tokeniser knows a few of the tokens."""
    from seqloom.hub.bundle import Bundle
    from seqloom.tasks.configuration import parse
    from seqloom.text import Tokenizer

    stack = {"family": "transformer", "num_layers": LAYERS, "model_dim": DIM, "num_heads": HEADS, "hidden_dim": HIDDEN}
    marian = {"norm_position": "post", "activation": "silu", "positions": "sinusoidal"}
    given = [
        f"model.{side}.{key}={value}" for side in ("encoder", "decoder") for key, value in (stack | marian).items()
    ]
    config = parse(
        'task = "translation"\ntokenizer = "characters"\n[data.train]\nsource = "a"\ntarget = "b"\n',
        [*given, "model.tie_embeddings=all"],
    )
    torch.manual_seed(0)
    network = config.model.build(VOCAB, VOCAB).eval()
    return Bundle(config, Tokenizer.train(["abc"], config.tokenizer), (), network)


def prepare_seqloom() -> Callable[[str], Callable[[], object]]:
    from seqloom.cli.process import disable_trimming
    from seqloom.decode.options import Request, SearchOptions
    from seqloom.decode.search import search
    from seqloom.predict.compiler import compile_network
    from seqloom.types import TokenBatch

    model: Any = compile_network(build_bundle().network)
    disable_trimming()

    def prepare(case: str) -> Callable[[], object]:
        beam, batch = CASES[case]
        ids = make_sources(batch)
        source, requests = TokenBatch(ids, torch.ones_like(ids, dtype=torch.bool)), [Request(1, LENGTH)] * batch
        options = SearchOptions(beam=beam, min_length=LENGTH)

        @torch.inference_mode()
        def run() -> None:
            state = model.start(model.encode(source), LENGTH)
            search(model.step, state, requests, options, ends=(2,))

        return run

    return prepare


def prepare_huggingface() -> Callable[[str], Callable[[], object]]:
    from transformers import MarianConfig, MarianMTModel

    from seqloom.hub.huggingface.export import plan_export

    plan, weights = plan_export(build_bundle())
    special = {"pad_token_id": 0, "eos_token_id": 2, "decoder_start_token_id": 1, "forced_eos_token_id": None}
    model = MarianMTModel(MarianConfig(**plan.config, **special, vocab_size=VOCAB)).eval()
    model.load_state_dict(weights, strict=False)  # what is missing is tied to what is there
    model.tie_weights()

    def prepare(case: str) -> Callable[[], object]:
        beam, batch = CASES[case]
        ids = make_sources(batch)
        lengths = {"min_new_tokens": LENGTH, "max_new_tokens": LENGTH}

        @torch.inference_mode()
        def run() -> None:
            out = model.generate(ids, attention_mask=torch.ones_like(ids), num_beams=beam, do_sample=False, **lengths)
            assert out.shape[1] == LENGTH + 1

        return run

    return prepare


def make_sources(batch: int) -> torch.Tensor:
    return torch.randint(3, VOCAB, (batch, LENGTH), generator=torch.Generator().manual_seed(0))


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
        prepare = prepare_seqloom() if options.engine == "Seqloom" else prepare_huggingface()
        serve(prepare, options.turn)
        return
    engines = {name: Engine(name, options.threads, "--turn", str(options.turn)) for name in ("Seqloom", "Hugging Face")}
    batches = {case: batch for case, (_, batch) in CASES.items()}
    table = compare_speeds(engines, batches, PROMISED, length=LENGTH, rounds=options.rounds)
    text = "\n\n".join(
        [
            f"## Translation\n\nTokens a second, encoding included: d = {DIM}, {LAYERS} + {LAYERS} layers, vocabulary "
            f"{VOCAB:,}, {LENGTH} tokens forced, float32, threads: {options.threads}, PyTorch {torch.__version__}.",
            table,
        ]
    )
    print(text)
    if options.write:
        write_section("bench/decode.py", text)


if __name__ == "__main__":
    main()
