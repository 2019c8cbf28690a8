"""A model of ours as a folder that `transformers` loads without Seqloom: configuration, weights, tokeniser, card."""

import json
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save
from torch import Tensor

from seqloom.config.positions import Relative, RotaryPositions
from seqloom.config.stacks import DecoderConfig, TransformerDecoderConfig
from seqloom.errors import RunError
from seqloom.hub.framing import Framing, find_framing
from seqloom.hub.huggingface.bart import lay_out_bart
from seqloom.hub.huggingface.encoder_layout import lay_out_encoder
from seqloom.hub.huggingface.files import read_json
from seqloom.hub.huggingface.gpt2 import lay_out_gpt2
from seqloom.hub.huggingface.layout import Layout
from seqloom.hub.huggingface.llama import lay_out_llama
from seqloom.hub.huggingface.neox import lay_out_neox
from seqloom.hub.huggingface.sentence import write_vector
from seqloom.hub.huggingface.t5 import lay_out_t5
from seqloom.hub.imported import Imported
from seqloom.hub.samples import compute, draw_samples, measure_difference, pad_samples
from seqloom.tasks import (
    BidirectionalLanguageModelTask,
    LanguageModelTask,
    MaskedLanguageModelTask,
    TranslationTask,
)
from seqloom.text.roles import ROLES

_LONGEST_ANSWER = 64  # tokens, where a prompt is continued


def lay_out(model: Imported) -> tuple[Layout, dict[str, Tensor]]:
    """The layout that expresses a model, and their tensors; refused by the option that none has."""
    ours = {name: parameter.detach().contiguous() for name, parameter in model.network.named_parameters()}
    match model.config:
        case TranslationTask(model=pair):
            relative = getattr(pair.encoder, "positions", None)
            layout = (lay_out_t5 if isinstance(relative, Relative) else lay_out_bart)(model, ours)
        case LanguageModelTask(model=config):
            layout = _choose_decoder(config.decoder)(model, ours)
        case BidirectionalLanguageModelTask():
            raise RunError('task = "bidirectional-language-model": no layout of transformers has two directions')
        case _:
            layout = lay_out_encoder(model, ours)
    return layout, layout.convert(ours)


def _choose_decoder(stack: DecoderConfig) -> Callable[[Imported, dict[str, Tensor]], Layout]:
    if not isinstance(stack, TransformerDecoderConfig) or not isinstance(stack.positions, RotaryPositions):
        return lay_out_gpt2
    return lay_out_llama if stack.norm == "rms" else lay_out_neox


def write_folder(model: Imported, layout: Layout, tensors: dict[str, Tensor], folder: Path) -> None:
    """Everything but the model card."""
    framing, roles = find_framing(model.config, model.tokenizer), model.tokenizer.roles
    rows = next(len(p) for name, p in model.network.named_parameters() if name.endswith("embedding.weight"))
    tokens: dict[str, Any] = {
        "pad_token_id": roles.pad,
        "bos_token_id": framing.start[0] if framing.start else roles.bos,
        "eos_token_id": roles.eos if framing.end is None else framing.end,
    }
    if framing.start:
        tokens["decoder_start_token_id"] = framing.start[0]
    config = {"architectures": [layout.architecture], **layout.config, "vocab_size": rows, "dtype": "float32", **tokens}
    _write_json(folder / "config.json", config)
    if framing.end is not None:
        _write_json(folder / "generation_config.json", tokens | _say_how_to_generate(layout, framing, rows, model))
    _write_tokenizer(model, framing, layout, folder)
    if isinstance(model.config, MaskedLanguageModelTask):
        write_vector(folder, model.config.model.embed, model.config.model.encoder.model_dim)
    (folder / "model.safetensors").write_bytes(save(tensors, metadata={"format": "pt"}))


def _say_how_to_generate(layout: Layout, framing: Framing, rows: int, model: Imported) -> dict[str, Any]:
    never = [id for id in framing.silent if id not in framing.start[1:]]  # what is forced must not be forbidden
    never += range(model.tokenizer.vocab_size, rows)
    values: dict[str, Any] = {"do_sample": False, "num_beams": 1, "suppress_tokens": never, **layout.generation}
    if not framing.start:
        return values | {"max_new_tokens": _LONGEST_ANSWER}
    if len(framing.start) > 1:
        values["forced_bos_token_id"] = framing.start[1]
    return values | {"max_length": layout.longest}


