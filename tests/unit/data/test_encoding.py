import gzip
import hashlib
import json
from itertools import pairwise

import pytest

from seqloom.config.data import ConlluFiles, DelimitedLabels, LabelColumns, ParallelFiles, TextFiles
from seqloom.config.tokenizer import Bpe
from seqloom.data import encoding
from seqloom.data.columns import LabelColumn, NumberColumn, TaggedColumn, TextColumn
from seqloom.data.corpus import Corpus
from seqloom.data.encoding import encode_corpus
from seqloom.data.examples import Chunk
from seqloom.data.shards import MANIFEST, Records
from seqloom.errors import DataError
from seqloom.text import Tokenizer
from shared_data import corpus

TEXT = ["the cat sat on the mat", "", "a dog 🐕 barked", "Ⅻ names, äöü", "the dog sat"] * 20


def train_bpe(texts, size=300):
    return Tokenizer.train(texts, Bpe(size=size))


@pytest.fixture(scope="module")
def bpe():
    return train_bpe(TEXT)


@pytest.fixture(autouse=True)
def small_chunks(monkeypatch):
    monkeypatch.setattr(encoding, "CHUNK_RECORDS", 30)


def read_text(folder, *names):
    return Corpus(TextFiles(format="text", files=names), folder, 1 << 20)


def write_files(folder, count=3):
    names = [f"{number}.txt" for number in range(count)]
    for name in names:
        folder.joinpath(name).write_text("\n".join(f"{name} {line}" for line in TEXT) + "\n")
    return names


def stamps(folder):
    return {path.name: path.stat().st_mtime_ns for path in folder.glob("*.safetensors")}


def test_ids_are_those_of_the_tokeniser(tmp_path, bpe):
    (tmp_path / "a.txt").write_text("\n".join(TEXT))
    done = encode_corpus(read_text(tmp_path, "a.txt"), {"text": TextColumn(bpe)}, tmp_path / "out")
    records = Records([tmp_path / "out"])
    assert [records.read("text", i).tolist() for i in range(len(records))] == bpe.encode_batch(TEXT)
    assert done.written == 4
    assert records.locate(31) == f"{tmp_path / 'a.txt'}:32"


def test_the_manifest_tells_what_is_there_and_where_it_came_from(tmp_path, bpe):
    (name,) = write_files(tmp_path, 1)
    encode_corpus(read_text(tmp_path, name), {"text": TextColumn(bpe)}, tmp_path / "out")
    manifest = json.loads((tmp_path / "out" / MANIFEST).read_text())
    assert manifest["format"] == 1
    assert bpe.fingerprint in manifest["columns"]["text"]
    source = tmp_path / name
    assert manifest["sources"] == {str(source): hashlib.sha256(source.read_bytes()).hexdigest()}
    for shard in manifest["shards"]:
        assert hashlib.sha256((tmp_path / "out" / shard["file"]).read_bytes()).hexdigest() == shard["sha256"]
    assert sum(shard["records"] for shard in manifest["shards"]) == len(TEXT)
    tokens = sum(map(len, bpe.encode_batch([f"{name} {line}" for line in TEXT])))
    assert sum(shard["values"]["text"] for shard in manifest["shards"]) == tokens


def test_after_an_edit_only_what_changed_is_written(tmp_path, bpe):
    names, out = write_files(tmp_path), tmp_path / "out"
    source, columns = read_text(tmp_path, *names), {"text": TextColumn(bpe)}
    assert encode_corpus(source, columns, out).written == 12
    before = stamps(out)

    edited = tmp_path / names[1]
    edited.write_text(edited.read_text().replace("cat", "cow", 1))
    done = encode_corpus(source, columns, out)
    assert (done.written, done.reused) == (1, 11), "one shard of the one edited file"
    after = stamps(out)
    assert len(after) == 12, "the shard that is no longer used is gone"
    assert {name: after[name] for name in after if name in before}.items() <= before.items()

    edited.write_text("one line\n" + edited.read_text())
    done = encode_corpus(source, columns, out)
    assert (done.written, done.reused) == (4, 8), "every line of that file moved, those of the others did not"
    records = Records([out])
    assert records.read("text", len(TEXT)).tolist() == bpe.encode_batch(["one line"])[0]


