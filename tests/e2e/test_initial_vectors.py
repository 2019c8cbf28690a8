"""Word vectors that a model starts from are for its own embeddings, not for those of what it reads."""

from pathlib import Path

import torch
from rich.console import Console
from safetensors.torch import load_file

from seqloom.hub.word2vec import write_word_vectors
from seqloom.models.word_vectors import WordVectors
from seqloom.text import Tokenizer
from seqloom.training.job import train
from seqloom.training.monitor import PlainMonitor
from small_corpora import write_config


def test_word_vectors_stand_beside_the_features_of_a_language_model(corpora: Path, tmp_path: Path) -> None:
    silent = PlainMonitor(Console(quiet=True))
    elmo = write_config(tmp_path, corpora, "bidirectional-language-model", "recurrent", "steps = 2")
    start = train(elmo, out=tmp_path / "elmo", monitor=silent).folder
    tokenizer = Tokenizer.load(start / "tokenizer.json")
    id = tokenizer.vocab_size - 1
    vectors = WordVectors([tokenizer.token(id)], torch.randn(1, 20))
    write_word_vectors(vectors, tmp_path / "vectors.bin", "word2vec-binary")

    path = write_config(tmp_path, corpora, "classification", "recurrent", 'steps = 2\nfreeze = "embedding"')
    path.write_text(f'init = "{start}"\n' + path.read_text().replace("model_dim = 32", "model_dim = 20"))
    run = train(path, ['model.initial_vectors="vectors.bin"'], out=tmp_path / "run", monitor=silent)

    before, after = (load_file(folder / "model.safetensors") for folder in (start, run.folder))
    assert torch.equal(after["features.reader.embedding.weight"], before["embedding.weight"])
    assert torch.equal(after["embedding.weight"][id], vectors.vectors[0])
