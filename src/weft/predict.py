"""The model a user holds: a finished run, ready to be used."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor, nn

from weft.config import load_resolved
from weft.config.tasks import ModelTask, WordVectorsTask
from weft.data.rows import pad_rows
from weft.data.shards import Ragged
from weft.decode.greedy import greedy
from weft.errors import RunError
from weft.lens.capture import capture
from weft.models.build import build_model
from weft.models.seq2seq import Seq2Seq
from weft.text import Tokenizer
from weft.train.average import set_weights
from weft.train.checkpoint import load_tensors, verify_folder
from weft.train.prepare import frame_texts
from weft.types import PairBatch, TokenBatch

_BATCH = 64  # texts at a time


@dataclass(frozen=True)
class Alignment:
    """What each target token looked at, over all heads of the last attention to the source."""

    source: list[str]
    target: list[str]
    weights: Float[Tensor, "T S"]


class Model:
    """A trained model with its tokeniser."""

    def __init__(self, config: ModelTask, tokenizer: Tokenizer, labels: tuple[str, ...], network: nn.Module) -> None:
        self.config, self.tokenizer, self.labels = config, tokenizer, labels
        self.network = network.eval()
        self._frames = frame_texts(config, tokenizer)

    def translate(self, texts: Sequence[str]) -> list[str]:
        """The translation of each text, by greedy search; an empty text stays empty."""
        network, roles = self._seq2seq(), self.tokenizer.roles
        assert roles.bos is not None
        assert roles.eos is not None
        answers = [""] * len(texts)
        filled = sorted((number for number, text in enumerate(texts) if text.strip()), key=lambda n: len(texts[n]))
        for first in range(0, len(filled), _BATCH):
            numbers = filled[first : first + _BATCH]
            source = self._encode([texts[number] for number in numbers], "source")
            longest = 2 * source.ids.shape[1] + 10
            with torch.inference_mode():
                state = network.start(network.encode(source), longest)
                start = torch.full((len(numbers),), roles.bos)
                rows = greedy(network.step, state, start, end_id=roles.eos, max_length=longest)
            for number, text in zip(numbers, self.tokenizer.decode_batch(rows), strict=True):
                answers[number] = text
        return answers

    def align(self, source: str, target: str) -> Alignment:
        """Where the model looks in the source while it writes the target."""
        sources, targets = self._encode([source], "source"), self._encode([target], "target")
        network = self._seq2seq()
        with torch.inference_mode(), capture(network) as seen:
            network(PairBatch(sources, TokenBatch(targets.ids[:, :-1], targets.mask[:, :-1])))
        name = [name for name in seen.names if "cross" in name or "lookup" in name][-1]
        tokens = [[self.tokenizer.decode([id]) for id in batch.ids[0].tolist()] for batch in (sources, targets)]
        return Alignment(tokens[0][:-1], tokens[1][1:-1], seen.weights(name)[0].mean(0)[:-1, :-1])

    def _encode(self, texts: list[str], role: str) -> TokenBatch:
        frame = self._frames[role]
        rows = [[*frame.before, *ids, *frame.after] for ids in self.tokenizer.encode_batch(texts)]
        return pad_rows([Ragged.join(rows, np.dtype(np.int64))], self.tokenizer.roles.pad or 0)

    def _seq2seq(self) -> Seq2Seq:
        if not isinstance(self.network, Seq2Seq):
            raise RunError(f"this model was trained for {self.config.task}; it cannot translate")
        return self.network


def load(folder: str | Path) -> Model:
    """The model of a finished run."""
    folder = Path(folder)
    if not (folder / "manifest.json").exists():
        known = (folder / "config.toml").exists()
        advice = "its training is not finished; `weft train` goes on with it" if known else "there is no run here"
        raise RunError(f"{folder}: {advice}")
    verify_folder(folder)
    config = load_resolved(folder / "config.toml")
    if isinstance(config, WordVectorsTask):
        raise RunError(f"{folder} holds word vectors; ask them with `weft vectors nearest {folder}/vectors.bin WORD`")
    tokenizer = Tokenizer.load(folder / "tokenizer.json")
    labels = tuple(json.loads((folder / "labels.json").read_bytes()))
    network = build_model(config.model, tokenizer.vocab_size, len(labels) or None)
    weights = load_tensors(folder / "model.safetensors")
    parameters = dict(network.named_parameters())
    if parameters.keys() != weights.keys():
        raise RunError(f"{folder}: its weights are not those of its configuration")
    set_weights(network, weights)
    return Model(config, tokenizer, labels, network)
