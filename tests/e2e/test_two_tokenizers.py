"""Translation with one tokeniser for both sides or one for each: whatever can be done with a run is done with both."""

import json
import os
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from rich.console import Console

import seqloom
from forked import start
from seqloom.errors import ConfigError, RunError
from seqloom.hub.word2vec import write_word_vectors
from seqloom.models.word_vectors import WordVectors
from seqloom.predict.export import export
from seqloom.runs.checkpoint import load_tensors
from seqloom.runs.run import Run
from seqloom.text import Tokenizer
from seqloom.training.job import train
from seqloom.training.monitor import PlainMonitor
from small_corpora import write_config
from together import train_together

SHARED = '{kind = "words", min_frequency = 1}'
SEPARATE = '{source = {kind = "words", min_frequency = 1}, target = {kind = "bpe", size = 300}}'
KINDS = {"shared": SHARED, "separate": SEPARATE}
MARIAN = "".join(
    f"[model.{side}]\nfamily = 'transformer'\nnum_layers = 1\nmodel_dim = 32\nnum_heads = 2\nnorm_position = 'post'\n"
    "positions = 'sinusoidal'\n"
    for side in ("encoder", "decoder")
)
SOURCE, TARGET = "the cat sees the dog .", ". DOG THE SEES CAT THE"
Go = Callable[..., Run]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("tokenizers")


@pytest.fixture(scope="module")
def go(corpora: Path, folder: Path) -> Go:
    """Train a model of a kind in a folder of its own, up to its end or for some steps; each is trained once."""
    path = write_config(folder, corpora, "translation", "transformer", "steps = 14\nvalidate_every = 7")
    head, _, tail = path.read_text().partition("[model.encoder]")
    path.write_text(head + MARIAN + tail[tail.index("[train]") :])

    def train_on(
        name: str, *overrides: str, kind: str = "separate", tokenizer: str | None = None, steps: int = 100
    ) -> Run:
        starts = any(override.startswith("init=") for override in overrides)
        chosen = tokenizer or (None if starts else KINDS[kind])
        own = folder / f"{name}.toml"
        own.write_text(path.read_text().replace(f"tokenizer = {SHARED}\n", f"tokenizer = {chosen}\n" if chosen else ""))
        asked = iter(range(100))
        watch = PlainMonitor(Console(quiet=True))
        return train(own, overrides, out=folder / name, monitor=watch, should_stop=lambda: next(asked) >= steps)

    return train_on


@pytest.fixture(scope="module", params=KINDS)
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def run(go: Go, kind: str) -> Path:
    return go(kind, kind=kind).folder


def test_the_files_of_a_run(run: Path, kind: str) -> None:
    names = {"shared": ["tokenizer.json"], "separate": ["tokenizer.source.json", "tokenizer.target.json"]}[kind]
    assert sorted(path.name for path in run.glob("tokenizer*")) == names
    assert names == [name for name in json.loads((run / "manifest.json").read_bytes())["files"] if "tokenizer" in name]
    model = seqloom.load(run)
    assert (model.tokenizer.target is model.tokenizer) == (kind == "shared")
    assert {"DOG", "dog"} <= set(model.tokenizer._names) if kind == "shared" else "DOG" not in model.tokenizer._names
    rows = {name: len(tensor) for name, tensor in load_tensors(run / "model.safetensors").items() if "embed" in name}
    sides = {"source": model.tokenizer.vocab_size, "target": model.tokenizer.target.vocab_size}
    assert rows == {f"{side}_embedding.weight": sides[side] for side in (("source",) if kind == "shared" else sides)}


def test_a_training_that_was_interrupted_ends_with_the_same_bits(go: Go, run: Path, kind: str, folder: Path) -> None:
    go(f"{kind}-broken", kind=kind, steps=5)
    assert not (folder / f"{kind}-broken" / "manifest.json").exists()
    again = go(f"{kind}-broken", kind=kind).folder
    for name in ("model.safetensors", "log.jsonl"):
        assert (run / name).read_bytes() == (again / name).read_bytes()


