"""What a user may write: strict sections, each default in one place."""

from seqloom.config.load import load, load_resolved, parse, schema
from seqloom.config.tasks import TASKS, Config

__all__ = ["TASKS", "Config", "load", "load_resolved", "parse", "schema"]
