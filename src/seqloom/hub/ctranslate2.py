"""A model of ours as a CTranslate2 folder: its specification filled with our weights, vocabulary included.

CTranslate2 (Klein et al. 2020) runs Transformers alone. Encoders beside decoders become a `Translator`, language models
a `Generator`; of a masked language model, the states of its encoder, an `Encoder`.
"""

from importlib import import_module
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor, nn

from seqloom.config.positions import Alibi, Relative, RotaryPositions
from seqloom.config.stacks import DecoderConfig, EncoderConfig, TransformerDecoderConfig, TransformerEncoderConfig
from seqloom.decoders.transformer import TransformerDecoder
from seqloom.encoders.transformer import TransformerEncoder
from seqloom.errors import RunError
from seqloom.hub.framing import find_framing
from seqloom.hub.huggingface.layout import Stack, choose_rows, find_row_length, refuse, require, tabulate
from seqloom.hub.imported import Imported
from seqloom.hub.samples import Samples, compute, draw_samples, measure_difference, pad_samples
from seqloom.models.language_models import LanguageModel, MaskedLanguageModel
from seqloom.models.seq2seq import Seq2Seq
from seqloom.nn.embeddings import OutputLayer, TokenEmbedding
from seqloom.nn.feedforward import FeedForward
from seqloom.nn.multihead import SelfAttention
from seqloom.nn.positions import RelativeBias
from seqloom.nn.transformer import TransformerBlock
from seqloom.tasks import LanguageModelTask, MaskedLanguageModelTask, TranslationTask

Kind = Literal["Translator", "Generator", "Encoder"]
Numbers = Literal["float32", "int8"]
_ACTIVATIONS = {"relu": "RELU", "gelu": "GELU", "gelu-tanh": "GELUTanh", "silu": "SWISH", "tanh": "Tanh"}
_POSITIONS = ("none", "index", "one-hot", "sinusoidal", "learned", "rotary", "alibi", "relative")
_WHO = "models of CTranslate2"


def import_ctranslate2() -> Any:
    """The library."""
    try:
        return import_module("ctranslate2")
    except ImportError:
        raise RunError("CTranslate2 is not installed; pip install 'seqloom[export]'") from None


def find_kind(model: Imported) -> Kind:
    """Which of its models it becomes; refused by the option that none has."""
    match model.config:
        case TranslationTask(model=config):
            _check(config.encoder, "model.encoder")
            _check(config.decoder, "model.decoder")
            assert isinstance(config.encoder, Stack)
            assert isinstance(config.decoder, Stack)
            if config.decoder.num_kv_heads not in (None, config.decoder.num_heads):
                raise refuse(
                    "model.decoder.num_kv_heads", config.decoder.num_kv_heads, f"{_WHO} share it with the source's"
                )
            if _find_epsilon(config.encoder) != _find_epsilon(config.decoder):
                raise refuse(
                    "model.decoder.norm_epsilon", config.decoder.norm_epsilon, f"{_WHO} have one for all norms"
                )
            return "Translator"
        case LanguageModelTask(model=config):
            _check(config.decoder, "model.decoder")
            if isinstance(getattr(config.decoder, "positions", None), Relative):  # right as a whole, wrong step by step
                raise refuse("model.decoder.positions", "relative", f"{_WHO} have them beside a source only")
            return "Generator"
        case MaskedLanguageModelTask(model=config):
            _check(config.encoder, "model.encoder")
            if config.segments is not None:
                raise refuse("model.segments", {"count": config.segments.count}, "it would have to be told the parts")
            return "Encoder"
        case config:
            raise refuse("task", config.task, "CTranslate2 has no such head; try --to onnx")


def _check(stack: EncoderConfig | DecoderConfig, where: str) -> None:
    require(stack, where, _WHO, family="transformer", direction="both")
    assert isinstance(stack, Stack)
    require(stack, where, _WHO, window=None, normalise_qk=False)
    activation = stack.activation.removesuffix("-gated")
    if activation not in _ACTIVATIONS:
        raise refuse(f"{where}.activation", activation, f"{_WHO} have {', '.join(_ACTIVATIONS)}")
    positions = stack.positions
    encoder = isinstance(stack, TransformerEncoderConfig)
    if positions.kind not in _POSITIONS or (positions.kind == "alibi" and encoder):
        raise refuse(f"{where}.positions", positions.kind, f"{_WHO} have none such in an encoder")
    if isinstance(positions, RotaryPositions) and positions.stretched is not None:
        raise refuse(f"{where}.positions.stretched", positions.stretched.factor, f"{_WHO} stretch in other ways")
    if getattr(positions, "combine", "sum") != "sum":
        raise refuse(f"{where}.positions.combine", "concat", f"{_WHO} add positions")