def _write_tokenizer(model: Imported, framing: Framing, layout: Layout, folder: Path) -> None:
    """The same tokens, and the frame around a text as a template."""
    tokenizer, path = model.tokenizer, folder / "tokenizer.json"
    tokenizer.save(path)
    segments = getattr(model.config.model, "segments", None)
    separator, last = (None, 0) if segments is None else (segments.separator, segments.count - 1)
    used: set[int] = set()

    def build(*parts: str | int) -> list[dict[str, Any]]:
        pieces, part = [], 0
        for piece in parts:
            if isinstance(piece, str):
                pieces.append({"Sequence": {"id": piece, "type_id": part}})
            else:
                used.add(piece)
                pieces.append({"SpecialToken": {"id": tokenizer.token(piece), "type_id": part}})
                part = min(part + (piece == separator), last)
        return pieces

    single = build(*framing.before, "A", *framing.after)
    pair = build(*framing.before, "A", *framing.after, *framing.second[0], "B", *framing.second[1])
    ids = {role: id for role in ROLES if (id := getattr(tokenizer.roles, role)) is not None}
    listed = {tokenizer.token(id): id for id in sorted(used)} | {f"role:{role}": id for role, id in ids.items()}
    special = {name: {"id": name, "ids": [id], "tokens": [tokenizer.token(id)]} for name, id in listed.items()}
    template = {"type": "TemplateProcessing", "single": single, "pair": pair, "special_tokens": special}
    _write_json(path, read_json(path, 1 << 30) | {"post_processor": template})
    names = ["input_ids", "attention_mask"] if segments is None else ["input_ids", "token_type_ids", "attention_mask"]
    said: dict[str, Any] = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "model_max_length": layout.longest,
        "clean_up_tokenization_spaces": False,
        "model_input_names": names,
        "padding_side": "left" if isinstance(model.config, LanguageModelTask) else "right",
    }
    _write_json(
        folder / "tokenizer_config.json", said | {f"{role}_token": tokenizer.token(id) for role, id in ids.items()}
    )


@torch.inference_mode()
def check_folder(model: Imported, folder: Path, layout: Layout) -> float:
    """Load it as others do, and compare: texts must be spelled alike; told is the largest difference of scores."""
    transformers = import_transformers()
    samples = draw_samples(model, layout.longest)
    spell = transformers.AutoTokenizer.from_pretrained(folder, local_files_only=True)
    framing = find_framing(model.config, model.tokenizer)
    for text in [model.tokenizer.decode(row) for row in samples.rows]:
        ours, theirs = framing.frame(tuple(model.tokenizer.encode(text).ids)), tuple(spell(text)["input_ids"])
        if ours != theirs:
            raise RunError(f"{text!r} is {ours} here, but {theirs} by the exported tokeniser; nothing was kept")
    theirs = getattr(transformers, layout.architecture).from_pretrained(folder, local_files_only=True).eval()
    expected, real = compute(model, samples)
    batch = pad_samples(samples.rows, model.tokenizer.roles.pad)
    given = {"input_ids": batch.ids, "attention_mask": batch.mask.long()}
    if samples.targets and isinstance(model.config, TranslationTask):
        target = pad_samples(samples.targets, model.tokenizer.roles.pad)
        given |= {"decoder_input_ids": target.ids, "decoder_attention_mask": target.mask.long()}
    found = theirs(**given)
    return measure_difference(expected, found[0] if "logits" not in found else found.logits, real)


def import_transformers() -> Any:
    """The library, quiet."""
    try:
        transformers: Any = import_module("transformers")
    except ImportError:
        raise RunError("the exported model is checked with transformers; pip install 'seqloom[export]'") from None
    transformers.utils.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()
    return transformers


def _write_json(path: Path, values: dict[str, Any]) -> None:
    path.write_text(json.dumps(values, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