def test_each_side_is_spelled_by_its_tokeniser(run: Path) -> None:
    model = seqloom.load(run)
    (piece, *rest) = model.tokenizer.target.encode(TARGET).tokens
    found = model.translate(SOURCE, prefix=TARGET, max_length=20)
    assert found.text.startswith(TARGET)
    assert found.tokens[: 1 + len(rest)] == (piece, *rest)
    score = model.score([SOURCE], [TARGET])[0]
    assert score.tokens == (piece, *rest, "[EOS]")
    assert "HORSE" in model.translate(SOURCE, constraints=["HORSE"], beam=2, max_length=30).text
    assert "DOG" not in model.translate(SOURCE, prefix=". ", avoid=["DOG"], max_length=10).text.split()
    aligned = model.translate(SOURCE, prefix=TARGET, align=True).alignment
    assert all(source < 6 for source, _ in aligned)
    assert model.embed([SOURCE]).shape[1] == 32


def test_scores_are_those_of_a_network_of_plain_torch(run: Path) -> None:
    """By hand: ids of each side, the network, and the log-softmax of what it says."""
    from seqloom.types import PairBatch, TokenBatch

    model = seqloom.load(run, engine="open")
    source, target = model.tokenizer, model.tokenizer.target
    read = torch.tensor([[*source.encode(SOURCE).ids, source.roles.eos]])
    written = torch.tensor([[target.roles.bos, *target.encode(TARGET).ids, target.roles.eos]])
    network: Any = model.network
    batches = [TokenBatch(ids, torch.ones_like(ids, dtype=torch.bool)) for ids in (read, written[:, :-1])]
    with torch.no_grad():
        scores = network.output(network(PairBatch(*batches))).log_softmax(-1)
    total = scores[0].gather(1, written[0, 1:, None]).sum()
    assert model.score([SOURCE], [TARGET])[0].log_probability == pytest.approx(float(total), rel=1e-5)


def test_saved_and_assembled_again(run: Path, kind: str, tmp_path: Path) -> None:
    model = seqloom.load(run)
    model.save(tmp_path / "saved")
    assembled = seqloom.assemble(run / "config.toml", run / "tokenizer.json", run / "model.safetensors")
    by_hand = seqloom.assemble(
        run / "config.toml", model.tokenizer.with_target(model.tokenizer.target), model.network.state_dict()
    )
    for other in (seqloom.load(tmp_path / "saved"), assembled, by_hand):
        assert other.score([SOURCE], [TARGET]) == model.score([SOURCE], [TARGET])
        assert other.translate([SOURCE], beam=3) == model.translate([SOURCE], beam=3)


def test_a_run_to_start_from(go: Go, run: Path, kind: str) -> None:
    """Almost without learning, the new run scores as the old one: the same tokens and all weights."""
    tuned = go(
        f"{kind}-tuned", f'init="{run.name}"', "train.optimizer={kind = 'adamw', learning_rate = 1e-9}", "train.steps=2"
    )
    before, after = (seqloom.load(folder).score([SOURCE], [TARGET])[0] for folder in (run, tuned.folder))
    assert after.tokens == before.tokens
    assert after.log_probability == pytest.approx(before.log_probability, rel=1e-4)


@pytest.mark.parametrize("to", ["huggingface", "ctranslate2", pytest.param("onnx", marks=pytest.mark.long)])
def test_exported(run: Path, kind: str, tmp_path: Path, to: Any) -> None:
    """An export compares itself with the run; here, the tokenisers are compared, too."""
    done = export(run, to, tmp_path / "out")
    assert done.difference < 1e-4
    found, known = Tokenizer.load(done.folder), seqloom.load(run).tokenizer
    assert found.encode(SOURCE).ids == known.encode(SOURCE).ids
    assert found.target.encode(TARGET).ids == known.target.encode(TARGET).ids
    if to == "huggingface":
        again = seqloom.load(done.folder)
        assert again.score([SOURCE], [TARGET])[0].tokens == seqloom.load(run).score([SOURCE], [TARGET])[0].tokens
        card = (done.folder / "README.md").read_text()
        assert ("target_tokenizer" in card) == (kind == "separate")
    if to == "ctranslate2":
        fast, own = (seqloom.load(run, engine=engine).translate([SOURCE]) for engine in ("ctranslate2", "open"))
        assert [one.text for one in fast] == [one.text for one in own]


