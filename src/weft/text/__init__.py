"""Text to ids and back."""

from weft.text.dropout import BpeDropout
from weft.text.roles import Roles
from weft.text.tokenizer import Encoding, Tokenizer

__all__ = ["BpeDropout", "Encoding", "Roles", "Tokenizer"]
