"""A model of ours as a CTranslate2 folder: a specification of theirs, filled with our weights and vocabulary.

CTranslate2 (Klein et al. 2020) runs Transformers only. Encoder-decoders become a `Translator`, language models a
`Generator`, and the encoder of a masked language model an `Encoder`.
"""

from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor, nn

from seqloom.config.positions import Alibi, Relative, RotaryPositions
from seqloom.errors import import_extra
from seqloom.hub.bundle import Bundle, find_special_tokens
from seqloom.hub.fidelity import (
    Samples,
    Stack,
    compute,
    count_positions,
    draw_samples,
    measure_difference,
    pad_samples,
    refusal,
    require_transformer,
    resolve_stack,
    tabulate_positions,
)
from seqloom.models.language_models import MaskedLanguageModel
from seqloom.nn.embeddings import TokenEmbedding
from seqloom.nn.positions import RelativeBias
from seqloom.nn.transformer import TransformerBlock
from seqloom.tasks import LanguageModelTask, MaskedLanguageModelTask, TranslationTask
from seqloom.text import Tokenizer

Kind = Literal["Translator", "Generator", "Encoder"]
Numbers = Literal["float32", "int8"]
_ACTIVATIONS = {"relu": "RELU", "gelu": "GELU", "gelu-tanh": "GELUTanh", "silu": "SWISH", "tanh": "Tanh"}
_POSITIONS = ("none", "index", "one-hot", "sinusoidal", "learned", "rotary", "alibi", "relative")
_WHO = "models of CTranslate2"


def find_kind(model: Bundle) -> Kind:
    """Which class of CTranslate2 runs the model; options that none of them has are refused by name."""
    match model.config:
        case TranslationTask():
            encoder, decoder = _check(model, "encoder"), _check(model, "decoder")
            if decoder.num_kv_heads not in (None, decoder.num_heads):
                reason = f"{_WHO} have the same number in cross-attention"
                raise refusal("model.decoder.num_kv_heads", decoder.num_kv_heads, reason)
            if resolve_stack(encoder)["norm_epsilon"] != resolve_stack(decoder)["norm_epsilon"]:
                raise refusal("model.decoder.norm_epsilon", decoder.norm_epsilon, f"{_WHO} have one for all norms")
            return "Translator"
        case LanguageModelTask():
            if isinstance(_check(model, "decoder").positions, Relative):  # right for whole texts, wrong step by step
                raise refusal("model.decoder.positions", "relative", f"{_WHO} have them in encoder-decoders only")
            return "Generator"
        case MaskedLanguageModelTask(model=config):
            _check(model, "encoder")
            if config.segments is not None:
                raise refusal("model.segments", {"count": config.segments.count}, f"{_WHO} would need them as input")
            return "Encoder"
        case config:
            raise refusal("task", config.task, "CTranslate2 has no such head; try onnx")


def _check(model: Bundle, part: str) -> Stack:
    stack, where = require_transformer(model.config, part, _WHO, window=None), f"model.{part}"
    activation, positions = stack.activation.removesuffix("-gated"), stack.positions
    if activation not in _ACTIVATIONS:
        raise refusal(f"{where}.activation", activation, f"{_WHO} have {', '.join(_ACTIVATIONS)}")
    if positions.kind not in _POSITIONS or (positions.kind == "alibi" and part == "encoder"):
        raise refusal(f"{where}.positions", positions.kind, f"{_WHO} do not have them in an encoder")
    if isinstance(positions, RotaryPositions) and positions.stretched is not None:
        raise refusal(f"{where}.positions.stretched", positions.stretched.factor, f"{_WHO} scale them in other ways")
    return stack


