"""A list of modules that knows their type: PyTorch's own forgets it, and a reader or type checker should not."""

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

M = TypeVar("M", bound=nn.Module)


class Stack(nn.ModuleList, Generic[M]):
    """Layers of one type, in order."""

    recompute = False
    """Whether a layer's intermediate values are computed again for its gradient, rather than kept."""

    def __init__(self, modules: Iterable[M]) -> None:
        super().__init__(modules)

    def run(self, layer: M, *inputs: Any) -> Tensor:
        """What a layer makes of its inputs."""
        again = self.recompute and self.training
        out: Tensor = checkpoint(layer, *inputs, use_reentrant=False) if again else layer(*inputs)
        return out

    if TYPE_CHECKING:

        def __iter__(self) -> Iterator[M]: ...

        def __getitem__(self, index: int) -> M: ...  # type: ignore[override]
