"""How near texts are to reference texts: BLEU (Papineni et al. 2002), chrF (Popović 2015), TER (Snover et al. 2006).

sacreBLEU (Post 2018) computes all three; its signature says how, so that the numbers of two papers can be compared.
BLEU and chrF are better the higher, up to 100; TER, edits for a hundred words of reference, the lower.
"""

from collections.abc import Sequence
from typing import Literal

import numpy as np
from sacrebleu.metrics.bleu import BLEU
from sacrebleu.metrics.chrf import CHRF
from sacrebleu.metrics.ter import TER

from seqloom.metrics.measure import Measure, Rows, measure_share

Texts = Sequence[str]


def measure_translation(
    name: Literal["bleu", "chrf", "ter"], outputs: Texts, references: Sequence[Texts], *, tokenized: bool = False
) -> Measure:
    """A metric of outputs against one list of references, or several; tokens are found unless they are `tokenized`."""
    metric = _choose(name, tokenized)
    # What sacreBLEU's own significance tests work with: a row of counts a sentence, and the score of their sums.
    rows = metric._extract_corpus_statistics(outputs, [list(texts) for texts in references]) if outputs else []

    def compute(rows: Rows) -> float:
        return float(metric._compute_score_from_stats(rows.sum(0).tolist()).score)

    signature = str(metric.get_signature()) if outputs else ""
    return Measure(name, np.array(rows, np.float64), compute, signature)


def _choose(name: Literal["bleu", "chrf", "ter"], tokenized: bool) -> BLEU | CHRF | TER:
    match name:
        case "bleu":
            return BLEU(tokenize="none" if tokenized else "13a", force=True)  # tokens are looked for by tokenisation.py
        case "chrf":
            return CHRF()
        case "ter":
            return TER()


def measure_exact_match(outputs: Texts, references: Sequence[Texts]) -> Measure:
    """The share of outputs that are a reference, but for white space around them."""
    wanted = [{text.strip() for text in texts} for texts in zip(*references, strict=True)]
    right = np.array([text.strip() in texts for text, texts in zip(outputs, wanted, strict=True)], np.float64)
    return measure_share("exact_match", right, np.ones(len(right)))
