"""What the heads, memories and kernels of a network do, as numbers.

On a map w of a text x, over the rows t where it is defined:

    previous      the mean of w_{t,t−1}
    duplicate     the mean of what goes to earlier positions with the same token, x_s = x_t
    induction     the mean of what goes to positions after an earlier occurrence, x_{s−1} = x_t (Olsson et al. 2022);
                  the usual test is a random sequence that is read twice: ⟨bos⟩ r r
    entropy       of a row, divided by that of a uniform one over what it sees: 0 is one position, 1 is all alike
    distance      the mean of |t − s|
    special       the share that goes to special tokens
    alignment     of attention to a source, what goes to the source token that matters most to the prediction
    half-life     of a memory, the steps after which half is left: ln 2 / −E[log decay]
    energy        of a kernel, the share of Σ_t ‖gate ⊙ W_j x_{t+j}‖² at each offset j

Of a head of a pre-norm language model, two numbers are read from its weights alone (Elhage et al. 2021), as Σλ/Σ|λ|
over the eigenvalues of a matrix that maps tokens to tokens and has rank K:

    copying       W_U W_O W_V W_E: above 0, what is attended to becomes more likely
    matching      W_E W_Qᵀ W_K W_E: above 0, a token attends to itself and its like
"""

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields, replace
from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from seqloom.lens.mixing import ConvolutionMixer, Mixer, RecurrentMixer
from seqloom.lens.networks import OpenLanguageModel, OpenNetwork
from seqloom.lens.seen import Seen
from seqloom.lens.stacks import OpenTransformer, Stack
from seqloom.nn.attention import Dot, ScaledDot
from seqloom.nn.multihead import SelfAttention
from seqloom.nn.transformer import Residual

ABOUT = {
    "previous": "weight on the token before",
    "duplicate": "weight on earlier occurrences of the same token",
    "induction": "weight on what followed an earlier occurrence of the same token",
    "entropy": "how spread out a row is: 0 is one position, 1 is all alike",
    "distance": "mean distance in tokens",
    "special": "share of special tokens",
    "alignment": "weight on the source token that matters most to the prediction",
    "half_life": "steps after which half of the memory is left",
    "energy": "share of each offset in what the kernel adds",
    "copying": "whether what a head attends to becomes more likely: −1 to 1",
    "matching": "whether a token attends to itself and its like: −1 to 1",
}
"""What each number says."""


@dataclass(frozen=True)
class HeadRoles:
    """What a head, a memory or a kernel does; None where a number has no meaning."""

    site: str
    previous: float | None = None
    duplicate: float | None = None
    induction: float | None = None
    entropy: float | None = None
    distance: float | None = None
    special: float | None = None
    alignment: float | None = None
    half_life: float | None = None
    energy: dict[int, float] | None = None
    copying: float | None = None
    matching: float | None = None

    def to_json(self) -> dict[str, Any]:
        """The numbers that have a meaning, as JSON can express them."""
        return {name: value for name, value in asdict(self).items() if value is not None}


@dataclass(frozen=True)
class Roles:
    """What the heads, memories and kernels of a text do."""

    heads: tuple[HeadRoles, ...]

    def to_json(self) -> dict[str, Any]:
        """The numbers, and what each says."""
        shown = [one.to_json() for one in self.heads]
        return {
            "roles": shown,
            "about": {name: about for name, about in ABOUT.items() if any(name in one for one in shown)},
        }


@torch.no_grad()
def describe_roles(seen: Seen, stacks: Sequence[Stack]) -> list[HeadRoles]:
    """What the heads, memories and kernels of some stacks do on a text."""
    found = []
    for stack in stacks:
        special = torch.tensor([token.special for token in seen.find_side(stack.keys).tokens])
        ids = seen.reading.ids[stack.queries], seen.reading.ids[stack.keys]
        for mixer in seen.list_mixers(stack):
            found += _describe_mixer(mixer, stack, *ids, special)
    return found


def _describe_mixer(
    mixer: Mixer, stack: Stack, queries: Int[Tensor, "T"], keys: Int[Tensor, "S"], special: Bool[Tensor, "S"]
) -> list[HeadRoles]:
    """What each map of a sublayer does; `special` says which keys are special tokens."""
    found = []
    for site, weights in zip(mixer.sites, mixer.weights().cpu().double(), strict=True):
        shares = weights / weights.sum(-1, keepdim=True).clamp(min=1e-30)
        known: dict[str, Any] = {"entropy": _measure_entropy(shares), "special": _mean(shares[:, special].sum(-1))}
        if stack.queries == stack.keys and stack.kind != "pool":
            known |= _describe_self(shares, queries.cpu())
        if isinstance(mixer, RecurrentMixer):
            known["half_life"] = _measure_half_life(mixer)
        if isinstance(mixer, ConvolutionMixer):
            sizes = {offset: float(vectors.cpu().double().square().sum()) for offset, vectors in mixer.offset_terms()}
            known["energy"] = {offset: size / max(sum(sizes.values()), 1e-30) for offset, size in sizes.items()}
        found.append(HeadRoles(site, **known))
    return found


def _describe_self(shares: Float[Tensor, "T T"], ids: Int[Tensor, "T"]) -> dict[str, float | None]:
    place = torch.arange(len(ids))
    behind = place[:, None] - place
    same = ids[:, None] == ids
    earlier = same & (behind > 0)
    after = torch.zeros_like(earlier)
    after[:, 1:] = earlier[:, :-1]  # the position after an earlier occurrence
    return {
        "previous": _mean(shares.diagonal(-1)),
        "duplicate": _mean((shares * earlier).sum(-1)[earlier.any(-1)]),
        "induction": _mean((shares * after).sum(-1)[after.any(-1)]),
        "distance": _mean((shares * behind.abs()).sum(-1)),
    }


