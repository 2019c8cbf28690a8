"""How near texts are to reference texts: BLEU (Papineni et al. 2002), chrF (Popović 2015), TER (Snover et al. 2006).

sacreBLEU (Post 2018) computes all three; its signature says how, so that the numbers of two papers can be compared.
BLEU and chrF are better the higher, up to 100; TER, edits for a hundred words of reference, the lower.
"""

from collections.abc import Sequence
from functools import partial
from typing import Literal

import numpy as np
from sacrebleu.metrics.bleu import BLEU
from sacrebleu.metrics.chrf import CHRF
from sacrebleu.metrics.ter import TER

from seqloom.metrics.measure import Measure, Metric, Rows, measure_share

References = Sequence[Sequence[str]]
"""For each output, one right text or several."""


def measure_translation(
    name: Literal["bleu", "chrf", "ter"], references: References, outputs: Sequence[str], *, tokenized: bool = False
) -> Measure:
    """A metric of sacreBLEU's; tokens are found unless the texts are `tokenized`."""
    metric = _choose(name, tokenized)
    # What sacreBLEU's own significance tests work with: a row of counts a sentence, and the score of their sums.
    sides = [list(texts) for texts in zip(*references, strict=True)]
    rows = metric._extract_corpus_statistics(outputs, sides) if outputs else []

    def compute(rows: Rows) -> float:
        return float(metric._compute_score_from_stats(rows.sum(0).tolist()).score)

    signature = str(metric.get_signature()) if outputs else ""
    return Measure(name, np.array(rows, np.float64), compute, signature)


def _choose(name: Literal["bleu", "chrf", "ter"], tokenized: bool) -> BLEU | CHRF | TER:
    match name:
        case "bleu":
            return BLEU(tokenize="none" if tokenized else "13a", force=True)  # tokenisation.py checks for tokens
        case "chrf":
            return CHRF()
        case "ter":
            return TER()


def measure_exact_match(references: References, outputs: Sequence[str]) -> Measure:
    """The share of outputs that are a reference, but for white space around them."""
    pairs = zip(outputs, references, strict=True)
    right = np.array([text.strip() in {one.strip() for one in wanted} for text, wanted in pairs], np.float64)
    return measure_share("exact_match", right, np.ones(len(right)))


def _list_metrics(*, tokenized: bool) -> tuple[Metric, ...]:
    return (
        Metric("bleu", partial(measure_translation, "bleu", tokenized=tokenized)),
        Metric("chrf", partial(measure_translation, "chrf", tokenized=tokenized), on_request=True),
        Metric("ter", partial(measure_translation, "ter", tokenized=tokenized), lower_is_better=True, on_request=True),
        Metric("exact_match", measure_exact_match, on_request=True),
    )


TRANSLATION = _list_metrics(tokenized=False)
TOKENIZED = _list_metrics(tokenized=True)
"""The same for texts whose tokens are to be taken as they are."""