def test_unchanged_files_are_not_even_read(tmp_path, bpe, monkeypatch):
    (name,) = write_files(tmp_path, 1)
    source, columns, out = read_text(tmp_path, name), {"text": TextColumn(bpe)}, tmp_path / "out"
    encode_corpus(source, columns, out)
    before = stamps(out)

    def fail(_self):
        raise AssertionError("read again")

    monkeypatch.setattr(Corpus, "chunks", fail)
    done = encode_corpus(source, columns, out)
    assert (done.written, done.reused) == (0, 4)
    assert stamps(out) == before


def test_another_tokeniser_or_another_reader_starts_anew(tmp_path, bpe):
    (name,) = write_files(tmp_path, 1)
    source, out = read_text(tmp_path, name), tmp_path / "out"
    encode_corpus(source, {"text": TextColumn(bpe)}, out)
    other = train_bpe(TEXT, 280)
    assert encode_corpus(source, {"text": TextColumn(other)}, out).written == 4
    assert len(stamps(out)) == 4
    twice = read_text(tmp_path, name, name)
    assert encode_corpus(twice, {"text": TextColumn(other)}, out).manifest.reader != repr(source)
    assert len(Records([out])) == 2 * len(TEXT)


def test_a_damaged_shard_is_made_again(tmp_path, bpe):
    (name,) = write_files(tmp_path, 1)
    source, columns, out = read_text(tmp_path, name), {"text": TextColumn(bpe)}, tmp_path / "out"
    encode_corpus(source, columns, out)
    victim = sorted(out.glob("*.safetensors"))[0]
    victim.write_bytes(victim.read_bytes()[:-2] + b"!!")
    done = encode_corpus(source, columns, out)
    assert (done.written, done.reused) == (1, 3)
    Records([out])


def test_an_interrupted_run_is_continued(tmp_path, bpe):
    (name,) = write_files(tmp_path, 1)
    source, columns, out = read_text(tmp_path, name), {"text": TextColumn(bpe)}, tmp_path / "out"

    class Breaking:
        def files(self):
            return source.files()

        def chunks(self):
            for chunk in source.chunks():
                yield chunk.select([index < 70 for index in range(len(chunk))])
                raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        encode_corpus(Breaking(), columns, out)
    assert not (out / MANIFEST).exists()
    done = encode_corpus(source, columns, out)
    assert (done.written, done.reused) == (2, 2)


def test_records_are_the_same_however_they_are_cut(tmp_path, bpe, monkeypatch):
    names = write_files(tmp_path)
    source, columns = read_text(tmp_path, *names), {"text": TextColumn(bpe)}
    results = []
    for limits in ({"CHUNK_RECORDS": 7}, {"CHUNK_CHARACTERS": 50}, {"CHUNK_RECORDS": 10**9}):
        for limit, value in limits.items():
            monkeypatch.setattr(encoding, limit, value)
        out = tmp_path / str(limits)
        encode_corpus(source, columns, out)
        records = Records([out])
        results.append([records.read("text", i).tolist() for i in range(len(records))])
    assert results[0] == results[1] == results[2]


def test_real_pairs(tmp_path):
    sides = {role: corpus(f"multi30k/val.{end}.gz") for role, end in (("source", "de"), ("target", "en"))}
    texts = {role: gzip.decompress(path.read_bytes()).decode().splitlines() for role, path in sides.items()}
    tokenizers = {role: train_bpe(lines, 1000) for role, lines in texts.items()}
    source = Corpus(
        ParallelFiles(format="parallel", source=(str(sides["source"]),), target=(str(sides["target"]),)),
        tmp_path,
        1 << 20,
    )
    encode_corpus(source, {role: TextColumn(bpe) for role, bpe in tokenizers.items()}, tmp_path / "out")
    records = Records([tmp_path / "out"])
    assert len(records) == 1014
    for role, bpe in tokenizers.items():
        assert bpe.decode_batch([records.read(role, i).tolist() for i in range(1014)]) == texts[role]


