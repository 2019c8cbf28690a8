"""What the page opens with: a record of the run's own validation data, or a plain sentence."""

from collections.abc import Iterator, Mapping
from itertools import islice

from seqloom.errors import SeqloomError
from seqloom.predict.evaluate import open_records
from seqloom.predict.predictor import Predictor

_SEARCHED = 500  # records to choose from
_FITTING = range(6, 29)  # tokens: neither too few to show anything, nor more than fit side by side
_ENGLISH = "The river stood above the bridge in the morning."


def find_example(predictor: Predictor, *, paired: bool) -> tuple[dict[str, str], bool]:
    """A request for this model: the first validation record that is neither tiny nor long, or plain English.

    Also whether it is of the validation data.
    """
    fields = ("text", "second") if paired else ("text",)
    for record in _list_records(predictor):
        texts = [record[role] for role in ("source", "text", "words", "second") if role in record]
        given = [text if isinstance(text, str) else " ".join(text) for text in texts]
        if len(given) >= len(fields) and len(predictor.tokenizer.encode(" ".join(given)).ids) in _FITTING:
            return dict(zip(fields, [_hide(predictor, given[0]), *given[1:]], strict=False)), True
    return dict.fromkeys(fields, _hide(predictor, _ENGLISH)), False


def _list_records(predictor: Predictor) -> Iterator[Mapping[str, str | tuple[str, ...]]]:
    """Validation records, as far as there are any; a page opens without them, too."""
    try:
        for corpus in open_records(predictor, [], "valid"):
            yield from (example.values for example in islice(corpus, _SEARCHED))
    except (SeqloomError, OSError):
        return


def _hide(predictor: Predictor, text: str) -> str:
    """For a model that fills masks, the text with a word in the middle hidden."""
    mask, words = predictor.tokenizer.roles.mask, text.split()
    if "fill" not in predictor.config.verbs or mask is None or not words:
        return text
    words[len(words) // 2] = predictor.tokenizer.token(mask)
    return " ".join(words)
