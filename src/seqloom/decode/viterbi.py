"""The best sequence of tags that the rules of their scheme allow (Viterbi 1967).

δ_t(a) = s_t(a) + max over b that a may follow of δ_{t−1}(b)

s_t(a) is the score of tag a at word t. The search is exact. Where the best tag of each word is allowed after the one
before, that sequence is the best.
"""

import numpy as np
from numpy.typing import NDArray

from seqloom.metrics.spans import Transitions


def find_best_tags(scores: NDArray[np.floating], rules: Transitions | None) -> list[int]:
    """The number of each word's tag, from scores of shape (T, C).

    Without rules, or if they allow no sequence of this length, each word gets its best tag.
    """
    best: list[int] = scores.argmax(1).tolist() if len(scores) else []
    if rules is None or not best or _are_allowed(best, rules):
        return best
    banned = np.where(rules.following, 0.0, -np.inf)
    total = np.where(rules.first, scores[0].astype(np.float64), -np.inf)
    origins = []
    for row in scores[1:]:
        reached = total[:, None] + banned
        origins.append(reached.argmax(0))
        total = reached.max(0) + row
    total = np.where(rules.last, total, -np.inf)
    if total.max() == -np.inf:
        return best
    path = [int(total.argmax())]
    for origin in reversed(origins):
        path.append(int(origin[path[-1]]))
    return path[::-1]


def _are_allowed(tags: list[int], rules: Transitions) -> bool:
    inside = rules.following[tags[:-1], tags[1:]].all()
    return bool(rules.first[tags[0]] and rules.last[tags[-1]] and inside)
