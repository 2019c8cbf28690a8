"""The continuation of each text."""

import re
from collections.abc import Generator, Iterator, Sequence
from dataclasses import replace

import torch
from torch import nn

from seqloom.decode.options import Request, Search
from seqloom.decode.search import stream
from seqloom.models.language_models import LanguageModel
from seqloom.predict.pieces import Piece, group_pieces
from seqloom.predict.predictor import Predictor, batch_by_length
from seqloom.predict.results import Generation
from seqloom.predict.score import find_lead
from seqloom.predict.search import spell_forbidden, spell_required
from seqloom.seeds import derive_seed
from seqloom.types import Hypothesis

_NEW_TOKENS = 64
_BATCH_TOKENS = 4096
_BYTE = re.compile("<0x[0-9A-F]{2}>")  # the name of a token that is one byte of a character


@torch.inference_mode()
def generate(model: Predictor, prompts: Sequence[str], wanted: Search, *, numbers: Sequence[int]) -> list[Generation]:
    """Continue each prompt; of one that is too long, the model reads the last piece only, and `pieces` says so.

    `numbers` are those of the prompts: with the seed, they decide what is drawn.
    """
    network = _require(model, model.compile())
    end = model.find_end("text")
    never = model.list_suppressed(network.output, end)
    model.engine.check(wanted)
    pieces = _cut(model, prompts, wanted)
    owned = group_pieces(pieces, len(prompts))
    asked = [_ask(model, pieces[own[-1]].text, wanted, numbers[n]) for n, own in enumerate(owned) if own]
    found: list[list[Hypothesis]] = [[] for _ in asked]
    for batch in _batch(asked, wanted):
        requests = [asked[index] for index in batch]
        options = _count_prompt(wanted, requests[0])
        answers = model.engine.search(None, requests, options, end=end, never=never)
        for index, hypotheses in zip(batch, answers, strict=True):
            found[index] = hypotheses
    texts = (_join(model, request, hypotheses, wanted.prefix) for request, hypotheses in zip(asked, found, strict=True))
    return [replace(next(texts), pieces=len(own)) if own else Generation("") for own in owned]


@torch.inference_mode()
def stream_text(model: Predictor, prompt: str, wanted: Search, *, number: int = 1) -> Generator[str, None, Generation]:
    """The continuation of a prompt, bit by bit as it is found; then all of it, without scores.

    A bit ends where no later token can change it: never inside a character.
    """
    network = _require(model, model.freeze())
    end = model.find_end("text")
    pieces = _cut(model, [prompt], wanted)
    if not pieces:
        return Generation("")
    request = _ask(model, pieces[-1].text, wanted, number)
    state = network.start(1, max(1, request.max_length))
    options, never = _count_prompt(wanted, request), model.list_suppressed(network.output, end)
    if wanted.prefix:
        yield wanted.prefix
    ids: list[int] = []
    text = told = ""
    for id in stream(network.step, state, request, options, end_id=end, never=never):
        ids.append(id)
        text = _read(model, request, ids)
        part = text.endswith("\ufffd") or _BYTE.fullmatch(model.tokenizer.token(id))  # bytes are read together
        if text.startswith(told) and not part:
            yield text[len(told) :]
            told = text
    if text != told:  # the model broke off inside a character
        shared = next((at for at, pair in enumerate(zip(text, told, strict=False)) if len({*pair}) > 1), len(told))
        yield text[shared:]
    return Generation(wanted.prefix + text, tokens=tuple(map(model.tokenizer.token, ids)), pieces=len(pieces))


def _require(model: Predictor, network: nn.Module) -> LanguageModel:
    if not isinstance(network, LanguageModel):
        model.refuse("generate")
    return network


def _cut(model: Predictor, prompts: Sequence[str], wanted: Search) -> list[Piece]:
    """Prompts with room for an answer: as much as was asked for, or half of what the model reads."""
    answer = min(wanted.max_length or _NEW_TOKENS, model.longest // 2)
    return model.cut(prompts, max(1, model.longest - answer - len(find_lead(model))))


def _ask(model: Predictor, prompt: str, wanted: Search, number: int) -> Request:
    """The last of what stands before the answer is the start of the search; what stands before that, its prefix."""
    tokenizer = model.tokenizer
    given = (*find_lead(model), *tokenizer.encode(prompt + wanted.prefix).ids)
    if not given:  # text of which normalisation leaves nothing, and nothing that frames it
        given = (model.find_end("text"),)
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
    """A least length is that of the answer; the search counts the tokens of the prompt, too."""
    return replace(wanted, min_length=wanted.min_length + len(request.prefix)) if wanted.min_length else wanted


def _batch(asked: Sequence[Request], wanted: Search) -> Iterator[list[int]]:
    """By length; where a least length counts from the end of the prompt, prompts of one length each."""
    lengths = sorted({len(request.prefix) for request in asked}) if wanted.min_length else [None]
    for length in lengths:
        own = [index for index, request in enumerate(asked) if length in (None, len(request.prefix))]
        rows = [range(asked[index].max_length) for index in own]
        for batch in batch_by_length(rows, max(1, _BATCH_TOKENS // wanted.width)):
            yield [own[place] for place in batch]


def _join(model: Predictor, request: Request, hypotheses: Sequence[Hypothesis], prefix: str) -> Generation:
    answers = []
    for found in hypotheses:
        ids = found.ids[len(request.prefix) :]
        tokens = tuple(model.tokenizer.token(id) for id in ids)
        text = prefix + _read(model, request, ids)
        answers.append(Generation(text, found.score, tokens, found.token_scores, found.finished))
    return replace(answers[0], alternatives=tuple(answers[1:]))


def _read(model: Predictor, request: Request, ids: Sequence[int]) -> str:
    """The text that new tokens add to that of the prompt."""
    before = (request.start, *request.prefix)
    head, whole = model.tokenizer.decode_batch([before, (*before, *ids)])
    return whole[len(head) :] if whole.startswith(head) else model.tokenizer.decode(ids)
