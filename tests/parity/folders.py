"""Folders as they are published: a tiny model of each type that docs/importing.md names, with its own tokeniser."""

import io
import json
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import tokenizers
import torch
from tokenizers import pre_tokenizers, trainers

from parity.published import randomise, transformers

TEXTS = ("The cat sat on the mat.", "a dog, unbelievable!", "seven houses near the river")
CORPUS = [
    f"{a} {b} sat {c} the {d}, {n} times." for a in ("The", "a") for b in ("cat", "dog") for c in ("on", "near")
    for d in ("mat", "river", "unbelievable house") for n in ("two", "seven", "42")
]  # fmt: skip
SPECIAL = ("<s>", "<pad>", "</s>", "<unk>", "<mask>")
BERT_SPECIAL = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
ENCODERS = ("bert", "roberta", "xlm-roberta", "camembert", "distilbert", "xlm-roberta-xl")
DECODERS = ("gpt2", "gpt_neox", "llama", "mistral", "qwen2")
TRANSLATORS = ("marian", "bart", "pegasus", "mbart", "t5", "mt5")
_CLASSES = {
    "bert": "Bert",
    "roberta": "Roberta",
    "xlm-roberta": "XLMRoberta",
    "camembert": "Camembert",
    "distilbert": "DistilBert",
    "xlm-roberta-xl": "XLMRobertaXL",
    "gpt2": "GPT2",
    "gpt_neox": "GPTNeoX",
    "llama": "Llama",
    "mistral": "Mistral",
    "qwen2": "Qwen2",
    "marian": "Marian",
    "bart": "Bart",
    "pegasus": "Pegasus",
    "mbart": "MBart",
    "t5": "T5",
    "mt5": "MT5",
}
_HEADS = {"gpt2": "LMHeadModel", "marian": "MTModel"}


@cache
def _train_bytes() -> tuple[dict[str, int], list[tuple[str, str]]]:
    """The vocabulary of byte-level BPE without special tokens, and its merges."""
    made = tokenizers.Tokenizer(tokenizers.models.BPE())
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    made.train_from_iterator(
        CORPUS, trainers.BpeTrainer(vocab_size=320, initial_alphabet=alphabet, show_progress=False)
    )
    model = json.loads(made.to_str())["model"]
    return model["vocab"], [tuple(pair) for pair in model["merges"]]


@cache
def train_pieces(kind: str = "unigram", size: int = 40, **options: bool) -> bytes:
    """A SentencePiece model, with <unk>, <s>, </s> first."""
    sentencepiece = pytest.importorskip("sentencepiece")
    written = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(CORPUS),
        model_writer=written,
        model_type=kind,
        vocab_size=size,
        minloglevel=2,
        **options,
    )
    return written.getvalue()


@cache
def _list_pieces() -> list[tuple[str, float]]:
    sentencepiece = pytest.importorskip("sentencepiece")
    model = sentencepiece.SentencePieceProcessor(model_proto=train_pieces())
    return [(model.id_to_piece(id), model.get_score(id)) for id in range(3, model.vocab_size())]


def _make_bytes(name: str, special: tuple[str, ...] = ("<|endoftext|>",), **more: Any) -> Any:
    vocab, merges = _train_bytes()
    whole = {token: id for id, token in enumerate((*special, *vocab))}
    return getattr(transformers, name)(vocab=whole, merges=list(merges), **more)


def _make_pieces(name: str, special: tuple[str, ...], **more: Any) -> Any:
    vocab = [*((token, 0.0) for token in special), *_list_pieces()]
    return getattr(transformers, name)(vocab=vocab, **more)


def _make_words(name: str) -> Any:
    trained = tokenizers.BertWordPieceTokenizer(lowercase=True)
    trained.train_from_iterator(CORPUS, vocab_size=90, show_progress=False)
    words = [token for token in trained.get_vocab() if token not in BERT_SPECIAL]
    return getattr(transformers, name)(vocab={token: id for id, token in enumerate((*BERT_SPECIAL, *sorted(words)))})


def _make_marian(folder: Path) -> Any:
    for side in ("source", "target"):
        (folder / f"{side}.spm").write_bytes(train_pieces())
    names = ["</s>", "<unk>", *(piece for piece, _ in _list_pieces()), "<pad>"]
    (folder / "vocab.json").write_text(json.dumps({name: id for id, name in enumerate(names)}))
    return transformers.MarianTokenizer(
        source_spm=str(folder / "source.spm"), target_spm=str(folder / "target.spm"), vocab=str(folder / "vocab.json")
    )


