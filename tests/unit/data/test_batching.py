import gzip
import tracemalloc
from collections import Counter

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from encoded import make_records, write_folder
from seqloom.config.batches import LineRows, PackedRows, WindowRows
from seqloom.config.tokenizer import Bpe
from seqloom.data.batching import (
    Batches,
    LabelledSamples,
    PairSamples,
    TaggedSamples,
    TextSamples,
    build_text_samples,
)
from seqloom.data.order import LARGEST_BATCH, Draw
from seqloom.data.packing import PackedSamples, WindowSamples, pack
from seqloom.data.rows import Frame, Limit
from seqloom.data.shards import Records
from seqloom.errors import DataError
from seqloom.text import BpeDropout, Tokenizer
from shared_data import corpus

PAD, BOS, EOS = 0, 1, 2
FRAME = Frame((BOS,), (EOS,))
FOREVER = Limit(10**6, "refuse")
DOCUMENTS = st.lists(st.lists(st.integers(3, 99), max_size=40), min_size=1, max_size=30)


def draw(*samples, epoch=0):
    return Draw(epoch, np.array(samples, np.int64), np.array(samples, np.int64))


def rows_of(batch):
    """The real tokens of each row."""
    return [ids[mask].tolist() for ids, mask in zip(batch.ids, batch.mask, strict=True)]


def all_rows(samples, epoch=0):
    return rows_of(samples.build(draw(*range(sum(samples.sizes)), epoch=epoch)))


def test_texts_are_framed_and_padded(tmp_path):
    samples = TextSamples(make_records(tmp_path, {"text": [[5, 6, 7], [8]]}), [{"text": FRAME}], FOREVER, PAD)
    batch = samples.build(draw(1, 0))
    assert batch.ids.tolist() == [[BOS, 8, EOS, PAD, PAD], [BOS, 5, 6, 7, EOS]]
    assert batch.mask.tolist() == [[True] * 3 + [False] * 2, [True] * 5]
    assert batch.ids.dtype == torch.int64
    assert samples.lengths.tolist() == [[5], [3]]


def test_a_pair_costs_few_bytes(tmp_path):
    """Every process of a training holds the lengths and the numbers of all records: 28 bytes for each."""
    pairs, sides = 20_000, [{"source": Frame((), (EOS,))}, {"target": FRAME}]
    records = make_records(tmp_path, {"source": [[5]] * pairs, "target": [[5, 6]] * pairs})
    tracemalloc.start()
    samples = PairSamples(records, sides, FOREVER, PAD)
    kept, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert samples.lengths.tolist()[-1] == [2, 4]
    assert kept < 30 * pairs
    assert peak < 50 * pairs


def test_pairs_stay_together(tmp_path):
    records = make_records(tmp_path, {"source": [[5], [6, 7]], "target": [[15, 15], [16]]})
    samples = PairSamples(records, [{"source": Frame((), (EOS,))}, {"target": FRAME}], FOREVER, PAD)
    batch = samples.build(draw(1, 0))
    assert rows_of(batch.source) == [[6, 7, EOS], [5, EOS]]
    assert rows_of(batch.target) == [[BOS, 16, EOS], [BOS, 15, 15, EOS]]
    assert samples.lengths.tolist() == [[2, 4], [3, 3]]


def test_alignments_point_from_where_a_token_is_predicted(tmp_path):
    joined = [[0, 0, 1, 0, 1, 1], [], [0, 3, 0, 0]]  # source, target, source, target, …
    records = make_records(
        tmp_path, {"source": [[5, 6], [7], [8]], "target": [[15, 16], [17], [18] * 4]} | {"alignment": joined}
    )
    frames = {"source": Frame((BOS,), (EOS,))}, {"target": FRAME}
    batch = PairSamples(records, frames, Limit(5, "cut"), PAD, alignment_weight=0.5).build(draw(0, 2))
    assert batch.alignment.entries.tolist() == [[0, 0, 1], [0, 0, 2], [0, 1, 2], [1, 0, 1]], "the fourth token was cut"
    assert batch.alignment.weights.tolist() == [0.25, 0.25, 0.5, 0.5], "a token is shared out among its partners"
    assert PairSamples(records, frames, FOREVER, PAD).build(draw(0)).alignment is None


