"""GPT-2, GPT-NeoX and the LLaMA family as `transformers` computes them, and as it continues a text."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from parity.published import (
    CLOSE,
    MIN_WIDTH,
    SENTENCE_TOKENS,
    assert_greedy,
    assert_same_attention,
    publish,
    random_batch,
    transformers,
    write_tokenizer,
)
from seqloom.errors import DataError
from seqloom.hub.load import load_published
from seqloom.types import TokenBatch

LENGTHS = (9, 1, 5)
ROLES = {"bos": "<s>", "eos": "</s>", "pad": "<pad>"}
TOKENS = {"bos_token_id": 0, "pad_token_id": 1, "eos_token_id": 2}


@st.composite
def gpt2(draw: st.DrawFn) -> Any:
    heads = draw(st.integers(1, 4))
    config = transformers.GPT2Config(
        vocab_size=draw(st.integers(8, 40)),
        n_embd=heads * draw(st.integers(MIN_WIDTH // heads + 1, 9)),
        n_layer=draw(st.integers(1, 3)),
        n_head=heads,
        n_inner=draw(st.none() | st.integers(1, 30)),
        n_positions=draw(st.integers(20, 40)),
        activation_function=draw(st.sampled_from(("gelu_new", "relu", "silu", "gelu", "tanh"))),
        layer_norm_epsilon=draw(st.sampled_from((1e-5, 1e-3))),
        scale_attn_weights=draw(st.booleans()),
        scale_attn_by_inverse_layer_idx=draw(st.booleans()),
        tie_word_embeddings=draw(st.booleans()),
        **TOKENS,
    )
    return transformers.GPT2LMHeadModel(config)


stretches = st.just({"rope_type": "default"}) | st.fixed_dictionaries(
    {"rope_type": st.just("linear"), "factor": st.sampled_from((2.0, 7.5))}
)
stretches |= st.fixed_dictionaries(
    {
        "rope_type": st.just("llama3"),
        "factor": st.sampled_from((2.0, 8.0)),
        "low_freq_factor": st.sampled_from((0.5, 1.0)),
        "high_freq_factor": st.sampled_from((2.0, 4.0)),
        "original_max_position_embeddings": st.integers(4, 200),
    }
)


@st.composite
def llama(draw: st.DrawFn, kind: str = "Llama") -> Any:
    groups, shared = draw(st.integers(1, 3)), draw(st.integers(1, 3))
    heads = groups * shared
    head_dim = 2 * draw(st.integers(MIN_WIDTH // heads // 2 + 1, 6))
    own = draw(st.booleans())
    more: dict[str, Any] = {}
    match kind:
        case "Llama":
            more = {"attention_bias": draw(st.booleans()), "mlp_bias": draw(st.booleans())}
        case "Mistral":
            more = {"sliding_window": draw(st.none() | st.integers(1, 8))}
    if own and kind != "Qwen2":
        more["head_dim"] = head_dim
    config = getattr(transformers, kind + "Config")(
        vocab_size=draw(st.integers(8, 40)),
        hidden_size=heads * (draw(st.integers(MIN_WIDTH // heads + 1, 9)) if "head_dim" in more else head_dim),
        num_hidden_layers=draw(st.integers(1, 3)),
        num_attention_heads=heads,
        num_key_value_heads=groups,
        intermediate_size=draw(st.integers(1, 21)),
        hidden_act=draw(st.sampled_from(("silu", "gelu", "relu", "gelu_pytorch_tanh"))),
        rms_norm_eps=draw(st.sampled_from((1e-6, 1e-3))),
        rope_parameters={"rope_theta": draw(st.sampled_from((100.0, 10_000.0, 5e5)))} | draw(stretches),
        tie_word_embeddings=draw(st.booleans()),
        **TOKENS,
        **more,
    )
    return getattr(transformers, kind + "ForCausalLM")(config)


@st.composite
def neox(draw: st.DrawFn) -> Any:
    heads = draw(st.integers(1, 4))
    config = transformers.GPTNeoXConfig(
        vocab_size=draw(st.integers(8, 40)),
        hidden_size=2 * heads * draw(st.integers(MIN_WIDTH // heads // 2 + 1, 6)),
        num_hidden_layers=draw(st.integers(1, 3)),
        num_attention_heads=heads,
        intermediate_size=draw(st.integers(1, 30)),
        hidden_act=draw(st.sampled_from(("gelu", "relu", "silu"))),
        layer_norm_eps=draw(st.sampled_from((1e-5, 1e-3))),
        rope_parameters={"rope_theta": 100.0, "partial_rotary_factor": 1.0} | draw(stretches),
        attention_bias=draw(st.booleans()),
        use_parallel_residual=False,
        tie_word_embeddings=draw(st.booleans()),
        **TOKENS,
    )
    return transformers.GPTNeoXForCausalLM(config)


FAMILIES = {"gpt2": gpt2(), "neox": neox(), "llama": llama(), "mistral": llama("Mistral"), "qwen2": llama("Qwen2")}


@pytest.mark.parametrize("family", FAMILIES)
@settings(max_examples=15)
@given(data=st.data())
@torch.no_grad()
def test_language_model(family: str, data: st.DataObject) -> None:
    torch.manual_seed(0)
    model = data.draw(FAMILIES[family])
    found = publish(model, SENTENCE_TOKENS, "<unk>", **ROLES)
    batch = random_batch(model.config.vocab_size, LENGTHS)
    theirs = model(input_ids=batch.ids, attention_mask=batch.mask.long(), output_attentions=True)
    logits = found.network.output(found.network(batch))
    torch.testing.assert_close(logits[batch.mask], theirs.logits[batch.mask], **CLOSE)
    assert_same_attention(found.network, {"text": batch}, {"decoder": theirs.attentions})
    prompt = batch.ids[:1, :3]
    path = model.generate(
        prompt, attention_mask=torch.ones_like(prompt), max_length=12, do_sample=False, use_cache=False
    )
    whole = TokenBatch(path, torch.ones_like(path, dtype=torch.bool))
    assert_greedy(found.network.output(found.network(whole))[0], path[0].tolist(), 3, 12, found.tokenizer.roles.eos)


def test_the_base_of_rotary_positions_in_older_files(tmp_path: Path) -> None:
    sizes = {"vocab_size": 20, "hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2}
    config = transformers.GPTNeoXConfig(**sizes, intermediate_size=20, use_parallel_residual=False, **TOKENS)
    transformers.GPTNeoXForCausalLM(config).save_pretrained(tmp_path)
    write_tokenizer(tmp_path, 20, SENTENCE_TOKENS, "<unk>", **ROLES)
    values = json.loads((tmp_path / "config.json").read_text())
    del values["rope_parameters"]
    (tmp_path / "config.json").write_text(json.dumps(values | {"rotary_pct": 1.0, "rotary_emb_base": 500}))
    assert load_published(tmp_path).config.model.decoder.positions.base == 500.0


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ({"use_parallel_residual": True}, "use_parallel_residual: sublayers in parallel"),
        ({"rope_parameters": {"partial_rotary_factor": 0.25}}, "rope_parameters: rotary positions in only part"),
    ],
)
def test_what_seqloom_does_not_compute_is_refused(given: dict[str, Any], why: str) -> None:
    sizes = {"vocab_size": 20, "hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2}
    whole = {"use_parallel_residual": False, "rope_parameters": {"partial_rotary_factor": 1.0}}
    config = transformers.GPTNeoXConfig(**sizes, intermediate_size=20, **(whole | given), **TOKENS)
    with pytest.raises(DataError, match=why):
        publish(transformers.GPTNeoXForCausalLM(config), SENTENCE_TOKENS, "<unk>", **ROLES)
