"""Folders of small models with random weights: finished runs of ours, and published ones. None is trained."""

import logging
import tempfile
from functools import cache
from pathlib import Path
from typing import Any

import torch
from torch import nn

from parity.trained import DATA, LABELS, make_tokenizer
from seqloom.runs.run import TrainingRun
from seqloom.tasks import TASKS
from seqloom.tasks.configuration import validate
from seqloom.text import Tokenizer

FAMILIES = ("transformer", "recurrent", "convolutional")
OWN = {
    f"{task}/{family}": (task, family)
    for task in (*TASKS, "regression")
    for family in FAMILIES
    if task != "word-vectors" and (task != "regression" or family == "transformer")
}
"""The task and the family of each model of ours."""
VARIANTS: dict[str, dict[str, Any]] = {
    "language-model/grouped": {"num_heads": 4, "num_kv_heads": 2, "norm": "rms", "activation": "silu-gated"},
    "language-model/window": {"window": 3, "positions": "alibi", "activation": "gelu"},
    "translation/post-norm": {"norm_position": "post", "positions": "sinusoidal", "normalise_qk": True},
    "language-model/narrow": {"positions": {"kind": "learned", "table": 40, "first_position": 2}, "embedding_dim": 6},
    "translation/additive": {"score": "additive", "chunked_heads": True},
    "language-model/attention": {"feedforward": False, "hidden_dim": None},
    "translation/copied": {"family": "recurrent", "bridge": "copy", "embedding_dim": 6},
}
"""Further models, Transformers unless they say otherwise, by the options in which they differ."""
PUBLISHED = ("gpt2", "llama", "bert", "marian", "t5")
NAMES = (*OWN, *VARIANTS, *PUBLISHED)
DROPOUT = 0.4
_ROLES = {"bos": "<s>", "eos": "</s>", "pad": "<pad>"}
_IDS = {"bos_token_id": 0, "pad_token_id": 1, "eos_token_id": 2}
_SIZE = 30


@cache
def find_folder(name: str) -> Path:
    """The folder of a model, written when it is first asked for."""
    folder = Path(_root().name) / name.replace("/", "-")
    folder.mkdir()
    if name in PUBLISHED:
        _publish(name, folder)
        return folder
    config, labels, network = build(name)
    save_run(folder, config, make_tokenizer(), labels, network)
    return folder


def save_run(folder: Path, config: Any, tokenizer: Tokenizer, labels: tuple[str, ...], network: nn.Module) -> None:
    """A finished run with this network."""
    tokenizer.save(folder / "tokenizer.json")
    TrainingRun(folder).finish(network, config, labels, {})


def build(name: str) -> tuple[Any, tuple[str, ...], nn.Module]:
    """A model of ours: its configuration, its labels, and a network without a weight at a special value."""
    task, _, variant = name.partition("/")
    values = _configure(task, variant if name in OWN else "transformer", VARIANTS.get(name, {}))
    config: Any = validate(values, TASKS[values["task"]], "", "test")
    labels = ("",) if task == "regression" else LABELS.get(task, ())
    torch.manual_seed(len(name))
    network = config.build(make_tokenizer(), labels)
    with torch.no_grad():
        for key, parameter in network.named_parameters():
            parameter += torch.randn(parameter.shape) * (1.0 if key == "output.bias" else 0.2)
    return config, labels, network


def _configure(task: str, family: str, options: dict[str, Any]) -> dict[str, Any]:
    """What a user would write; dropout is high, so that no answer could hide it."""
    side, options = "decoder" if task == "language-model" else "encoder", dict(options)
    family, bridge, narrow = (
        options.pop("family", family),
        options.pop("bridge", None),
        options.pop("embedding_dim", None),
    )
    stack = {"family": family, "num_layers": 2, "model_dim": 16, "dropout": DROPOUT}
    if family == "transformer":
        stack |= {"num_heads": 2, "hidden_dim": 24, "attention_dropout": DROPOUT, **options}
    model: dict[str, Any] = {side: stack, "embedding_dropout": DROPOUT, "embedding_dim": narrow}
    if task == "translation":
        stack |= {"cell": "gru"} if family == "recurrent" else {}
        model["decoder"] = stack | ({"num_heads": 2} if family == "convolutional" else {})
        model["decoder"] |= {} if bridge is None else {"bridge": bridge}
    rows = {"rows": {"kind": "lines", "max_length": 24}} if task.endswith("language-model") else {"max_length": 24}
    kind = "classification" if task == "regression" else task
    data: dict[str, Any] = {"train": DATA.get(kind, {"files": ["train.txt"]})}
    if task == "regression":
        data["labels"] = "numbers"
    tokenizer = {"kind": "file", "path": "tokenizer.json"}
    return {"task": kind, "data": data, "tokenizer": tokenizer, "batch": rows, "model": model}


def _publish(name: str, folder: Path) -> None:
    """A model of transformers, saved as its makers would."""
    from parity.published import BERT_TOKENS, SENTENCE_TOKENS, randomise, transformers, write_tokenizer

    torch.manual_seed(3)
    shared = {"vocab_size": _SIZE, **_IDS}
    match name:
        case "gpt2":
            kind, options = "GPT2LMHeadModel", {"n_embd": 16, "n_layer": 2, "n_head": 2, "n_positions": 40}
        case "llama":
            heads = {"num_attention_heads": 4, "num_key_value_heads": 2}
            sizes = {"hidden_size": 16, "num_hidden_layers": 2, "intermediate_size": 20, "max_position_embeddings": 40}
            kind, options = "LlamaForCausalLM", {**sizes, **heads}
        case "bert":
            sizes = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 20}
            kind, options, shared = "BertForMaskedLM", sizes, {"vocab_size": _SIZE}
        case "marian":
            heads = {"encoder_attention_heads": 2, "decoder_attention_heads": 2}
            layers = {"encoder_layers": 2, "decoder_layers": 2, "d_model": 16, "max_position_embeddings": 40}
            widths = {"encoder_ffn_dim": 20, "decoder_ffn_dim": 20}
            start = {"decoder_start_token_id": 1, "forced_eos_token_id": None}
            kind, options = "MarianMTModel", {**heads, **layers, **widths, **start}
        case _:
            sizes = {"d_model": 16, "d_kv": 6, "d_ff": 20, "num_layers": 2, "num_heads": 3}
            kind, options = "T5ForConditionalGeneration", {**sizes, "decoder_start_token_id": 1}
    logging.getLogger("transformers").setLevel(logging.ERROR)
    made = getattr(transformers, kind)
    model = made(made.config_class(**shared, **options))
    randomise(model)
    model.save_pretrained(folder)
    if name == "bert":
        roles = {"cls": "[CLS]", "sep": "[SEP]", "mask": "[MASK]", "pad": "[PAD]"}
        write_tokenizer(folder, _SIZE, BERT_TOKENS, "[UNK]", **roles)
    else:
        write_tokenizer(folder, _SIZE, SENTENCE_TOKENS, "<unk>", **_ROLES)


@cache
def _root() -> tempfile.TemporaryDirectory[str]:
    """Kept as long as the tests run, and removed at their end."""
    return tempfile.TemporaryDirectory(prefix="seqloom-models-")
