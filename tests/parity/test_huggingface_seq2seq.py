"""Marian, BART, T5 and their kin as `transformers` computes them, and as it translates."""

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
)
from seqloom.types import PairBatch, TokenBatch

LENGTHS, TARGET_LENGTHS = (9, 1, 5), (4, 6, 2)
ROLES = {"bos": "<s>", "eos": "</s>", "pad": "<pad>"}
TOKENS = {"bos_token_id": 0, "pad_token_id": 1, "eos_token_id": 2}


@st.composite
def bart(draw: st.DrawFn, kind: str) -> Any:
    heads = draw(st.sampled_from(((1, 2), (2, 2), (4, 1), (3, 6))))
    width = 12 * draw(st.integers(1, 2))
    config = getattr(transformers, kind + "Config")(
        vocab_size=draw(st.integers(8, 40)),
        d_model=width,
        encoder_layers=draw(st.integers(1, 3)),
        decoder_layers=draw(st.integers(1, 3)),
        encoder_attention_heads=heads[0],
        decoder_attention_heads=heads[1],
        encoder_ffn_dim=draw(st.integers(1, 21)),
        decoder_ffn_dim=draw(st.integers(1, 21)),
        activation_function=draw(st.sampled_from(("gelu", "relu", "swish"))),
        max_position_embeddings=draw(st.integers(20, 40)),
        scale_embedding=draw(st.booleans()),
        decoder_start_token_id=draw(st.sampled_from((0, 1, 2))),
        forced_eos_token_id=None,
        **TOKENS,
    )
    name = {"Marian": "MarianMTModel"}.get(kind, f"{kind}ForConditionalGeneration")
    model = getattr(transformers, name)(config)
    model.generation_config.forced_bos_token_id = draw(st.none() | st.just(0))
    return model


@st.composite
def t5(draw: st.DrawFn, kind: str = "T5") -> Any:
    buckets = draw(st.integers(4, 33))
    tied = {} if draw(st.booleans()) else {"tie_word_embeddings": False}
    config = getattr(transformers, kind + "Config")(
        vocab_size=draw(st.integers(8, 40)),
        d_model=draw(st.integers(MIN_WIDTH, 30)),
        num_heads=draw(st.integers(1, 4)),
        d_kv=draw(st.integers(1, 9)),
        d_ff=draw(st.integers(1, 21)),
        num_layers=draw(st.integers(1, 3)),
        num_decoder_layers=draw(st.integers(1, 3)),
        feed_forward_proj=draw(st.sampled_from(("relu", "gated-gelu", "gated-silu", "silu", "gated-relu"))),
        relative_attention_num_buckets=buckets,
        relative_attention_max_distance=draw(st.integers(buckets // 2 + 1, 40)),
        layer_norm_epsilon=draw(st.sampled_from((1e-6, 1e-3))),
        decoder_start_token_id=1,
        **tied,
        **TOKENS,
    )
    return getattr(transformers, kind + "ForConditionalGeneration")(config)


FAMILIES = {
    "marian": bart("Marian"),
    "bart": bart("Bart"),
    "pegasus": bart("Pegasus"),
    "mbart": bart("MBart"),
    "t5": t5(),
    "mt5": t5("MT5"),
}


@pytest.mark.parametrize("family", FAMILIES)
@settings(max_examples=12)
@given(data=st.data())
@torch.no_grad()
def test_encoder_decoder(family: str, data: st.DataObject) -> None:
    torch.manual_seed(0)
    model = data.draw(FAMILIES[family])
    found = publish(model, SENTENCE_TOKENS, "<unk>", **ROLES)
    translates = family in ("marian", "mbart")  # the others also summarise whole texts
    assert (found.config.data.source_unit == "sentence") == translates
    size = model.config.vocab_size
    source, target = random_batch(size, LENGTHS), random_batch(size, TARGET_LENGTHS, seed=1)
    theirs = model(
        input_ids=source.ids,
        attention_mask=source.mask.long(),
        decoder_input_ids=target.ids,
        decoder_attention_mask=target.mask.long(),
        output_attentions=True,
        use_cache=False,  # it fails where the decoder has more layers than the encoder
    )
    batch = PairBatch(source, target)
    states = found.network.encode(source).states
    torch.testing.assert_close(states[source.mask], theirs.encoder_last_hidden_state[source.mask], **CLOSE)
    logits = found.network.output(found.network(batch))
    torch.testing.assert_close(logits[target.mask], theirs.logits[target.mask], **CLOSE)
    expected = {"encoder": theirs.encoder_attentions, "decoder": theirs.decoder_attentions}
    expected["cross"] = theirs.cross_attentions
    assert_same_attention(found.network, {"source": source, "target": target}, expected)
    alone, start = (
        TokenBatch(source.ids[:1], source.mask[:1]),
        found.config.find_frames(found.tokenizer)["target"].before,
    )
    path = model.generate(alone.ids, attention_mask=alone.mask.long(), max_length=12, do_sample=False, use_cache=False)
    assert tuple(path[0, : len(start)].tolist()) == start
    whole = PairBatch(alone, TokenBatch(path, torch.ones_like(path, dtype=torch.bool)))
    logits = found.network.output(found.network(whole))[0]
    assert_greedy(logits, path[0].tolist(), len(start), 12, found.tokenizer.roles.eos)
