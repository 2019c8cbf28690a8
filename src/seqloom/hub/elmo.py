"""ELMo as it was published (Peters et al. 2018): options.json, weights in HDF5, and a list of words.

    a word's characters → convolutions of several widths → max pooling → highway layers → a projection     (its vector)
    vectors → two stacks of LSTMs, one forward, one backward

A word's vector depends only on its characters, so it is computed once for every word in `vocab*.txt`. The rest becomes
a bidirectional language model of ours without a head. The files store the gates in the order i, g, f, o, and 1 must be
added to the bias of the forget gate.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import tokenizers
import torch
import torch.nn.functional as F
from torch import Tensor

from seqloom.config.batches import Role
from seqloom.errors import DataError, import_extra
from seqloom.hub.bundle import Bundle, make_config
from seqloom.hub.huggingface.files import read_json, read_lines
from seqloom.hub.huggingface.settings import Settings
from seqloom.tasks import Task
from seqloom.text import Tokenizer
from seqloom.text.roles import declare_roles

_BEGIN, _END, _WORD_BEGIN, _WORD_END, _PADDING = range(256, 261)
"""Characters are bytes, numbered 0 to 255; these five follow."""
_ROLES: Mapping[Role, str] = {"bos": "<S>", "eos": "</S>", "unk": "<UNK>"}
_MAX_LENGTH = 512  # tokens in a row
_MAX_WORD = 1000  # characters
_CHUNK = 1024  # words whose characters are read at a time


def is_folder(path: Path) -> bool:
    """Whether this folder holds ELMo's files."""
    return (path / "options.json").is_file() and any(path.glob("*weights*.hdf5"))


def load_folder(folder: Path) -> Bundle:
    """ELMo as a bidirectional language model without a head."""
    settings = Settings(folder / "options.json", read_json(folder / "options.json"))
    words = _read_words(folder)
    config = _make_config(settings)
    weights = _read_weights(next(iter(sorted(folder.glob("*weights*.hdf5")))), settings)
    tokenizer = _build_tokenizer(words)
    network = config.build(tokenizer)
    made = {"embedding.weight": _embed_words(words, weights, settings), **dict(_map_recurrence(weights, settings))}
    with torch.no_grad():
        for name, parameter in network.named_parameters():
            parameter.copy_(made[name])
    return Bundle(config, tokenizer, (), network.eval())


def _make_config(settings: Settings) -> Task:
    lstm = settings.table("lstm")
    settings.table("char_cnn").require("activation", ("relu", "tanh"), "relu and tanh are supported")
    bounds = {lstm.number(key, 3.0) for key in ("cell_clip", "proj_clip")}
    if len(bounds) != 1:
        raise settings.refusal("lstm.cell_clip", "differs from proj_clip; one bound is supported")
    encoder = {
        "family": "recurrent",
        "cell": "lstm",
        "num_layers": lstm.count("n_layers"),
        "model_dim": lstm.count("projection_dim"),
        "memory_dim": lstm.count("dim"),
        "clip": bounds.pop(),
        "residual": lstm.flag("use_skip_connections", False),
    }
    model = {"scale_embeddings": False, "head": False, "encoder": encoder}
    batch = {"rows": {"kind": "lines", "max_length": _MAX_LENGTH}}
    return make_config("bidirectional-language-model", model, batch, str(settings.path))


def _list_shapes(settings: Settings) -> Iterator[tuple[str, tuple[int, ...]]]:
    """The names and shapes of the tensors, by the options."""
    lstm, cnn = settings.table("lstm"), settings.table("char_cnn")
    width = cnn.table("embedding").count("dim")
    filters = _read_filters(settings)
    total, projection, memory = sum(count for _, count in filters), lstm.count("projection_dim"), lstm.count("dim")
    yield "char_embed", (_PADDING + 1, width)
    for number, (size, count) in enumerate(filters):
        yield f"CNN/W_cnn_{number}", (1, size, width, count)
        yield f"CNN/b_cnn_{number}", (count,)
    for number in range(cnn.count("n_highway")):
        for part in ("carry", "transform"):
            yield f"CNN_high_{number}/W_{part}", (total, total)
            yield f"CNN_high_{number}/b_{part}", (total,)
    yield from (("CNN_proj/W_proj", (total, projection)), ("CNN_proj/b_proj", (projection,)))
    for direction in range(2):
        for layer in range(lstm.count("n_layers")):
            where = f"RNN_{direction}/RNN/MultiRNNCell/Cell{layer}/LSTMCell"
            yield f"{where}/W_0", (2 * projection, 4 * memory)
            yield f"{where}/B", (4 * memory,)
            yield f"{where}/W_P_0", (memory, projection)


def _read_filters(settings: Settings) -> list[tuple[int, int]]:
    """The width of each kind of filter, and how many there are."""

    def is_filter(pair: Any) -> bool:
        return isinstance(pair, list) and len(pair) == 2 and all(type(n) is int and 0 < n < 1 << 20 for n in pair)

    match settings.table("char_cnn").get("filters"):
        case [*pairs] if 0 < len(pairs) < 100 and all(map(is_filter, pairs)):
            return [(size, count) for size, count in pairs]
    raise settings.refusal("char_cnn.filters", "expected a list of pairs: a width, and how many")


