"""Copied states, narrow embeddings and positions counted from another number: what they mean, in every family."""

import math
from pathlib import Path
from typing import Any

import pytest
import torch
from pydantic import ValidationError
from rich.console import Console
from torch import nn

import seqloom
from parity.trained import make_tokenizer
from seqloom.errors import ConfigError, SeqloomError
from seqloom.hub.bundle import Bundle, widen_embeddings
from seqloom.models.seq2seq import Seq2Seq
from seqloom.nn.embeddings import OutputLayer, TokenEmbedding
from seqloom.nn.positions import LearnedPositions, SinusoidalPositions
from seqloom.predict.compiler import compile_network
from seqloom.predict.export import export
from seqloom.predict.model import Model
from seqloom.predict.predictor import Predictor
from seqloom.tasks import TASKS
from seqloom.tasks.configuration import validate
from seqloom.tasks.translation import TranslationModelConfig
from seqloom.training.job import train
from seqloom.training.monitor import PlainMonitor
from seqloom.types import PairBatch, TokenBatch
from small_corpora import corpora, write_config

__all__ = ["corpora"]

FAMILIES = ("transformer", "recurrent", "convolutional")
SMALL = {"num_layers": 2, "model_dim": 8}
CELLS = {"lstm": nn.LSTM, "gru": nn.GRU, "rnn": nn.RNN}
SOURCE = TokenBatch.pad([[3, 4, 5, 6], [7, 8]], 0)


def make_pair(cell: str, direction: str, context: str = "initial-state") -> Seq2Seq:
    encoder = {"family": "recurrent", "cell": cell, "direction": direction, **SMALL}
    section = TranslationModelConfig.model_validate(
        {"encoder": encoder, "decoder": {"cell": cell, "bridge": "copy", "context": context}}
    )
    torch.manual_seed(1)
    return section.build(20).double().eval()


class TestCopiedState:
    @pytest.mark.parametrize("cell", CELLS)
    def test_is_the_last_state_of_torchs_own_layers(self, cell: str) -> None:
        """As Sutskever et al. 2014: the decoder goes on where the encoder stopped, h and c of every layer."""
        model = make_pair(cell, "forward")
        theirs = [CELLS[cell](8, 8, batch_first=True).double() for _ in range(4)]
        for layer, own in zip([*model.encoder.layers, *model.decoder.layers], theirs, strict=True):
            source = layer[0].cell if hasattr(layer, "__getitem__") else layer.cell
            own.load_state_dict(source.state_dict())
        target = torch.tensor([[1, 9, 10]])
        x, y = model.source_embedding(SOURCE.ids[1:, :2]), model.target_embedding(target)
        for reader, writer in zip(theirs[:2], theirs[2:], strict=True):
            x, state = reader(x)
            y, _ = writer(y, state)
        pair = PairBatch(TokenBatch(SOURCE.ids[1:], SOURCE.mask[1:]), TokenBatch(target, target > 0))
        torch.testing.assert_close(model(pair), y)

    @pytest.mark.parametrize("direction", ["forward", "backward", "both"])
    @pytest.mark.parametrize("context", ["initial-state", "attention", "every-step"])
    def test_steps_go_as_the_whole_does_alone_and_in_a_batch(self, direction: str, context: str) -> None:
        model = make_pair("lstm", direction, context)
        target = torch.tensor([[1, 9, 10], [1, 4, 2]])
        whole = model(PairBatch(SOURCE, TokenBatch(target, target > 0)))
        state = model.start(model.encode(SOURCE), 3)
        scores, state = model.step(target[:, :2], state)
        torch.testing.assert_close(scores, model.output(whole[:, 1]))
        torch.testing.assert_close(model.step(target[:, 2:], state)[0], model.output(whole[:, 2]))
        alone = model.encode(TokenBatch(SOURCE.ids[1:, :2], SOURCE.mask[1:, :2]))
        torch.testing.assert_close(model.step(target[1:], model.start(alone, 3))[0], model.output(whole[1:, 2]))

    @pytest.mark.parametrize("direction", ["forward", "backward", "both"])
    def test_h_is_the_output_at_the_end_of_each_direction(self, direction: str) -> None:
        encoded = make_pair("lstm", direction).encode(SOURCE)
        assert encoded.final is not None
        assert encoded.final.shape == (2, 2, 2, 8)
        torch.testing.assert_close(encoded.final[:, -1, 0], encoded.summary)

    @pytest.mark.parametrize(
        ("encoder", "decoder", "fault"),
        [
            ({"family": "transformer"}, {"family": "recurrent"}, "the encoder is transformer"),
            ({"cell": "gru"}, {"cell": "lstm"}, "encoder.cell = gru and decoder.cell = lstm"),
            ({"num_layers": 3}, {"num_layers": 2}, "num_layers = 3 and decoder.num_layers = 2"),
            ({"model_dim": 16}, {"model_dim": 8}, "model_dim = 16 and decoder.model_dim = 8"),
            ({"memory_dim": 16}, {}, "memory_dim"),
        ],
    )
    def test_that_does_not_fit_is_refused(self, encoder: dict[str, Any], decoder: dict[str, Any], fault: str) -> None:
        given = {"encoder": {"family": "recurrent", **encoder}, "decoder": {"bridge": "copy", **decoder}}
        with pytest.raises(ValidationError, match=fault):
            TranslationModelConfig.model_validate({**given, "tie_embeddings": "output"})


