"""What a user may write: strict sections, each default in one place."""

from weft.config.load import load, load_resolved, parse, schema
from weft.config.tasks import TASKS, Config

__all__ = ["TASKS", "Config", "load", "load_resolved", "parse", "schema"]
