"""One pass over one text, and what it leaves behind: what every view of a trace is computed from.

It keeps the states after each layer and the input of each sublayer that mixes positions. If nothing is edited, the
final states are compared with those that the network itself gives: a difference beyond rounding is an error.
"""

from collections.abc import Iterator, Sequence
from functools import cached_property

import torch
from jaxtyping import Float
from torch import Tensor

from seqloom.config.faults import suggest
from seqloom.errors import ConfigError
from seqloom.lens.known import check_rounding
from seqloom.lens.mixing import Mixer
from seqloom.lens.networks import OpenNetwork
from seqloom.lens.passes import Edit, Pass
from seqloom.lens.stacks import Stack
from seqloom.lens.texts import Prediction, Question, Reading, Side, Word, choose

_LOGITS = 1 << 23  # computed at a time


class Seen:
    """A text that a network has read in the open."""

    def __init__(self, open: OpenNetwork, reading: Reading, edits: Sequence[Edit] = ()) -> None:
        self.open, self.reading, self.edits = open, reading, tuple(edits)
        with torch.no_grad():
            self.passed = self.run(watch=True)
            if not edits:
                self._check()

    def make_pass(self, **options: object) -> Pass:
        """A pass with the same edits."""
        return Pass(self.open.like, self.edits, **options)  # type: ignore[arg-type]

    def run(self, **options: object) -> Pass:
        """Run a pass over the text."""
        p = self.make_pass(**options)
        last = self.open.run(p, self.reading.ids)
        p.finals = {direction: self.open.read(p, states, direction) for direction, states in last.items()}
        return p

    def _check(self) -> None:
        expected = self.open.answer(self.reading.ids)
        for direction, states in self.passed.finals.items():
            found = self.open.compare(Pass(self.open.like), states)
            check_rounding(found, expected[direction], f"the {direction} states" if direction else "the states")

    @cached_property
    def stacks(self) -> tuple[Stack, ...]:
        """The groups of maps."""
        return tuple(self.open.describe())

    @cached_property
    def sites(self) -> tuple[str, ...]:
        """Every site with a map."""
        return tuple(site for stack in self.stacks for layer in stack.layers for site in layer.sites)

    @cached_property
    def predictions(self) -> tuple[Prediction, ...]:
        """What is predicted, question by question."""
        return tuple(self._predict())

    @torch.no_grad()
    def _predict(self) -> Iterator[Prediction]:
        reading = self.reading
        for question, logits in self.score(reading.questions):
            top = choose(logits, reading, 5)
            id = top[0].id if question.id is None else question.id
            label, probability = top[0].text, None
            if not reading.quantity:
                label, probability = reading.name(id), float(logits.float().log_softmax(-1)[id].exp())
            yield Prediction(question.at, question.of, id, label, probability, top, question.direction)

    def score(self, questions: Sequence[Question]) -> Iterator[tuple[Question, Float[Tensor, "V"]]]:
        """The logits of each question, computed a few at a time."""
        p, count = self.make_pass(), 1
        while questions:
            states = torch.stack([self.passed.finals[one.direction][one.row] for one in questions[:count]])
            logits = self.open.score(p, states)
            yield from zip(questions[:count], logits, strict=True)
            questions, count = questions[count:], max(1, _LOGITS // logits.shape[1])

    def find_question(self, position: int) -> Question:
        """A prediction by its number."""
        questions = self.reading.questions
        if not questions:
            raise ConfigError("nothing is predicted in this text, so there is nothing to explain")
        if not -len(questions) <= position < len(questions):
            last = len(questions) - 1
            raise ConfigError(f"position: predictions are numbered from 0 to {last}, so there is no {position}")
        return questions[position]

    def find_side(self, name: str) -> Side:
        """A side by its name."""
        for side in self.reading.sides:
            if side.name == name:
                return side
        known = " and ".join(side.name for side in self.reading.sides)
        raise ConfigError(f"there is no side {name!r}; there is {known}")

    def find_word(self, side: str, index: int) -> Word:
        """A word of a side."""
        words = self.find_side(side).words
        if not 0 <= index < len(words):
            raise ConfigError(f"index: the {side} has {len(words)} words, counted from 0, so there is no {index}")
        return words[index]

    def find_stack(self, name: str) -> Stack:
        """A stack by its name."""
        for stack in self.stacks:
            if stack.name == name:
                return stack
        raise ConfigError(f"there is no stack {name!r}; there are {', '.join(stack.name for stack in self.stacks)}")

    def find_mixer(self, site: str) -> tuple[Mixer, int, Stack]:
        """The sublayer that has the map of a site, the map's index, and its stack."""
        for mixer in self.passed.mixers.values():
            if site in mixer.sites:
                stack = next(stack for stack in self.stacks for layer in stack.layers if site in layer.sites)
                return mixer, mixer.sites.index(site), stack
        under = [known for known in self.sites if known.startswith(f"{site}.")]
        if len(under) == 1:
            return self.find_mixer(under[0])
        some = under or self.sites
        more = ", …" if len(some) > 8 else ""
        raise ConfigError(f"{site!r} has no map of its own; those that have: {', '.join(some[:8])}{more}")

    def list_mixers(self, stack: Stack) -> list[Mixer]:
        """The sublayers of a stack, in the order of its sites."""
        sites = [site for layer in stack.layers for site in layer.sites]
        return [self.passed.mixers[site] for site in sites if site in self.passed.mixers]

    @torch.no_grad()
    def get_value(self, site: str) -> Float[Tensor, "T *D"]:
        """What a site gives at each position."""
        found: dict[str, Tensor] = {}
        self.check_site(site)

        def listen(name: str, value: Tensor) -> None:
            if name == site:
                found[site] = value

        self.run(listen=listen)
        return found[site]

    @property
    def nbytes(self) -> int:
        """The memory of what it keeps."""
        kept = [*self.passed.finals.values(), *self.passed.context.values()]
        kept += [states for layers in self.passed.layers.values() for _, states in layers]
        for mixer in self.passed.mixers.values():
            kept += [value for value in vars(mixer).values() if isinstance(value, Tensor)]
        return sum({tensor.data_ptr(): tensor.nbytes for tensor in kept}.values())

    def check_site(self, site: str) -> None:
        """Refuse a site that is not there."""
        if site not in self.passed.sites:
            raise ConfigError(f"{site!r} is not a site of this trace{suggest(site, self.passed.sites)}")
