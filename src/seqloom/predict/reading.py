"""What a model reads of a text to trace, what its verb answers, and what it predicts where.

A trace is of one text, read as a whole. A translation's target is what the search finds, or a given one; a language
model reads the text alone or, if a search is asked for, the text and its own continuation.
"""

from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import accumulate, pairwise
from typing import Any

from torch import nn

from seqloom.decode.options import Search
from seqloom.decode.record import SearchRecord
from seqloom.errors import ConfigError, DataError, RunError
from seqloom.lens.texts import Question, Side, Token
from seqloom.models.labelling import Classifier, Tagger
from seqloom.models.language_models import BidirectionalLanguageModel, LanguageModel, MaskedLanguageModel
from seqloom.models.seq2seq import Seq2Seq
from seqloom.predict import classify, fill, generate, score, tag, translate
from seqloom.predict.predictor import Piece, Predictor
from seqloom.predict.results import Quantity, Result, Translation
from seqloom.predict.search import read_search, spell_token
from seqloom.tasks import ClassificationTask
from seqloom.tasks.base import find_tokens
from seqloom.text import Tokenizer
from seqloom.text.tokenizer import group_by_word

Span = tuple[int, int]


@dataclass(frozen=True)
class Asked:
    """What a user asks for: a text, its target or the second text of a pair, and the options of a search."""

    text: str
    second: str | None = None
    search: Mapping[str, Any] = field(default_factory=dict)
    ids: tuple[int, ...] | None = None
    """The tokens of an answer that is to be read again as it was found."""

    def to_json(self, task: str) -> dict[str, Any]:
        """The request as JSON can express it."""
        other = "target" if task == "translation" else "second"
        given = {} if self.second is None else {other: self.second}
        return {"text": self.text, **given, **({"search": dict(self.search)} if self.search else {})}


@dataclass(frozen=True)
class Read:
    """What the network reads of each side, and what is asked about it."""

    sides: tuple[Side, ...]
    questions: tuple[Question, ...]
    answer: Result | None = None
    notes: tuple[str, ...] = ()
    search: SearchRecord | None = None


def name_labels(model: Predictor) -> tuple[Callable[[int], str], Callable[[str], int]]:
    """The name of each label, and the label of a name."""
    labels = model.labels

    def find(label: str) -> int:
        if label not in labels:
            raise ConfigError(f"{label!r} is not a label of this model; its labels are {', '.join(labels)}")
        return labels.index(label)

    return lambda id: labels[id], find


def name_tokens(model: Predictor) -> tuple[Callable[[int], str], Callable[[str], int]]:
    """The text of each token, and the token of a text."""
    tokenizer = model.tokenizer.target

    def find(text: str) -> int:
        named = tokenizer.id(text)
        if named is not None:
            return named
        spelled = [tokenizer.encode(form).ids for form in (f" {text}", text)]
        if alone := next((ids for ids in spelled if len(ids) == 1), None):
            return alone[0]
        tokens = " + ".join(map(tokenizer.token, spelled[-1]))
        raise ConfigError(f"{text!r} is not one token but {tokens}; give one of these, or an id")

    return partial(spell_token, tokenizer), find


def _make_side(
    name: str,
    text: str,
    tokenizer: Tokenizer,
    ids: Sequence[int],
    offsets: Sequence[Span],
    before: Sequence[int] = (),
    after: Sequence[int] = (),
) -> Side:
    """A side whose tokens have these offsets, with special tokens before and after them."""
    words = {token: word for word, own in enumerate(group_by_word(text, offsets)) for token in own}
    special = [[Token(id, tokenizer.token(id), special=True) for id in ids] for ids in (before, after)]
    spelled = _spell(text, tokenizer, ids, offsets)
    inner = [
        Token(id, spelled[index], start, end, word=words.get(index))
        for index, (id, (start, end)) in enumerate(zip(ids, offsets, strict=True))
    ]
    return Side(name, text, (*special[0], *inner, *special[1]))


