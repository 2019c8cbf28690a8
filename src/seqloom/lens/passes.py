"""A forward pass in the open, over one text without padding: it shows, edits, and can freeze what multiplies.

Three kinds of pass compute the same numbers:

    plain     the network's own functions; gradients, where they are asked for, are the true ones
    frozen    attention weights, gates, the scales of norms and the ratios f(x)/x of activations are constants, so that
              the logit is a linear function of the embeddings, the position vectors and the biases:

                  LN(x) = (x − μ) ⊙ [1/σ] g + b        f(x) = x ⊙ [f(x)/x]        [·]: held fixed

              One backward pass then gives shares that add up to the logit, Σ x·∂logit/∂x, exactly
              (Ali et al. 2022 for Transformers; Arras et al. 2019 for LSTMs)
    direct    frozen, and each sublayer's input is cut off: a gradient runs along the residual stream only, from the
              output of each component to the logit (direct logit attribution, Elhage et al. 2021)

Every bias is multiplied by one leaf, `one` = 1: its gradient is the share of all biases.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

if TYPE_CHECKING:
    from seqloom.lens.mixing import Mixer

Kind = Literal["plain", "frozen", "direct"]


@dataclass(frozen=True)
class Edit:
    """What becomes of the value at a site: factor · value + constant, at all positions or at some."""

    site: str
    factor: float = 0.0
    constant: Float[Tensor, "T *D"] | Float[Tensor, "*D"] | None = None
    positions: tuple[int, ...] | None = None

    def apply(self, value: Float[Tensor, "T *D"], one: Tensor) -> Float[Tensor, "T *D"]:
        """The edited value; a constant for each position is used as far as there are positions."""
        constant = self.constant
        if constant is not None and constant.dim() == value.dim():
            length = min(len(value), len(constant))
            constant = F.pad(constant[:length], (0, 0) * (value.dim() - 1) + (0, len(value) - length))
            chosen = torch.arange(len(value), device=value.device) < length
        else:
            chosen = torch.ones(len(value), dtype=torch.bool, device=value.device)
        if self.positions is not None:
            wanted = torch.zeros_like(chosen)
            wanted[[position for position in self.positions if position < len(value)]] = True
            chosen = chosen & wanted
        changed = self.factor * value if constant is None else self.factor * value + constant * one
        return torch.where(chosen.view(-1, *[1] * (value.dim() - 1)), changed, value)


class Pass:
    """What one forward pass does to its values, and what it leaves behind."""

    def __init__(
        self,
        like: Tensor,
        edits: Iterable[Edit] = (),
        *,
        kind: Kind = "plain",
        leaves: bool = False,
        vectors: Mapping[str, Tensor] | None = None,
        listen: Callable[[str, Tensor], None] | None = None,
        watch: bool = False,
    ) -> None:
        """`like` is a tensor of the network, for the type and the device of new ones.

        `leaves`: embeddings are leaves of the graph in a plain pass, too; `vectors` replace those of some sites.
        `listen` is called with each site and its value; `watch` keeps the sublayers that mix positions.
        """
        self.kind: Kind = kind
        self.one = like.detach().new_ones(()).requires_grad_(kind != "plain")
        self.edits: dict[str, list[Edit]] = {}
        for edit in edits:
            self.edits.setdefault(edit.site, []).append(edit)
        self.vectors = vectors or {}
        self.listen, self.watching, self._with_leaves = listen, watch, leaves or kind != "plain"
        self.sites: list[str] = []
        """Every site, in the order of the pass."""
        self.embeddings: dict[str, Tensor] = {}
        """The embeddings of tokens, by site."""
        self.positions: dict[str, Tensor] = {}
        """The position vectors that were added to them, by site."""
        self.components: dict[str, Tensor] = {}
        """In a direct pass, the output of each component, by site; that of a head has a dimension for heads."""
        self.mixers: dict[str, Mixer] = {}
        """The sublayers that mixed positions, by their first site."""
        self.context: dict[str, Tensor] = {}
        """What a readout needs besides the states of a layer."""
        self.finals: dict[Any, Tensor] = {}
        """The states that the head scores, by direction."""
        self.layers: dict[str, list[tuple[str, Tensor]]] = {}
        """For each stack, the states after each layer with their site, the input first; without a final norm."""

    @property
    def frozen(self) -> bool:
        """Whether what multiplies is held fixed."""
        return self.kind != "plain"

    def freeze(self, factor: Tensor) -> Tensor:
        """A factor of a product, as a constant in a frozen pass."""
        return factor.detach() if self.frozen else factor

    def enter(self, x: Tensor) -> Tensor:
        """The input of a sublayer, cut off in a direct pass."""
        return x.detach() if self.kind == "direct" else x

    def note(self, site: str, value: Float[Tensor, "T *D"]) -> Float[Tensor, "T *D"]:
        """Edit the value at a site, and tell it to who listens."""
        for edit in self.edits.get(site, ()):
            value = edit.apply(value, self.one)
        self.sites.append(site)
        if self.listen is not None:
            self.listen(site, value)
        return value

    def component(self, site: str, value: Float[Tensor, "T *D"]) -> Float[Tensor, "T *D"]:
        """Note what a sublayer adds to the stream; in a direct pass it is a leaf."""
        value = self.note(site, value)
        return self._cut(self.components, site, value) if self.kind == "direct" else value

    def heads(self, site: str, value: Float[Tensor, "T H K"]) -> Float[Tensor, "T H K"]:
        """The same for the outputs of heads: `site` is what stands before a head's number."""
        names = [f"{site}.{head}" for head in range(value.shape[1])]
        edited = any(name in self.edits for name in names)
        heads = [self.note(name, head) for name, head in zip(names, value.unbind(1), strict=True)]
        value = torch.stack(heads, dim=1) if edited else value
        return self._cut(self.components, site, value) if self.kind == "direct" else value

    def embed(self, site: str, value: Float[Tensor, "T D"]) -> Float[Tensor, "T D"]:
        """The embeddings of a text: leaves of the graph, where there is one."""
        value = self.note(site, self.vectors.get(site, value))
        if self._with_leaves:
            value = self._cut(self.embeddings, site, value)
        return value

    def place(self, site: str, value: Float[Tensor, "T D"]) -> Float[Tensor, "T D"]:
        """The position vectors of a text, as leaves."""
        return self._cut(self.positions, site, value) if self.frozen else value

    def watch(self, mixer: "Mixer") -> None:
        """Remember a sublayer that mixes positions, with its input."""
        if self.watching:
            self.mixers[mixer.sites[0]] = mixer

    def _cut(self, leaves: dict[str, Tensor], site: str, value: Tensor) -> Tensor:
        leaves[site] = value.detach().requires_grad_()
        return leaves[site]

    def linear(self, layer: Any, x: Float[Tensor, "*N D"]) -> Float[Tensor, "*N E"]:
        """W x + b; W may have blocks, a chunk of x for each head."""
        if not self.frozen:
            return layer(x)  # type: ignore[no-any-return]
        if isinstance(layer, nn.Linear):
            return self.add_bias(F.linear(x, layer.weight), layer.bias)
        bias = layer(torch.zeros_like(x)).detach()
        return layer(x) - bias + self.one * bias  # type: ignore[no-any-return]

    def add_bias(self, x: Float[Tensor, "*N D"], bias: Float[Tensor, "D"] | None) -> Float[Tensor, "*N D"]:
        """A sum with a bias, whose share is known in a frozen pass."""
        return x if bias is None else x + self.one * bias

    def activate(self, function: Callable[[Tensor], Tensor], x: Float[Tensor, "*N"]) -> Float[Tensor, "*N"]:
        """f(x); in a frozen pass x ⊙ [f(x)/x], and 0 where x is 0. It is for functions with f(0) = 0."""
        if not self.frozen:
            return function(x)
        held = x.detach()
        return x * torch.where(held == 0, 0.0, function(held) / held)

    def norm(self, layer: nn.Module, x: Float[Tensor, "*N D"]) -> Float[Tensor, "*N D"]:
        """A norm; in a frozen pass its scale is held fixed, the mean is not."""
        if not self.frozen or type(layer) is nn.Identity:
            return layer(x)  # type: ignore[no-any-return]
        assert isinstance(layer, nn.LayerNorm | nn.RMSNorm)
        centred = x - x.mean(-1, keepdim=True) if isinstance(layer, nn.LayerNorm) else x
        epsilon = torch.finfo(x.dtype).eps if layer.eps is None else layer.eps
        scaled = centred * (centred.detach().square().mean(-1, keepdim=True) + epsilon).rsqrt()
        scaled = scaled if layer.weight is None else scaled * layer.weight
        return self.add_bias(scaled, layer.bias if isinstance(layer, nn.LayerNorm) else None)
