"""BERT (Devlin et al. 2019), RoBERTa (Liu et al. 2019) and DistilBERT (Sanh et al. 2019): one encoder, post-norm.

RoBERTa has no segments and never uses the first rows of its position table. XLM-RoBERTa (Conneau et al. 2020) and
CamemBERT (Martin et al. 2020) are RoBERTas with other vocabularies. DistilBERT has half as many layers, under
other names. XLM-RoBERTa-XL (Goyal et al. 2021) is a RoBERTa with pre-norm. Models of ours are written as BERT or, with
pre-norm, as XLM-RoBERTa-XL.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from torch import Tensor

from seqloom.errors import DataError, RunError
from seqloom.hub.bundle import Bundle
from seqloom.hub.fidelity import refusal, require
from seqloom.hub.huggingface.layout import (
    ExportPlan,
    Folder,
    ImportPlan,
    Layout,
    check_plain,
    tabulate,
    write_options,
)
from seqloom.hub.huggingface.recipes import Recipes, add_first_row, copy, copy_twice, linear, map_blocks, skip_rows
from seqloom.hub.huggingface.sentence import describe_pooling, read_max_length, read_pooling
from seqloom.hub.huggingface.settings import Option, Settings, name_activation
from seqloom.hub.huggingface.tokenizer import TextFrames, find_frames, tells_parts
from seqloom.tasks import ClassificationTask, MaskedLanguageModelTask, TaggingTask, Task
from seqloom.tasks.bidirectional_language_model import FeaturedModel


@dataclass(frozen=True)
class _Kind:
    """How one of these models differs from the others, and its names for the parts of a layer and of a head."""

    architecture: str
    options: Mapping[str, Option]
    prefix: str
    layer: str
    parts: Mapping[str, Sequence[str]]
    """The modules of a layer: for each of ours, theirs."""
    head: tuple[str, str, str]
    """The head for masked tokens: its layer, its norm, and the bias of the output layer."""
    output: str
    """The output layer, whose weight is usually tied."""
    classifier: tuple[str, str]
    """The head for texts: the hidden layer and the output layer."""
    pre_norm: bool = False
    offset: bool = False
    """Whether positions are counted from the row after that of the padding token."""
    segments: int | None = None
    """The number of segments, unless config.json gives another; None for a model without segments."""
    token_types: bool = True
    """Whether there is a table of segments."""


_BERT = _Kind(
    architecture="Bert",
    options={
        "num_layers": Option("num_hidden_layers", Settings.count),
        "model_dim": Option("hidden_size", Settings.count),
        "num_heads": Option("num_attention_heads", Settings.count),
        "hidden_dim": Option("intermediate_size", Settings.count),
        "activation": Option("hidden_act", Settings.activation, "gelu", name_activation),
        "norm_epsilon": Option("layer_norm_eps", Settings.number, 1e-12),
        "dropout": Option("hidden_dropout_prob", Settings.rate),
        "attention_dropout": Option("attention_probs_dropout_prob", Settings.rate),
    },
    prefix="bert.",
    layer="encoder.layer.{}.",
    parts={
        "attention.in_projection": ("attention.self.query", "attention.self.key", "attention.self.value"),
        "attention.out_projection": ("attention.output.dense",),
        "attention_residual.norm": ("attention.output.LayerNorm",),
        "feedforward.expand": ("intermediate.dense",),
        "feedforward.contract": ("output.dense",),
        "feedforward_residual.norm": ("output.LayerNorm",),
    },
    head=("cls.predictions.transform.dense", "cls.predictions.transform.LayerNorm", "cls.predictions.bias"),
    output="cls.predictions.decoder",
    classifier=("bert.pooler.dense", "classifier"),
    segments=2,
)
_ROBERTA = replace(
    _BERT,
    architecture="Roberta",
    prefix="roberta.",
    head=("lm_head.dense", "lm_head.layer_norm", "lm_head.bias"),
    output="lm_head.decoder",
    classifier=("classifier.dense", "classifier.out_proj"),
    offset=True,
    segments=None,
)
_XL = replace(
    _ROBERTA,
    architecture="XLMRobertaXL",
    parts={
        **_BERT.parts,
        "attention_residual.norm": ("attention.self_attn_layer_norm",),
        "feedforward_residual.norm": ("LayerNorm",),
    },
    pre_norm=True,
    segments=1,
)
_DISTILBERT = _Kind(
    architecture="DistilBert",
    options={
        "num_layers": Option("n_layers", Settings.count),
        "model_dim": Option("dim", Settings.count),
        "num_heads": Option("n_heads", Settings.count),
        "hidden_dim": Option("hidden_dim", Settings.count),
        "activation": Option("activation", Settings.activation, "gelu", name_activation),
        "dropout": Option("dropout", Settings.rate),
        "attention_dropout": Option("attention_dropout", Settings.rate),
    },
    prefix="distilbert.",
    layer="transformer.layer.{}.",
    parts={
        "attention.in_projection": ("attention.q_lin", "attention.k_lin", "attention.v_lin"),
        "attention.out_projection": ("attention.out_lin",),
        "attention_residual.norm": ("sa_layer_norm",),
        "feedforward.expand": ("ffn.lin1",),
        "feedforward.contract": ("ffn.lin2",),
        "feedforward_residual.norm": ("output_layer_norm",),
    },
    head=("vocab_transform", "vocab_layer_norm", "vocab_projector.bias"),
    output="vocab_projector",
    classifier=("pre_classifier", "classifier"),
    token_types=False,
)
_KINDS = {
    "bert": _BERT,
    "roberta": _ROBERTA,
    "xlm-roberta": replace(_ROBERTA, architecture="XLMRoberta"),
    "camembert": replace(_ROBERTA, architecture="Camembert"),
    "distilbert": _DISTILBERT,
    "xlm-roberta-xl": _XL,
}


_FRAME = {"before": ["cls"], "after": ["sep"]}


class BertLayout(Layout):
    """Encoders, alone or with the head of a task."""

    model_types = tuple(_KINDS)

    def read(self, folder: Folder) -> ImportPlan:
        """A masked language model, a classifier or a tagger."""
        settings, kind = folder.settings, _KINDS[folder.settings.word("model_type")]
        settings.require("is_decoder", (False,), "BERT as a decoder is not supported")
        settings.require("add_cross_attention", (False,), "BERT with cross-attention is not supported")
        settings.require("position_embedding_type", ("absolute",), "only absolute positions are supported")
        settings.require("problem_type", ("single_label_classification", "regression"), "only one label per text is")
        pad, frames = settings.token("pad_token_id"), _find_frames(folder, kind)
        prefix = folder.find_prefix(kind.prefix)
        offset = (1 if pad is None else pad) + 1 if kind.offset else 0
        rows = settings.count("max_position_embeddings") - offset
        encoder = {
            "norm_epsilon": 1e-12,
            **folder.read_options(kind.options),
            "norm_position": "pre" if kind.pre_norm else "post",
            "input_norm": not kind.pre_norm,
            "positions": {"kind": "learned", "table": rows},
        }
        model = {
            "scale_embeddings": False,
            "embedding_dropout": encoder["dropout"],
            "vocab_size": settings.count("vocab_size"),
            "encoder": encoder,
        }
        segments = 1 if kind.segments is None else settings.count("type_vocab_size", kind.segments)
        if segments > 1 and frames.parts != "one" and frames.text["after"]:
            if frames.parts == "other":
                reason = "its tokeniser puts the parts of a pair elsewhere than in front of and after the separator"
                raise settings.refusal("type_vocab_size", reason)
            separator = getattr(folder.tokenizer.roles, frames.text["after"][-1])
            model["segments"] = {"count": segments, "separator": separator}
        recipes = _map_encoder(kind, prefix, encoder["num_layers"], offset, segments="segments" in model)
        layer, _, bias = kind.head
        unused = ("*position_ids", f"{prefix}pooler.*", "cls.seq_relationship.*", f"{kind.output}.*", bias)
        labels: tuple[str, ...] = ()
        more: dict[str, Any] = {} if frames.text == _FRAME else {"frame": frames.text}
        match _find_head(settings):
            case "ForTokenClassification":
                task = "tagging"
                labels = settings.labels(_count_labels(folder, "classifier"))
                recipes |= linear("head", "classifier")
            case "ForSequenceClassification":
                task, count = "classification", _count_labels(folder, kind.classifier[1])
                labels = ("",) if count == 1 else settings.labels(count)
                model |= {"pooling": "first", "head_activation": "relu" if kind is _DISTILBERT else "tanh"}
                recipes |= _map_classifier(kind)
                more |= {"reads_pairs": True, "second_frame": frames.second}
                more |= {"data": {"labels": "numbers"}} if count == 1 else {}
            case _:
                task = "masked-language-model"
                model |= {"embed": read_pooling(folder.path), "head": f"{layer}.weight" in folder.weights}
                if model["head"]:
                    tied = settings.flag("tie_word_embeddings", True)
                    model |= {"tie_output": tied, "head_activation": "gelu" if kind.offset else encoder["activation"]}
                    own = tied and bias in folder.weights
                    recipes |= _map_masked(kind, tied=tied, bias=None if own else f"{kind.output}.bias")
        longest = read_max_length(folder.path, folder.tokenizer, rows)
        return folder.plan(task, model, recipes, longest=longest, labels=labels, unused=unused, **more)

    def fits(self, config: Task) -> bool:
        """Models with an encoder and a head on it."""
        return isinstance(config, MaskedLanguageModelTask | ClassificationTask | TaggingTask)

    def write(self, model: Bundle, ours: dict[str, Tensor]) -> ExportPlan:
        """BERT, or XLM-RoBERTa-XL with pre-norm, with the head of the task."""
        config = model.config
        assert isinstance(config, MaskedLanguageModelTask | ClassificationTask | TaggingTask)
        stack = check_plain(config, "encoder", "models in BERT's layout")
        rows = tabulate(model, {"encoder": stack}, ours, "models in BERT's layout")
        pre_norm = stack.norm_position == "pre"
        name, who = ("xlm-roberta-xl", "pre-norm models in BERT's layout") if pre_norm else ("bert", "models like BERT")
        require(stack, "model.encoder", who, input_norm=not pre_norm)
        if isinstance(config.model, FeaturedModel) and config.model.features is not None:
            raise refusal("model.features", "…", "no layout has the features of another model")
        pad = model.tokenizer.roles.pad
        if pad is None:
            raise RunError("the tokeniser has no padding token, which models in BERT's layout need")
        kind = _KINDS[name]
        offset = pad + 1 if kind.offset else 0
        segments = config.model.segments
        recipes = _map_encoder(kind, kind.prefix, stack.num_layers, offset, segments=segments is not None)
        values: dict[str, Any] = {
            "model_type": name,
            **write_options(stack, kind.options),
            "max_position_embeddings": rows + offset,
            "type_vocab_size": 1 if segments is None else segments.count,
            "tie_word_embeddings": False,
        }
        files: dict[str, Any] = {}
        match config:
            case TaggingTask():
                head = "ForTokenClassification"
                recipes |= linear("head", "classifier")
            case ClassificationTask():
                head = "ForSequenceClassification"
                require(config.model, "model", "classifiers in BERT's layout", pooling="first", head_activation="tanh")
                recipes |= _map_classifier(kind)
                values["problem_type"] = "regression" if len(model.labels) == 1 else "single_label_classification"
            case MaskedLanguageModelTask():
                head = "ForMaskedLM" if config.model.head else "Model"
                files = describe_pooling(config.model.embed, stack.model_dim)
                if config.model.head:
                    require(config.model, "model", who, head_activation="gelu" if pre_norm else stack.activation)
                    tied = config.model.tie_output and not config.model.scale_embeddings
                    values["tie_word_embeddings"] = tied
                    recipes |= _map_masked(kind, tied=tied)
                    if not tied:
                        ours.setdefault("output.weight", ours["embedding.weight"])
        if not isinstance(config, MaskedLanguageModelTask):
            labels = model.labels if len(model.labels) > 1 else ("LABEL_0",)
            values["id2label"] = {str(number): label for number, label in enumerate(labels)}
            values["label2id"] = {label: number for number, label in enumerate(labels)}
        if config.model.scale_embeddings:
            ours["embedding.weight"] = ours["embedding.weight"] * stack.model_dim**0.5
        return ExportPlan(f"{kind.architecture}{head}", values, recipes, longest=rows, files=files)


def _find_frames(folder: Folder, kind: _Kind) -> TextFrames:
    """As the tokeniser has them or, where it does not say, as models of this kind have them."""
    found, roles = find_frames(folder.path, folder.tokenizer, ("cls", "sep")), folder.tokenizer.roles
    if found is None:
        text = _FRAME if roles.cls is not None or roles.bos is None else {"before": ["bos"], "after": ["eos"]}
        second = {"before": text["after"] if kind.offset else [], "after": text["after"]}
        found = TextFrames(text, second, "one" if kind.offset else "two")
    if found.second is None and _find_head(folder.settings) == "ForSequenceClassification":
        raise DataError(f"{folder.path}: its tokeniser frames the first of two texts in another way than a single text")
    return found if tells_parts(folder.path) else replace(found, parts="one")


def _find_head(settings: Settings) -> str:
    """The end of the class name, which says what head there is."""
    name = settings.architecture
    for head in ("Model", "ForMaskedLM", "ForPreTraining", "ForTokenClassification", "ForSequenceClassification"):
        if name.endswith(head) or not name:
            return head
    reason = f'"{name}" is not supported: it is not a masked language model, classifier or tagger'
    raise settings.refusal("architectures", reason)


def _count_labels(folder: Folder, layer: str) -> int:
    entry = folder.weights.get(f"{layer}.bias")
    return 1 if entry is None else int(entry.shape[0])


def _map_encoder(kind: _Kind, prefix: str, layers: int, offset: int, *, segments: bool) -> Recipes:
    positions = skip_rows(f"{prefix}embeddings.position_embeddings.weight", offset)
    token_types = f"{prefix}embeddings.token_type_embeddings.weight"
    recipes: Recipes = {"embedding.weight": copy(f"{prefix}embeddings.word_embeddings.weight")}
    if segments:
        recipes["embedding.segments.weight"] = copy(token_types)
    elif kind.token_types:
        positions = add_first_row(positions, token_types)  # every token is in the first segment
    recipes["encoder.positions.positions.table.weight"] = positions
    if kind.pre_norm:
        recipes |= linear("encoder.final_norm", f"{prefix}encoder.LayerNorm")
    else:
        recipes |= linear("encoder.input_norm", f"{prefix}embeddings.LayerNorm")
    return recipes | map_blocks("encoder", prefix + kind.layer, layers, kind.parts)


def _map_classifier(kind: _Kind) -> Recipes:
    hidden, output = kind.classifier
    return linear("transform.0", hidden) | linear("head", output)


def _map_masked(kind: _Kind, *, tied: bool, bias: str | None = None) -> Recipes:
    """`bias` is the name under which the bias of the output layer is read, if not its own."""
    layer, norm, own_bias = kind.head
    recipes = linear("transform.0", layer) | linear("transform.2", norm)
    recipes["output.bias"] = copy_twice(bias or own_bias, own_bias if bias else f"{kind.output}.bias")
    if not tied:
        recipes["output.weight"] = copy(f"{kind.output}.weight")
    return recipes
