"""Sentences of a run's own validation data in which a word stands, and a word to begin with."""

import re
from collections import Counter
from itertools import islice

from seqloom.errors import DataError, SeqloomError
from seqloom.predict.contexts import find_occurrences
from seqloom.predict.evaluate import open_records
from seqloom.predict.predictor import Predictor

_READ = 5_000  # records that are searched
_SHOWN = 24  # sentences
_LENGTH = range(3, 41)  # words of a sentence that is worth showing
_COMMON = 0.05  # the share of sentences above which a word is more grammar than meaning
_WORD = re.compile(r"[^\W\d_]{4,}")


def find_sentences(model: Predictor, word: str) -> tuple[str, list[str], str]:
    """The word, or one that many sentences contain; some sentences with it; and where they come from."""
    try:
        texts = _read_texts(model)
    except (SeqloomError, OSError) as error:
        reason = str(error).partition("; ")[0]
        raise DataError(f"no validation sentences can be read ({reason}); type some that contain the word") from error
    if not texts:
        raise DataError("no validation sentence has 3 to 40 words; type some that contain the word")
    word = word.strip() or _choose_word(texts)
    having = [texts[index] for index in dict.fromkeys(one.text for one in find_occurrences(word, texts)[0])]
    if not having:
        raise DataError(
            f"{word!r} stands in none of the {len(texts):,} validation sentences; type some that contain it"
        )
    shown = f"the first {_SHOWN} of {len(having):,}" if len(having) > _SHOWN else f"all {len(having)}"
    return word, having[:_SHOWN], f"From the run's validation data: {shown} sentences with the word."


def _read_texts(model: Predictor) -> list[str]:
    """The validation sentences that the model's first role reads, each once."""
    role = next(iter(model.frames))
    found: dict[str, None] = {}
    for corpus in open_records(model, [], "valid"):
        for example in islice(corpus, _READ):
            value = example.values[role]
            text = value if isinstance(value, str) else " ".join(value)
            if len(text.split()) in _LENGTH:
                found.setdefault(text)
    return list(found)


def _choose_word(texts: list[str]) -> str:
    """The word that most sentences contain, of those that are not in nearly every one."""
    counts: Counter[str] = Counter(word for text in texts for word in {*_WORD.findall(text)})
    if not counts:
        return texts[0].split()[0]
    rare = [word for word, count in counts.items() if count <= max(2.0, _COMMON * len(texts))]
    return max(rare or [*counts], key=lambda word: (counts[word], word))