def configure(task: str, family: str, **model: Any) -> Any:
    side = "decoder" if task == "language-model" else "encoder"
    data = {
        "translation": {"source": "a", "target": "b"},
        "tagging": {"format": "conll", "files": "a"},
        "classification": {"files": "a.tsv"},
    }.get(task, {"files": "a"})
    tokenizer = {"kind": "file", "path": "tokenizer.json"}
    values = {
        "task": task,
        "data": {"train": data},
        "tokenizer": tokenizer,
        "model": {side: {"family": family, **SMALL}, **model},
    }
    return validate(values, TASKS[task], "", "test")


class TestNarrowEmbeddings:
    def test_are_projected_and_a_tied_output_layer_multiplies_with_the_projected_vectors(self) -> None:
        embedding = TokenEmbedding(11, 8, table_dim=3, scale=True).eval()
        assert embedding.weight.shape == (11, 3)
        assert embedding.project is not None
        vectors = embedding.weight @ embedding.project.weight.t()
        ids, states = torch.tensor([4, 0, 10]), torch.randn(5, 8)
        torch.testing.assert_close(embedding(ids), vectors[ids] * math.sqrt(8))
        output = OutputLayer(8, 11, embedding)
        torch.testing.assert_close(output(states), states @ vectors.t())
        assert sum(p.numel() for p in nn.ModuleList([embedding, output]).parameters()) == 11 * 3 + 3 * 8 + 11

    @pytest.mark.parametrize("family", FAMILIES)
    @pytest.mark.parametrize("task", [task for task in TASKS if task != "word-vectors"])
    def test_of_every_task_and_family_compute_what_the_wide_table_does(self, task: str, family: str) -> None:
        tokenizer, config = make_tokenizer(), configure(task, family, embedding_dim=3)
        labels = ("A", "B") if task in ("tagging", "classification") else ()
        torch.manual_seed(2)
        network = config.build(tokenizer, labels).eval()
        bundle = Bundle(config, tokenizer, labels, network)
        wide = widen_embeddings(bundle)
        assert wide.config.model.embedding_dim is None
        text = "w1 w2 w3"
        for model in (Model(Predictor(bundle)), Model(Predictor(wide)), Model(Predictor(bundle, engine="open"))):
            found = model.embed(text)
            torch.testing.assert_close(torch.tensor(found), torch.tensor(Model(Predictor(wide)).embed(text)))
            if task == "translation":
                score = [one.score(text, "w4 w5").log_probability for one in (model, Model(Predictor(wide)))]
                assert score[0] == pytest.approx(score[1], rel=1e-4)
            elif task.endswith("language-model"):
                score = [one.score(text).log_probability for one in (model, Model(Predictor(wide)))]
                assert score[0] == pytest.approx(score[1], rel=1e-4)

    def test_are_compiled(self) -> None:
        network = configure("language-model", "transformer", embedding_dim=3).model.build(20).eval()
        compiled, batch = compile_network(network), TokenBatch.pad([[3, 4, 5]], 0)
        assert compiled is not network
        with torch.no_grad():
            torch.testing.assert_close(compiled.output(compiled(batch)), network.output(network(batch)))  # type: ignore[operator]

    @pytest.mark.parametrize("family", FAMILIES)
    def test_learn_and_start_from_narrow_word_vectors(self, family: str, corpora: Path, tmp_path: Path) -> None:
        (tmp_path / "vectors.txt").write_text("the 0.3 -0.2 0.1 0.4\ncat -0.1 0.3 0.2 -0.4\n")
        path = write_config(
            tmp_path,
            corpora,
            "language-model",
            family,
            "steps = 60\nvalidate_every = 30\noptimizer.learning_rate = 0.01",
        )
        given = ["model.embedding_dim=4", f'model.initial_vectors="{tmp_path}/vectors.txt"', "frame.before=bos"]
        run = train(path, given, out=tmp_path / "run", monitor=PlainMonitor(Console(quiet=True)))
        model = seqloom.load(run)
        assert model.score("the cat sees the dog .").perplexity < 12  # type: ignore[operator]
        with pytest.raises(ConfigError, match=r"model\.embedding_dim = 4"):
            train(path, given[1:], out=tmp_path / "other", monitor=PlainMonitor(Console(quiet=True)))