@pytest.mark.parametrize(("labels", "kind"), [([2, 0, 1], torch.int64), ([0.5, 1.5, -2.0], torch.float32)])
def test_labels_go_with_their_texts(tmp_path, labels, kind):
    columns = {"text": [[5], [6, 6], [7]], "second": [[8], [9], [8, 8]], "label": [[label] for label in labels]}
    template = {"text": FRAME, "second": Frame((), (EOS,))}
    batch = LabelledSamples(make_records(tmp_path, columns), [template], FOREVER, PAD).build(draw(2, 0))
    assert rows_of(batch.text) == [[BOS, 7, EOS, 8, 8, EOS], [BOS, 5, EOS, 8, EOS]]
    assert batch.labels.tolist() == [labels[2], labels[0]]
    assert batch.labels.dtype == kind


def test_tags_stand_at_the_first_token_of_their_word(tmp_path):
    columns = {"words": [[5, 6, 7, 8], [9]], "first": [[0, 3], [0]], "tags": [[4, 1], [3]]}
    batch = TaggedSamples(make_records(tmp_path, columns), FRAME, FOREVER, PAD).build(draw(0, 1))
    assert batch.tagged.tolist() == [[False, True, False, False, True, False], [False, True] + [False] * 4]
    assert batch.tags[batch.tagged].tolist() == [4, 1, 3]


def test_a_word_that_is_cut_off_has_no_tag(tmp_path):
    columns = {"words": [[5, 6, 7, 8]], "first": [[0, 3]], "tags": [[4, 1]]}
    batch = TaggedSamples(make_records(tmp_path, columns), FRAME, Limit(5, "cut"), PAD).build(draw(0))
    assert rows_of(batch.text) == [[BOS, 5, 6, 7, EOS]]
    assert batch.tags[batch.tagged].tolist() == [4]


@pytest.mark.parametrize(
    ("over", "rows", "counts"),
    [
        ("drop", [[BOS, 5, 6, EOS]], {"records of more than 4 tokens left out": 1}),
        ("cut", [[BOS, 5, 6, EOS], [BOS, 7, 8, EOS]], {"records of more than 4 tokens cut": 1}),
        (
            "split",
            [[BOS, 5, 6, EOS], [BOS, 7, 8, EOS], [BOS, 9, 10, EOS], [BOS, 11, EOS]],
            {"records of more than 4 tokens split": 1},
        ),
    ],
)
def test_what_is_too_long_is_dealt_with_and_counted(tmp_path, over, rows, counts):
    records = make_records(tmp_path, {"text": [[5, 6], [], [7, 8, 9, 10, 11]]})
    samples = TextSamples(records, [{"text": FRAME}], Limit(4, over), PAD)
    assert all_rows(samples) == rows
    assert samples.counts == {"empty records left out": 1} | counts
    assert samples.lengths[:, 0].tolist() == [len(row) for row in rows]


def test_too_long_can_be_refused_with_its_place(tmp_path):
    records = make_records(tmp_path, {"text": [[5], [5] * 9, [5] * 8]})
    with pytest.raises(
        DataError, match=r"corpus\.txt:2: the record has more than max_length = 4 tokens, one of 2 such records"
    ):
        TextSamples(records, [{"text": FRAME}], Limit(4, "refuse"), PAD)


def test_no_room_for_text_is_refused(tmp_path):
    with pytest.raises(DataError, match="max_length = 2 leaves no room"):
        TextSamples(make_records(tmp_path, {"text": [[5]]}), [{"text": FRAME}], Limit(2, "cut"), PAD)


def test_a_pair_is_dropped_when_either_side_is_too_long(tmp_path):
    records = make_records(tmp_path, {"source": [[5], [5], [5] * 9, []], "target": [[6], [6] * 9, [6], [6]]})
    samples = PairSamples(records, [{"source": Frame()}, {"target": Frame()}], Limit(4, "drop"), PAD)
    assert sum(samples.sizes) == 1
    assert samples.counts == {"empty records left out": 1, "records of more than 4 tokens left out": 2}


def test_texts_can_be_spelled_anew_each_time(tmp_path):
    tokenizer = Tokenizer.train(["the cat sat on the mat"] * 9, Bpe(size=275))
    text = "the cat sat"
    (plain,) = tokenizer.encode_batch([text])
    dropout = BpeDropout(tokenizer, 0.5)
    segment = {"text": lambda ids, number: dropout.encode(tokenizer.decode(ids), number)}
    records = make_records(tmp_path, {"text": [plain]})
    samples = TextSamples(records, [{"text": FRAME}], Limit(13, "drop"), PAD, segment)
    rows = [rows_of(samples.build(Draw(0, np.array([0]), np.array([key]))))[0] for key in range(40)]
    assert len({tuple(row) for row in rows}) > 10
    assert {tokenizer.decode(row[1:-1]) for row in rows} == {text}
    assert rows == [rows_of(samples.build(Draw(0, np.array([0]), np.array([key]))))[0] for key in range(40)]
    narrow = TextSamples(records, [{"text": FRAME}], Limit(len(plain) + 2, "drop"), PAD, segment)
    assert all(len(row) <= len(plain) + 2 for row in all_rows(narrow)), "a spelling without room is not taken"


