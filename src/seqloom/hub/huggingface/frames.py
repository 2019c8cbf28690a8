"""The special tokens around texts, by role, where a configuration says them by number."""

from seqloom.hub.huggingface.settings import Settings
from seqloom.text import Tokenizer
from seqloom.text.roles import ROLES


def name_start(settings: Settings, tokenizer: Tokenizer, default: list[str]) -> list[str]:
    """What a decoder reads before its first own token: where it starts, and the token it is forced to say first."""
    start, forced = settings.token("decoder_start_token_id"), settings.token("forced_bos_token_id")
    named = default if start is None else [_name("decoder_start_token_id", start, settings, tokenizer)]
    return named if forced is None else [*named, _name("forced_bos_token_id", forced, settings, tokenizer)]


def _name(key: str, id: int, settings: Settings, tokenizer: Tokenizer) -> str:
    for role in ROLES:
        if getattr(tokenizer.roles, role) == id:
            return role
    raise settings.refusal(key, f"token {id} has no role in the tokeniser; a start by language is not supported")
