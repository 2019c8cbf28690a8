"""A list of modules that knows their type: PyTorch's own forgets it, and a reader or type checker should not."""

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Generic, TypeVar

from torch import nn

M = TypeVar("M", bound=nn.Module)


class Stack(nn.ModuleList, Generic[M]):
    """Layers of one type, in order."""

    def __init__(self, modules: Iterable[M]) -> None:
        super().__init__(modules)

    if TYPE_CHECKING:

        def __iter__(self) -> Iterator[M]: ...

        def __getitem__(self, index: int) -> M: ...  # type: ignore[override]