def write_folder(model: Imported, folder: Path) -> None:
    """The model in float32, its vocabulary, and our tokeniser."""
    kind, specs = find_kind(model), import_ctranslate2().specs
    stack: Any
    network = model.network
    match network:
        case Seq2Seq():
            encoder = _fill_encoder(specs, model, network.encoder, network.source_embedding)
            decoder = _fill_decoder(specs, model, network.decoder, network.target_embedding, network.output)
            spec = specs.TransformerSpec(encoder, decoder)
            rows, stack = len(network.target_embedding.weight), model.config.model.decoder
        case LanguageModel():
            decoder = _fill_decoder(specs, model, network.decoder, network.embedding, network.output)
            spec = specs.TransformerDecoderModelSpec(decoder)
            rows, stack = len(network.embedding.weight), model.config.model.decoder
        case MaskedLanguageModel():
            spec = specs.TransformerEncoderModelSpec(_fill_encoder(specs, model, network.encoder, network.embedding))
            rows, stack = len(network.embedding.weight), model.config.model.encoder
        case _:
            raise AssertionError(kind)
    tokens, roles = name_tokens(model, rows), model.tokenizer.roles
    framing = find_framing(model.config, model.tokenizer)
    if kind == "Translator":
        spec.register_source_vocabulary(tokens)
        spec.register_target_vocabulary(tokens)
        spec.config.decoder_start_token = tokens[framing.start[0]] if framing.start else None
    else:
        spec.register_vocabulary(tokens)
    said = {
        "unk_token": roles.unk,
        "bos_token": roles.bos,
        "eos_token": roles.eos if framing.end is None else framing.end,
    }
    for key, id in said.items():
        if id is not None:
            setattr(spec.config, key, tokens[id])
    spec.config.layer_norm_epsilon = _find_epsilon(stack)
    spec.validate()
    spec.optimize()
    spec.save(str(folder))
    model.tokenizer.save(folder / "tokenizer.json")


def name_tokens(model: Imported, rows: int) -> list[str]:
    """A name for each row of the table: that of its token, or one of its own where there is none or it is taken."""
    known = [model.tokenizer.token(id) for id in range(model.tokenizer.vocab_size)]
    seen: set[str] = set()
    names = []
    for id in range(rows):
        name = known[id] if id < len(known) else ""
        name = name if name and name not in seen else f"<row {id}>"
        seen.add(name)
        names.append(name)
    return names


def _find_epsilon(stack: Stack) -> float:
    return stack.norm_epsilon or {"layer": 1e-5, "rms": 1e-6}[stack.norm]


def _describe(specs: Any, config: Stack) -> dict[str, Any]:
    """What a stack of theirs is told before it is filled."""
    head_dim = config.head_dim or config.model_dim // config.num_heads
    values: dict[str, Any] = {
        "num_layers": config.num_layers,
        "num_heads": config.num_heads,
        "pre_norm": config.norm_position == "pre",
        "activation": getattr(specs.common_spec.Activation, _ACTIVATIONS[config.activation.removesuffix("-gated")]),
        "layernorm_embedding": config.input_norm,
        "relative_attention_bias": isinstance(config.positions, Relative),
        "ffn_glu": config.activation.endswith("-gated"),
        "rms_norm": config.norm == "rms",
        "num_heads_kv": config.num_kv_heads or config.num_heads,
        "head_dim": head_dim,
    }
    if isinstance(config.positions, RotaryPositions):
        values |= {"rotary_dim": head_dim, "rotary_interleave": False, "rotary_base": config.positions.base}
    return values


def _fill_encoder(specs: Any, model: Imported, encoder: nn.Module, embedding: TokenEmbedding) -> Any:
    config = model.config.model.encoder
    assert isinstance(config, TransformerEncoderConfig)
    assert isinstance(encoder, TransformerEncoder)
    spec = specs.TransformerEncoderSpec(**_describe(specs, config))
    spec.embeddings[0].weight = _give(embedding.weight)
    _fill_stack(spec, model, encoder, config, embedding)
    return spec


def _fill_decoder(
    specs: Any, model: Imported, decoder: nn.Module, embedding: TokenEmbedding, output: OutputLayer
) -> Any:
    config = model.config.model.decoder
    assert isinstance(config, TransformerDecoderConfig)
    assert isinstance(decoder, TransformerDecoder)
    given = _describe(specs, config)
    spec = specs.TransformerDecoderSpec(
        **given, with_encoder_attention=decoder.has_source, alibi=isinstance(config.positions, Alibi)
    )
    spec.embeddings.weight = _give(embedding.weight)
    spec.projection.weight, spec.projection.bias = _give(output.weight), _give(output.bias)
    _fill_stack(spec, model, decoder, config, embedding)
    return spec


def _fill_stack(
    spec: Any, model: Imported, stack: TransformerEncoder | TransformerDecoder, config: Stack, embedding: TokenEmbedding
) -> None:
    spec.scale_embeddings = embedding.factor != 1.0
    if not isinstance(config.positions, RotaryPositions | Alibi | Relative):
        spec.position_encodings.encodings = tabulate(stack, config, choose_rows(model.config, config))
    if config.input_norm:
        _fill(spec.layernorm_embedding, stack.input_norm)
    if config.norm_position == "pre":
        _fill(spec.layer_norm, stack.final_norm)
    for layer, block in zip(spec.layer, stack.blocks, strict=True):
        _fill_block(layer, block, config)


