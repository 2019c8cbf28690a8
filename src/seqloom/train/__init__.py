"""From batches to a trained model.

`seqloom.train` is this room of the house and, to a user, also the verb: `seqloom.train("de-en.toml")`.
"""

import sys
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from seqloom.train.run import Run


class _Train(ModuleType):
    def __call__(self, config: str | Path, overrides: Sequence[str] = (), *, out: str | Path | None = None) -> "Run":
        """Train what a configuration file says; the same call goes on with a training that was interrupted."""
        from rich.console import Console

        from seqloom.train.job import train
        from seqloom.train.watch import open_watch

        with open_watch(Console(stderr=True)) as watch:
            return train(Path(config), overrides, out=None if out is None else Path(out), watch=watch)


sys.modules[__name__].__class__ = _Train
