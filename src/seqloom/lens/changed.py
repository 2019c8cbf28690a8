"""Networks under change: each answers as its network would if some values inside it were others.

Verbs and searches use them like any network. Row by row, they run the pass in the open with the edits; a decoding step
reads all tokens so far again. That is slow, and nothing is kept between steps that an edit could have made wrong. The
network itself is shared and not touched.
"""

import copy
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from seqloom.lens.mixing import AttentionMixer, LookupMixer
from seqloom.lens.networks import (
    OpenBidirectional,
    OpenClassifier,
    OpenLanguageModel,
    OpenMaskedLanguageModel,
    OpenNetwork,
    OpenSeq2Seq,
    OpenTagger,
)
from seqloom.lens.passes import Edit, Pass
from seqloom.lens.stacks import Memory
from seqloom.models.labelling import Classifier, Tagger
from seqloom.models.language_models import BidirectionalLanguageModel, LanguageModel, MaskedLanguageModel
from seqloom.models.seq2seq import Seq2Seq
from seqloom.nn.packing import find_places, pick
from seqloom.types import DecodeState, Encoded, PairBatch, TokenBatch


class _Changed:
    """What all of them have: the open network and the edits."""

    opened: Any
    edits: tuple[Edit, ...]

    def _pass(self, *, watch: bool = False) -> Pass:
        return Pass(self.opened.like, self.edits, watch=watch)

    def _read(self, p: Pass, ids: Int[Tensor, "T"], direction: Any = "") -> Tensor:
        """The states that the head scores, of a single text."""
        found: Tensor = self.opened.read(p, self.opened.run(p, {"text": ids})[direction], direction)
        return found


def change_network(opened: OpenNetwork, edits: Sequence[Edit]) -> nn.Module:
    """A network that computes the same as another one, but for the edits."""
    changed: nn.Module = copy.copy(opened.network)
    changed.__class__ = _CHANGED[type(opened)]
    changed.__dict__.update(opened=opened, edits=tuple(edits))
    return changed


def _rows(batch: TokenBatch) -> list[Int[Tensor, "T"]]:
    return [ids[mask] for ids, mask in zip(batch.ids, batch.mask, strict=True)]


def _spread(parts: Sequence[Float[Tensor, "T D"]], mask: Bool[Tensor, "B T"]) -> Float[Tensor, "B T D"]:
    """Rows of states at the places of their tokens."""
    out = parts[0].new_zeros(*mask.shape, parts[0].shape[-1])
    for row, part, real in zip(out, parts, mask, strict=True):
        row[real] = part
    return out


@dataclass(frozen=True)
class ReadState(DecodeState):
    """All tokens that each row has read, and the source."""

    ids: Int[Tensor, "R P"]
    memory: Encoded | None

    def line(self, row: int) -> Memory:
        """The source of a row."""
        memory, line = self.memory, row // self.width
        assert memory is not None
        final = None if memory.final is None else memory.final[line]
        return Memory(memory.states[line, memory.mask[line]], memory.summary[line], final)


