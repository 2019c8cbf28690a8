"""How the authors of a model generate text: preferences in generation_config.json or, in older files, config.json.

Which tokens start and end an answer is part of a model and is obeyed. How to search is up to the user of a model, so
what its authors prefer is said, not done.
"""

import json
import warnings
from collections.abc import Collection
from typing import Any

from seqloom.errors import Notice
from seqloom.hub.huggingface.settings import Settings

_OURS = {
    "num_beams": ("beam", 1),
    "length_penalty": ("length_penalty", 1.0),
    "min_length": ("min_length", 0),
    "do_sample": ("sample", False),
    "temperature": ("temperature", 1.0),
    "top_k": ("top_k", None),
    "top_p": ("top_p", 1.0),
    "min_p": ("min_p", None),
}
"""Our name of an option, and the value that changes nothing."""
_NEEDS = {"length_penalty": "num_beams"} | dict.fromkeys(("temperature", "top_k", "top_p", "min_p"), "do_sample")
"""What an option has no effect without."""
_FOREIGN = {"repetition_penalty": 1.0, "no_repeat_ngram_size": 0, "encoder_no_repeat_ngram_size": 0}
_BANNED = ("bad_words_ids", "suppress_tokens", "begin_suppress_tokens")
PREFERENCES = (*_OURS, *_FOREIGN, *_BANNED)


def report_preferences(settings: Settings, suppressed: Collection[int], vocab_size: int) -> None:
    """Say which options of a search a model is published with, where they differ from ours."""
    used = {key for key, (_, plain) in _OURS.items() if settings.get(key) not in (None, plain)}
    used = {key for key in used if _NEEDS.get(key, key) in used}
    ours = [f"{name} = {json.dumps(settings.get(key))}" for key, (name, _) in _OURS.items() if key in used]
    foreign = [key for key, plain in _FOREIGN.items() if settings.get(key) not in (None, plain)]
    foreign += [key for key in _BANNED if not _is_suppressed(settings.get(key) or [], suppressed, vocab_size)]
    parts = [f"its authors search with {', '.join(ours)}, and Seqloom only if you say so"] if ours else []
    parts += [f"Seqloom has no {', '.join(foreign)}, so its answers may differ"] if foreign else []
    if parts:
        warnings.warn(f"{settings.path.parent}: {'; '.join(parts)}", Notice, stacklevel=2)


def _is_suppressed(listed: Any, suppressed: Collection[int], vocab_size: int) -> bool:
    """Whether no answer contains these tokens anyway."""
    if not isinstance(listed, list):
        return False
    ids = [one[0] if isinstance(one, list) and len(one) == 1 else one for one in listed]
    return all(isinstance(id, int) and (id in suppressed or id >= vocab_size) for id in ids)