def _read_weights(path: Path, settings: Settings) -> dict[str, Tensor]:
    """The tensors by name; a shape that differs from the options is refused before the tensor is read."""
    h5py = import_extra("h5py", "elmo")
    found: dict[str, Tensor] = {}
    try:
        with h5py.File(path, "r") as file:
            for name, shape in _list_shapes(settings):
                if tuple(file[name].shape) != shape:
                    raise DataError(f"{path}: {name} is {tuple(file[name].shape)}, but the options say {shape}")
                if file[name].id.get_storage_size() < file[name].nbytes:
                    raise DataError(f"{path}: {name} is compressed or incomplete, which published weights are not")
                found[name] = torch.from_numpy(file[name][...]).float()
    except (OSError, KeyError, AttributeError, TypeError, ValueError, RuntimeError) as error:
        if isinstance(error, DataError):
            raise
        raise DataError(f"{path}: is not ELMo's file of weights: {error}") from None
    return found


def _map_recurrence(weights: Mapping[str, Tensor], settings: Settings) -> Iterator[tuple[str, Tensor]]:
    lstm = settings.table("lstm")
    width = lstm.count("projection_dim")
    for direction, ours in enumerate(("forwards", "backwards")):
        for layer in range(lstm.count("n_layers")):
            theirs = f"RNN_{direction}/RNN/MultiRNNCell/Cell{layer}/LSTMCell"
            cell = f"{ours}.layers.{layer}.0.cell"
            matrix = _order_gates(weights[f"{theirs}/W_0"].t())
            forget = torch.tensor([0.0, 1.0, 0.0, 0.0]).repeat_interleave(lstm.count("dim"))
            yield f"{cell}.input.weight", matrix[:, :width]
            yield f"{cell}.recurrence.weight", matrix[:, width:]
            yield f"{cell}.input.bias", _order_gates(weights[f"{theirs}/B"]) + forget
            yield f"{cell}.projection.weight", weights[f"{theirs}/W_P_0"].t()


def _order_gates(rows: Tensor) -> Tensor:
    """From i, g, f, o to i, f, g, o."""
    i, g, f, o = rows.chunk(4)
    return torch.cat([i, f, g, o])


@torch.no_grad()
def _embed_words(words: Sequence[str], weights: Mapping[str, Tensor], settings: Settings) -> Tensor:
    """The vector of each word, from its characters."""
    cnn = settings.table("char_cnn")
    longest = min(cnn.count("max_characters_per_token", 50), _MAX_WORD)
    activation = torch.tanh if cnn.word("activation", "relu") == "tanh" else torch.relu
    parts = []
    for first in range(0, len(words), _CHUNK):
        characters = torch.tensor([_list_characters(word, longest) for word in words[first : first + _CHUNK]])
        x = F.embedding(characters, weights["char_embed"]).transpose(1, 2)  # (words, width, characters)
        found = []
        for number in range(len(_read_filters(settings))):
            kernel = weights[f"CNN/W_cnn_{number}"][0].permute(2, 1, 0)
            found.append(activation(F.conv1d(x, kernel, weights[f"CNN/b_cnn_{number}"]).amax(2)))
        h = torch.cat(found, dim=1)
        for number in range(cnn.count("n_highway")):  # Srivastava et al. 2015: h ← t ⊙ f(h) + (1 − t) ⊙ h
            where = f"CNN_high_{number}"
            share = (h @ weights[f"{where}/W_carry"] + weights[f"{where}/b_carry"]).sigmoid()
            h = share * (h @ weights[f"{where}/W_transform"] + weights[f"{where}/b_transform"]).relu() + (1 - share) * h
        parts.append(h @ weights["CNN_proj/W_proj"] + weights["CNN_proj/b_proj"])
    return torch.cat(parts)


def _list_characters(word: str, longest: int) -> list[int]:
    """The bytes of a word between its begin and end characters, padded."""
    inner = {"<S>": [_BEGIN], "</S>": [_END]}.get(word) or list(word.encode("utf-8"))
    framed = [_WORD_BEGIN, *inner[: longest - 2], _WORD_END]
    return framed + [_PADDING] * (longest - len(framed))


def _read_words(folder: Path) -> list[str]:
    path = next(iter(sorted(folder.glob("vocab*.txt"))), None)
    if path is None:
        raise DataError(f"{folder}: has no vocab.txt; add one with the words that are to have vectors, one per line")
    words = (line.strip() for line in read_lines(path) if line.strip())
    return list(dict.fromkeys([*_ROLES.values(), *words]))


def _build_tokenizer(words: Sequence[str]) -> Tokenizer:
    """A tokeniser that splits at spaces."""
    ids = {word: number for number, word in enumerate(words)}
    made = tokenizers.Tokenizer(tokenizers.models.WordLevel(ids, unk_token=_ROLES["unk"]))
    made.pre_tokenizer = tokenizers.pre_tokenizers.WhitespaceSplit()
    made.add_special_tokens(list(_ROLES.values()))
    roles = {role: ids[name] for role, name in _ROLES.items()}
    return Tokenizer(json.dumps(declare_roles(json.loads(made.to_str()), _ROLES, roles), ensure_ascii=False))