class TestFirstPosition:
    @pytest.mark.parametrize("first", [1, 2])
    def test_is_the_row_or_the_number_of_the_first_token(self, first: int) -> None:
        positions, lengths = torch.arange(5), torch.full((5,), 5)
        learned = LearnedPositions(7, 4, first)
        assert learned.table.num_embeddings == 7 + first
        torch.testing.assert_close(learned(positions, lengths), learned.table.weight[first : first + 5])
        later = SinusoidalPositions(4)(positions + first, lengths)
        torch.testing.assert_close(SinusoidalPositions(4, first=first)(positions, lengths), later)
        with pytest.raises(SeqloomError, match="the table of positions has 7"):
            learned(torch.arange(8), torch.full((8,), 8))


@pytest.mark.parametrize("to", ["huggingface", "onnx", "ctranslate2"])
@pytest.mark.parametrize("kind", ["sinusoidal", "learned"])
def test_other_formats_compute_the_same(to: Any, kind: str, tmp_path: Path) -> None:
    pytest.importorskip({"onnx": "onnxruntime", "huggingface": "transformers"}.get(to, to))
    positions = {"kind": kind, "first_position": 2} | ({"table": 300} if kind == "learned" else {})
    config = configure("language-model", "transformer", embedding_dim=3)
    values = config.model_dump()
    values["model"]["decoder"] |= {"positions": positions, "activation": "gelu-tanh", "num_heads": 2}
    config = validate(values, TASKS["language-model"], "", "test")
    tokenizer = make_tokenizer()
    model = Model(Predictor(Bundle(config, tokenizer, (), config.build(tokenizer))))
    model.save(tmp_path / "run")
    assert export(tmp_path / "run", to, tmp_path / "out").difference < 1e-4


def test_what_a_graph_cannot_give_is_refused(tmp_path: Path) -> None:
    config = configure("translation", "recurrent", decoder={"bridge": "copy"})
    tokenizer = make_tokenizer()
    Model(Predictor(Bundle(config, tokenizer, (), config.build(tokenizer)))).save(tmp_path / "run")
    with pytest.raises(SeqloomError, match=r"model\.decoder\.bridge"):
        export(tmp_path / "run", "onnx", tmp_path / "out")
