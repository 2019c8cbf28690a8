"""llama.cpp with a GPT-2 of given sizes and random weights, for bench/generate.py.

PyPI's `llama-cpp-python` is compiled where it is installed; its folder of models is a GGUF file, which `gguf` writes.
Products are in float32, or in int8 (Q8_0: blocks of 32 numbers share a scale).
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np


def write_model(path: Path, *, int8: bool, dim: int, layers: int, heads: int, vocab: int, table: int) -> None:
    """A GGUF file without a tokeniser."""
    from gguf import GGMLQuantizationType, GGUFWriter, quantize

    kind = GGMLQuantizationType.Q8_0
    file, numbers = GGUFWriter(str(path), "gpt2"), np.random.default_rng(0)
    file.add_context_length(table)
    file.add_embedding_length(dim)
    file.add_block_count(layers)
    file.add_feed_forward_length(4 * dim)
    file.add_head_count(heads)
    file.add_layer_norm_eps(1e-5)
    file.add_tokenizer_model("no_vocab")
    file.add_vocab_size(vocab)

    def add(name: str, *shape: int) -> None:
        weights = (0.02 * numbers.standard_normal(shape)).astype(np.float32)
        if int8 and len(shape) == 2 and not name.startswith("position"):
            file.add_tensor(name, quantize(weights, kind), raw_dtype=kind)
        else:
            file.add_tensor(name, weights)

    add("token_embd.weight", vocab, dim)
    add("position_embd.weight", table, dim)
    for name in ("output_norm", *(f"blk.{layer}.{norm}_norm" for layer in range(layers) for norm in ("attn", "ffn"))):
        add(f"{name}.weight", dim)
        add(f"{name}.bias", dim)
    shapes = {"attn_qkv": (3, 1), "attn_output": (1, 1), "ffn_up": (4, 1), "ffn_down": (1, 4)}
    for layer in range(layers):
        for name, (out, into) in shapes.items():
            add(f"blk.{layer}.{name}.weight", out * dim, into * dim)
            add(f"blk.{layer}.{name}.bias", out * dim)
    file.write_header_to_file()
    file.write_kv_data_to_file()
    file.write_tensors_to_file()
    file.close()


def open_model(
    path: Path, *, threads: int, vocab: int, table: int
) -> Callable[[list[list[int]], int], list[list[int]]]:
    """A function of prompts of one length and a number of tokens, which continues each prompt greedily."""
    import llama_cpp as cpp

    silent = cpp.llama_log_callback(lambda *_: None)
    cpp.llama_log_set(silent, None)
    cpp.llama_backend_init()
    model = cpp.llama_model_load_from_file(str(path).encode(), cpp.llama_model_default_params())
    contexts: dict[int, Any] = {0: silent}  # which must live as long as the model

    def open_context(lines: int) -> Any:
        given = cpp.llama_context_default_params()
        given.n_ctx, given.n_seq_max, given.n_threads, given.n_threads_batch = lines * table, lines, threads, threads
        return cpp.llama_init_from_model(model, given)

    def run(prompts: list[list[int]], length: int) -> list[list[int]]:
        lines = len(prompts)
        context = contexts.get(lines) or contexts.setdefault(lines, open_context(lines))
        cpp.llama_memory_clear(cpp.llama_get_memory(context), True)
        batch = cpp.llama_batch_init(lines * len(prompts[0]), 0, 1)

        def read(tokens: list[list[int]], start: int) -> list[int]:
            """Take in the tokens of all lines; the most probable next ones."""
            batch.n_tokens = number = sum(map(len, tokens))
            places = [(line, at) for line, row in enumerate(tokens) for at in range(len(row))]
            for index, (line, at) in enumerate(places):
                batch.token[index], batch.pos[index] = tokens[line][at], start + at
                batch.n_seq_id[index], batch.seq_id[index][0] = 1, line
                batch.logits[index] = at + 1 == len(tokens[line])
            if cpp.llama_decode(context, batch):
                raise SystemExit("llama.cpp could not compute this batch")
            last = [index for index in range(number) if batch.logits[index]]
            scores = (np.ctypeslib.as_array(cpp.llama_get_logits_ith(context, index), (vocab,)) for index in last)
            return [int(row.argmax()) for row in scores]

        found = [[token] for token in read(prompts, 0)]
        for step in range(length - 1):
            for row, token in zip(found, read([row[-1:] for row in found], len(prompts[0]) + step), strict=True):
                row.append(token)
        cpp.llama_batch_free(batch)
        return found

    return run
