"""Generation with a cache, beside Hugging Face's GPT-2: `python bench/generate.py [--threads 2] [--write]`

A language model of the same sizes for each (d = 256, 6 layers, 8 heads, vocabulary 8,000), with random weights; prompts
of 16 tokens, 100 tokens forced, greedy. Each engine runs in a process of its own, in turns.
"""

import argparse
from collections.abc import Callable
from typing import Any

import torch
from engines import Engine, compare_speeds, serve
from results import write_section

DIM, LAYERS, HEADS, VOCAB, PROMPT, LENGTH = 256, 6, 8, 8000, 16, 100
CASES = {"batch 1": 1, "batch 16": 16}
PROMISED = 3.0


def prepare_seqloom() -> Callable[[str], Callable[[], object]]:
    from seqloom.cli.process import disable_trimming
    from seqloom.decode.options import Request, SearchOptions
    from seqloom.decode.search import search
    from seqloom.predict.compiler import compile_network
    from seqloom.tasks.language_model import LanguageModelConfig

    decoder = {
        "family": "transformer", "num_layers": LAYERS, "model_dim": DIM, "num_heads": HEADS, "hidden_dim": 4 * DIM,
        "activation": "gelu-tanh", "positions": {"kind": "learned", "table": 256},
    }  # fmt: skip
    config = LanguageModelConfig.model_validate({"decoder": decoder, "tie_output": True})
    model: Any = compile_network(config.build(VOCAB, VOCAB).eval())
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


def prepare_huggingface() -> Callable[[str], Callable[[], object]]:
    from transformers import GPT2Config, GPT2LMHeadModel

    config = GPT2Config(
        vocab_size=VOCAB,
        n_embd=DIM,
        n_layer=LAYERS,
        n_head=HEADS,
        n_positions=256,
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
        serve(prepare_seqloom() if options.engine == "Seqloom" else prepare_huggingface(), options.turn)
        return
    engines = {name: Engine(name, options.threads, "--turn", str(options.turn)) for name in ("Seqloom", "Hugging Face")}
    table = compare_speeds(engines, CASES, dict.fromkeys(CASES, PROMISED), length=LENGTH, rounds=options.rounds)
    text = "\n\n".join(
        [
            f"## Generation\n\nTokens a second, prompt of {PROMPT} tokens included: d = {DIM}, {LAYERS} layers, "
            f"vocabulary {VOCAB:,}, {LENGTH} tokens forced, float32, threads: {options.threads}, "
            f"PyTorch {torch.__version__}.",
            table,
        ]
    )
    print(text)
    if options.write:
        write_section("bench/generate.py", text)


if __name__ == "__main__":
    main()