@pytest.mark.long
def test_the_commands(run: Path, folder: Path, kind: str, corpora: Path) -> None:
    known = seqloom.load(run).tokenizer
    asked = {
        ("tokenizer", "encode", run): known,
        ("tokenizer", "encode", run, "--target"): known.target,
    }
    for command, tokenizer in asked.items():
        done = start(*command, stdin=f"{TARGET}\n".encode()).wait()
        assert done.stdout.decode().split() == [str(id) for id in tokenizer.encode(TARGET).ids]
    done = start("verify", run).wait()
    assert done.returncode == 0, done.stdout
    done = start("check", folder / f"{kind}.toml").wait()
    assert done.returncode == 0, done.stderr
    done = start("eval", run, "--json").wait()
    assert done.returncode == 0, done.stderr
    assert "bleu" in {metric["name"] for metric in json.loads(done.stdout)["metrics"]}


def test_one_table_for_two_vocabularies_is_refused(go: Go, folder: Path) -> None:
    """At once where a vocabulary will be learned, and of files when they are read."""
    run = go("separate").folder
    files = ", ".join(
        f'{side} = {{kind = "file", path = "{run}/tokenizer.{side}.json"}}' for side in ("source", "target")
    )
    for given in (None, f"{{{files}}}"):
        with pytest.raises(ConfigError, match=r'model\.tie_embeddings = "all" shares one table .* set it to "output"'):
            go("refused", 'model.tie_embeddings="all"', tokenizer=given)


def test_tokenisers_beside_a_run_to_start_from_are_refused(go: Go, corpora: Path, run: Path) -> None:
    with pytest.raises(ConfigError, match="init takes over the tokenisers of a run"):
        go("refused-too", f'init="{run.name}"', tokenizer=SEPARATE)


def test_an_encoder_is_taken_over_with_the_tokeniser_of_sources(go: Go, corpora: Path, folder: Path) -> None:
    run = go("separate")
    path = write_config(folder, corpora, "tagging", "transformer", "steps = 2")
    text = path.read_text().replace(
        'tokenizer = {kind = "words", min_frequency = 1}\n', f'init = "{run.folder.name}"\n'
    )
    path.write_text(text.replace('family = "transformer"\nnum_layers = 1\nmodel_dim = 32\n', ""))
    tagger = seqloom.load(train(path, out=folder / "tagger", monitor=PlainMonitor(Console(quiet=True))))
    source = seqloom.load(run.folder).tokenizer
    assert tagger.tokenizer.fingerprint == source.fingerprint
    assert tagger.tokenizer.target is tagger.tokenizer


def test_guided_attention_joins_the_tokens_of_each_side(corpora: Path, go: Go) -> None:
    from seqloom.data.columns import AlignmentColumn
    from seqloom.data.examples import Chunk

    tokenizer = seqloom.load(go("separate").folder).tokenizer
    column = AlignmentColumn(tokenizer)
    columns = {"source": [SOURCE], "target": [TARGET], "alignment": ["1-4 4-1"]}
    (row,) = (found.values.tolist() for found in column.encode("alignment", Chunk("a", [1], columns)).values())
    links = set(zip(row[::2], row[1::2], strict=True))
    sources, targets = tokenizer.encode(SOURCE), tokenizer.target.encode(TARGET)
    joined = dict.fromkeys(("cat", "dog"), "")
    for source, target in sorted(links):
        joined[sources.tokens[source]] += TARGET[slice(*targets.offsets[target])].strip()
    assert joined == {"cat": "CAT", "dog": "DOG"}


