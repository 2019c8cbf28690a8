"""A Hugging Face folder as a model of ours: read with care, planned, checked, and only then filled with numbers."""

from pathlib import Path

from seqloom.errors import DataError
from seqloom.hub.huggingface.bart import plan_bart
from seqloom.hub.huggingface.bert import plan_bert
from seqloom.hub.huggingface.files import Weights, open_weights, read_json
from seqloom.hub.huggingface.gpt2 import plan_gpt2
from seqloom.hub.huggingface.llama import plan_llama
from seqloom.hub.huggingface.neox import plan_neox
from seqloom.hub.huggingface.plan import Plan
from seqloom.hub.huggingface.sentence import read_vector
from seqloom.hub.huggingface.settings import Settings
from seqloom.hub.huggingface.t5 import plan_t5
from seqloom.hub.huggingface.tokenizer import find_frame, read_tokenizer
from seqloom.hub.imported import Imported
from seqloom.text import Tokenizer


def is_folder(path: Path) -> bool:
    """Whether this is a folder of Hugging Face's."""
    return (path / "config.json").is_file()


def load_folder(path: str | Path) -> Imported:
    """Refuse what cannot be mapped before anything is allocated; else the model, ready to be used."""
    folder = Path(path)
    settings = read_settings(folder)
    tokenizer = read_tokenizer(folder, settings)
    weights = open_weights(folder)
    plan = _plan(folder, settings, weights, tokenizer)
    plan.check(weights, tokenizer.vocab_size, str(folder))
    return Imported(plan.task, tokenizer, plan.labels, plan.build(weights, tokenizer.vocab_size).eval())


def read_settings(folder: Path) -> Settings:
    """config.json, with what generation_config.json says of tokens on top."""
    values = read_json(folder / "config.json")
    generation = folder / "generation_config.json"
    if generation.is_file():
        said = read_json(generation)
        values |= {key: value for key, value in said.items() if key.endswith("_token_id") and value is not None}
    settings = Settings(folder / "config.json", values)
    if "quantization_config" in settings:
        raise settings.refusal("quantization_config", "quantised weights cannot be imported; take the full ones")
    return settings


def _plan(folder: Path, settings: Settings, weights: Weights, tokenizer: Tokenizer) -> Plan:
    kind = settings.word("model_type")
    match kind:
        case "bert" | "roberta" | "distilbert" | "xlm-roberta-xl":
            return plan_bert(settings, weights, tokenizer, read_vector(folder))
        case "gpt2":
            return plan_gpt2(settings, weights, find_frame(folder, tokenizer))
        case "gpt_neox":
            return plan_neox(settings, weights, find_frame(folder, tokenizer))
        case "llama" | "mistral" | "qwen2":
            return plan_llama(settings, weights, find_frame(folder, tokenizer))
        case "marian" | "bart" | "pegasus" | "mbart":
            return plan_bart(settings, weights, tokenizer)
        case "t5" | "mt5":
            return plan_t5(settings, weights, tokenizer)
        case _:
            raise DataError(f'{settings.path}: models of type "{kind[:40]}" cannot be imported')
