"""Folders of published weights, Hugging Face's or ELMo's, as models of ours."""

from pathlib import Path

from seqloom.errors import DataError
from seqloom.hub import elmo, huggingface
from seqloom.hub.bundle import Bundle, find_special_tokens
from seqloom.hub.huggingface.files import open_weights, read_json
from seqloom.hub.huggingface.generation import PREFERENCES, report_preferences
from seqloom.hub.huggingface.layout import Folder
from seqloom.hub.huggingface.settings import Settings
from seqloom.hub.huggingface.tokenizer import read_tokenizer


def is_published(path: Path) -> bool:
    """Whether this folder holds published weights, and is not a run of ours."""
    found = (path / "config.json").is_file() or elmo.is_folder(path)
    return found and not (path / "manifest.json").exists()


def load_published(path: str | Path) -> Bundle:
    """The model of a folder, mapped onto our blocks; if that is not possible, no memory is allocated."""
    folder = Path(path)
    if not is_published(folder):
        raise DataError(f"{folder}: holds no published weights: neither Hugging Face's config.json nor ELMo's files")
    if elmo.is_folder(folder):
        return elmo.load_folder(folder)
    settings = read_settings(folder)
    kind = settings.word("model_type")
    layout = next((layout for layout in huggingface.LAYOUTS if kind in layout.model_types), None)
    if layout is None:
        known = sorted(name for layout in huggingface.LAYOUTS for name in layout.model_types)
        reason = f'"{kind[:40]}" is stored or computed in a way that Seqloom does not know; it knows {", ".join(known)}'
        raise settings.refusal("model_type", reason)
    plan = layout.read(Folder(folder, settings, open_weights(folder), read_tokenizer(folder, settings)))
    plan.check()
    model = plan.load()
    tokens = find_special_tokens(model)
    if tokens.end is not None:
        report_preferences(settings, tokens.suppressed, model.tokenizer.vocab_size)
    return model


def read_settings(folder: Path) -> Settings:
    """The values of config.json; what generation_config.json says about generating takes precedence."""
    values = read_json(folder / "config.json")
    generation = folder / "generation_config.json"
    if generation.is_file():
        found = {key: value for key, value in read_json(generation).items() if value is not None}
        values |= {key: value for key, value in found.items() if key in PREFERENCES or key.endswith("_token_id")}
    settings = Settings(folder / "config.json", values)
    if "quantization_config" in settings:
        raise settings.refusal("quantization_config", "quantised weights cannot be imported; use the full ones")
    return settings
