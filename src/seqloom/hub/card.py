"""A model card: what a stranger should know of a model before using it. Mitchell et al. 2019."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from seqloom.tasks import Task

_PIPELINES = {
    "translation": "translation",
    "language-model": "text-generation",
    "masked-language-model": "fill-mask",
    "classification": "text-classification",
    "tagging": "token-classification",
}
_USE = {
    "ForConditionalGeneration": "AutoModelForSeq2SeqLM",
    "MTModel": "AutoModelForSeq2SeqLM",
    "LMHeadModel": "AutoModelForCausalLM",
    "ForCausalLM": "AutoModelForCausalLM",
    "ForMaskedLM": "AutoModelForMaskedLM",
    "ForSequenceClassification": "AutoModelForSequenceClassification",
    "ForTokenClassification": "AutoModelForTokenClassification",
    "Model": "AutoModel",
}


@dataclass(frozen=True)
class History:
    """What is known of a training."""

    steps: int = 0
    tokens: int = 0
    """Predicted in training, repetitions included."""
    measures: tuple[tuple[str, float], ...] = ()
    """Of the weights that were kept, on the validation data."""


def write_card(
    name: str,
    config: Task,
    *,
    licence: str,
    architecture: str,
    parameters: int,
    vocabulary: int,
    labels: tuple[str, ...],
    history: History,
) -> str:
    """The text of README.md."""
    head = {"license": licence, "library_name": "transformers", "tags": ["seqloom"]}
    if config.task in _PIPELINES:
        head["pipeline_tag"] = _PIPELINES[config.task]
    loader = next(loader for ending, loader in _USE.items() if architecture.endswith(ending))
    lines = ["---", *(f"{key}: {json.dumps(value, ensure_ascii=False)}" for key, value in head.items()), "---", ""]
    lines += [f"# {name}", "", f"A model for {config.task}, trained with Seqloom, in the layout of `{architecture}`."]
    lines += [f"{parameters:,} parameters, {vocabulary:,} tokens.", ""]
    lines += ["```python", f"from transformers import AutoTokenizer, {loader}", ""]
    lines += [
        'tokenizer = AutoTokenizer.from_pretrained("FOLDER")',
        f'model = {loader}.from_pretrained("FOLDER")',
        "```",
    ]
    lines += ["", "## Training data", "", *_tell_data(config)]
    if history.steps:
        lines += ["", f"{history.steps:,} steps; {history.tokens:,} tokens were predicted, repetitions included."]
    if history.measures:
        lines += ["", "## Metrics", "", "On the validation data:", ""]
        lines += ["| measure | value |", "|---|---|", *(f"| {key} | {value:.4g} |" for key, value in history.measures)]
    if labels and labels != ("",):
        lines += ["", "## Labels", "", ", ".join(f"`{label}`" for label in labels)]
    return "\n".join(lines) + "\n"


def _tell_data(config: Task) -> list[str]:
    """The files of each split; where they are is nobody's business."""
    rows = ["| split | files |", "|---|---|"]
    for split in ("train", "valid"):
        for corpus in _list(getattr(config.data, split, None)):
            files = [file for side in corpus.sides.values() for file in side]
            rows.append(f"| {split} | {', '.join(f'`{Path(file).name}`' for file in files)} |")
    return rows


def _list(value: Any) -> list[Any]:
    return [] if value is None else list(value) if isinstance(value, list | tuple) else [value]
