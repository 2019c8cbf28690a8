"""The type checker that tests put behind every jaxtyping annotation."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Self

import jaxtyping
from beartype import BeartypeConf, FrozenDict, beartype

# beartype knows Self only where it decorates a whole class; jaxtyping decorates its methods.
check = beartype(conf=BeartypeConf(hint_overrides=FrozenDict({Self: Any})))


@contextmanager
def unchecked() -> Iterator[None]:
    """What a user runs: no annotation is checked, so the code itself must refuse what does not fit."""
    before = jaxtyping.config.jaxtyping_disable
    jaxtyping.config.update("jaxtyping_disable", True)
    try:
        yield
    finally:
        jaxtyping.config.update("jaxtyping_disable", before)
