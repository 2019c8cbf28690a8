"""Classification by example: a language model reads labelled texts, then a text without its label.

P(label | text) ∝ P(label | prompt), the prompt being the examples and the text in one form, one after the other. No
weight changes. Brown et al. 2020, §2.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from seqloom.errors import ConfigError, DataError
from seqloom.models.language_models import LanguageModel
from seqloom.predict.classify import choose_label
from seqloom.predict.lines import read_lines
from seqloom.predict.loaded import Loaded, batch_by_length, require_numbers
from seqloom.predict.probability import score_tokens
from seqloom.predict.results import Classification
from seqloom.predict.score import find_lead
from seqloom.types import TokenBatch


@dataclass(frozen=True)
class Shots:
    """Labelled examples and how they are written down."""

    examples: tuple[tuple[str, str], ...] = ()
    """(text, label)."""
    labels: tuple[str, ...] = ()
    """Labels that may be answered; those of the examples, if there are none here."""
    template: str = "{text} {label}"
    separator: str = " "

    def __post_init__(self) -> None:
        if self.template.count("{text}") != 1 or self.template.count("{label}") != 1:
            raise ConfigError(f"template = {self.template!r} must hold {{text}} and {{label}} once each")
        if self.template.index("{text}") > self.template.index("{label}"):
            raise ConfigError(f"template = {self.template!r}: the label must come after the text, for it is asked for")
        if len(self.answers) < 2:
            raise ConfigError("shots name fewer than two labels; there is nothing to choose from")

    @property
    def answers(self) -> tuple[str, ...]:
        """The labels to choose from."""
        return self.labels or tuple(sorted({label for _, label in self.examples}))

    def write(self, text: str, label: str) -> tuple[str, str]:
        """The prompt up to the label, and up to its end."""
        shown = [self.template.replace("{text}", t).replace("{label}", a) for t, a in self.examples]
        question = self.template.partition("{label}")[0].replace("{text}", text)
        return tuple(self.separator.join([*shown, last]) for last in (question, question + label))  # type: ignore[return-value]


@torch.inference_mode()
def classify_by_shots(loaded: Loaded, texts: Sequence[str], shots: Shots) -> list[Classification]:
    """The label that a language model finds most probable after each text."""
    network = loaded.compile()
    if not isinstance(network, LanguageModel):
        loaded.refuse("classify by examples")
    lead, answers = find_lead(loaded), shots.answers
    rows, starts = [], []
    asked = [index for index, text in enumerate(texts) if text.strip()]
    for index in asked:
        for label in answers:
            prompt, whole = shots.write(texts[index], label)
            before, ids = loaded.tokenizer.encode_batch([prompt.rstrip(), whole])
            shared = next((n for n, pair in enumerate(zip(before, ids, strict=False)) if len({*pair}) > 1), len(before))
            rows.append([*lead, *ids])
            starts.append(max(1, len(lead) + min(shared, len(ids) - 1)))
            if len(rows[-1]) > loaded.longest:
                raise DataError(
                    f"the examples and the text have {len(rows[-1])} tokens, but the model reads {loaded.longest}; "
                    "give fewer or shorter examples"
                )
    values = torch.empty(len(rows))
    for batch in batch_by_length(rows):
        tokens = loaded.pad([rows[row] for row in batch])
        real = tokens.mask[:, 1:]
        states = network(TokenBatch(tokens.ids[:, :-1], real))
        first = torch.tensor([starts[row] for row in batch], device=real.device).unsqueeze(1)
        wanted = real & (torch.arange(1, tokens.ids.shape[1], device=real.device) >= first)
        known = score_tokens(network.output, states[wanted], tokens.ids[:, 1:][wanted])
        values[batch] = require_numbers(torch.stack([part.sum() for part in known.split(wanted.sum(1).tolist())]))
    shares = values.view(len(asked), len(answers)).softmax(1).tolist()
    found = {index: choose_label(answers, share) for index, share in zip(asked, shares, strict=True)}
    return [found.get(index, Classification("")) for index in range(len(texts))]


def read_examples(path: str) -> tuple[tuple[str, str], ...]:
    """Labelled examples from a file: a text, a tab and its label on each line; blank lines are passed over."""
    examples = []
    lines = (line for block in read_lines(path) for line in block)
    for number, line in enumerate(lines, start=1):
        if line.fault:
            raise DataError(f"{path}:{number}: {line.fault}")
        if not line.texts[0].strip():
            continue
        text, tab, label = line.texts[0].rpartition("\t")
        if not tab or not text.strip() or not label.strip():
            raise DataError(f"{path}:{number}: expected a text, a tab and a label")
        examples.append((text, label))
    return tuple(examples)
