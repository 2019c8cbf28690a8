"""BERT (Devlin et al. 2019), RoBERTa (Liu et al. 2019) and DistilBERT (Sanh et al. 2019): one encoder, post-norm.

RoBERTa's table of positions has two rows that are never used before the first, and its parts are not told apart.
DistilBERT has half of the layers and other names. XLM-RoBERTa-XL (Goyal et al. 2021) is a RoBERTa with pre-norm.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from seqloom.hub.huggingface.plan import Plan, Recipe, Recipes, add_first, count_layers, linear, skip, take, take_both
from seqloom.hub.huggingface.settings import Settings
from seqloom.hub.huggingface.tasks import make_task
from seqloom.text import Tokenizer


@dataclass(frozen=True)
class Names:
    """Where each part of a layer and of a head is."""

    prefix: str
    layer: str
    query: str
    attention: str
    attention_norm: str
    expand: str
    contract: str
    norm: str
    head: tuple[str, str, str]
    """Of the head for hidden tokens: the layer, its norm, the bias of the output; the output itself is tied."""
    output: str
    answer: tuple[str, str]
    """Of the head for texts: the layer and what follows it."""
    pre: bool = False
    """Whether it is the input of a sublayer that is normalised, and the last output, but not the embeddings."""

    def qkv(self, index: int) -> list[str]:
        """The layers that make queries, keys and values."""
        where = self.layer.format(index) + self.query
        return [where.format(part) for part in (("q_lin", "k_lin", "v_lin") if "lin" in self.expand else _QKV)]


_QKV = ("query", "key", "value")
_BERT = Names(
    "bert.",
    "encoder.layer.{}.",
    "attention.self.{}",
    "attention.output.dense",
    "attention.output.LayerNorm",
    "intermediate.dense",
    "output.dense",
    "output.LayerNorm",
    ("cls.predictions.transform.dense", "cls.predictions.transform.LayerNorm", "cls.predictions.bias"),
    "cls.predictions.decoder",
    ("bert.pooler.dense", "classifier"),
)
_ROBERTA = Names(
    "roberta.",
    *(_BERT.layer, _BERT.query, _BERT.attention, _BERT.attention_norm, _BERT.expand, _BERT.contract, _BERT.norm),
    ("lm_head.dense", "lm_head.layer_norm", "lm_head.bias"),
    "lm_head.decoder",
    ("classifier.dense", "classifier.out_proj"),
)
_XL = replace(_ROBERTA, attention_norm="attention.self_attn_layer_norm", norm="LayerNorm", pre=True)
_DISTILBERT = Names(
    "distilbert.",
    "transformer.layer.{}.",
    "attention.{}",
    "attention.out_lin",
    "sa_layer_norm",
    "ffn.lin1",
    "ffn.lin2",
    "output_layer_norm",
    ("vocab_transform", "vocab_layer_norm", "vocab_projector.bias"),
    "vocab_projector",
    ("pre_classifier", "classifier"),
)
NAMES = {"bert": _BERT, "roberta": _ROBERTA, "distilbert": _DISTILBERT, "xlm-roberta-xl": _XL}


def plan_bert(settings: Settings, weights: Mapping[str, Any], tokenizer: Tokenizer, vector: dict[str, Any]) -> Plan:
    """A masked language model, a classifier or a tagger; `vector` says how it makes one vector of a text."""
    kind = settings.word("model_type")
    names = NAMES[kind]
    settings.must("is_decoder", (False,), "BERT as a decoder is not supported")
    settings.must("add_cross_attention", (False,), "BERT with attention to a source is not supported")
    settings.must("position_embedding_type", ("absolute",), "only absolute positions are supported")
    settings.must("problem_type", ("single_label_classification", "regression"), "one answer a text is supported")
    prefix = names.prefix if any(name.startswith(names.prefix) for name in weights) else ""
    distil = kind == "distilbert"
    epsilon = 1e-12 if distil else settings.number("layer_norm_eps", 1e-12)
    layers = count_layers(settings.count("n_layers" if distil else "num_hidden_layers"), weights, str(settings.path))
    pad = settings.token("pad_token_id")
    offset = (1 if pad is None else pad) + 1 if names in (_ROBERTA, _XL) else 0
    parts = settings.count("type_vocab_size", {"bert": 2}.get(kind, 1)) if kind in ("bert", "xlm-roberta-xl") else 1
    separator = tokenizer.roles.sep
    model: dict[str, Any] = {
        "scale_embeddings": False,
        "embedding_dropout": settings.rate("dropout" if distil else "hidden_dropout_prob"),
        "vocab_size": settings.count("vocab_size"),
        "encoder": {
            "num_layers": layers,
            "model_dim": settings.count("dim" if distil else "hidden_size"),
            "num_heads": settings.count("n_heads" if distil else "num_attention_heads"),
            "hidden_dim": settings.count("hidden_dim" if distil else "intermediate_size"),
            "activation": settings.bend("activation" if distil else "hidden_act", "gelu"),
            "norm_position": "pre" if names.pre else "post",
            "norm_epsilon": epsilon,
            "input_norm": not names.pre,
            "positions": {"kind": "learned", "table": settings.count("max_position_embeddings") - offset},
            "dropout": settings.rate("dropout" if distil else "hidden_dropout_prob"),
            "attention_dropout": settings.rate("attention_dropout" if distil else "attention_probs_dropout_prob"),
        },
    }
    if parts > 1 and separator is not None:
        model["segments"] = {"count": parts, "separator": separator}
    recipes = map_encoder(names, prefix, layers, offset, segments="segments" in model, types=not distil)
    unused = ("*position_ids", f"{prefix}pooler.*", "cls.seq_relationship.*", f"{names.output}.*", names.head[2])
    architecture = _find_architecture(settings)
    if architecture == "ForTokenClassification":
        recipes |= map_tagger()
        labels = settings.labels(_count_answers(weights, "classifier"))
        return Plan(make_task(settings, "tagging", _count_positions(model), model=model), recipes, labels, unused)
    if architecture == "ForSequenceClassification":
        return _plan_classifier(settings, names, weights, model, recipes, unused)
    return _plan_masked(settings, names, weights, model | {"embed": vector}, recipes, unused)


def map_encoder(names: Names, prefix: str, layers: int, offset: int, *, segments: bool, types: bool) -> Recipes:
    """The recipes of the embeddings and the layers; `types`: there is a table of the parts of an input."""
    positions = skip(f"{prefix}embeddings.position_embeddings.weight", offset)
    part_table = f"{prefix}embeddings.token_type_embeddings.weight"
    recipes: Recipes = {"embedding.weight": take(f"{prefix}embeddings.word_embeddings.weight")}
    if segments:
        recipes["embedding.segments.weight"] = take(part_table)
    elif types:
        positions = add_first(positions, part_table)  # every token is of the first part: its vector is in each position
    recipes["encoder.positions.positions.table.weight"] = positions
    norm = ("encoder.final_norm", "encoder.LayerNorm") if names.pre else ("encoder.input_norm", "embeddings.LayerNorm")
    recipes |= dict(linear(norm[0], prefix + norm[1]))
    for index in range(layers):
        recipes |= dict(_map_layer(names, prefix, index))
    return recipes


def map_tagger() -> Recipes:
    """The recipes of a head for each token."""
    return dict(linear("head", "classifier"))


def map_classifier(names: Names) -> Recipes:
    """The recipes of a head for texts."""
    hidden, answer = names.answer
    return dict(linear("transform.0", hidden)) | dict(linear("head", answer))


def map_masked(names: Names, *, tied: bool, bias: str | None = None) -> Recipes:
    """The recipes of a head for hidden tokens; `bias` is where the bias of the output is read."""
    layer, norm, own_bias = names.head
    recipes = dict(linear("transform.0", layer)) | dict(linear("transform.2", norm))
    recipes["output.bias"] = take_both(bias or own_bias, own_bias if bias else f"{names.output}.bias")
    if not tied:
        recipes["output.weight"] = take(f"{names.output}.weight")
    return recipes


def _map_layer(names: Names, prefix: str, index: int) -> Iterator[tuple[str, Recipe]]:
    ours, theirs = f"encoder.blocks.{index}.", prefix + names.layer.format(index)
    yield from linear(ours + "attention.in_projection", *(prefix + name for name in names.qkv(index)))
    yield from linear(ours + "attention.out_projection", theirs + names.attention)
    yield from linear(ours + "attention_residual.norm", theirs + names.attention_norm)
    yield from linear(ours + "feedforward.expand", theirs + names.expand)
    yield from linear(ours + "feedforward.contract", theirs + names.contract)
    yield from linear(ours + "feedforward_residual.norm", theirs + names.norm)


def _plan_masked(
    settings: Settings,
    names: Names,
    weights: Mapping[str, Any],
    model: dict[str, Any],
    recipes: Recipes,
    unused: tuple[str, ...],
) -> Plan:
    layer, _, bias = names.head
    model["head"] = f"{layer}.weight" in weights
    if model["head"]:
        tied = settings.flag("tie_word_embeddings", True)
        bend = "gelu" if names in (_ROBERTA, _XL) else model["encoder"]["activation"]
        model |= {"tie_output": tied, "head_activation": bend}
        recipes |= map_masked(names, tied=tied, bias=None if tied and bias in weights else f"{names.output}.bias")
    return Plan(make_task(settings, "masked-language-model", _count_positions(model), model=model), recipes, (), unused)


def _plan_classifier(
    settings: Settings,
    names: Names,
    weights: Mapping[str, Any],
    model: dict[str, Any],
    recipes: Recipes,
    unused: tuple[str, ...],
) -> Plan:
    count = _count_answers(weights, names.answer[1])
    model |= {"pooling": "first", "head_activation": "relu" if names is _DISTILBERT else "tanh"}
    recipes |= map_classifier(names)
    labels = ("",) if count == 1 else settings.labels(count)
    frames = {"second_frame": {"before": ["sep"], "after": ["sep"]}} if names is _ROBERTA else {}
    task = make_task(settings, "classification", _count_positions(model), model=model, numbers=count == 1, **frames)
    return Plan(task, recipes, labels, unused)


def _count_positions(model: dict[str, Any]) -> int:
    return int(model["encoder"]["positions"]["table"])


def _count_answers(weights: Mapping[str, Any], name: str) -> int:
    entry = weights.get(f"{name}.bias")
    return 1 if entry is None else int(entry.shape[0])


def _find_architecture(settings: Settings) -> str:
    """What stands on the encoder: nothing, or one of the heads that Seqloom has."""
    name = settings.architecture
    for head in ("Model", "ForMaskedLM", "ForPreTraining", "ForTokenClassification", "ForSequenceClassification"):
        if name.endswith(head) or not name:
            return head
    raise settings.refusal("architectures", f'"{name}" is not supported: neither masked, nor a classifier or tagger')
