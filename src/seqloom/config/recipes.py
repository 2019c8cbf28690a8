"""Named configurations: what each adds to the template of its task. docs/results.md has their measured results."""

import tomllib
from typing import Any, NamedTuple

_RECURRENT = """
[model.encoder]
family = "recurrent"
cell = "{cell}"
num_layers = 2
model_dim = 256
[model.decoder]
family = "recurrent"
cell = "{cell}"
context = "{context}"
"""


class Recipe(NamedTuple):
    """A part of a configuration, for one task."""

    name: str
    task: str
    about: str
    text: str

    def read(self) -> dict[str, Any]:
        """Parse the text into nested tables."""
        return tomllib.loads(self.text)


_ALL = (
    Recipe(
        "gru-attention",
        "translation",
        "gated recurrent units that look at the source (Bahdanau et al. 2015)",
        _RECURRENT.format(cell="gru", context="attention") + 'score = "additive"\n',
    ),
    Recipe(
        "gru-every-step",
        "translation",
        "gated recurrent units that get one vector of the source at every step (Cho et al. 2014)",
        _RECURRENT.format(cell="gru", context="every-step"),
    ),
    Recipe(
        "lstm-initial-state",
        "translation",
        "an LSTM that starts from one vector of the source (Sutskever et al. 2014)",
        _RECURRENT.format(cell="lstm", context="initial-state"),
    ),
    Recipe(
        "convolutional",
        "translation",
        "gated convolutions with attention in every layer (Gehring et al. 2017)",
        """
[model.encoder]
family = "convolutional"
model_dim = 256
[model.decoder]
family = "convolutional"
""",
    ),
    Recipe(
        "characters",
        "language-model",
        "a small Transformer over single characters that learns in a minute; fitted by hand to tiny Shakespeare",
        """
tokenizer = "characters"
[frame]
after = []
[batch]
tokens = 1024
rows = {kind = "windows", length = 64}
[model]
embedding_dropout = 0.0
tie_output = false
[model.decoder]
family = "transformer"
num_layers = 4
model_dim = 128
dropout = 0.0
activation = "squared-relu"
positions = "rotary"
normalise_qk = true
[train]
steps = 295
warmup = 20
label_smoothing = 0.0
validate_every = 295
[train.optimizer]
kind = "muon"
matrix_rate = 0.03
momentum = 0.9
learning_rate = 0.015
beta1 = 0.8
beta2 = 0.95
weight_decay = 0.0
""",
    ),
    Recipe(
        "lstm-tagger",
        "tagging",
        "LSTMs that read a sentence in both directions, in small batches, with much dropout (Huang et al. 2015)",
        """
[tokenizer]
kind = "bpe"
size = 4000
[batch]
tokens = 1024
[model]
embedding_dropout = 0.3
word_dropout = 0.05
[model.encoder]
family = "recurrent"
num_layers = 2
model_dim = 256
dropout = 0.3
[train]
epochs = 6.0
warmup = 50
label_smoothing = 0.0
optimizer = "adamw"
""",
    ),
)
RECIPES = {recipe.name: recipe for recipe in _ALL}
"""The recipes by name."""