class ChangedSeq2Seq(_Changed, Seq2Seq):
    """A translation model under change."""

    opened: OpenSeq2Seq

    def encode(self, source: TokenBatch, *, all_layers: bool = False) -> Encoded:
        """The source's contextual states."""
        parts = [self.opened.encode(self._pass(), ids) for ids in _rows(source)]
        finals = [part.final for part in parts if part.final is not None]
        states, summary = _spread([part.states for part in parts], source.mask), torch.stack([p.summary for p in parts])
        return Encoded(states, source.mask, summary, final=torch.stack(finals) if finals else None)

    def forward(self, batch: PairBatch) -> Float[Tensor, "B T D"]:
        """The state at each target position."""
        parts = []
        for source, target in zip(_rows(batch.source), _rows(batch.target), strict=True):
            p = self._pass()
            parts.append(self.opened.read(p, self.opened.run(p, {"source": source, "target": target})[""]))
        return _spread(parts, batch.target.mask)

    def align(self, batch: PairBatch) -> Float[Tensor, "B T S"] | None:
        """The attention weights over the source, in the last layer that has them, averaged over heads."""
        out = torch.zeros(*batch.target.mask.shape, batch.source.mask.shape[1])
        for row, (source, target) in enumerate(zip(_rows(batch.source), _rows(batch.target), strict=True)):
            p = self._pass(watch=True)
            self.opened.run(p, {"source": source, "target": target})
            weights = _find_attention(p)
            if weights is None:
                return None
            rows, columns = (mask[row].cpu().nonzero().squeeze(1) for mask in (batch.target.mask, batch.source.mask))
            out[row][rows[:, None], columns] = weights.float().cpu()
        return out

    def start(self, memory: Encoded, capacity: int, *, attention: bool = False) -> DecodeState:
        """The state before the first target token."""
        lines = len(memory.states)
        seen = (~memory.mask).to(memory.states.dtype) if attention else None
        ids = torch.zeros(lines, 0, dtype=torch.long, device=memory.states.device)
        return ReadState((0,) * lines, ids, memory, attention=seen)

    def step(self, ids: Int[Tensor, "R T"], state: DecodeState) -> tuple[Float[Tensor, "R V"], DecodeState]:
        """Scores for the token after the last of the new ones."""
        assert isinstance(state, ReadState)
        new, scores, seen = torch.cat([state.ids, ids], dim=1), [], []
        for row, read in enumerate(new):
            p = self._pass(watch=state.attention is not None)
            states = self.opened.read(p, self.opened.decode(p, read, state.line(row)))
            scores.append(self.opened.score(p, states[-1:])[0])
            if state.attention is not None and (weights := _find_attention(p)) is not None:
                total = torch.zeros_like(state.attention[row])
                assert state.memory is not None
                total[state.memory.mask[row // state.width]] = weights[-ids.shape[1] :].sum(0)
                seen.append(total)
        positions = tuple(position + ids.shape[1] for position in state.positions)
        kept = torch.stack(seen) if seen else None
        return torch.stack(scores), replace(state, ids=new, positions=positions, attention=kept)


def _find_attention(p: Pass) -> Float[Tensor, "T S"] | None:
    """The weights of the last attention to the source, averaged over heads."""
    for mixer in reversed(p.mixers.values()):
        if isinstance(mixer, LookupMixer) or (isinstance(mixer, AttentionMixer) and mixer.memory is not None):
            return mixer.weights().mean(0)
    return None


class ChangedLanguageModel(_Changed, LanguageModel):
    """A language model under change."""

    opened: OpenLanguageModel

    def forward(self, batch: TokenBatch, *, layers: list[Tensor] | None = None) -> Float[Tensor, "B T D"]:
        """The state at each position."""
        return _spread([self._read(self._pass(), ids) for ids in _rows(batch)], batch.mask)

    def start(self, batch_size: int, capacity: int) -> DecodeState:
        """The state before the first token."""
        ids = torch.zeros(batch_size, 0, dtype=torch.long, device=self.opened.like.device)
        return ReadState((0,) * batch_size, ids, None)

    def step(self, ids: Int[Tensor, "R T"], state: DecodeState) -> tuple[Float[Tensor, "R V"], DecodeState]:
        """Scores for the token after the last of the new ones."""
        assert isinstance(state, ReadState)
        new = torch.cat([state.ids, ids], dim=1)
        p = self._pass()
        scores = torch.cat([self.opened.score(p, self._read(self._pass(), read)[-1:]) for read in new])
        positions = tuple(position + ids.shape[1] for position in state.positions)
        return scores, replace(state, ids=new, positions=positions)


class ChangedMaskedLanguageModel(_Changed, MaskedLanguageModel):
    """A masked language model under change."""

    opened: OpenMaskedLanguageModel

    def forward(self, batch: TokenBatch, hidden: Bool[Tensor, "B T"] | Int[Tensor, "M"]) -> Float[Tensor, "M D"]:
        """The transformed states of the hidden positions only."""
        states = _spread([self._read(self._pass(), ids) for ids in _rows(batch)], batch.mask)
        return pick(states, find_places(hidden, states.device) if hidden.dtype is torch.bool else hidden)


class ChangedBidirectional(_Changed, BidirectionalLanguageModel):
    """A bidirectional language model under change."""

    opened: OpenBidirectional

    def forward(self, batch: TokenBatch) -> tuple[Float[Tensor, "B T D"], Float[Tensor, "B T D"]]:
        """The states of both directions."""
        ways = ("forward", "backward")
        parts = [_spread([self._read(self._pass(), ids, way) for ids in _rows(batch)], batch.mask) for way in ways]
        return parts[0], parts[1]

    def read_forwards(self, batch: TokenBatch) -> Float[Tensor, "B T D"]:
        """The forward states."""
        return self(batch)[0]  # type: ignore[no-any-return]


class ChangedTagger(_Changed, Tagger):
    """A tagger under change."""

    opened: OpenTagger

    def forward(self, batch: TokenBatch) -> Float[Tensor, "B T C"]:
        """The score of each tag at each token."""
        p = self._pass()
        parts = [self.opened.score(p, self._read(self._pass(), ids)) for ids in _rows(batch)]
        return _spread(parts, batch.mask)


class ChangedClassifier(_Changed, Classifier):
    """A classifier under change."""

    opened: OpenClassifier

    def forward(self, batch: TokenBatch) -> Float[Tensor, "B C"]:
        """The score of each label."""
        p = self._pass()
        return torch.cat([self.opened.score(p, self._read(self._pass(), ids)) for ids in _rows(batch)])


_CHANGED: dict[type[OpenNetwork], type[nn.Module]] = {
    OpenSeq2Seq: ChangedSeq2Seq,
    OpenLanguageModel: ChangedLanguageModel,
    OpenMaskedLanguageModel: ChangedMaskedLanguageModel,
    OpenBidirectional: ChangedBidirectional,
    OpenTagger: ChangedTagger,
    OpenClassifier: ChangedClassifier,
}
