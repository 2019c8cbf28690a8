"""Beside gensim: it reads our files, we read its files, and both give the same answers."""

import gzip
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from seqloom.hub.word2vec import Format, read_word_vectors, write_word_vectors
from seqloom.models.word_vectors import (
    WordVectors,
    evaluate_analogies,
    evaluate_similarity,
    read_questions,
    read_ratings,
)
from seqloom.tasks.word_vectors import WordVectorsConfig
from seqloom.training.word_vectors import train_word_vectors
from shared_data import corpus

gensim_models = pytest.importorskip("gensim.models", reason="needs gensim: pip install gensim")


def random_vectors(words: list[str], dim: int = 20) -> WordVectors:
    return WordVectors(words, torch.randn(len(words), dim, generator=torch.Generator().manual_seed(0)))


def as_keyed(vectors: WordVectors) -> Any:
    keyed = gensim_models.KeyedVectors(vectors.dim)
    keyed.add_vectors(list(vectors.words), vectors.vectors.numpy())
    return keyed


WORDS = ["the", "naïve", "日本", "🙂", "3.14", "'s", "\u00a0", "\u0085", "...", "a_b"]


@pytest.mark.parametrize("suffix", ["", ".gz"])
@pytest.mark.parametrize("format", ["word2vec", "word2vec-binary", "glove"])
def test_gensim_reads_our_files(format: Format, suffix: str, tmp_path: Path) -> None:
    vectors, path = random_vectors(WORDS), tmp_path / f"vectors{suffix}"
    write_word_vectors(vectors, path, format)
    options = {"binary": format == "word2vec-binary", "no_header": format == "glove"}
    found = gensim_models.KeyedVectors.load_word2vec_format(str(path), **options)
    assert tuple(found.index_to_key) == vectors.words
    assert np.array_equal(found.vectors, vectors.vectors.numpy())


@pytest.mark.parametrize("suffix", ["", ".gz"])
@pytest.mark.parametrize(("binary", "header"), [(False, True), (False, False), (True, True)])
def test_we_read_files_of_gensim(binary: bool, header: bool, suffix: str, tmp_path: Path) -> None:
    vectors, path = random_vectors(WORDS), tmp_path / f"vectors{suffix}"
    as_keyed(vectors).save_word2vec_format(str(path), binary=binary, write_header=header)
    found = read_word_vectors(path)
    assert set(found.words) == set(WORDS)
    for word in WORDS:
        assert torch.equal(found[word], vectors[word])


@pytest.fixture(scope="module")
def vocabulary() -> list[str]:
    questions = read_questions(corpus("word-similarity/questions-words.txt.gz"))
    ratings = read_ratings(corpus("word-similarity/wordsim353.tsv.gz"))
    words = {word.lower() for q in questions[::40] for word in q[1:]} | {w.lower() for r in ratings[::2] for w in r[:2]}
    return sorted(words)


def test_the_same_neighbours_and_analogies(vocabulary: list[str]) -> None:
    vectors = random_vectors(vocabulary)
    keyed = as_keyed(vectors)
    for a, b, c in (vocabulary[i : i + 3] for i in range(0, len(vocabulary) - 3, 20)):
        for ours, theirs in (
            (vectors.nearest(a, 5), keyed.most_similar(a, topn=5)),
            (vectors.analogy(a, b, c, 5), keyed.most_similar(positive=[b, c], negative=[a], topn=5)),
        ):
            assert [n.word for n in ours] == [word for word, _ in theirs]
            assert [n.similarity for n in ours] == pytest.approx([cosine for _, cosine in theirs], abs=1e-5)
        assert vectors.similarity(a, b) == pytest.approx(keyed.similarity(a, b), abs=1e-6)


def test_the_same_scores_in_the_public_tests(vocabulary: list[str], tmp_path: Path) -> None:
    vectors = random_vectors(vocabulary, dim=3)  # so few numbers that some analogies come out right by chance
    keyed = as_keyed(vectors)
    files = {}
    for name in ("wordsim353.tsv", "questions-words.txt"):
        files[name] = tmp_path / name
        files[name].write_bytes(gzip.decompress(corpus(f"word-similarity/{name}.gz").read_bytes()))
    similarity = evaluate_similarity(vectors, read_ratings(files["wordsim353.tsv"]))
    _, spearman, left_out = keyed.evaluate_word_pairs(str(files["wordsim353.tsv"]))
    assert similarity.spearman == pytest.approx(spearman[0], abs=1e-6)
    assert similarity.left_out / 353 == pytest.approx(left_out / 100)
    analogies = evaluate_analogies(vectors, read_questions(files["questions-words.txt"]))
    accuracy, sections = keyed.evaluate_word_analogies(str(files["questions-words.txt"]))
    assert analogies.accuracy == pytest.approx(accuracy)
    assert analogies.accuracy > 0
    assert analogies.asked == len(sections[-1]["correct"]) + len(sections[-1]["incorrect"])


def test_vectors_trained_on_the_same_text_agree_about_which_words_are_alike() -> None:
    """Ours and gensim's are as close as two trainings by gensim from different seeds, or nearly."""
    captions = gzip.decompress(corpus("multi30k/train.lc.norm.tok.en.gz").read_bytes()).decode()
    text = [line.split() for line in captions.splitlines()[:10_000]]
    config = WordVectorsConfig(dim=32)
    ours = train_word_vectors(config, lambda: text)
    settings = {"vector_size": 32, "epochs": 5, "window": 5, "negative": 5, "min_count": 5, "sample": 1e-3, "sg": 1}
    theirs = [gensim_models.Word2Vec(text, workers=1, seed=seed, **settings).wv for seed in (1, 2)]
    assert set(ours.words) == set(theirs[0].index_to_key)
    words = ours.words[:300]

    def cosines(rows: np.ndarray) -> np.ndarray:
        unit = rows / np.linalg.norm(rows, axis=1, keepdims=True)
        return (unit @ unit.T)[np.triu_indices(len(words), k=1)]

    mine = cosines(np.stack([ours[w].numpy() for w in words]))
    peers = [cosines(np.stack([wv[w] for w in words])) for wv in theirs]
    between_peers = np.corrcoef(peers[0], peers[1])[0, 1]
    assert np.corrcoef(mine, peers[0])[0, 1] > between_peers - 0.1
