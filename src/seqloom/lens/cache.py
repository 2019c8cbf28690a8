"""All values of a pass by name, as people who use TransformerLens know them (Nanda & Bloom 2022).

For a Transformer language model the names are theirs: `blocks.0.attn.hook_pattern`, `blocks.0.hook_resid_pre` and so
on, with a first dimension for the text. For every other network they are the sites of the trace, and `SITE.mixing` for
the map of a site.
"""

import torch
from jaxtyping import Float
from torch import Tensor

from seqloom.lens.mixing import AttentionMixer
from seqloom.lens.networks import OpenLanguageModel
from seqloom.lens.passes import Pass
from seqloom.lens.seen import Seen
from seqloom.lens.stacks import OpenTransformer, add_residual
from seqloom.nn.multihead import SelfAttention
from seqloom.nn.transformer import Residual


@torch.no_grad()
def make_cache(seen: Seen) -> tuple[Float[Tensor, "1 P V"], dict[str, Tensor]]:
    """The logits at every position, or of the text, and the values of the pass."""
    values: dict[str, Tensor] = {}
    p = seen.run(listen=values.__setitem__)
    logits = torch.cat([seen.open.score(p, states) for states in p.finals.values()])[None]
    stack = seen.open.readouts.get("")
    if isinstance(seen.open, OpenLanguageModel) and isinstance(stack, OpenTransformer):
        return logits, _name(seen, stack, values)
    for mixer in seen.passed.mixers.values():
        values |= {f"{site}.mixing": weights for site, weights in zip(mixer.sites, mixer.weights(), strict=True)}
    return logits, values


def _name(seen: Seen, stack: OpenTransformer, values: dict[str, Tensor]) -> dict[str, Tensor]:
    cache, own = {"hook_embed": values["decoder.embedding"]}, stack.module
    if own.positions is not None:
        places = torch.arange(len(cache["hook_embed"]), device=cache["hook_embed"].device)
        none, lengths = torch.zeros_like(cache["hook_embed"]), torch.full_like(places, len(places))
        cache["hook_pos_embed"] = own.positions.encode_input(none, places, lengths)
    before = values["decoder.input"]
    for index, block in enumerate(own.blocks):
        site, name = f"decoder.{index}", f"blocks.{index}"
        attention = block.attention
        cache[f"{name}.hook_resid_pre"] = before
        mixer = seen.passed.mixers[f"{site}.head.0"]
        assert isinstance(mixer, AttentionMixer)
        cache |= _name_heads(f"{name}.attn", attention, mixer)
        heads = [values[f"{site}.head.{head}"] for head in range(attention.num_heads)]
        cache[f"{name}.attn.hook_z"] = torch.stack(heads, dim=1)
        cache[f"{name}.hook_attn_out"] = values[f"{site}.attention"]
        cache[f"{name}.hook_resid_mid"] = _add(block.attention_residual, before, values[f"{site}.attention"])
        if f"{site}.feedforward" in values:
            cache[f"{name}.hook_mlp_out"] = values[f"{site}.feedforward"]
        before = cache[f"{name}.hook_resid_post"] = values[site]
    return {name: value[None] for name, value in cache.items()}


def _add(residual: Residual, x: Tensor, added: Tensor) -> Tensor:
    return add_residual(Pass(x), residual, x, lambda _: added)


def _name_heads(name: str, attention: SelfAttention, mixer: AttentionMixer) -> dict[str, Tensor]:
    heads = attention.in_projection(mixer.x).unflatten(-1, (-1, attention.head_dim))
    query, key, value = heads.split([attention.num_heads, attention.num_kv_heads, attention.num_kv_heads], dim=1)
    named = {f"{name}.hook_q": query, f"{name}.hook_k": key, f"{name}.hook_v": value}
    return {**named, f"{name}.hook_pattern": mixer.weights()}
