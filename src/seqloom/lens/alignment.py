"""Which source token each target token comes from, and which head knows it.

The reference is the model's own behaviour, not one of its heads: a source token matters to a prediction as much as its
log-probability falls when the token's embedding is set to 0 (prediction difference, Li et al. 2019, §4). A head's share
is the mean of its weight on the token that matters most.
"""

from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from seqloom.errors import ConfigError
from seqloom.lens.passes import Edit
from seqloom.lens.seen import Seen


@dataclass(frozen=True)
class HeadAlignment:
    """How much of a head's weight is on the source token that matters most."""

    site: str
    share: float


@dataclass(frozen=True)
class HeadAlignments:
    """The heads that attend to the source, best first, and what they are measured by."""

    heads: tuple[HeadAlignment, ...]
    effects: Float[Tensor, "T S"]
    """How much the log-probability of each prediction falls without each source token."""

    @property
    def best(self) -> HeadAlignment:
        """The head that aligns best."""
        return self.heads[0]

    def to_json(self) -> dict[str, Any]:
        """The shares as a value that JSON can express."""
        heads = [{"site": one.site, "share": one.share} for one in self.heads]
        return {"best": heads[0], "heads": heads}


@torch.no_grad()
def align(seen: Seen) -> HeadAlignments:
    """Measure every head that attends to the source."""
    crosses = [stack for stack in seen.stacks if stack.name == "cross"]
    if not crosses:
        raise ConfigError("this model has no attention to a source, so there is nothing to align")
    effects = _measure_effects(seen)
    special = torch.tensor([token.special for token in seen.find_side("source").tokens])
    own = seen.find_side("target").tokens
    rows = torch.tensor([n for n, one in enumerate(seen.predictions) if one.of is not None and not own[n + 1].special])
    if not len(rows) or special.all():
        raise ConfigError("the text has no words to align")
    best = effects.masked_fill(special, -torch.inf)[rows].argmax(-1)
    shares = [
        HeadAlignment(site, float(weights.float().cpu()[rows, best].mean()))
        for mixer in seen.list_mixers(crosses[0])
        for site, weights in zip(mixer.sites, mixer.weights(), strict=True)
    ]
    return HeadAlignments(tuple(sorted(shares, key=lambda one: -one.share)), effects)


def _measure_effects(seen: Seen) -> Float[Tensor, "T S"]:
    before = _score(seen, [])
    sites = seen.open.embeddings["source"]
    columns = []
    for place in range(len(seen.find_side("source").tokens)):
        columns.append(before - _score(seen, [Edit(site, positions=(place,)) for site in sites]))
    return torch.stack(columns, dim=1)


def _score(seen: Seen, edits: list[Edit]) -> Float[Tensor, "T"]:
    """The log-probability of each prediction."""
    found = Seen(seen.open, seen.reading, (*seen.edits, *edits)) if edits else seen
    wanted = [one.id for one in seen.predictions]
    scored = [logits for _, logits in found.score(seen.reading.questions)]
    return torch.stack([row.cpu().double().log_softmax(-1)[id] for row, id in zip(scored, wanted, strict=True)])
