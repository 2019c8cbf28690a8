"""The experiments by name, and the question that each of them answers. Nothing heavy is imported here."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from seqloom.errors import ConfigError

if TYPE_CHECKING:
    from seqloom.lab.experiment import Experiment

QUESTIONS = {
    "attention": "What does one attention head compute, number by number?",
    "scale": "Why is the dot product divided by √d, and where does a norm belong in a deep stack?",
    "distance": "How far does a gradient reach back, and how many layers connect two ends of a sequence?",
    "collapse": "What is left of a sequence if layers do nothing but attend?",
    "order": "Which ways of telling positions apart hold for sequences longer than those of training?",
    "bottleneck": "What does a decoder lose that sees its source as one vector?",
    "heads": "How does a model learn from its prompt, and which heads do it?",
    "context": "Does the vector of a word move towards the words around it?",
    "cost": "What does a layer of each family cost, as sequences and vectors grow?",
    "probe": "Which layers know the parts of speech?",
    "pairs": "Which phenomena of grammar has a language model learned?",
}
"""In the order in which a course would show them."""


def find_experiment(name: str) -> "Experiment[Any]":
    """The experiment of this name."""
    if name not in QUESTIONS:
        raise ConfigError(f'there is no experiment "{name}"; there are {", ".join(QUESTIONS)}, and all')
    experiment: Experiment[Any] = import_module(f"seqloom.lab.{name}").EXPERIMENT
    return experiment