def test_dropout_of_one_side(go: Go) -> None:
    pair = SEPARATE.replace("size = 300", "size = 300, dropout = 0.5")
    one, other = (go(f"dropout-{number}", tokenizer=given) for number, given in enumerate((pair, SEPARATE)))
    first = [json.loads((run.folder / "log.jsonl").read_text().splitlines()[0]) for run in (one, other)]
    assert first[0]["count"] > first[1]["count"]  # words in more pieces


def test_half_of_a_pair_is_not_taken_for_a_whole(go: Go, folder: Path) -> None:
    run = go("halved").folder
    (run / "tokenizer.target.json").unlink()
    with pytest.raises(RunError, match=r"tokenizer\.target\.json"):
        seqloom.load(run)


@pytest.mark.long
def test_a_bulk_job_resumes_and_knows_its_tokenisers(run: Path, kind: str, folder: Path, tmp_path: Path) -> None:
    lines = [SOURCE, "", "a mouse likes the horse ."] * 40
    (tmp_path / "in").write_text("\n".join(lines) + "\n")
    asked = ("translate", run, tmp_path / "in", "--json", "--beam", 2, "--constraints", "HORSE", "--max-length", 12)
    whole, broken = tmp_path / "whole", tmp_path / "broken"
    assert start(*asked, "-o", whole).wait().returncode == 0
    rows = [json.loads(line) for line in whole.read_text().splitlines()]
    model = seqloom.load(run)
    expected = model.translate(lines[:3], beam=2, constraints=["HORSE"], max_length=12)
    assert [row["text"] for row in rows[:3]] == [one.text for one in expected]
    job = start(*asked, "-o", broken)
    while not broken.exists():
        time.sleep(0.01)
    os.kill(job.pid, signal.SIGKILL)
    job.wait()
    assert start(*asked, "-o", broken, "--resume").wait().returncode == 0
    assert broken.read_bytes() == whole.read_bytes()


def test_each_side_starts_from_the_vectors_of_its_own_words(go: Go, folder: Path) -> None:
    vectors = WordVectors(["dog", "DOG", "."], torch.arange(96.0).view(3, 32))
    write_word_vectors(vectors, folder / "vectors.bin", "word2vec-binary")
    words = '{kind = "words", min_frequency = 1}'
    for kind, given in {"separate": f"{{source = {words}, target = {words}}}", "shared": words}.items():
        tables = '["source_embedding", "target_embedding"]' if kind == "separate" else '["source_embedding"]'
        asked = ('model.initial_vectors="vectors.bin"', f"train.freeze={tables}", "train.steps=2")
        run = go(f"vectors-{kind}", *asked, tokenizer=given).folder
        tokenizer, weights = Tokenizer.load(run / "tokenizer.json"), load_tensors(run / "model.safetensors")
        for side, known in (("source", tokenizer), ("target", tokenizer.target)):
            table = weights.get(f"{side}_embedding.weight", weights["source_embedding.weight"])
            found = {word: known.id(word) for word in vectors.words}
            assert found["dog" if side == "source" else "DOG"] is not None
            assert (found["DOG"] is None) == (kind == "separate" and side == "source")
            for word, row in zip(vectors.words, vectors.vectors, strict=True):
                if found[word] is not None:
                    torch.testing.assert_close(table[found[word]], row)


@pytest.mark.long
def test_several_processes_train_with_two_tokenisers(go: Go, folder: Path) -> None:
    alone = go("separate").folder
    assert train_together(folder / "separate.toml", folder / "together") == [0, 0]
    for side in ("source", "target"):
        name = f"tokenizer.{side}.json"
        assert (folder / "together" / name).read_bytes() == (alone / name).read_bytes()
    one, two = (load_tensors(run / "model.safetensors") for run in (alone, folder / "together"))
    assert {name: tensor.shape for name, tensor in one.items()} == {name: tensor.shape for name, tensor in two.items()}
    own, other = (seqloom.load(run).score([SOURCE], [TARGET])[0] for run in (alone, folder / "together"))
    assert own.tokens == other.tokens
    assert own.log_probability == pytest.approx(other.log_probability, rel=0.05)
