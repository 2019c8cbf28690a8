"""A small artificial English: sentences with the part of speech of each word, and pairs of which one breaks a rule.

Its sentences have what experiments look for. Verbs agree with their subjects, also across words of the other number,
and reflexive pronouns with what they refer to. Some words are nouns or verbs (`the walks`, `the dog walks`). And
`apple` is a company in some sentences and a fruit in others, as in two sentences that lecture notes use.

Of all sentences, a tenth is held out: which ones, a checksum of the sentence decides.
"""

import random
import zlib
from collections.abc import Callable, Iterator
from functools import partial

Token = tuple[str, str]
"""A word and its part of speech."""
Number = str
"""`singular` or `plural`."""

COMPANIES = ("apple", "nokia", "siemens", "sony")
DEVICES = ("phone", "laptop", "tablet", "camera", "computer")
FRUITS = ("apple", "orange", "pear", "plum", "cherry")
_PEOPLE = {"himself": ("boy", "man", "king"), "herself": ("girl", "woman", "queen")}
_ANIMALS = ("dog", "cat", "bird", "horse")
_IRREGULAR = {"man": "men", "woman": "women", "cherry": "cherries"}
_INTRANSITIVE = ("walk", "dance", "smile", "play", "sleep", "sing")
BOTH = ("walk", "dance", "smile", "play")
"""Words that are verbs and nouns."""
_TRANSITIVE = ("see", "like", "chase", "love", "hear")
_ADJECTIVES = ("small", "old", "happy", "long", "quiet")
_PREPOSITIONS = ("near", "behind", "beside")
_ADVERBS = ("often", "today", "again", "here")
_DETERMINERS = {"singular": ("the", "this", "that", "every"), "plural": ("the", "these", "those", "some")}
_NOUNS = (*_PEOPLE["himself"], *_PEOPLE["herself"], *_ANIMALS)


def draw_sentences(seed: int, count: int, *, held_out: bool = False) -> list[list[Token]]:
    """Sentences for training, or of those that are held out."""
    rng, found = random.Random(seed), list[list[Token]]()
    while len(found) < count:
        sentence = rng.choice((_draw_trade, _draw_meal, _draw_clause, _draw_clause))(rng)
        if is_held_out(spell(sentence)) == held_out:
            found.append(sentence)
    return found


def spell(sentence: list[Token]) -> str:
    """A sentence as text."""
    return " ".join(word for word, _ in sentence)


def is_held_out(text: str) -> bool:
    """Whether a sentence is never trained on."""
    return zlib.crc32(text.encode()) % 10 == 0


def draw_pairs(phenomenon: str, seed: int, count: int) -> list[tuple[str, str]]:
    """Held-out sentences, each with one that differs in a word and breaks a rule."""
    rng, found = random.Random(seed), dict[str, str]()
    for _ in range(100 * count):
        good, bad = PHENOMENA[phenomenon](rng)
        if is_held_out(good):
            found[good] = bad
        if len(found) == count:
            break
    return list(found.items())


def _draw_trade(rng: random.Random) -> list[Token]:
    company = [(rng.choice(COMPANIES), "NOUN"), (rng.choice(("released", "sells", "makes", "showed")), "VERB")]
    device = [(rng.choice(("their", "a", "this")), "DET"), (rng.choice(("new", "better")), "ADJ")]
    tail = [("and", "CONJ"), ("a", "DET"), (rng.choice(DEVICES), "NOUN")] if rng.random() < 0.3 else []
    return [*company, *device, (rng.choice(DEVICES), "NOUN"), *tail, (".", "PUNCT")]


def _draw_meal(rng: random.Random) -> list[Token]:
    first, second = rng.sample(FRUITS, 2)
    two = [(_article(first), "DET"), (first, "NOUN"), ("and", "CONJ"), (_article(second), "DET"), (second, "NOUN")]
    if rng.random() < 0.3:
        return [*two, ("are", "VERB"), ("on", "PREP"), ("the", "DET"), ("table", "NOUN"), (".", "PUNCT")]
    if rng.random() < 0.3:
        two = [("a", "DET"), (rng.choice(("sweet", "ripe")), "ADJ"), (first, "NOUN")]
    eater = (rng.choice(("she", "he", "they")), "PRON")
    return [eater, (rng.choice(("ate", "peeled", "bought")), "VERB"), *two, (".", "PUNCT")]


def _article(noun: str) -> str:
    return "an" if noun[0] in "aeiou" else "a"


def _draw_clause(rng: random.Random) -> list[Token]:
    noun, number = rng.choice((*_NOUNS, *BOTH)), _draw_number(rng)
    between = rng.choices((0, 1, 2), (6, 3, 1))[0]
    attractors = [token for _ in range(between) for token in _draw_attractor(rng, _draw_number(rng))]
    subject = [*_draw_noun(rng, noun, number), *attractors]
    adverb: list[Token] = [(rng.choice(_ADVERBS), "ADV")] if rng.random() < 0.4 else []
    if noun in BOTH or rng.random() < 0.4:
        return [*subject, (_agree(rng.choice(_INTRANSITIVE), number), "VERB"), *adverb, (".", "PUNCT")]
    verb: Token = (_agree(rng.choice(_TRANSITIVE), number), "VERB")
    if rng.random() < 0.35:
        return [*subject, verb, (_refer(noun, number), "PRON"), *adverb, (".", "PUNCT")]
    return [*subject, verb, *_draw_noun(rng, rng.choice((*_NOUNS, *BOTH)), _draw_number(rng)), *adverb, (".", "PUNCT")]