def _fill_block(spec: Any, block: TransformerBlock, config: Stack) -> None:
    own: SelfAttention = block.attention
    _fill(spec.self_attention.layer_norm, block.attention_residual.norm)
    for linear, module in zip(spec.self_attention.linear, (own.in_projection, own.out_projection), strict=True):
        _fill(linear, module)
    if isinstance(own.relative, RelativeBias) and isinstance(config.positions, Relative):
        spec.self_attention.relative_attention_bias = _give(own.relative.table.weight)
        distance = torch.tensor(config.positions.distance, dtype=torch.int32).numpy()[()]
        spec.self_attention.relative_attention_max_distance = distance
    if block.cross is not None and block.cross_residual is not None:
        _fill(spec.attention.layer_norm, block.cross_residual.norm)
        modules = (block.cross.query_projection, block.cross.memory_projection, block.cross.out_projection)
        for linear, module in zip(spec.attention.linear, modules, strict=True):
            _fill(linear, module)
    _fill(spec.ffn.layer_norm, block.feedforward_residual.norm)
    network: FeedForward = block.feedforward
    if config.activation.endswith("-gated"):
        parts = (
            network.expand.weight.chunk(2),
            network.expand.bias.chunk(2) if network.expand.bias is not None else None,
        )
        for number, linear in enumerate((spec.ffn.linear_0, spec.ffn.linear_0_noact)):
            linear.weight = _give(parts[0][number])
            if parts[1] is not None:
                linear.bias = _give(parts[1][number])
    else:
        _fill(spec.ffn.linear_0, network.expand)
    _fill(spec.ffn.linear_1, network.contract)


def _fill(spec: Any, module: nn.Module) -> None:
    match module:
        case nn.Linear():
            spec.weight = _give(module.weight)
            if module.bias is not None:
                spec.bias = _give(module.bias)
        case nn.LayerNorm():
            spec.gamma, spec.beta = _give(module.weight), _give(module.bias)
        case nn.RMSNorm():
            spec.gamma = _give(module.weight)
        case _:
            raise AssertionError(type(module).__name__)


def _give(tensor: Tensor) -> Tensor:
    return tensor.detach().float().contiguous()


def open_folder(folder: Path, kind: Kind, threads: int, numbers: Numbers = "float32") -> Any:
    """The model on this machine's processor, its weights as they are or in eight bits each."""
    opener = getattr(import_ctranslate2(), kind)
    return opener(str(folder), device="cpu", compute_type=numbers, inter_threads=1, intra_threads=threads)


def write_checked(model: Imported, folder: Path) -> float:
    """Write it, run it, and say the largest difference."""
    write_folder(model, folder)
    return check_folder(model, folder)


@torch.inference_mode()
def check_folder(model: Imported, folder: Path) -> float:
    """Run it, and say the largest difference: of log-probabilities of targets, of scores, or of states."""
    kind = find_kind(model)
    samples = draw_samples(model, find_row_length(model.config))
    theirs = open_folder(folder, kind, 1)
    expected, real = compute(model, samples)
    match kind:
        case "Translator":
            return _check_translator(model, theirs, samples, expected)
        case "Generator":
            rows = [row for row in samples.rows if row]
            found = torch.as_tensor(_read(theirs.forward_batch(rows)))
            return measure_difference(expected, found, real)
        case "Encoder":
            assert isinstance(model.network, MaskedLanguageModel)
            batch = pad_samples(samples.rows, model.tokenizer.roles.pad)
            states = model.network.encode(batch).states
            found = torch.as_tensor(_read(theirs.forward_batch(samples.rows).last_hidden_state))
            return measure_difference(states, found, batch.mask)


def _check_translator(model: Imported, theirs: Any, samples: Samples, expected: Tensor) -> float:
    """Given a source and a target, log P of each token of the target, and of its end."""
    names = name_tokens(model, expected.shape[-1])
    framing = find_framing(model.config, model.tokenizer)
    targets = [row[1:] for row in samples.targets]
    spelled = [[names[id] for id in row] for row in samples.rows], [[names[id] for id in row] for row in targets]
    largest = 0.0
    for number, score in enumerate(theirs.score_batch(*spelled)):
        wanted = torch.tensor([*targets[number], framing.end])
        own = expected[number, : len(wanted)].log_softmax(-1).gather(1, wanted[:, None])[:, 0]
        found = torch.tensor(score.log_probs)
        largest = max(largest, measure_difference(own, found, torch.ones_like(wanted, dtype=torch.bool)))
    return largest


def _read(values: Any) -> Any:
    """Their array as one of numpy's."""
    return import_module("numpy").array(values)
