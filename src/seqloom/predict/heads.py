"""What the heads of a model do: on random tokens that are read twice, and on texts if there are any.

Random tokens show what a head does whatever they mean: ⟨bos⟩ r r has no other reason to attend to the token before, to
the same token or to what followed it (Olsson et al. 2022). Spread, distance and alignment are those of texts.
"""

from collections.abc import Sequence
from dataclasses import astuple, replace

import torch

from seqloom.errors import DataError
from seqloom.lens.networks import OpenNetwork, OpenSeq2Seq, open_network
from seqloom.lens.roles import HeadRoles, average_roles, describe_roles, join_roles, measure_circuits
from seqloom.lens.seen import Seen
from seqloom.lens.texts import Reading, Side, Token
from seqloom.predict.predictor import Predictor
from seqloom.predict.reading import Asked
from seqloom.predict.score import find_lead
from seqloom.predict.trace import trace

_LENGTH, _COUNT = 25, 4
_OF_TEXTS = ("entropy", "distance", "special", "alignment", "half_life", "energy")


def describe_heads(model: Predictor, texts: Sequence[str] | None = None) -> list[HeadRoles]:
    """The roles of every head, memory and kernel."""
    model.compile()  # refuses a network in training
    opened = open_network(model.peek())
    generator = torch.Generator().manual_seed(0)
    found = average_roles([_describe(_read_twice(model, opened, generator)) for _ in range(_COUNT)])
    if texts is not None:
        if isinstance(texts, str) or not texts:
            raise DataError("texts: expected a list of texts")
        found = join_roles(found, average_roles([_describe_text(model, text) for text in texts]), _OF_TEXTS)
    circuits = measure_circuits(opened)
    return [
        replace(one, copying=circuits[one.site][0], matching=circuits[one.site][1]) if one.site in circuits else one
        for one in found
    ]


@torch.no_grad()
def _describe(seen: Seen) -> list[HeadRoles]:
    return describe_roles(seen, seen.stacks)


def _describe_text(model: Predictor, text: str) -> list[HeadRoles]:
    own = trace(model, Asked(text))
    found = list(own.roles().heads)
    if not any(stack.name == "cross" for stack in own.stacks):
        return found
    shares = {one.site: one.share for one in own.alignment().heads}
    return [replace(one, alignment=shares.get(one.site)) for one in found]


def _read_twice(model: Predictor, opened: OpenNetwork, generator: torch.Generator) -> Seen:
    """Random tokens, read twice, with the special tokens of the task around them."""
    roles = ("source", "target") if isinstance(opened, OpenSeq2Seq) else (next(iter(model.frames)),)
    sides, ids = [], {}
    for role in roles:
        before, after = model.frames[role]
        tokenizer, name = model.tokenizer.of(role), role if len(roles) == 2 else "text"
        if model.config.task == "language-model":
            before, after = find_lead(model), ()
        special = {id for id in astuple(tokenizer.roles) if id is not None}
        known = [id for id in range(tokenizer.vocab_size) if id not in special and tokenizer.token(id)]
        room = min(_LENGTH, (model.longest - len(before) - len(after)) // 2, len(known))
        if room < 2:
            raise DataError("the model reads too few tokens at once to read something twice")
        order = torch.randperm(len(known), generator=generator)[:room].tolist()
        drawn = [known[place] for place in order] * 2
        outside = [(id, True) for id in before], [(id, True) for id in (after if role != "target" else ())]
        row = [*outside[0], *((id, False) for id in drawn), *outside[1]]
        tokens = tuple(Token(id, tokenizer.token(id), special=is_special) for id, is_special in row)
        sides.append(Side(name, "", tokens))
        ids[name] = torch.tensor([id for id, _ in row], device=model.device)
    return Seen(opened, Reading(model.config.task, tuple(sides), ids, (), str, int, {}))
