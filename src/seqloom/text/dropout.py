"""BPE dropout: the same text cut differently each time, so that a model learns how words are composed.

While a word is merged, each possible merge is left out with probability `rate` before the best of the rest is applied;
when all are left out, the word is done (Provilkov, Emelianenko, Voita 2020, "BPE-Dropout", Algorithm 1). At rate 0 this
is BPE itself.

The library has dropout too, but its generator cannot be seeded, and a resumed training must see the same cuts again.
Here a cut is a pure function of text, rate and seed. Merging in Python costs about 20 µs for each word, so up to 64
cuts of a word are kept, and the seed chooses among them.
"""

import json
import random
from functools import lru_cache
from itertools import groupby, pairwise
from operator import itemgetter

import tokenizers

from seqloom.errors import ConfigError
from seqloom.text.tokenizer import Tokenizer, explain_refusal

CUTS_PER_WORD = 64
CUTS_KEPT = 1 << 18
LONGEST_WORD = 256
"""Longer words (of a tokeniser that does not split at spaces, say) are merged in parts of this many atoms."""


class BpeDropout:
    """Encodes text by a BPE tokeniser with merges left out at random."""

    def __init__(self, tokenizer: Tokenizer, rate: float) -> None:
        spec = json.loads(tokenizer.plain.to_str())
        if spec["model"]["type"] != "BPE":
            raise ConfigError(f"tokenizer.dropout needs a BPE tokeniser, not {spec['model']['type']}; set it to 0")
        vocabulary, skip = spec["model"]["vocab"], len(spec["model"]["continuing_subword_prefix"] or "")
        self._merges = {
            (vocabulary[left], vocabulary[right]): (rank, vocabulary[left + right[skip:]])
            for rank, (left, right) in enumerate(spec["model"]["merges"])
        }
        spec["model"] |= {"merges": [], "ignore_merges": False}
        self._atoms = tokenizers.Tokenizer.from_str(json.dumps(spec))
        self._rate = rate
        self._cut = lru_cache(maxsize=CUTS_KEPT)(self._draw_cut)

    def encode(self, text: str, seed: int) -> list[int]:
        """Encode a text; the seed decides how it is cut."""
        with explain_refusal([text]):
            encoding = self._atoms.encode(text, add_special_tokens=False)
        words = [
            tuple(id for _, id in group)
            for _, group in groupby(zip(encoding.word_ids, encoding.ids, strict=True), key=itemgetter(0))
        ]
        draws = random.Random(seed).randbytes(len(words))
        return [id for word, draw in zip(words, draws, strict=True) for id in self._cut(word, draw % CUTS_PER_WORD)]

    def _draw_cut(self, word: tuple[int, ...], draw: int) -> list[int]:
        chance = random.Random(f"{draw} {word}")
        parts = (list(word[start : start + LONGEST_WORD]) for start in range(0, len(word), LONGEST_WORD))
        return [id for part in parts for id in self._merge(part, chance)]

    def _merge(self, ids: list[int], chance: random.Random) -> list[int]:
        while True:
            possible = (
                (*merge, place)
                for place, pair in enumerate(pairwise(ids))
                if (merge := self._merges.get(pair)) and chance.random() >= self._rate
            )
            best = min(possible, default=None)
            if best is None:
                return ids
            _, merged, place = best
            ids[place : place + 2] = [merged]
