import numpy as np
import pytest
import torch

from seqloom.config.batches import SpanMasking, TokenMasking, WordMasking
from seqloom.config.tokenizer import Bpe, Bytes, Unigram, WordPiece, Words
from seqloom.data.masking import Masker, build_masker
from seqloom.errors import ConfigError
from seqloom.text import Tokenizer
from seqloom.types import TokenBatch

PAD, CLS, SEP, MASK = 0, 1, 2, 3
VOCABULARY = 1000
ORDINARY = np.arange(VOCABULARY) > MASK
BEGINS_WORD = np.arange(VOCABULARY) % 3 != 0  # every third id continues a word
KINDS = [TokenMasking(), WordMasking(), SpanMasking()]


def pad(rows, id=PAD):
    return TokenBatch.pad(rows, id)


def make_batch(rows=200, longest=80, seed=0):
    rng = np.random.default_rng(seed)
    lengths = rng.integers(1, longest, rows)
    return pad([[CLS, *rng.integers(MASK + 1, VOCABULARY, n).tolist(), SEP] for n in lengths])


def hide(config, batch, seed=0, keys=None):
    keys = np.arange(len(batch.ids)) if keys is None else keys
    return Masker(config, MASK, ORDINARY, BEGINS_WORD, seed).hide(batch, keys)


@pytest.mark.parametrize("config", KINDS, ids=lambda config: config.kind)
def test_the_rates_are_those_of_the_configuration(config):
    batch = make_batch(rows=2000)
    masked = hide(config, batch)
    maskable = (batch.ids > MASK).sum().item()
    assert masked.hidden.sum().item() / maskable == pytest.approx(0.15, abs=0.004)
    shown, truth = masked.text.ids[masked.hidden], batch.ids[masked.hidden]
    assert (shown == MASK).float().mean() == pytest.approx(0.8, abs=0.02)
    assert (shown == truth).float().mean() == pytest.approx(0.1, abs=0.015)
    other = shown[(shown != MASK) & (shown != truth)]
    assert len(other) / len(shown) == pytest.approx(0.1, abs=0.015)
    assert len(other.unique()) > 0.5 * len(other), "random tokens come from the whole vocabulary"


@pytest.mark.parametrize("config", KINDS, ids=lambda config: config.kind)
def test_special_tokens_and_padding_are_never_touched(config):
    batch = make_batch()
    masked = hide(config.model_copy(update={"rate": 0.9}), batch)
    special = batch.ids <= MASK
    assert not masked.hidden[special].any()
    assert torch.equal(masked.text.ids[special], batch.ids[special])
    assert not (masked.text.ids[masked.hidden] < MASK).any(), "nor does one appear as a random token"


@pytest.mark.parametrize("config", KINDS, ids=lambda config: config.kind)
def test_what_is_not_hidden_is_shown_and_the_truth_is_kept(config):
    batch = make_batch()
    masked = hide(config, batch)
    assert torch.equal(masked.targets, batch.ids)
    assert torch.equal(masked.text.ids[~masked.hidden], batch.ids[~masked.hidden])
    assert torch.equal(masked.text.mask, batch.mask)


@pytest.mark.parametrize("config", KINDS, ids=lambda config: config.kind)
def test_the_noise_of_a_row_is_its_own(config):
    """The same row with the same key gets the same noise alone, in company, and with more padding."""
    batch = make_batch()
    whole = hide(config, batch)
    width = int(batch.mask[5:8].sum(1).max())
    assert width < batch.ids.shape[1], "the part is narrower than the whole"
    few = TokenBatch(batch.ids[5:8, :width], batch.mask[5:8, :width])
    part = hide(config, few, keys=np.arange(5, 8))
    assert torch.equal(part.text.ids, whole.text.ids[5:8, :width])
    wide = TokenBatch(*(torch.nn.functional.pad(t, (0, 9)) for t in (batch.ids, batch.mask)))
    assert torch.equal(hide(config, wide).text.ids[:, :-9], whole.text.ids)
    for other in (hide(config, batch, seed=1), hide(config, batch, keys=np.arange(len(batch.ids)) + 1000)):
        assert (other.hidden & whole.hidden).sum() < 0.3 * whole.hidden.sum()


def test_words_are_hidden_whole():
    batch = make_batch()
    hidden = hide(WordMasking(), batch).hidden.numpy()
    ids = batch.ids.numpy()
    continues = ~BEGINS_WORD[ids] & ORDINARY[ids]
    continues[:, :2] = False  # the first token of a text begins a word, whatever it looks like
    rows, places = np.nonzero(continues)
    assert np.array_equal(hidden[rows, places], hidden[rows, places - 1])
    single = hide(TokenMasking(), batch).hidden.numpy()
    assert not np.array_equal(single[rows, places], single[rows, places - 1]), "single tokens are not"


def test_spans_have_the_mean_length_and_one_fate():
    batch = pad([range(10, 510)] * 200)
    masked = hide(SpanMasking(mean_length=4.0, rate=0.05), batch)
    hidden, shown = masked.hidden.numpy(), masked.text.ids.numpy()
    starts = hidden & ~np.pad(hidden, ((0, 0), (1, 0)))[:, :-1]
    assert hidden.sum() / starts.sum() == pytest.approx(4.0, rel=0.1)
    inside = hidden & np.pad(hidden, ((0, 0), (1, 0)))[:, :-1]
    rows, places = np.nonzero(inside)
    same = (shown[rows, places] == MASK) == (shown[rows, places - 1] == MASK)
    assert same.mean() > 0.95, "two spans may touch, else neighbours share their fate"


def test_packed_documents_keep_their_numbers():
    batch = make_batch(4)
    numbered = TokenBatch(batch.ids, batch.mask, batch.mask.long())
    assert torch.equal(hide(TokenMasking(), numbered).text.documents, numbered.documents)


def test_rate_one_hides_everything():
    batch = make_batch()
    assert torch.equal(hide(TokenMasking(rate=1.0), batch).hidden, batch.ids > MASK)


WORDS = ["the", "happy", "cat", "sat"]
TEXT = ["the happy cat sat unhappily", "unhappy cats sit happily, and purr"] * 50


@pytest.mark.filterwarnings("ignore:the text gives only")
@pytest.mark.parametrize(
    "config", [Bpe(size=290), WordPiece(size=100), Unigram(size=320), Words(), Bytes()], ids=lambda config: config.kind
)
def test_words_are_found_by_every_kind_of_tokeniser(config):
    tokenizer = Tokenizer.train(TEXT, config)
    masker = build_masker(WordMasking(mask=1.0, random=0.0), tokenizer, seed=0)
    cls, sep, mask = tokenizer.roles.cls, tokenizer.roles.sep, tokenizer.roles.mask
    texts = [" ".join(WORDS)] * 300
    batch = pad([[cls, *ids, sep] for ids in tokenizer.encode_batch(texts)], tokenizer.roles.pad)
    masked = masker.hide(batch, np.arange(300))
    assert masked.hidden.any()
    possible = {"".join(word for word in WORDS if word != gone) for gone in WORDS}
    for shown in masked.text.ids[masked.hidden.any(1)].tolist():
        assert tokenizer.decode([id for id in shown if id != mask]).replace(" ", "") in possible


def test_a_tokeniser_without_a_mask_token_is_refused():
    tokenizer = Tokenizer.train(TEXT, Bytes())
    tokenizer.roles = type(tokenizer.roles)(pad=0)
    with pytest.raises(ConfigError, match="needs a mask token"):
        build_masker(TokenMasking(), tokenizer, seed=0)