@settings(deadline=None, max_examples=50, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(first=st.integers(1, 30), second=st.integers(1, 30), limit=st.integers(5, 40))
def test_of_two_texts_in_a_row_the_longer_is_cut(tmp_path, first, second, limit):
    records = make_records(tmp_path, {"text": [[5] * first], "second": [[6] * second], "label": [[0]]})
    samples = LabelledSamples(records, [{"text": FRAME, "second": Frame((), (EOS,))}], Limit(limit, "cut"), PAD)
    (row,) = rows_of(samples.build(draw(0)).text)
    room, kept = limit - 3, Counter(row)
    assert len(row) == min(first + second, room) + 3
    assert kept[5] == first or kept[5] >= room // 2
    assert kept[6] == second or kept[6] >= room // 2


@settings(deadline=None, max_examples=30, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(documents=DOCUMENTS, length=st.integers(4, 50), lookahead=st.sampled_from([0, 1]))
def test_packing_holds_every_document_once_and_apart(tmp_path, documents, length, lookahead):
    records = make_records(tmp_path, {"text": documents})
    samples = PackedSamples(records, "text", FRAME, length, PAD, lookahead)
    framed = [[BOS, *document, EOS] for document in documents if document]
    width = length + lookahead
    pieces = Counter(
        tuple(row[i : i + width]) for row in framed for i in range(0, max(1, len(row) - lookahead), length)
    )
    found = Counter()
    if not framed:
        assert samples.sizes == [0]
        return
    batch = samples.build(draw(*range(sum(samples.sizes))))
    assert batch.ids.shape[1] <= width
    for ids, mask, owner in zip(batch.ids, batch.mask, batch.documents, strict=True):
        assert torch.equal(owner > 0, mask)
        runs = torch.unique_consecutive(owner[mask])
        assert runs.tolist() == list(range(1, len(runs) + 1)), "a document is one run"
        found.update(tuple(ids[owner == number].tolist()) for number in runs.tolist())
    assert found == pieces
    assert samples.counts[f"records of more than {width} tokens split"] == sum(len(row) > width for row in framed)
    if lookahead:
        predicted = sum(len(piece) - 1 for piece in found.elements())
        assert predicted == sum(len(row) - 1 for row in framed), "each token but the first of a document"


@settings(deadline=None)
@given(st.lists(st.integers(1, 64), min_size=1, max_size=200))
def test_packing_uses_few_rows(lengths):
    packed = pack(np.array(lengths), 64)
    assert sorted(packed.pieces) == list(range(len(lengths)))
    filled = [sum(lengths[i] for i in packed.pieces[a:b]) for a, b in zip(packed.offsets, packed.offsets[1:])]  # noqa: B905
    assert max(filled) <= 64
    least = -(-sum(lengths) // 64)
    assert len(filled) <= 11 / 9 * max(least, sum(length > 32 for length in lengths)) + 4  # Johnson 1973


def test_packing_real_sentences_leaves_little_padding(tmp_path):
    lines = gzip.decompress(corpus("multi30k/train.lc.norm.tok.en.gz").read_bytes()).decode().splitlines()
    records = make_records(tmp_path, {"text": [[9] * len(line.split()) for line in lines]})
    samples = PackedSamples(records, "text", FRAME, 256, PAD)
    tokens = sum(len(line.split()) + 2 for line in lines)
    assert 1 - tokens / samples.lengths.sum() < 0.01


@settings(deadline=None, max_examples=30, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    documents=DOCUMENTS,
    length=st.integers(2, 30),
    lookahead=st.sampled_from([0, 1]),
    epoch=st.integers(0, 9),
    frame=st.sampled_from([Frame(), Frame((), (EOS,)), Frame((BOS,), (EOS, EOS))]),
)
def test_windows_do_not_overlap_and_cover_the_text(tmp_path, documents, length, lookahead, epoch, frame):
    stream = [token for document in documents for token in (*frame.before, *document, *frame.after)]
    records = make_records(tmp_path, {"text": documents[:3]}, {"text": documents[3:]})
    if len(stream) < length + lookahead:
        with pytest.raises(DataError, match="too few to fill one window"):
            WindowSamples(records, "text", frame, length, PAD, 7, lookahead)
        return
    samples = WindowSamples(records, "text", frame, length, PAD, 7, lookahead)
    rows = all_rows(samples, epoch)
    assert {len(row) for row in rows} == {length + lookahead}
    joined = [token for row in rows for token in row[:length]] + (rows[-1][length:] if lookahead else [])
    outside = len(stream) - len(joined)
    assert outside == samples.counts["tokens outside the windows of an epoch"]
    assert outside < 2 * length
    assert any(stream[i : i + len(joined)] == joined for i in range(outside + 1))


def test_windows_lie_elsewhere_in_every_epoch(tmp_path):
    records = make_records(tmp_path, {"text": [list(range(1000))]})
    samples = WindowSamples(records, "text", Frame(), 50, PAD, 7)
    starts = {all_rows(samples, epoch)[0][0] for epoch in range(300)}
    assert len(starts) == 50, "every phase occurs"


@settings(deadline=None, max_examples=30, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(documents=DOCUMENTS, length=st.integers(2, 30))
def test_evaluation_windows_judge_each_token_once(tmp_path, documents, length):
    stream = [token for document in documents for token in (*document, EOS)]
    if len(stream) < 2:
        return
    records = make_records(tmp_path, {"text": documents})
    samples = WindowSamples(records, "text", Frame((), (EOS,)), length, PAD, 7, lookahead=1, training=False)
    predicted = [token for row in all_rows(samples) for token in row[1:]]
    assert predicted == stream[1:]


def test_windows_stay_inside_their_corpus(tmp_path):
    one = write_folder(tmp_path / "one", {"text": [[5] * 100]})
    two = write_folder(tmp_path / "two", {"text": [[6] * 70]})
    samples = WindowSamples(Records([one, two]), "text", Frame(), 10, PAD, 7, lookahead=1)
    assert samples.sizes == [8, 5]
    for epoch in range(20):
        assert [set(row) for row in all_rows(samples, epoch)] == [{5}] * 8 + [{6}] * 5


@pytest.mark.parametrize("rows", [LineRows(max_length=20), PackedRows(length=20), WindowRows(length=20)])
def test_every_kind_of_rows_is_replayed_from_any_step_and_shared_between_ranks(tmp_path, rows):
    texts = [[5 + i % 90] * (1 + i * 7 % 30) for i in range(200)]

    def batches():
        samples = build_text_samples(make_records(tmp_path, {"text": texts}), rows, FRAME, pad=PAD, seed=3, lookahead=1)
        return Batches(samples, tokens=120, seed=3)

    first, again = batches(), batches()
    for step in range(0, 5 * len(first), 7):
        first.build(step)
    for step in (0, len(first) - 1, len(first), 1_000_000):
        one, other = first.build(step), again.build(step)
        assert torch.equal(one.ids, other.ids)
        shares = [row for rank in range(7) for row in rows_of(again.build(step, rank, 7))]
        assert sorted(shares) == sorted(rows_of(one))


def test_a_rank_without_samples_gets_an_empty_batch(tmp_path):
    records = make_records(tmp_path, {"text": [[5]], "label": [[1]]})
    batch = Batches(LabelledSamples(records, [{"text": FRAME}], FOREVER, PAD), tokens=10, seed=0).build(0, 1, 2)
    assert len(batch.text.ids) == len(batch.text.mask) == len(batch.labels) == 0
    assert batch.labels.dtype == torch.int64


def test_weights_reach_the_corpora(tmp_path):
    one = write_folder(tmp_path / "one", {"text": [[5]] * 40})
    two = write_folder(tmp_path / "two", {"text": [[6]] * 40})
    batches = Batches(
        TextSamples(Records([one, two]), [{"text": Frame()}], FOREVER, PAD), tokens=10, seed=0, weights=[2.0, 0.5]
    )
    tokens = Counter(token for step in range(len(batches)) for (token,) in rows_of(batches.build(step)))
    assert tokens == {5: 80, 6: 20}


@pytest.mark.parametrize("length", [10, 6000])
def test_batches_to_judge_by_are_large(tmp_path, length):
    samples = TextSamples(make_records(tmp_path, {"text": [[5] * length] * 100}), [{"text": Frame()}], FOREVER, PAD)
    judged, trained = (Batches(samples, tokens=None, seed=0, weights=weights) for weights in (None, [1.0]))
    assert judged.order.tokens == max(LARGEST_BATCH, length)
    assert trained.order.tokens <= judged.order.tokens