def _spell(text: str, tokenizer: Tokenizer, ids: Sequence[int], offsets: Sequence[Span]) -> list[str]:
    """What each token covers; of several that share a place, the piece itself, or which part of a character it is."""
    sharing, met, spelled = Counter(offsets), Counter[Span](), []
    for id, (start, end) in zip(ids, offsets, strict=True):
        covered, all_of = text[start:end], sharing[start, end]
        met[start, end] += 1
        if all_of == 1 or covered.isspace() or not covered:
            shown = covered.strip() or (covered if covered in ("\n", "\t") else tokenizer.token(id))
        elif len(covered) == 1:
            shown = f"{covered}·{met[start, end]}/{all_of}"
        else:
            shown = spell_token(tokenizer, id).strip()
        unknown = id == tokenizer.roles.unk and shown != tokenizer.token(id)
        spelled.append(f"{shown} = {tokenizer.token(id)}" if unknown else shown)
    return spelled


def _find_offsets(tokenizer: Tokenizer, ids: Sequence[int], text: str) -> list[Span]:
    """Where the tokens of an answer stand in its text, also where another spelling is the tokeniser's own."""
    encoding = tokenizer.encode(text)
    if encoding.ids == [*ids]:
        return encoding.offsets
    ends = [len(part) for part in tokenizer.decode_batch([ids[: n + 1] for n in range(len(ids))])]
    spans, start = [], 0
    for end in ends:
        end = max(start, min(end, len(text)))
        spans.append((start, end))
        start = end
    return spans


def _require_short(model: Predictor, count: int, longest: int) -> None:
    if count > longest:
        raise DataError(f"the text has {count} tokens, but the model reads {longest} at once; give a shorter text")


def _read_side(model: Predictor, role: str, text: str) -> Side:
    """A text with the special tokens of its role."""
    if not text.strip():
        raise DataError("the text is blank, so there is nothing to trace")
    tokenizer, frame = model.tokenizer.of(role), model.frames[role]
    encoding = tokenizer.encode(text)
    _require_short(model, len(encoding.ids), model.room(role))
    name = role if role in ("source", "target") else "text"
    return _make_side(name, text, tokenizer, encoding.ids, encoding.offsets, *frame)


def _refuse_second(asked: Asked) -> None:
    if asked.second is not None:
        raise ConfigError("second: this model reads one text; leave the second one out")


def _refuse_search(asked: Asked) -> None:
    if asked.search:
        raise ConfigError(f"{', '.join(asked.search)}: this model does not search; leave it out")


def _read_translation(model: Predictor, network: Seq2Seq, asked: Asked) -> Read:
    source, tokenizer = _read_side(model, "source", asked.text), model.tokenizer.target
    before, after = model.frames["target"]
    if not before:
        raise RunError("no special token stands before a target, so a translation has nothing to begin with")
    end = after[0] if after else None
    answer: Result
    notes: tuple[str, ...] = ()
    search = None
    if asked.second is None:
        found, search = _translate(model, asked.text, read_search(asked.search))
        ids = [tokenizer.id(token) or 0 for token in found.tokens]
        text, answer, end = found.text, found, end if found.finished else None
        offsets = _find_offsets(tokenizer, ids[len(before) - 1 :], text)
        notes = _note_search(model, asked.text, found.finished)
        lead, ids = before, ids[len(before) - 1 :]
    else:
        _refuse_search(asked)
        text, lead = asked.second, before
        ids = tokenizer.encode(text).ids if asked.ids is None else list(asked.ids)
        offsets = _find_offsets(tokenizer, ids, text)
        _require_short(model, len(ids), model.room("target"))
        [answer] = score.score(model, [asked.text], [asked.second])
    target = _make_side("target", text, tokenizer, ids, offsets, lead)
    wanted = [*(token.id for token in target.tokens[1:]), end]
    return Read((source, target), tuple(_ask_next("target", wanted)), answer, notes, search)


def _translate(model: Predictor, text: str, wanted: Search) -> tuple[Translation, SearchRecord | None]:
    records: list[SearchRecord] | None = [] if _tells_search(model) else None
    splitting = translate.Splitting()
    [found] = translate.translate(model, [text], wanted, align=True, splitting=splitting, records=records)
    return found, records[0] if records else None


def _tells_search(model: Predictor) -> bool:
    return not model.engine_name.startswith("ctranslate2")


