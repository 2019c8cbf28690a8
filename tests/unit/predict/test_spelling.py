"""What the verbs make of text goes by the tokeniser, whichever it is; weights play no part here."""

import warnings
from functools import cache

import numpy as np
import pytest
import torch

from seqloom.errors import DataError, RunError
from seqloom.hub.bundle import Bundle
from seqloom.predict.model import Model
from seqloom.predict.predictor import Predictor
from seqloom.tasks import ClassificationTask, MaskedLanguageModelTask, TranslationTask
from seqloom.tasks.configuration import parse
from seqloom.text import Tokenizer
from small_corpora import sentences

KINDS = ("bpe", "unigram", "wordpiece", "words", "characters", "bytes")
SMALL = "{num_layers = 1, model_dim = 16, num_heads = 2}"
CORPORA = {
    "masked-language-model": 'files = "t"',
    "translation": 'source = "s"\ntarget = "t"',
    "classification": 'files = "t"\ncolumns = {text = "a", second = "b", label = "c"}',
}
TEXT = "the cat sees the dog ."


@cache
def build(task: str, kind: str = "words", extra: str = "") -> Model:
    """A model with random weights."""
    text = f'task = "{task}"\ntokenizer = "{kind}"\nmodel.encoder = {SMALL}\n{extra}\n[data.train]\n{CORPORA[task]}\n'
    config = parse(text)
    assert isinstance(config, MaskedLanguageModelTask | TranslationTask | ClassificationTask)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # so little text gives fewer tokens than asked for
        tokenizer = Tokenizer.train(sentences(200, seed=1), config.tokenizer)
    torch.manual_seed(1)
    labels = ("no", "yes") if task == "classification" else ()
    return Model(Predictor(Bundle(config, tokenizer, labels, config.build(tokenizer, labels))))


@pytest.mark.parametrize("side", ["before", "after"])
def test_a_mask_of_the_frame_asks_for_nothing(side: str) -> None:
    """Each line is answered as it is alone, and only for the masks that stand in it."""
    model = build("masked-language-model", extra=f'frame = {{{side} = ["mask"]}}')
    texts = ["the [MASK] sees the dog .", "no mask here", "a [MASK] likes the [MASK] .", "[MASK]"]
    together = model.fill(texts, top=3)
    assert [len(found.masks) for found in together] == [1, 0, 2, 1]
    for text, found in zip(texts, together, strict=True):
        alone = model.fill(text, top=3)
        assert found.text == alone.text
        for mask, own in zip(found.masks, alone.masks, strict=True):
            assert text[slice(*mask.offset)] == "[MASK]"
            assert [one.token for one in mask.candidates] == [one.token for one in own.candidates]


@pytest.mark.parametrize("kind", KINDS)
def test_a_mask_stands_for_a_token_as_it_is_spelled_in_text(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    model = build("masked-language-model", kind)
    mask, rows = model.tokenizer.roles.mask, []
    inner = model._predictor
    monkeypatch.setattr(inner, "pad", lambda given: (rows.extend(given), Predictor.pad(inner, given))[1])
    filling = model.fill("the [MASK] sees the dog .", top=2)
    (row,) = rows
    cut = row.index(mask)
    frame = len(inner.frames["text"].before), len(row) - len(inner.frames["text"].after)
    hidden = model.tokenizer.encode(TEXT).ids
    before, after = row[frame[0] : cut], row[cut + 1 : frame[1]]
    assert hidden[: len(before)] == before
    assert hidden[len(hidden) - len(after) :] == after
    letters = 3 if kind in ("characters", "bytes") else 1
    assert len(hidden) - len(before) - len(after) == letters
    assert filling.masks[0].offset == (4, 10)
    assert filling.text.startswith("the ")
    assert filling.text.endswith(" sees the dog .")


@pytest.mark.parametrize("kind", KINDS)
def test_a_mask_is_nothing_but_its_name(kind: str) -> None:
    model = build("masked-language-model", kind)
    filling = model.fill("[CLS] the [PAD] [MASK]")
    assert len(filling.masks) == 1
    assert filling.text.startswith("[CLS] the [PAD] ")
    names = {candidate.token for candidate in model.fill("[MASK]", top=10_000).masks[0].candidates}
    assert not names & {"[PAD]", "[MASK]", "[CLS]", "[SEP]", "[UNK]", "[BOS]", "[EOS]"}


@pytest.mark.parametrize("kind", ["bpe", "unigram", "words", "characters"])
def test_constraints_are_words_of_the_answer(kind: str) -> None:
    model = build("translation", kind)
    for text in ("dog", "the fish"):
        found = model.translate("a mouse", constraints=[text], beam=3, max_length=20)
        assert text in found.text, found
    free = model.translate("a mouse", max_length=20)
    assert not any(token.startswith("[") for token in free.tokens if token != "[UNK]"), "an answer is text"


def test_pairs_of_texts() -> None:
    model = build("classification")
    one, other = model.classify(["the cat", "the dog"], ["a dog", "a dog"])
    assert one != other
    assert model.classify("the cat", "a dog").probabilities == pytest.approx(one.probabilities, abs=1e-5)
    assert model.classify([("the cat", "a dog"), ["the dog", "a dog"]]) == [one, other]
    assert model.classify("", "").label == ""
    with pytest.raises(DataError, match="text 2 of 2 is neither a text nor a pair"):
        model.classify([("the cat", "a dog"), ("the cat", "a dog", "a mouse")])
    with pytest.raises(DataError, match="there are 2 texts, but 1 second texts"):
        model.classify(["the cat", "the dog"], ["a dog"])
    with pytest.raises(DataError, match="pairs of texts"):
        model.classify("the cat")


def test_a_model_without_a_head_only_embeds() -> None:
    model = build("masked-language-model", extra="model.head = false\nmodel.embed = {normalise = true}")
    assert np.linalg.norm(model.embed(TEXT)) == pytest.approx(1.0, abs=1e-5)
    assert np.linalg.norm(model.embed(TEXT, normalise=False)) != pytest.approx(1.0, abs=1e-3)
    for verb in ("fill", "score"):
        with pytest.raises(RunError, match="it can only embed"):
            getattr(model, verb)(TEXT)


def test_rows_of_a_table_beyond_the_vocabulary_are_never_answered() -> None:
    model = build("masked-language-model", extra="model.vocab_size = 500")
    assert model.fill("the [MASK]", top=499).masks[0].candidates
    translator = build("translation", extra="model.vocab_size = 2000")
    assert translator.translate([TEXT] * 5, sample=True, temperature=9.0)
