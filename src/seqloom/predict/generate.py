"""Generation: the continuation of a text, at once or token by token."""

import re
from collections.abc import Generator, Sequence
from dataclasses import replace

import torch
from torch import nn

from seqloom.decode.options import Request, Search
from seqloom.decode.record import SearchRecord
from seqloom.decode.search import stream
from seqloom.errors import RunError
from seqloom.models.language_models import LanguageModel
from seqloom.predict.plan import Plan, PlannedLine
from seqloom.predict.predictor import Predictor, cut_texts, group_pieces
from seqloom.predict.results import Generation
from seqloom.predict.score import find_lead
from seqloom.predict.search import spell_forbidden, spell_required
from seqloom.seeds import derive_seed
from seqloom.types import Hypothesis

_NEW_TOKENS = 64
_BYTE = re.compile("<0x[0-9A-F]{2}>")  # the name of a token that is one byte of a character


@torch.inference_mode()
def generate(
    model: Predictor,
    prompts: Sequence[str],
    wanted: Search,
    *,
    special: bool = False,
    numbers: Sequence[int] = (),
    records: list[SearchRecord] | None = None,
) -> list[Generation]:
    """Continue each prompt; if one is too long, the model reads only its last piece, and `pieces` is more than 1.

    A text whose prompt is blank begins with nothing. What is sampled depends on the seed and on the `numbers` of the
    prompts: by default 1, 2, 3, … With `special`, names of special tokens in a prompt stand for these. If a list of
    `records` is given, the record of each prompt's search is added to it.
    """
    return plan_generation(model, prompts, wanted, special=special, numbers=numbers).run(model, records)


def plan_generation(
    model: Predictor, prompts: Sequence[str], wanted: Search, *, special: bool = False, numbers: Sequence[int] = ()
) -> Plan[Generation]:
    """What a generation asks of an engine: a line for each prompt."""
    network = _require(model, model.compile())
    ends = model.find_ends("text")
    never = model.list_suppressed(network.output, ends, wanted)
    model.engine.check(wanted)
    read = _cut(model, prompts, wanted, special)
    asked = [
        _make_request(model, text, wanted, number, special)
        for number, (text, _) in zip(numbers or range(1, len(prompts) + 1), read, strict=True)
    ]

    def finish(found: Sequence[Sequence[Hypothesis]]) -> list[Generation]:
        texts = (_join(model, request, own, wanted.prefix) for request, own in zip(asked, found, strict=True))
        return [replace(text, pieces=pieces) for text, (_, pieces) in zip(texts, read, strict=True)]

    return Plan([PlannedLine(None, one, _count_prompt(wanted, one)) for one in asked], ends, never, finish)


@torch.inference_mode()
def stream_text(
    model: Predictor, prompt: str, wanted: Search, *, special: bool = False, number: int = 1
) -> Generator[str, None, Generation]:
    """Yield the continuation of a prompt in parts, as they are found; return all of it, without scores.

    A part ends where no later token can change it: never inside a character.
    """
    network = _require(model, model.freeze())
    ends = model.find_ends("text")
    [(read, pieces)] = _cut(model, [prompt], wanted, special)
    request = _make_request(model, read, wanted, number, special)
    state = network.start(1, max(1, request.max_length))
    options, never = _count_prompt(wanted, request), model.list_suppressed(network.output, ends, wanted)
    if wanted.prefix:
        yield wanted.prefix
    growing = GrowingText(model, request)
    for id in stream(network.step, state, request, options, ends=ends, never=never):
        if part := growing.add(id):
            yield part
    if part := growing.end():
        yield part
    tokens = tuple(map(model.tokenizer.token, growing.ids))
    return Generation(wanted.prefix + growing.text, tokens=tokens, pieces=pieces)


class GrowingText:
    """A continuation that grows token by token, in parts that no later token can change."""

    def __init__(self, model: Predictor, request: Request) -> None:
        self._model, self._request = model, request
        self.ids: list[int] = []
        self.text = ""
        self._sent = ""

    def add(self, id: int) -> str:
        """The part that is certain with one more token; empty inside a character."""
        self.ids.append(id)
        self.text = _read(self._model, self._request, self.ids)
        open_character = self.text.endswith("\ufffd") or _BYTE.fullmatch(self._model.tokenizer.token(id))
        if not self.text.startswith(self._sent) or open_character:
            return ""
        part, self._sent = self.text[len(self._sent) :], self.text
        return part

    def end(self) -> str:
        """What is left, if the model stopped inside a character."""
        if self.text == self._sent:
            return ""
        pairs = enumerate(zip(self.text, self._sent, strict=False))
        return self.text[next((at for at, pair in pairs if len({*pair}) > 1), len(self._sent)) :]


def _require(model: Predictor, network: nn.Module) -> LanguageModel:
    if not isinstance(network, LanguageModel):
        model.refuse("generate")
    return network


def _cut(model: Predictor, prompts: Sequence[str], wanted: Search, special: bool) -> list[tuple[str, int]]:
    """What the model reads of each prompt, and how many pieces the prompt has.

    A piece leaves room for an answer: as much as was asked for, but at most half of the row.
    """
    answer = min(wanted.max_length or _NEW_TOKENS, model.longest // 2)
    room = max(1, model.longest - answer - len(find_lead(model)))
    pieces = cut_texts(model.tokenizer, prompts, room, special=special)
    groups = group_pieces(pieces, len(prompts))
    return [(pieces[own[-1]].text, len(own)) if own else ("", 1) for own in groups]


def _make_request(model: Predictor, prompt: str, wanted: Search, number: int, special: bool) -> Request:
    tokenizer = model.tokenizer
    given = (*find_lead(model), *tokenizer.encode(prompt + wanted.prefix, special=special).ids)
    if not given:
        raise RunError(
            "this model did not learn how a text begins, because no token stood before its texts; "
            'give a prompt that is not blank, or train with frame.before = ["bos"]'
        )
    start, *prefix = given
    longest = len(prefix) + (wanted.max_length or _NEW_TOKENS)
    return Request(
        start=start,
        max_length=min(longest, model.positions("decoder") or longest),
        prefix=tuple(prefix),
        seed=derive_seed(wanted.seed, number) if wanted.sample else 0,
        required=spell_required(wanted, tokenizer),
        forbidden=spell_forbidden(wanted, tokenizer),
    )


def _count_prompt(wanted: Search, request: Request) -> Search:
    """The options with the prompt added to the minimum length: the search counts its tokens, too."""
    return replace(wanted, min_length=wanted.min_length + len(request.prefix)) if wanted.min_length else wanted


def _join(model: Predictor, request: Request, hypotheses: Sequence[Hypothesis], prefix: str) -> Generation:
    answers = []
    for found in hypotheses:
        ids = found.ids[len(request.prefix) :]
        text, tokens = prefix + _read(model, request, ids), tuple(map(model.tokenizer.token, ids))
        answers.append(Generation(text, found.score, tokens, found.token_scores, found.finished))
    return replace(answers[0], alternatives=tuple(answers[1:]))


def _read(model: Predictor, request: Request, ids: Sequence[int]) -> str:
    """The text that the new tokens add to the prompt's."""
    before = (request.start, *request.prefix)
    head, whole = model.tokenizer.decode_batch([before, (*before, *ids)])
    return whole[len(head) :] if whole.startswith(head) else model.tokenizer.decode(ids)