def _make_bert_like(name: str) -> Callable[[Path], Any]:
    return lambda _: _make_pieces(name, ("<s>", "<pad>", "</s>", "<unk>", "<mask>"))


_TOKENIZERS: dict[str, Callable[[Path], Any]] = {
    "bert": lambda _: _make_words("BertTokenizer"),
    "distilbert": lambda _: _make_words("DistilBertTokenizer"),
    "roberta": lambda _: _make_bytes("RobertaTokenizer", SPECIAL),
    "xlm-roberta": _make_bert_like("XLMRobertaTokenizer"),
    "xlm-roberta-xl": _make_bert_like("XLMRobertaTokenizer"),
    "camembert": _make_bert_like("CamembertTokenizer"),
    "gpt2": lambda _: _make_bytes("GPT2Tokenizer"),
    "gpt_neox": lambda _: _make_bytes("GPTNeoXTokenizer"),
    "qwen2": lambda _: _make_bytes("Qwen2Tokenizer"),
    "llama": lambda _: _make_bytes("LlamaTokenizer", SPECIAL, add_bos_token=True),
    "mistral": lambda _: _make_bytes("LlamaTokenizer", SPECIAL, add_bos_token=True),
    "marian": _make_marian,
    "bart": lambda _: _make_bytes("BartTokenizer", SPECIAL),
    "pegasus": lambda _: _make_pieces("PegasusTokenizer", ("<pad>", "</s>", "<unk>", "<mask_2>"), offset=4),
    "mbart": lambda _: _make_pieces("XLMRobertaTokenizer", SPECIAL),
    "t5": lambda _: _make_pieces("T5Tokenizer", ("<pad>", "</s>", "<unk>"), extra_ids=2),
    "mt5": lambda _: _make_pieces("T5Tokenizer", ("<pad>", "</s>", "<unk>"), extra_ids=2),
}


def _list_sizes(kind: str) -> dict[str, Any]:
    if kind == "distilbert":
        return {"dim": 12, "n_layers": 2, "n_heads": 3, "hidden_dim": 20, "max_position_embeddings": 40}
    if kind == "gpt2":
        return {"n_embd": 12, "n_layer": 2, "n_head": 3, "n_positions": 60}
    if kind in ("t5", "mt5"):
        return {"d_model": 16, "d_kv": 6, "d_ff": 20, "num_layers": 2, "num_heads": 3, "decoder_start_token_id": 0}
    if kind in TRANSLATORS:
        layers = {"encoder_layers": 2, "decoder_layers": 2, "encoder_attention_heads": 2, "decoder_attention_heads": 4}
        widths = {"d_model": 16, "encoder_ffn_dim": 20, "decoder_ffn_dim": 20, "max_position_embeddings": 60}
        return {**layers, **widths, "forced_eos_token_id": None}
    sizes = {"hidden_size": 12, "num_hidden_layers": 2, "num_attention_heads": 3, "intermediate_size": 20}
    if kind == "gpt_neox":
        rotary = {"rope_theta": 10_000.0, "partial_rotary_factor": 1.0}
        sizes |= {
            "hidden_size": 16,
            "num_attention_heads": 4,
            "use_parallel_residual": False,
            "rope_parameters": rotary,
        }
    elif kind in DECODERS:
        sizes |= {"hidden_size": 16, "num_attention_heads": 4, "num_key_value_heads": 2}
    return {**sizes, "max_position_embeddings": 60}


def make_folder(folder: Path, kind: str, head: str = "", **flags: Any) -> tuple[Any, Any]:
    """A model and its tokeniser, both saved by `transformers`; `head` is the end of the name of the class."""
    tokenizer = _TOKENIZERS[kind](folder)
    ids = {f"{role}_token_id": getattr(tokenizer, f"{role}_token_id") for role in ("bos", "eos", "pad")}
    ids = {key: id for key, id in ids.items() if id is not None}
    if kind in TRANSLATORS and kind not in ("t5", "mt5"):
        start = {"marian": "pad", "pegasus": "pad"}.get(kind, "eos")
        ids["decoder_start_token_id"] = ids[f"{start}_token_id"]
    default = {**dict.fromkeys(ENCODERS, "ForMaskedLM"), **dict.fromkeys(TRANSLATORS, "ForConditionalGeneration")}
    head = head or _HEADS.get(kind, default.get(kind, "ForCausalLM"))
    name = _CLASSES[kind]
    values = {"vocab_size": len(tokenizer), **_list_sizes(kind), **ids, **flags}
    torch.manual_seed(3)
    model = getattr(transformers, name + head)(getattr(transformers, name + "Config")(**values))
    randomise(model)
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return model, transformers.AutoTokenizer.from_pretrained(folder, local_files_only=True)