def test_real_tags(tmp_path, bpe):
    path = corpus("ud-english-ewt/en_ewt-ud-dev.conllu.gz")
    source = Corpus(ConlluFiles(format="conllu", files=(str(path),)), tmp_path, 1 << 20)
    examples = list(source)
    tags = tuple(sorted({tag for example in examples for tag in example.values["tags"]}))
    encode_corpus(source, {"words": TaggedColumn(bpe, tags)}, tmp_path / "out")
    records = Records([tmp_path / "out"])
    assert len(records) == 2001
    for number in (0, 7, 2000):
        example = examples[number]
        ids, first, kinds = (records.read(column, number) for column in ("words", "first", "tags"))
        assert [tags[kind] for kind in kinds] == list(example.values["tags"])
        words = [bpe.decode(ids[a:b].tolist()).strip() for a, b in pairwise([*first.tolist(), len(ids)])]
        assert words == list(example.values["words"])


def write_labels(folder, rows):
    (folder / "a.tsv").write_text("".join(f"{text}\t{label}\n" for text, label in rows))
    section = DelimitedLabels(format="tsv", files=("a.tsv",), columns=LabelColumns(text=1, label=2))
    return Corpus(section, folder, 1 << 20)


def test_labels_become_numbers(tmp_path, bpe):
    source = write_labels(tmp_path, [("good", "pos"), ("bad", "neg"), ("fine", "pos")])
    columns = {"text": TextColumn(bpe), "label": LabelColumn(("neg", "pos"))}
    encode_corpus(source, columns, tmp_path / "out")
    records = Records([tmp_path / "out"])
    assert [records.read("label", i).tolist() for i in range(3)] == [[1], [0], [1]]


def test_quantities_stay_quantities(tmp_path, bpe):
    source = write_labels(tmp_path, [("a", "2.5"), ("b", "-1e-2")])
    encode_corpus(source, {"text": TextColumn(bpe), "label": NumberColumn()}, tmp_path / "out")
    records = Records([tmp_path / "out"])
    assert [float(records.read("label", i)[0]) for i in range(2)] == pytest.approx([2.5, -0.01])


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"label": LabelColumn(("neg", "pos"))}, r'a\.tsv:2: the label "odd" is not one of the 2 in the training data'),
        ({"label": NumberColumn()}, r'a\.tsv:1: the label "pos" is not a number'),
        ({"second": NumberColumn()}, r"a\.tsv:1: the record has no second"),
    ],
)
def test_a_record_that_cannot_be_encoded_is_named(tmp_path, columns, message):
    source = write_labels(tmp_path, [("good", "pos"), ("bad", "odd")])
    with pytest.raises(DataError, match=message):
        encode_corpus(source, columns, tmp_path / "out")
    assert not (tmp_path / "out" / MANIFEST).exists()


class Listed(list):
    """Chunks that stand in no file."""

    def files(self):
        return []

    def chunks(self):
        return iter(self)


def test_chunks_without_records_change_nothing(tmp_path, bpe):
    source = Listed([Chunk("a", [1], {"text": ["cat"]}), Chunk("a", [], {}), Chunk("a", [2], {"text": ["dog"]})])
    done = encode_corpus(source, {"text": TextColumn(bpe)}, tmp_path / "out")
    assert [(entry.source, entry.records) for entry in done.manifest.shards] == [("a", 2)]


def test_text_that_the_tokeniser_refuses_is_named(tmp_path, bpe):
    source = Listed([Chunk("a.txt", [1, 2], {"text": ["fine", "half \ud83d"]})])
    with pytest.raises(DataError, match=r"a\.txt:2: the text has half of a surrogate pair"):
        encode_corpus(source, {"text": TextColumn(bpe)}, tmp_path / "out")


def test_what_cannot_be_read_is_not_encoded(tmp_path, bpe):
    (tmp_path / "a.txt").write_bytes(b"fine\nnot \xff fine\n")
    with pytest.raises(DataError, match=r"a\.txt:2: .* is not UTF-8"):
        encode_corpus(read_text(tmp_path, "a.txt"), {"text": TextColumn(bpe)}, tmp_path / "out")


def test_words_and_tags_must_agree(tmp_path, bpe):
    source = Listed([Chunk("a.conllu", [7], {"words": [("a", "b")], "tags": [("X",)]})])
    with pytest.raises(DataError, match=r"a\.conllu:7: the sentence has 2 words but 1 tags"):
        encode_corpus(source, {"words": TaggedColumn(bpe, ("X",))}, tmp_path / "out")
