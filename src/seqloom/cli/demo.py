"""`seqloom demo`: something real in two minutes."""

from pathlib import Path
from typing import Annotated

import typer


def demo(
    out: Annotated[Path, typer.Option("--out", help="The folder for its data and its model.")] = Path("runs/demo"),
) -> None:
    """Train a small model while you watch, test it, and show what it attends to.

    Example: seqloom demo
    """
    from rich.console import Console

    from seqloom.cli.memory import keep_freed_memory
    from seqloom.demo import run

    keep_freed_memory()
    run(Console(), out)
