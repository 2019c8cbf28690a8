"""The arithmetic of one number of a map, step by step, with the model's own numbers.

For attention, as one would do it by hand (Vaswani et al. 2017, §3.2): query, key, their products, the sum, its scale,
the scores of the whole row, softmax, the weight, the value, and what it adds. For the gates of a recurrent layer: what
was written, what was kept since, and what is read. For a convolution: the kernel's product and the gate.
"""

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from seqloom.errors import ConfigError
from seqloom.lens.mixing import AttentionMixer, ConvolutionMixer, LookupMixer, Mixer, PoolMixer, RecurrentMixer
from seqloom.nn.attention import Additive, Bilinear, Dot, ScaledDot, Score
from seqloom.nn.convolution import GatedConvolution
from seqloom.nn.multihead import SelfAttention

Values = float | list[float] | list[float | None]


@dataclass(frozen=True)
class Step:
    """One step: what it is, how it is computed, and its number or numbers."""

    name: str
    formula: str
    values: Values
    """A number, or a list: of coordinates or, with labels, of positions. None stands where nothing may be seen."""
    labels: list[str] | None = None
    note: str | None = None


@dataclass(frozen=True)
class Arithmetic:
    """How one number of a map comes about."""

    site: str
    row: int
    column: int
    steps: tuple[Step, ...]

    def to_json(self) -> dict[str, Any]:
        """The steps as a value that JSON can express."""
        return asdict(self)


def explain(mixer: Mixer, index: int, row: int, column: int, labels: Sequence[str]) -> Arithmetic:
    """The steps of one number; `labels` name the positions of a row."""
    site = mixer.sites[index]
    rows, columns = mixer.weights().shape[1:]
    for name, number, size in (("row", row, rows), ("column", column, columns)):
        if not 0 <= number < size:
            raise ConfigError(f"{name}: {site} has {size} of them, counted from 0, so there is no {number}")
    match mixer:
        case AttentionMixer():
            steps = _explain_attention(mixer, index, row, column, list(labels))
        case LookupMixer():
            steps = _explain_lookup(mixer, row, column, list(labels))
        case PoolMixer():
            steps = _explain_pool(mixer, column, list(labels))
        case ConvolutionMixer():
            steps = _explain_convolution(mixer, row, column)
        case _:
            assert isinstance(mixer, RecurrentMixer)
            steps = _explain_memory(mixer, row, column)
    return Arithmetic(site, row, column, tuple(steps))


def _explain_attention(mixer: AttentionMixer, head: int, row: int, column: int, labels: list[str]) -> list[Step]:
    weights, values = mixer.open()
    score = mixer.module.score_function
    queries, keys, steps = _project(mixer, head, row, column)
    steps += _explain_score(queries[:, row], keys[:, column], score, head)
    scores = score(queries, keys)[head, row]
    if (bias := _find_bias(mixer, head, row)) is not None:
        scores = scores + bias
        steps.append(Step("position", "added for the distance of the two positions", float(bias[column])))
    steps += _explain_softmax(scores, weights[head, row], column, labels)
    weight, value = weights[head, row, column], values[head, column]
    read = "x_s" if mixer.memory is None else "s_s"
    steps.append(Step("value", f"v = W_v {read} + b_v", value.tolist()))
    steps.append(Step("weighted value", "weight × v", (weight * value).tolist()))
    added = weight * mixer.project(value[None], head)[0]
    steps.append(Step("added to the stream", "W_o (weight × v), the columns of this head", added.tolist()))
    return steps