def _draw_noun(rng: random.Random, noun: str, number: Number) -> list[Token]:
    adjective: list[Token] = [(rng.choice(_ADJECTIVES), "ADJ")] if rng.random() < 0.3 else []
    return [(rng.choice(_DETERMINERS[number]), "DET"), *adjective, (_pluralise(noun, number), "NOUN")]


def _draw_attractor(rng: random.Random, number: Number) -> list[Token]:
    return [(rng.choice(_PREPOSITIONS), "PREP"), *_draw_noun(rng, rng.choice(_NOUNS), number)]


def _draw_number(rng: random.Random) -> Number:
    return rng.choice(("singular", "plural"))


def _other(number: Number) -> Number:
    return "plural" if number == "singular" else "singular"


def _pluralise(noun: str, number: Number) -> str:
    return noun if number == "singular" else _IRREGULAR.get(noun, noun + "s")


def _agree(verb: str, number: Number) -> str:
    return verb + "s" if number == "singular" else verb


def _refer(noun: str, number: Number) -> str:
    if number == "plural":
        return "themselves"
    return next((pronoun for pronoun, nouns in _PEOPLE.items() if noun in nouns), "itself")


def _finish(tokens: list[Token], *more: Token) -> str:
    return spell([*tokens, *more, (".", "PUNCT")])


def _pair_determiner(rng: random.Random) -> tuple[str, str]:
    number, noun = _draw_number(rng), rng.choice(_NOUNS)
    good, bad = (rng.choice(_DETERMINERS[one][1:]) for one in (number, _other(number)))
    rest: list[Token] = [(_pluralise(noun, number), "NOUN"), (_agree(rng.choice(_INTRANSITIVE), number), "VERB")]
    return _finish([(good, "DET"), *rest]), _finish([(bad, "DET"), *rest])


def _pair_verb(rng: random.Random) -> tuple[str, str]:
    number, verb = _draw_number(rng), rng.choice(_INTRANSITIVE)
    subject = _draw_noun(rng, rng.choice(_NOUNS), number)
    subject[0] = ("the", "DET")  # the noun alone says which number it is
    return _finish(subject, (_agree(verb, number), "")), _finish(subject, (_agree(verb, _other(number)), ""))


def _pair_distant_verb(rng: random.Random, between: int = 1) -> tuple[str, str]:
    number, verb = _draw_number(rng), rng.choice(_INTRANSITIVE)
    subject = _draw_noun(rng, rng.choice(_NOUNS), number)
    subject[0] = ("the", "DET")
    for _ in range(between):
        subject += _draw_attractor(rng, _other(number))
    return _finish(subject, (_agree(verb, number), "")), _finish(subject, (_agree(verb, _other(number)), ""))


def _pair_reflexive(rng: random.Random) -> tuple[str, str]:
    pronoun = rng.choice(tuple(_PEOPLE))
    other = next(one for one in _PEOPLE if one != pronoun)
    subject = [
        *_draw_noun(rng, rng.choice(_PEOPLE[pronoun]), "singular"),
        (_agree(rng.choice(_TRANSITIVE), "singular"), ""),
    ]
    return _finish(subject, (pronoun, "")), _finish(subject, (other, ""))


def _pair_article(rng: random.Random) -> tuple[str, str]:
    fruit = rng.choice(FRUITS)
    good = _article(fruit)
    start: list[Token] = [(rng.choice(("she", "he", "they")), ""), (rng.choice(("ate", "peeled", "bought")), "")]
    second = rng.choice([one for one in FRUITS if one != fruit])
    rest: list[Token] = [(fruit, ""), ("and", ""), (_article(second), ""), (second, "")]
    return _finish([*start, (good, ""), *rest]), _finish([*start, ("a" if good == "an" else "an", ""), *rest])


PHENOMENA: dict[str, Callable[[random.Random], tuple[str, str]]] = {
    "article (an apple)": _pair_article,
    "determiner and noun (these dogs)": _pair_determiner,
    "subject and verb (the dogs sing)": _pair_verb,
    "subject and verb, apart (the dogs near the cat sing)": _pair_distant_verb,
    "subject and verb, far apart (the dogs near the cat behind the boy sing)": partial(_pair_distant_verb, between=2),
    "reflexive (the king sees himself)": _pair_reflexive,
}
"""The rules that pairs break, by what they are called."""


def write_tagged(sentences: list[list[Token]]) -> Iterator[str]:
    """Sentences as lines of a CoNLL file: a word and its tag, and a blank line after each sentence."""
    for sentence in sentences:
        yield from (f"{word}\t{tag}" for word, tag in sentence)
        yield ""