def write_folder(model: Bundle, folder: Path) -> None:
    """Write the model in float32, its vocabulary, and our tokeniser."""
    kind, specs = find_kind(model), import_extra("ctranslate2", "export").specs
    network: Any = model.network
    sections = model.config.model
    match kind:
        case "Translator":
            embedding, stack = network.target_embedding, sections.decoder
            encoder = _fill_stack(specs, model, "encoder", network.source_embedding)
            spec = specs.TransformerSpec(encoder, _fill_stack(specs, model, "decoder", embedding))
        case "Generator":
            embedding, stack = network.embedding, sections.decoder
            spec = specs.TransformerDecoderModelSpec(_fill_stack(specs, model, "decoder", embedding))
        case "Encoder":
            embedding, stack = network.embedding, sections.encoder
            spec = specs.TransformerEncoderModelSpec(_fill_stack(specs, model, "encoder", embedding))
    tokenizer = model.tokenizer.target
    names, roles = name_tokens(tokenizer, len(embedding.weight)), tokenizer.roles
    tokens = find_special_tokens(model)
    if kind == "Translator":
        spec.register_source_vocabulary(name_tokens(model.tokenizer, len(network.source_embedding.weight)))
        spec.register_target_vocabulary(names)
        spec.config.decoder_start_token = names[tokens.start[0]] if tokens.start else None
    else:
        spec.register_vocabulary(names)
    end = roles.eos if tokens.end is None else tokens.end
    for key, id in {"unk_token": roles.unk, "bos_token": roles.bos, "eos_token": end}.items():
        if id is not None:
            setattr(spec.config, key, names[id])
    spec.config.layer_norm_epsilon = resolve_stack(stack)["norm_epsilon"]
    spec.validate()
    spec.optimize()
    spec.save(str(folder))
    model.tokenizer.save(folder / "tokenizer.json")


def describe_ends(model: Bundle) -> str | None:
    """What a user has to do where several tokens end an answer, of which a folder names one; None elsewhere."""
    tokens = find_special_tokens(model)
    if not tokens.more_ends:
        return None
    end = () if tokens.end is None else (tokens.end,)
    names = [model.tokenizer.target.token(id) for id in (*end, *tokens.more_ends)]
    return (
        f"a CTranslate2 folder names one token that ends an answer, and this model has {len(names)}: "
        f"pass end_token={names} to its generate_batch or translate_batch"
    )


def name_tokens(tokenizer: Tokenizer, rows: int) -> list[str]:
    """A name for each row of the embedding: its token, or a made-up name if it has none or another row has it."""
    known = [tokenizer.token(id) for id in range(tokenizer.vocab_size)]
    seen: set[str] = set()
    names = []
    for id in range(rows):
        name = known[id] if id < len(known) else ""
        name = name if name and name not in seen else f"<row {id}>"
        seen.add(name)
        names.append(name)
    return names


def _describe(specs: Any, config: Stack) -> dict[str, Any]:
    """The options of one of their stacks."""
    resolved = resolve_stack(config)
    values: dict[str, Any] = {
        "num_layers": config.num_layers,
        "num_heads": config.num_heads,
        "pre_norm": config.norm_position == "pre",
        "activation": getattr(specs.common_spec.Activation, _ACTIVATIONS[config.activation.removesuffix("-gated")]),
        "layernorm_embedding": config.input_norm,
        "relative_attention_bias": isinstance(config.positions, Relative),
        "ffn_glu": config.activation.endswith("-gated"),
        "rms_norm": config.norm == "rms",
        "num_heads_kv": resolved["num_kv_heads"],
        "head_dim": resolved["head_dim"],
    }
    if isinstance(config.positions, RotaryPositions):
        rotary = {"rotary_dim": resolved["head_dim"], "rotary_interleave": False}
        values |= rotary | {"rotary_base": config.positions.base}
    return values


def _fill_stack(specs: Any, model: Bundle, part: Literal["encoder", "decoder"], embedding: TokenEmbedding) -> Any:
    network: Any = model.network
    stack, config = getattr(network, part), getattr(model.config.model, part)
    options, weight = _describe(specs, config), _convert(embedding.weight)
    if part == "encoder":
        spec = specs.TransformerEncoderSpec(**options)
        spec.embeddings[0].weight = weight
    else:
        options |= {"with_encoder_attention": stack.has_source, "alibi": isinstance(config.positions, Alibi)}
        spec = specs.TransformerDecoderSpec(**options)
        spec.embeddings.weight = weight
        spec.projection.weight, spec.projection.bias = _convert(network.output.weight), _convert(network.output.bias)
    spec.scale_embeddings = embedding.factor != 1.0
    if not isinstance(config.positions, RotaryPositions | Alibi | Relative):
        spec.position_encodings.encodings = tabulate_positions(stack, config, count_positions(model, config))
    if config.input_norm:
        _fill(spec.layernorm_embedding, stack.input_norm)
    if config.norm_position == "pre":
        _fill(spec.layer_norm, stack.final_norm)
    for layer, block in zip(spec.layer, stack.blocks, strict=True):
        _fill_block(layer, block, config)
    return spec