def _project(
    mixer: AttentionMixer, head: int, row: int, column: int
) -> tuple[Float[Tensor, "H T K"], Float[Tensor, "H S K"], list[Step]]:
    """The queries and keys of all heads, as they meet, and those of one."""
    module = mixer.module
    if isinstance(module, SelfAttention):
        plain = module.in_projection(mixer.x).unflatten(-1, (-1, module.head_dim))
        places = torch.arange(len(mixer.x), device=mixer.x.device)
        heads = module.encode_heads(plain, places)
        group = module.num_heads // module.num_kv_heads
        shared = module.num_heads + head // group
        steps = [
            Step("query", "q = W_q x_t + b_q", plain[row, head].tolist()),
            Step("key", "k = W_k x_s + b_k", plain[column, shared].tolist()),
        ]
        if heads is not plain:
            how = " and ".join(
                [
                    *(["normalised"] if module.normalise_qk else []),
                    *(["rotated by its position"] if module.relative is not None else []),
                ]
            )
            steps.append(Step("encoded query", f"q, {how}", heads[row, head].tolist()))
            steps.append(Step("encoded key", f"k, {how}", heads[column, shared].tolist()))
        query, key, _ = heads.transpose(0, 1).split([module.num_heads, *[module.num_kv_heads] * 2])
        return query, key.repeat_interleave(group, dim=0), steps
    assert mixer.memory is not None
    query = module.query_projection(mixer.x).unflatten(-1, (module.num_heads, -1)).transpose(0, 1)
    key = module.memory_projection(mixer.memory).unflatten(-1, (2, module.num_heads, -1))[:, 0].transpose(0, 1)
    steps = [
        Step("query", "q = W_q x_t + b_q", query[head, row].tolist()),
        Step("key", "k = W_k s_s + b_k, of the source", key[head, column].tolist()),
    ]
    return query, key, steps


def _find_bias(mixer: AttentionMixer, head: int, row: int) -> Float[Tensor, "S"] | None:
    """What the position encoding adds to the scores of a row."""
    module = mixer.module
    if not isinstance(module, SelfAttention) or module.relative is None or not module.relative.acts_on_scores:
        return None
    distance = row - torch.arange(len(mixer.x), device=mixer.x.device)
    return module.relative.score_bias((-distance if module.reverse else distance)[None])[head, 0]


def _explain_score(query: Float[Tensor, "H D"], key: Float[Tensor, "H E"], score: Score, head: int = 0) -> list[Step]:
    """The score of a query and a key; all heads are given, because each may have weights of its own."""
    value = float(score(query.unsqueeze(1), key.unsqueeze(1))[head].flatten()[0])
    match score:
        case Dot() | ScaledDot():
            products = query[head] * key[head]
            steps = [Step("products", "q_i k_i", products.tolist()), Step("sum", "q·k", float(products.sum()))]
            if isinstance(score, ScaledDot):
                size = key.shape[-1]
                steps.append(Step("score", f"q·k / √{size} = q·k / {math.sqrt(size):.4g}", value))
            return steps
        case Bilinear():
            return [
                Step("mapped query", "Wᵀ q", (query.unsqueeze(1) @ score.weight)[head, 0].tolist()),
                Step("score", "qᵀ W k", value),
            ]
        case _:
            assert isinstance(score, Additive)
            hidden = torch.tanh(score.query(query.unsqueeze(1)) + score.key(key.unsqueeze(1)))[head, 0]
            return [Step("hidden", "tanh(W_q q + W_k k)", hidden.tolist()), Step("score", "vᵀ hidden", value)]


def _explain_softmax(
    scores: Float[Tensor, "S"], weights: Float[Tensor, "S"], column: int, labels: list[str]
) -> list[Step]:
    seen = (weights > 0).tolist()
    shown = [value if sees else None for value, sees in zip(scores.tolist(), seen, strict=True)]
    return [
        Step("scores of the row", "the same for every position that may be seen", shown, labels),
        Step("softmax", "e^score / Σ e^score", weights.tolist(), labels),
        Step("weight", "of this position", float(weights[column])),
    ]


def _explain_lookup(mixer: LookupMixer, row: int, column: int, labels: list[str]) -> list[Step]:
    query, keys, weights = mixer.x, mixer.memory, mixer.weights()[0, row]
    steps = [
        Step("query", "q = h_t, the state of the decoder", query[row].tolist()),
        Step("key", "k = s_s, the state of the source", keys[column].tolist()),
        *_explain_score(query[row : row + 1], keys[column : column + 1], mixer.module.score),
        *_explain_softmax(mixer.module.score(query[row : row + 1], keys)[0], weights, column, labels),
    ]
    return [*steps, Step("added to the context", "weight × s_s", (weights[column] * keys[column]).tolist())]