def _measure_entropy(shares: Float[Tensor, "T S"]) -> float | None:
    seen = (shares > 0).sum(-1)
    entropy = -(shares * shares.clamp(min=1e-30).log()).sum(-1)
    return _mean((entropy / seen.clamp(min=2).log())[seen > 1])


def _measure_half_life(mixer: RecurrentMixer) -> float | None:
    steps = mixer.open()
    if steps.matrix is not None:
        return None
    rate = -float(steps.decay.cpu().double().clamp(min=1e-30).log().mean())
    return math.log(2) / rate if rate > 0 else None


def _mean(values: Float[Tensor, "N"]) -> float | None:
    return float(values.mean()) if len(values) else None


def average_roles(many: Sequence[Sequence[HeadRoles]]) -> list[HeadRoles]:
    """The mean of each number over several texts."""
    return [
        HeadRoles(same[0].site, **{f.name: _average(same, f.name) for f in _numbers()})
        for same in zip(*many, strict=True)
    ]


def _numbers() -> list[Any]:
    return [one for one in fields(HeadRoles) if one.name != "site"]


def _average(same: Sequence[HeadRoles], name: str) -> Any:
    values = [getattr(one, name) for one in same if getattr(one, name) is not None]
    if not values:
        return None
    if isinstance(values[0], dict):
        return {key: sum(value[key] for value in values) / len(values) for key in values[0]}
    return sum(values) / len(values)


def join_roles(roles: Sequence[HeadRoles], others: Sequence[HeadRoles], names: Sequence[str]) -> list[HeadRoles]:
    """The first, with some numbers from the others."""
    return [
        replace(one, **{name: getattr(other, name) for name in names}) for one, other in zip(roles, others, strict=True)
    ]


def refuse_circuits(open: OpenNetwork) -> str:
    """Why copying and matching have no meaning for a network; empty if they have."""
    if not isinstance(open, OpenLanguageModel) or not isinstance(open.readouts[""], OpenTransformer):
        return "Copying and matching are for Transformer language models, whose tokens in and out are the same."
    blocks = list(open.readouts[""].module.blocks)
    if any(block.attention_residual.position == "post" for block in blocks):
        return "Copying and matching have no meaning after post-norm: every layer's norm changes the stream."
    if any(type(block.attention_residual) is not Residual for block in blocks):
        return "Copying and matching have no meaning without residual connections: there is no stream."
    if any(type(block.attention.in_projection) is not nn.Linear for block in blocks):
        return "Copying and matching are not computed for chunked heads."
    return ""


@torch.no_grad()
def measure_circuits(open: OpenNetwork) -> dict[str, tuple[float, float | None]]:
    """Copying and matching of each head; matching is None where positions or a norm act on queries and keys."""
    if refuse_circuits(open):
        return {}
    network = open.network
    stack: Any = open.readouts[""].module
    table = network.embedding.weight.cpu().double()
    if network.embedding.project is not None:
        table = table @ network.embedding.project.weight.cpu().double().T
    table = table * network.embedding.factor
    out = network.output.weight.cpu().double()
    if network.output.narrowing is not None:
        out = out @ network.output.narrowing.weight.cpu().double().T
    through, like = table.T @ _scale(stack.final_norm, out), table.T @ table  # (D, D)
    found = {}
    for index, block in enumerate(stack.blocks):
        norm = block.attention_residual.norm
        for head in range(block.attention.num_heads):
            query, key, value, back = _split_head(block.attention, head)
            query, key, value = (_scale(norm, matrix) for matrix in (query, key, value))
            copying = _sum_eigenvalues(value @ through @ back)
            rotated = block.attention.relative is not None and block.attention.relative.acts_on_query_key
            dot = isinstance(block.attention.score_function, Dot | ScaledDot)
            plain = dot and not rotated and not block.attention.normalise_qk
            found[f"decoder.{index}.head.{head}"] = copying, _sum_eigenvalues(key @ like @ query.T) if plain else None
    return found


def _scale(norm: nn.Module, matrix: Float[Tensor, "N D"]) -> Float[Tensor, "N D"]:
    """A matrix after a norm, with the norm's gain and mean folded in; its scale is left out."""
    if not isinstance(norm, nn.LayerNorm | nn.RMSNorm):
        return matrix
    matrix = matrix if norm.weight is None else matrix * norm.weight.cpu().double()
    return matrix - matrix.mean(-1, keepdim=True) if isinstance(norm, nn.LayerNorm) else matrix


def _split_head(attention: SelfAttention, head: int) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """W_Q, W_K and W_V of a head, (K, D), and its columns of W_O, (D, K)."""
    size, shared = attention.head_dim, head // (attention.num_heads // attention.num_kv_heads)
    heads = attention.in_projection.weight.cpu().double().unflatten(0, (-1, size))
    key = attention.num_heads + shared
    columns = attention.out_projection.weight.cpu().double()[:, head * size : (head + 1) * size]
    return heads[head], heads[key], heads[key + attention.num_kv_heads], columns


def _sum_eigenvalues(matrix: Float[Tensor, "K K"]) -> float:
    values = torch.linalg.eigvals(matrix)
    return float(values.real.sum() / values.abs().sum().clamp(min=1e-30))
