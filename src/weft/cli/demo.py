"""`weft demo`: something real in a minute."""


def demo() -> None:
    """Train a small model while you watch, test it, and show what it attends to.

    Example: weft demo
    """
    from rich.console import Console

    from weft.demo import run

    run(Console())