def _explain_pool(mixer: PoolMixer, column: int, labels: list[str]) -> list[Step]:
    pool, states, weights = mixer.module, mixer.states, mixer.weights()[0, 0]
    added = (mixer.open() * states)[column]
    if pool.kind == "attention":
        assert pool.query is not None
        query = pool.query[0]
        return [
            Step("query", "w, learned", query.tolist()),
            Step("key", "h_s, the state of the position", states[column].tolist()),
            *_explain_score(pool.query, states[column : column + 1], pool.score),
            *_explain_softmax(states @ query, weights, column, labels),
            Step("added", "weight × h_s", added.tolist()),
        ]
    formula = {"mean": "1 / T", "first": "1 for the first position, else 0"}.get(
        pool.kind, "the share of coordinates in which this position is the highest"
    )
    return [
        Step("weight", formula, float(weights[column])),
        Step("state", "h_s", states[column].tolist()),
        Step("added", "what of h_s enters the pooled vector", added.tolist()),
    ]


def _explain_convolution(mixer: ConvolutionMixer, row: int, column: int) -> list[Step]:
    gate, offset = mixer.open().gate[row], column - row
    if offset not in mixer.module.offsets:
        return [Step("weight", f"the kernel does not reach {offset:+d} positions", 0.0)]
    number, width = list(mixer.module.offsets).index(offset), mixer.x.shape[1]
    kernel = mixer.module.value.weight[:, number * width : (number + 1) * width]
    product = kernel @ mixer.x[column]
    gated = isinstance(mixer.module, GatedConvolution)
    how = "σ(V [x; …] + c), of the whole window" if gated else "1 where the whole sum is above 0: max(0, ·)"
    return [
        Step(
            "input",
            f"x_s, {offset:+d} positions away" if offset else "x_s, the position itself",
            _list(mixer.x, column),
        ),
        Step("kernel", f"W_j x_s, with the kernel's matrix for {offset:+d}", product.tolist()),
        Step("gate", how, gate.tolist()),
        Step("added", "gate ⊙ W_j x_s", (gate * product).tolist()),
        Step("norm", "‖gate ⊙ W_j x_s‖", float((gate * product).norm())),
        Step("share", "its part of the norms of the row", float(mixer.weights()[0, row, column])),
    ]


def _explain_memory(mixer: RecurrentMixer, row: int, column: int) -> list[Step]:
    steps, length = mixer.open(), len(mixer.x)
    now, then = (length - 1 - row, length - 1 - column) if mixer.module.reverse else (row, column)
    if then > now:
        return [Step("weight", "the layer reads this position later", 0.0)]
    if steps.matrix is not None:
        return _explain_plain(mixer, row, column)
    gru = isinstance(mixer.module.cell, nn.GRU)
    names = ("1 − z_s", "n_s", "z") if gru else ("i_s", "g_s", "f")
    kept = steps.decay[then + 1 : now + 1].prod(0)
    left = kept * steps.weight[then] * steps.content[then]
    more = [] if gru else [Step("read", "o_t ⊙ tanh(c_t)/c_t", steps.read[now].tolist())]
    return [
        Step("input gate", names[0], steps.weight[then].tolist()),
        Step("candidate", f"{names[1]} = tanh(…)", steps.content[then].tolist()),
        Step("written", f"{names[0]} ⊙ {names[1]}", (steps.weight[then] * steps.content[then]).tolist()),
        Step("kept since", f"the product of {names[2]} from s + 1 to t", kept.tolist()),
        Step("left in the memory", "kept ⊙ written", left.tolist()),
        *more,
        Step("added to the output", "what of it is read", steps.expose(left, now).tolist()),
        Step("weight", f"the mean over units of kept ⊙ {names[0]}", float((kept * steps.weight[then]).mean())),
    ]


def _explain_plain(mixer: RecurrentMixer, row: int, column: int) -> list[Step]:
    steps, length = mixer.open(), len(mixer.x)
    then = length - 1 - column if mixer.module.reverse else column
    vector = mixer.terms(0, [row])[0][0, column]
    return [
        Step("input", "W x_s + b", steps.content[then].tolist()),
        Step("ratio", "ρ_s = tanh(a_s)/a_s", steps.weight[then].tolist()),
        Step("written", "ρ_s ⊙ (W x_s + b)", (steps.weight[then] * steps.content[then]).tolist()),
        Step("added to the output", "the same after ρ_r ⊙ U … for each step r from s + 1 to t", vector.tolist()),
        Step("norm", "its length", float(vector.norm())),
        Step("share", "its part of the norms of the row", float(mixer.weights()[0, row, column])),
    ]


def _list(x: Float[Tensor, "T D"], row: int) -> list[float]:
    values: list[float] = x[row].tolist()
    return values
