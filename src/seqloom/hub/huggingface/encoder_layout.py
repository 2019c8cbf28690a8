"""Encoders of ours in BERT's layout or, with pre-norm, in that of XLM-RoBERTa-XL, with the head of their task."""

from typing import Any

from torch import Tensor

from seqloom.config.stacks import TransformerEncoderConfig
from seqloom.errors import RunError
from seqloom.hub.huggingface.bert import NAMES, map_classifier, map_encoder, map_masked, map_tagger
from seqloom.hub.huggingface.layout import Layout, check_plain, check_table, choose_rows, refuse, require, tabulate
from seqloom.hub.huggingface.settings import name_bend
from seqloom.hub.imported import Imported
from seqloom.tasks import ClassificationTask, MaskedLanguageModelTask, TaggingTask
from seqloom.tasks.bidirectional_language_model import FeaturedModel

_CLASSES = {"bert": "Bert", "xlm-roberta-xl": "XLMRobertaXL"}


def lay_out_encoder(model: Imported, ours: dict[str, Tensor]) -> Layout:
    """Embeddings, layers and the head of the task."""
    config, stack = model.config, model.config.model.encoder
    assert isinstance(config, MaskedLanguageModelTask | ClassificationTask | TaggingTask)
    check_plain(stack, "model.encoder", "models in BERT's layout")
    assert isinstance(stack, TransformerEncoderConfig)
    check_table(stack, "model.encoder", "models in BERT's layout")
    pre = stack.norm_position == "pre"
    kind, who = ("xlm-roberta-xl", "pre-norm models in BERT's layout") if pre else ("bert", "BERT and its like")
    require(stack, "model.encoder", who, input_norm=not pre)
    if isinstance(config.model, FeaturedModel) and config.model.features is not None:
        raise refuse("model.features", "…", "no layout has the features of another model")
    pad = model.tokenizer.roles.pad
    if pad is None:
        raise RunError("the tokeniser has no token for padding, which models in BERT's layout need")
    names, offset = NAMES[kind], pad + 1 if pre else 0
    rows, segments = choose_rows(config, stack), config.model.segments
    ours["encoder.positions.positions.table.weight"] = tabulate(model.network.get_submodule("encoder"), stack, rows)
    recipes = map_encoder(names, names.prefix, stack.num_layers, offset, segments=segments is not None, types=True)
    values: dict[str, Any] = {
        "model_type": kind,
        "hidden_size": stack.model_dim,
        "num_hidden_layers": stack.num_layers,
        "num_attention_heads": stack.num_heads,
        "intermediate_size": stack.hidden_dim or 4 * stack.model_dim,
        "hidden_act": name_bend(stack.activation),
        "layer_norm_eps": stack.norm_epsilon or 1e-5,
        "max_position_embeddings": rows + offset,
        "type_vocab_size": 1 if segments is None else segments.count,
        "hidden_dropout_prob": stack.dropout,
        "attention_probs_dropout_prob": stack.attention_dropout,
        "tie_word_embeddings": False,
    }
    match config:
        case TaggingTask():
            head = "ForTokenClassification"
            recipes |= map_tagger()
        case ClassificationTask():
            head = "ForSequenceClassification"
            require(config.model, "model", "classifiers in BERT's layout", pooling="first", head_activation="tanh")
            recipes |= map_classifier(names)
            values["problem_type"] = "regression" if len(model.labels) == 1 else "single_label_classification"
        case MaskedLanguageModelTask():
            head = "ForMaskedLM" if config.model.head else "Model"
            if config.model.head:
                bend = "gelu" if pre else stack.activation
                require(config.model, "model", who, head_activation=bend)
                values["tie_word_embeddings"] = config.model.tie_output and not config.model.scale_embeddings
                recipes |= map_masked(names, tied=values["tie_word_embeddings"])
                if not values["tie_word_embeddings"]:
                    ours.setdefault("output.weight", ours["embedding.weight"])
    if not isinstance(config, MaskedLanguageModelTask):
        names_of = model.labels if len(model.labels) > 1 else ("LABEL_0",)
        values["id2label"] = {str(number): label for number, label in enumerate(names_of)}
        values["label2id"] = {label: number for number, label in enumerate(names_of)}
    if config.model.scale_embeddings:
        ours["embedding.weight"] = ours["embedding.weight"] * stack.model_dim**0.5
    return Layout(f"{_CLASSES[kind]}{head}", values, recipes, longest=rows)
