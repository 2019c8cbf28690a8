"""A model of ours as a folder that `transformers` loads without Seqloom: configuration, weights, tokeniser, model card.

The model card (Mitchell et al. 2019) describes the model to people who did not train it.
"""

import json
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save
from torch import Tensor

from seqloom.errors import RunError, import_extra
from seqloom.hub import huggingface
from seqloom.hub.bundle import Bundle, SpecialTokens, find_special_tokens
from seqloom.hub.fidelity import compute, draw_samples, measure_difference, pad_samples
from seqloom.hub.huggingface.files import read_json
from seqloom.hub.huggingface.layout import ExportPlan
from seqloom.tasks import LanguageModelTask, Task, TranslationTask
from seqloom.text.files import TARGET_FOLDER
from seqloom.text.roles import ROLES

_MAX_NEW_TOKENS = 64  # where a prompt is continued
_PIPELINES = {
    "translation": "translation",
    "language-model": "text-generation",
    "masked-language-model": "fill-mask",
    "classification": "text-classification",
    "tagging": "token-classification",
}
_LOADERS = {
    "ForConditionalGeneration": "AutoModelForSeq2SeqLM",
    "MTModel": "AutoModelForSeq2SeqLM",
    "LMHeadModel": "AutoModelForCausalLM",
    "ForCausalLM": "AutoModelForCausalLM",
    "ForMaskedLM": "AutoModelForMaskedLM",
    "ForSequenceClassification": "AutoModelForSequenceClassification",
    "ForTokenClassification": "AutoModelForTokenClassification",
}


@dataclass(frozen=True)
class History:
    """What the log of a run says about its training."""

    steps: int = 0
    tokens: int = 0
    """Predicted in training, repetitions included."""
    measures: tuple[tuple[str, float], ...] = ()
    """Metrics of the weights that were kept, on the validation data."""


def plan_export(model: Bundle) -> tuple[ExportPlan, dict[str, Tensor]]:
    """How to write a model in the first layout that fits, and the tensors; options no layout has are refused."""
    layout = next((layout for layout in huggingface.LAYOUTS if layout.fits(model.config)), None)
    if layout is None:
        raise RunError(f'task = "{model.config.task}": cannot be exported: no layout of transformers has such a model')
    ours = {name: parameter.detach().contiguous() for name, parameter in model.network.named_parameters()}
    plan = layout.write(model, ours)
    return plan, plan.convert(ours)


def write_folder(model: Bundle, plan: ExportPlan, tensors: dict[str, Tensor], folder: Path) -> None:
    """Write everything but the model card."""
    tokens, roles = find_special_tokens(model), model.tokenizer.target.roles
    rows = next(len(p) for name, p in model.network.named_parameters() if name.endswith("embedding.weight"))
    end = roles.eos if tokens.end is None else tokens.end
    ids: dict[str, Any] = {
        "pad_token_id": roles.pad,
        "bos_token_id": tokens.start[0] if tokens.start else roles.bos,
        "eos_token_id": [end, *tokens.more_ends] if tokens.more_ends else end,
    }
    if tokens.start:
        ids["decoder_start_token_id"] = tokens.start[0]
    config = {"architectures": [plan.architecture], **plan.config, "vocab_size": rows, "dtype": "float32", **ids}
    _write_json(folder / "config.json", config)
    if tokens.end is not None:
        _write_json(folder / "generation_config.json", ids | _describe_generation(plan, tokens, model))
    _write_tokenizer(model, tokens, plan, folder)
    if model.tokenizer.target is not model.tokenizer:
        (folder / TARGET_FOLDER).mkdir()
        target = replace(model, tokenizer=model.tokenizer.target)
        _write_tokenizer(target, tokens.around_targets, plan, folder / TARGET_FOLDER)
    for name, content in plan.files.items():
        (folder / name if content is None else (folder / name).parent).mkdir(exist_ok=True)
        if content is not None:
            _write_json(folder / name, content)
    (folder / "model.safetensors").write_bytes(save(tensors, metadata={"format": "pt"}))


def _describe_generation(plan: ExportPlan, tokens: SpecialTokens, model: Bundle) -> dict[str, Any]:
    never = [id for id in tokens.suppressed if id not in tokens.start[1:]]  # a forced token must not be suppressed
    never += range(model.tokenizer.target.vocab_size, len(model.network.get_parameter("output.weight")))
    values: dict[str, Any] = {"do_sample": False, "num_beams": 1, "suppress_tokens": never, **plan.generation}
    if not tokens.start:
        return values | {"max_new_tokens": _MAX_NEW_TOKENS}
    if len(tokens.start) > 1:
        values["forced_bos_token_id"] = tokens.start[1]
    return values | {"max_length": plan.longest}


