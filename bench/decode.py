"""Translation beside Hugging Face and CTranslate2: `python bench/decode.py [--threads 2] [--ctranslate2 DIR] [--write]`

An encoder-decoder of the same sizes for each (d = 256, 3 + 3 layers, 8 heads, vocabulary 8,000, Marian's layout), with
random weights; sources of 25 tokens, 25 tokens forced. Each engine runs in a process of its own, in turns. CTranslate2
takes part where it is installed and a converted model of these sizes is given.
"""

import argparse
from collections.abc import Callable

import torch
from engines import Engine, compare_speeds, is_installed, serve
from results import write_section

DIM, LAYERS, HEADS, HIDDEN, VOCAB, LENGTH = 256, 3, 8, 1024, 8000, 25
CASES = {f"beam {beam}, batch {batch}": (beam, batch) for beam, batch in ((1, 1), (4, 1), (1, 64), (4, 64))}
PROMISED = {"beam 1, batch 1": 3.0, "beam 4, batch 1": 3.0, "beam 1, batch 64": 1.7, "beam 4, batch 64": 2.3}


def prepare_weft() -> Callable[[str], Callable[[], object]]:
    from weft.config.model import TranslationModelConfig
    from weft.decode.options import Request, SearchOptions
    from weft.decode.search import search
    from weft.models.build import build_model
    from weft.nn.layout import lay_out
    from weft.types import TokenBatch

    stack = {"family": "transformer", "num_layers": LAYERS, "model_dim": DIM, "num_heads": HEADS, "hidden_dim": HIDDEN}
    marian = {"norm_position": "post", "activation": "silu"}
    sides = {"encoder": stack | marian, "decoder": stack | marian, "tie_embeddings": "all"}
    model = build_model(TranslationModelConfig.model_validate(sides), VOCAB, VOCAB).eval()
    lay_out(model)

    def prepare(case: str) -> Callable[[], object]:
        beam, batch = CASES[case]
        ids = make_sources(batch)
        source, requests = TokenBatch(ids, torch.ones_like(ids, dtype=torch.bool)), [Request(1, LENGTH)] * batch
        options = SearchOptions(beam=beam, min_length=LENGTH)

        @torch.inference_mode()
        def run() -> None:
            state = model.start(model.encode(source), LENGTH)
            search(model.step, state, requests, options, end_id=2)

        return run

    return prepare


def prepare_huggingface() -> Callable[[str], Callable[[], object]]:
    from transformers import MarianConfig, MarianMTModel

    sides = {
        f"{side}_{name}": value
        for side in ("encoder", "decoder")
        for name, value in {"layers": LAYERS, "attention_heads": HEADS, "ffn_dim": HIDDEN}.items()
    }
    special = {"pad_token_id": 0, "eos_token_id": 2, "decoder_start_token_id": 1, "forced_eos_token_id": None}
    embedding = {"vocab_size": VOCAB, "d_model": DIM, "scale_embedding": True, "max_position_embeddings": 128}
    config = MarianConfig(activation_function="silu", **special, **embedding, **sides)
    model = MarianMTModel(config).eval()

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


def prepare_ctranslate2(folder: str, threads: int) -> Callable[[str], Callable[[], object]]:
    import ctranslate2

    translator = ctranslate2.Translator(folder, compute_type="float32", intra_threads=threads)

    def prepare(case: str) -> Callable[[], object]:
        beam, batch = CASES[case]
        sources = [["a"] * LENGTH] * batch  # all unknown: which tokens they are does not matter
        options = {"beam_size": beam, "min_decoding_length": LENGTH, "max_decoding_length": LENGTH}
        return lambda: translator.translate_batch(sources, **options)

    return prepare


def make_sources(batch: int) -> torch.Tensor:
    return torch.randint(3, VOCAB, (batch, LENGTH), generator=torch.Generator().manual_seed(0))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", action="store_true", help="renew the section of docs/results.md")
    parser.add_argument("--threads", type=int, default=1, help="more than one only on a quiet machine")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--turn", type=float, default=1.0, help="seconds of a turn, at least")
    parser.add_argument("--ctranslate2", metavar="DIR", help="a converted model of the same sizes")
    parser.add_argument("--engine", help=argparse.SUPPRESS)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    if options.engine:
        match options.engine:
            case "Weft":
                prepare = prepare_weft()
            case "Hugging Face":
                prepare = prepare_huggingface()
            case _:
                prepare = prepare_ctranslate2(options.ctranslate2, options.threads)
        serve(prepare, options.turn)
        return
    engines = {name: Engine(name, options.threads, "--turn", str(options.turn)) for name in ("Weft", "Hugging Face")}
    if options.ctranslate2 and is_installed("ctranslate2"):
        more = ("--turn", str(options.turn), "--ctranslate2", options.ctranslate2)
        engines["CTranslate2"] = Engine("CTranslate2", options.threads, *more)
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
