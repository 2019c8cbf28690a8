"""The corpora people really use load with no error, record for record."""

import tomllib
from typing import Any

import pytest

from seqloom.config.data import LabelledData, ParallelData, TaggedData, TextData
from seqloom.data.corpus import open_split
from seqloom.data.doctor import examine
from shared_data import corpus

PAIRS = """
train = {{source = "multi30k/train{form}.de.gz", target = "multi30k/train{form}.en.gz"}}
valid = {{source = "multi30k/val{form}.de.gz", target = "multi30k/val{form}.en.gz"}}
test = {{source = "multi30k/test_2016_flickr{form}.de.gz", target = "multi30k/test_2016_flickr{form}.en.gz"}}
"""
SST = "\n".join(
    f'{split} = {{format = "label-first", files = "sentence-classification/stsa.binary.{name}.gz"}}'
    for split, name in (("train", "train"), ("valid", "dev"), ("test", "test"))
)
TREC = "\n".join(
    f'{split} = {{format = "label-first", files = "sentence-classification/TREC.{split}.all.gz"}}'
    for split in ("train", "test")
)
STSB = 'labels = "numbers"\n' + "\n".join(
    f'{split} = {{format = "csv", files = "stsb/stsb-en-{name}.csv.gz", columns = {{text = 1, second = 2, label = 3}}}}'
    for split, name in (("train", "train"), ("valid", "dev"), ("test", "test"))
)
EWT = "\n".join(
    f'{split} = {{format = "conllu", files = "ud-english-ewt/en_ewt-ud-{name}.conllu.gz"}}'
    for split, name in (("train", "train"), ("valid", "dev"), ("test", "test"))
)
TATOEBA = 'train = {format = "tsv", files = "tatoeba/eng-deu.tsv.gz", columns = {source = 1, target = 2}}'
PHONEMES = (
    'train = {format = "csv", files = "phonemes/cmu-word2phoneme.csv.gz", columns = {source = "0", target = "1"}}'
)
CORPORA = {
    "multi30k": ("multi30k/train.de.gz", ParallelData, PAIRS.format(form=""), [29_000, 1_014, 1_000]),
    "multi30k-tok": ("multi30k/train.de.gz", ParallelData, PAIRS.format(form=".lc.norm.tok"), [29_000, 1_014, 1_000]),
    "tatoeba": ("tatoeba/eng-deu.tsv.gz", ParallelData, TATOEBA, [169_813]),
    "phonemes": ("phonemes/cmu-word2phoneme.csv.gz", ParallelData, PHONEMES, [113_942]),
    "shakespeare": ("tinyshakespeare/input.txt.gz", TextData, 'train = {files = "tinyshakespeare"}', [40_000]),
    "sst2": ("sentence-classification/stsa.binary.train.gz", LabelledData, SST, [6_920, 872, 1_821]),
    "trec": ("sentence-classification/TREC.train.all.gz", LabelledData, TREC, [5_452, 500]),
    "stsb": ("stsb/stsb-en-train.csv.gz", LabelledData, STSB, [5_749, 1_500, 1_379]),
    "ewt": ("ud-english-ewt/en_ewt-ud-train.conllu.gz", TaggedData, EWT, [12_544, 2_001, 2_077]),
}


@pytest.mark.parametrize("name", CORPORA)
def test_real_corpora_have_no_errors(name: str) -> None:
    file, kind, config, sizes = CORPORA[name]
    base = corpus(file).parents[1]
    data: Any = kind.model_validate(tomllib.loads(config))  # type: ignore[attr-defined]
    report = examine(data, base)
    assert report.errors == ()
    assert [split.records for split in report.splits] == sizes
    smallest = report.splits[-1]
    read = [e for c in open_split(data, smallest.split, base) for e in c]  # type: ignore[arg-type]
    assert len(read) == smallest.records


def test_the_known_defects_of_multi30k_are_found() -> None:
    base = corpus("multi30k/train.de.gz").parents[1]
    report = examine(ParallelData.model_validate(tomllib.loads(PAIRS.format(form=""))), base)
    ratios = next(f for f in report.findings if f.kind == "length_ratio")
    assert [place.line for place in ratios.places] == [16_510, 16_664], "captions that are nothing but @@"
