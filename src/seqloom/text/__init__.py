"""Text to ids and back."""

from seqloom.text.dropout import BpeDropout
from seqloom.text.roles import Roles
from seqloom.text.tokenizer import Encoding, Tokenizer

__all__ = ["BpeDropout", "Encoding", "Roles", "Tokenizer"]
