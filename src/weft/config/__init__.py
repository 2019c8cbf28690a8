"""What a user may write: strict sections, each default in one place."""

from weft.config.load import load, parse, schema
from weft.config.tasks import TASKS, Config

__all__ = ["TASKS", "Config", "load", "parse", "schema"]