def _note_search(model: Predictor, text: str, finished: bool) -> tuple[str, ...]:
    notes = []
    if len(translate.plan_splitting(model)(Piece(0, text, 0, ""))) > 1:
        notes.append("translate would translate each sentence by itself; a trace reads the text as a whole.")
    if not finished:
        notes.append("The answer was cut off at its maximum length.")
    if not _tells_search(model):
        notes.append("The answer was found by CTranslate2, which does not say how; the network computed the rest.")
    return tuple(notes)


def _ask_next(side: str, wanted: Sequence[int | None]) -> list[Question]:
    """At each position, what follows; after the last one stands nothing that could be pointed at."""
    last = len(wanted) - 1
    return [Question(row, (side, row), (side, row + 1) if row < last else None, id) for row, id in enumerate(wanted)]


def _read_language_model(model: Predictor, network: LanguageModel, asked: Asked) -> Read:
    _refuse_second(asked)
    lead, tokenizer = score.find_lead(model), model.tokenizer
    if not asked.text.strip() and not (asked.search and lead):
        raise DataError("the text is blank, so there is nothing to trace")
    wanted = read_search(asked.search)
    prompt = asked.text + wanted.prefix
    ids = tokenizer.encode(prompt).ids if asked.ids is None else list(asked.ids)
    offsets, text = _find_offsets(tokenizer, ids, prompt), prompt
    _require_short(model, len(ids), model.longest - len(lead))
    answer: Result
    search = None
    if asked.search:
        records: list[SearchRecord] | None = [] if _tells_search(model) else None
        [found] = generate.generate(model, [asked.text], wanted, records=records)
        search = records[0] if records else None
        if found.pieces > 1:
            raise DataError(
                f"the prompt has {len(ids)} tokens, which leaves no room for an answer: the model reads "
                f"{model.longest} at once; give a shorter one"
            )
        answer, new = found, [tokenizer.id(token) or 0 for token in found.tokens]
        text = asked.text + found.text
        ids, offsets = [*ids, *new], _find_offsets(tokenizer, [*ids, *new], text)
    else:
        [answer] = score.score(model, [asked.text])
    side = _make_side("text", text, tokenizer, ids, offsets, lead)
    following: list[int | None] = [token.id for token in side.tokens[1:]]
    return Read((side,), tuple(_ask_next("text", [*following, None])), answer, search=search)


def _read_bidirectional(model: Predictor, network: BidirectionalLanguageModel, asked: Asked) -> Read:
    _refuse_second(asked)
    _refuse_search(asked)
    side = _read_side(model, "text", asked.text)
    if network.output is None:
        return Read((side,), (), notes=("This model has no head, so it predicts nothing.",))
    [answer] = score.score(model, [asked.text])
    questions = []
    for place, token in enumerate(side.tokens):
        of = ("text", place)
        if place > 0:
            questions.append(Question(place - 1, ("text", place - 1), of, token.id, "forward"))
        if place + 1 < len(side.tokens):
            questions.append(Question(place + 1, ("text", place + 1), of, token.id, "backward"))
    return Read((side,), tuple(questions), answer)


def _read_masked(model: Predictor, network: MaskedLanguageModel, asked: Asked) -> Read:
    _refuse_second(asked)
    _refuse_search(asked)
    if not asked.text.strip():
        raise DataError("the text is blank, so there is nothing to trace")
    tokenizer, (before, after), mask = model.tokenizer, model.frames["text"], model.tokenizer.roles.mask
    if network.output is None or mask is None:
        return Read((_read_side(model, "text", asked.text),), (), notes=("This model has no head; it only embeds.",))
    ids, offsets = fill.Speller(tokenizer, mask).spell(asked.text)
    _require_short(model, len(ids), model.room("text"))
    side = _make_side("text", asked.text, tokenizer, ids, offsets, before, after)
    [answer] = fill.fill(model, [asked.text])
    hidden = [len(before) + place for place, id in enumerate(ids) if id == mask]
    name = tokenizer.token(mask)
    notes = () if hidden else (f"There is no {name} in the text, so nothing is predicted.",)
    best = [tokenizer.id(found.candidates[0].token) for found in answer.masks]
    questions = [Question(row, ("text", row), ("text", row), id) for row, id in zip(hidden, best, strict=True)]
    return Read((side,), tuple(questions), answer, notes)