def _fill_block(spec: Any, block: TransformerBlock, config: Stack) -> None:
    own, cross, feedforward = block.attention, block.cross, block.feedforward
    _fill(spec.self_attention.layer_norm, block.attention_residual.norm)
    for linear, module in zip(spec.self_attention.linear, (own.in_projection, own.out_projection), strict=True):
        _fill(linear, module)
    if isinstance(own.relative, RelativeBias) and isinstance(config.positions, Relative):
        spec.self_attention.relative_attention_bias = _convert(own.relative.table.weight)
        spec.self_attention.relative_attention_max_distance = np.int32(config.positions.distance)
    if cross is not None and block.cross_residual is not None:
        _fill(spec.attention.layer_norm, block.cross_residual.norm)
        modules = (cross.query_projection, cross.memory_projection, cross.out_projection)
        for linear, module in zip(spec.attention.linear, modules, strict=True):
            _fill(linear, module)
    assert feedforward is not None
    assert block.feedforward_residual is not None
    _fill(spec.ffn.layer_norm, block.feedforward_residual.norm)
    if config.activation.endswith("-gated"):
        expand = feedforward.expand
        for name, tensor in (("weight", expand.weight), ("bias", expand.bias)):
            if tensor is not None:
                for linear, part in zip((spec.ffn.linear_0, spec.ffn.linear_0_noact), tensor.chunk(2), strict=True):
                    setattr(linear, name, _convert(part))
    else:
        _fill(spec.ffn.linear_0, feedforward.expand)
    _fill(spec.ffn.linear_1, feedforward.contract)


def _fill(spec: Any, module: nn.Module) -> None:
    match module:
        case nn.Linear():
            spec.weight = _convert(module.weight)
            if module.bias is not None:
                spec.bias = _convert(module.bias)
        case nn.LayerNorm():
            spec.gamma, spec.beta = _convert(module.weight), _convert(module.bias)
        case nn.RMSNorm():
            spec.gamma = _convert(module.weight)
        case _:
            raise AssertionError(type(module).__name__)


def _convert(tensor: Tensor) -> Tensor:
    return tensor.detach().float().contiguous()


def open_folder(folder: Path, kind: Kind, workers: int, numbers: Numbers = "float32") -> Any:
    """Open a folder on this machine's processor, with weights in float32 or in eight bits each.

    Each worker computes on one core, since the threads of one product wait for each other: in int8, two threads of one
    worker are slower than one.
    """
    opener = getattr(import_extra("ctranslate2", "export"), kind)
    return opener(str(folder), device="cpu", compute_type=numbers, inter_threads=workers, intra_threads=1)


@torch.inference_mode()
def check_folder(model: Bundle, folder: Path) -> float:
    """Run the folder; returns the largest difference of log-probabilities of targets, of scores, or of states."""
    kind = find_kind(model)
    samples = draw_samples(model, model.config.max_length)
    theirs = open_folder(folder, kind, 1)
    expected, real = compute(model, samples)
    match kind:
        case "Translator":
            return _check_translator(model, theirs, samples, expected)
        case "Generator":
            found = np.array(theirs.forward_batch([row for row in samples.rows if row]))
            return measure_difference(expected, torch.from_numpy(found), real)
        case "Encoder":
            assert isinstance(model.network, MaskedLanguageModel)
            batch = pad_samples(samples.rows, model.tokenizer.roles.pad)
            found = np.array(theirs.forward_batch(samples.rows).last_hidden_state)
            return measure_difference(model.network.encode(batch).states, torch.from_numpy(found), batch.mask)


def _check_translator(model: Bundle, theirs: Any, samples: Samples, expected: Tensor) -> float:
    """Compare log P of each target token, the end included, given the sources."""
    network: Any = model.network
    read = name_tokens(model.tokenizer, len(network.source_embedding.weight))
    written = name_tokens(model.tokenizer.target, expected.shape[-1])
    end = find_special_tokens(model).end
    targets = [row[1:] for row in samples.targets]
    pairs = [[[names[id] for id in row] for row in rows] for names, rows in ((read, samples.rows), (written, targets))]
    largest = 0.0
    for number, score in enumerate(theirs.score_batch(*pairs)):
        wanted = torch.tensor([*targets[number], end])
        own = expected[number, : len(wanted)].log_softmax(-1).gather(1, wanted[:, None])[:, 0]
        found = torch.tensor(score.log_probs)
        largest = max(largest, measure_difference(own, found, torch.ones_like(wanted, dtype=torch.bool)))
    return largest