def _write_tokenizer(model: Bundle, tokens: SpecialTokens, plan: ExportPlan, folder: Path) -> None:
    """Write the tokeniser with a template that puts the special tokens around a text."""
    tokenizer, path = model.tokenizer.without_target(), folder / "tokenizer.json"
    tokenizer.save(path)
    segments = getattr(model.config.model, "segments", None)
    separator, last = (None, 0) if segments is None else (segments.separator, segments.count - 1)
    used: set[int] = set()

    def build(*parts: str | int) -> list[dict[str, Any]]:
        pieces, segment = [], 0
        for part in parts:
            if isinstance(part, str):
                pieces.append({"Sequence": {"id": part, "type_id": segment}})
            else:
                used.add(part)
                pieces.append({"SpecialToken": {"id": tokenizer.token(part), "type_id": segment}})
                segment = min(segment + (part == separator), last)
        return pieces

    single = build(*tokens.before, "A", *tokens.after)
    pair = build(*tokens.before, "A", *tokens.after, *tokens.second[0], "B", *tokens.second[1])
    ids = {role: id for role in ROLES if (id := getattr(tokenizer.roles, role)) is not None}
    listed = {tokenizer.token(id): id for id in sorted(used)} | {f"role:{role}": id for role, id in ids.items()}
    special = {name: {"id": name, "ids": [id], "tokens": [tokenizer.token(id)]} for name, id in listed.items()}
    template = {"type": "TemplateProcessing", "single": single, "pair": pair, "special_tokens": special}
    _write_json(path, read_json(path, 1 << 30) | {"post_processor": template})
    names = ["input_ids", "attention_mask"] if segments is None else ["input_ids", "token_type_ids", "attention_mask"]
    settings: dict[str, Any] = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "model_max_length": plan.longest,
        "clean_up_tokenization_spaces": False,
        "model_input_names": names,
        "padding_side": "left" if isinstance(model.config, LanguageModelTask) else "right",
    }
    settings |= {f"{role}_token": tokenizer.token(id) for role, id in ids.items()}
    _write_json(folder / "tokenizer_config.json", settings)


def write_card(model: Bundle, plan: ExportPlan, name: str, licence: str, history: History) -> str:
    """The text of README.md."""
    task, size = model.config.task, sum(parameter.numel() for parameter in model.network.parameters())
    head = {"license": licence, "library_name": "transformers", "tags": ["seqloom"]}
    if task in _PIPELINES:
        head["pipeline_tag"] = _PIPELINES[task]
    loader = next((loader for end, loader in _LOADERS.items() if plan.architecture.endswith(end)), "AutoModel")
    lines = ["---", *(f"{key}: {json.dumps(value, ensure_ascii=False)}" for key, value in head.items()), "---", ""]
    lines += [f"# {name}", "", f"A model for {task}, trained with Seqloom, in the layout of `{plan.architecture}`."]
    tokenizers = {'tokenizer = AutoTokenizer.from_pretrained("FOLDER")': model.tokenizer}
    if model.tokenizer.target is not model.tokenizer:
        lines += ["Sources and targets have a tokeniser each; decode what the model writes with that of targets."]
        other = f'target_tokenizer = AutoTokenizer.from_pretrained("FOLDER/{TARGET_FOLDER}")'
        tokenizers[other] = model.tokenizer.target
    counts = " + ".join(f"{tokenizer.vocab_size:,}" for tokenizer in tokenizers.values())
    lines += [f"{size:,} parameters, {counts} tokens.", ""]
    lines += ["```python", f"from transformers import AutoTokenizer, {loader}", ""]
    lines += [*tokenizers, f'model = {loader}.from_pretrained("FOLDER")']
    lines += ["```", "", "## Training data", "", "| split | files |", "|---|---|", *_list_data(model.config)]
    if history.steps:
        lines += ["", f"{history.steps:,} steps; {history.tokens:,} tokens were predicted, repetitions included."]
    if history.measures:
        lines += ["", "## Metrics", "", "On the validation data:", ""]
        lines += ["| measure | value |", "|---|---|", *(f"| {key} | {value:.4g} |" for key, value in history.measures)]
    if model.labels and model.labels != ("",):
        lines += ["", "## Labels", "", ", ".join(f"`{label}`" for label in model.labels)]
    return "\n".join(lines) + "\n"


def _list_data(config: Task) -> list[str]:
    """The names of the files of each split, without their folders, which are private."""
    rows = []
    for split in ("train", "valid"):
        corpora = getattr(config.data, split, None) or []
        for corpus in corpora if isinstance(corpora, list | tuple) else [corpora]:
            files = [file for side in corpus.sides.values() for file in side]
            rows.append(f"| {split} | {', '.join(f'`{Path(file).name}`' for file in files)} |")
    return rows


@torch.inference_mode()
def check_folder(model: Bundle, plan: ExportPlan, folder: Path) -> float:
    """Load the folder with transformers and return the largest difference of scores; texts must give the same ids."""
    transformers = import_extra("transformers", "export")
    transformers.utils.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()
    samples = draw_samples(model, plan.longest)
    tokens = find_special_tokens(model)
    sides = {folder: (model.tokenizer, samples.rows, tokens)}
    if model.tokenizer.target is not model.tokenizer:
        sides[folder / TARGET_FOLDER] = (model.tokenizer.target, samples.targets, tokens.around_targets)
    for where, (tokenizer, rows, around) in sides.items():
        encode = transformers.AutoTokenizer.from_pretrained(where, local_files_only=True)
        for text in map(tokenizer.decode, rows):
            ours, theirs = around.frame(tuple(tokenizer.encode(text).ids)), tuple(encode(text)["input_ids"])
            if ours != theirs:
                raise RunError(f"{text!r}: the exported tokeniser gives {theirs}, not {ours}; nothing was kept")
    theirs = getattr(transformers, plan.architecture).from_pretrained(folder, local_files_only=True).eval()
    expected, real = compute(model, samples)
    batch = pad_samples(samples.rows, model.tokenizer.roles.pad)
    given = {"input_ids": batch.ids, "attention_mask": batch.mask.long()}
    if samples.targets and isinstance(model.config, TranslationTask):
        target = pad_samples(samples.targets, model.tokenizer.target.roles.pad)
        given |= {"decoder_input_ids": target.ids, "decoder_attention_mask": target.mask.long()}
    found = theirs(**given)
    return measure_difference(expected, found[0] if "logits" not in found else found.logits, real)


def _write_json(path: Path, values: Any) -> None:
    path.write_text(json.dumps(values, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