def _read_tagging(model: Predictor, network: Tagger, asked: Asked) -> Read:
    _refuse_second(asked)
    _refuse_search(asked)
    [answer] = tag.tag(model, [asked.text])
    if not answer.words:
        raise DataError("the text is blank, so there is nothing to trace")
    tokenizer, (before, after) = model.tokenizer, model.frames["words"]
    ids, first = tokenizer.encode_words(answer.words)
    _require_short(model, len(ids), model.room("words"))
    spans = _place_pieces(tokenizer, answer.words, answer.offsets, ids, first)
    side = _make_side("text", asked.text, tokenizer, ids, spans, before, after)
    rows = [len(before) + place for place in first]
    numbers = [model.labels.index(label) for label in answer.tags]
    questions = [Question(row, ("text", row), None, id) for row, id in zip(rows, numbers, strict=True)]
    return Read((side,), tuple(questions), answer)


def _place_pieces(
    tokenizer: Tokenizer, words: Sequence[str], offsets: Sequence[Span], ids: Sequence[int], first: Sequence[int]
) -> list[Span]:
    """Where the tokens of words stand; all those of a word have its place if they cannot be told apart."""
    encoding = tokenizer.encode(" ".join(words))
    if encoding.ids != [*ids]:
        counts = (end - begin for begin, end in pairwise([0, *first[1:], len(ids)]))
        return [offset for offset, count in zip(offsets, counts, strict=True) for _ in range(count)]
    begins = [0, *accumulate(len(word) + 1 for word in words[:-1])]
    spans = []
    for start, end in encoding.offsets:
        word = bisect_right(begins, max(start, end - 1)) - 1
        moved = offsets[word][0] - begins[word]
        spans.append((moved + max(start, begins[word]), moved + end))
    return spans


def _read_classification(model: Predictor, network: Classifier, asked: Asked) -> Read:
    _refuse_search(asked)
    seconds = [] if asked.second is None else [asked.second]
    if not asked.text.strip():
        raise DataError("the text is blank, so there is nothing to trace")
    [answer] = classify.classify(model, [asked.text], seconds)
    if asked.second is None:
        side = _read_side(model, "text", asked.text)
    else:
        side = _read_pair(model, asked.text, asked.second)
    id = None if isinstance(answer, Quantity) else model.labels.index(answer.label)
    return Read((side,), (Question(0, None, None, id),), answer)


def _read_pair(model: Predictor, text: str, second: str) -> Side:
    """Two texts, one below the other, with the special tokens around and between them."""
    assert isinstance(model.config, ClassificationTask)
    tokenizer, frame = model.tokenizer, model.frames["text"]
    other = find_tokens(model.config.second_frame, tokenizer)
    one, two = tokenizer.encode(text), tokenizer.encode(second)
    shift, both = len(text) + 1, f"{text}\n{second}"
    moved = [(shift + start, shift + end) for start, end in two.offsets]
    whole = _make_side("text", both, tokenizer, [*one.ids, *two.ids], [*one.offsets, *moved], frame.before)
    between = [Token(id, tokenizer.token(id), special=True) for id in (*frame.after, *other.before)]
    last = [Token(id, tokenizer.token(id), special=True) for id in other.after]
    cut = len(frame.before) + len(one.ids)
    return Side("text", both, (*whole.tokens[:cut], *between, *whole.tokens[cut:], *last))


_READERS: dict[type, Callable[[Predictor, Any, Asked], Read]] = {
    Seq2Seq: _read_translation,
    LanguageModel: _read_language_model,
    BidirectionalLanguageModel: _read_bidirectional,
    MaskedLanguageModel: _read_masked,
    Tagger: _read_tagging,
    Classifier: _read_classification,
}


def read(model: Predictor, network: nn.Module, asked: Asked) -> Read:
    """What the network of a model reads; `model` may answer by another network, under changes."""
    for text in (asked.text, "" if asked.second is None else asked.second):
        if not isinstance(text, str):
            raise DataError(f"a trace is of one text, not of {type(text).__name__}")
    return _READERS[type(network)](model, network, asked)
