"""What each verb answers, checked by what the numbers mean."""

import math
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
import torch

import seqloom
from seqloom.errors import ConfigError, DataError, RunError
from seqloom.predict.model import Model
from seqloom.predict.predictor import Piece
from seqloom.predict.results import Classification, Quantity
from seqloom.predict.translate import Splitting
from small_corpora import TAGS, sentences
from small_runs import Runs

TEXTS = [*sentences(6, seed=5), "", "the cat", "  "]
VERBS: dict[str, tuple[str, str]] = {
    "translate": ("translation", "translation"),
    "generate": ("language-model", "language-model"),
    "classify": ("classification", "classification"),
    "tag": ("tagging", "tagging"),
    "fill": ("masked-language-model", "masked-language-model"),
}
TASKS = (
    "translation",
    "language-model",
    "masked-language-model",
    "bidirectional-language-model",
    "classification",
    "tagging",
)


@pytest.fixture(scope="module")
def load(runs: Runs) -> Any:
    """A loaded model by the name of its run."""
    models: dict[str, Model] = {}

    def get(name: str) -> Model:
        if name not in models:
            models[name] = seqloom.load(runs(name))
        return models[name]

    return get


def close(one: Any, other: Any) -> None:
    """Equal, but for the last digits of numbers."""
    match one:
        case float():
            assert one == pytest.approx(other, rel=1e-5, abs=1e-5)
        case dict():
            assert one.keys() == other.keys()
            for key in one:
                close(one[key], other[key])
        case tuple():
            assert len(one) == len(other)
            for a, b in zip(one, other, strict=True):
                close(a, b)
        case np.ndarray():
            np.testing.assert_allclose(one, other, atol=1e-5)
        case object(__dict__=fields):
            close(dict(fields), dict(vars(other)))
        case _:
            assert one == other


ASKED: list[tuple[str, str, dict[str, Any]]] = [
    ("translation", "translate", {}),
    ("translation", "translate", {"beam": 4, "nbest": 3}),
    ("translation", "translate", {"sample": True, "top_k": 5}),
    ("translation/recurrent", "translate", {"beam": 2}),
    ("translation/convolutional", "translate", {}),
    ("running-text", "generate", {"max_length": 6}),
    ("running-text", "generate", {"max_length": 6, "beam": 3, "repetition_penalty": 1.5, "no_repeat_ngram": 2}),
    ("running-text", "generate", {"max_length": 6, "min_length": 3}),
    ("language-model", "score", {}),
    ("running-text", "score", {}),
    ("masked-language-model", "score", {}),
    ("bidirectional-language-model", "score", {}),
    ("masked-language-model", "fill", {}),
    ("classification", "classify", {}),
    ("regression", "classify", {}),
    ("tagging", "tag", {}),
    ("masked-language-model", "embed", {"level": "token"}),
]


@pytest.mark.parametrize(("run", "verb", "options"), ASKED, ids=lambda value: str(value))
def test_an_answer_does_not_depend_on_its_neighbours(run: str, verb: str, options: dict[str, Any], load: Any) -> None:
    model = load(run)
    ask = getattr(model, verb)
    together = ask(TEXTS, **options)
    assert len(together) == len(TEXTS)
    if not options.get("sample"):  # what is drawn depends on the number of a text
        for text, answer in zip(TEXTS, together, strict=True):
            close(ask(text, **options), answer)
    close(tuple(ask(TEXTS, **options)), tuple(together))


@pytest.mark.parametrize("verb", VERBS)
def test_a_verb_that_was_not_trained_for_is_refused_with_what_there_is(verb: str, load: Any) -> None:
    run = "tagging" if verb != "tag" else "translation"
    model = load(run)
    with pytest.raises(RunError, match=f"trained for {run}: it can (tag and embed|translate.*), not {verb}"):
        getattr(model, verb)("the cat")
    with pytest.raises(RunError, match="it can tag and embed, not score"):
        load("tagging").score("the cat")


def test_translations_are_right_and_their_scores_are_those_of_the_model(load: Any) -> None:
    model = load("translation")
    found = model.translate(TEXTS)
    right = [" ".join(word.upper() for word in reversed(text.split())) for text in TEXTS]
    assert sum(answer.text == wanted for answer, wanted in zip(found[:6], right[:6], strict=True)) >= 4
    scored = model.score(TEXTS[:6], [answer.text for answer in found[:6]])
    for answer, score in zip(found[:6], scored, strict=True):
        assert answer.finished
        assert list(answer.tokens) == answer.text.split()
        assert answer.token_scores == pytest.approx(score.token_scores, abs=1e-4)
        assert score.log_probability == pytest.approx(math.fsum(answer.token_scores), abs=1e-4)
    assert found[6].text == found[8].text == ""


def test_attention_says_which_word_is_which(load: Any) -> None:
    found = load("translation").translate(sentences(20, seed=9))
    nouns = right = 0
    for text, answer in zip(sentences(20, seed=9), found, strict=True):
        source, target = text.split(), answer.text.split()
        assert [pair[1] for pair in answer.alignment] == list(range(len(target)))
        for read, written in answer.alignment:
            if TAGS.get(target[written].lower()) in ("NOUN", "VERB"):
                nouns += 1
                right += source[read].upper() == target[written]
    assert right / nouns > 0.8


def test_alignment_counts_words_not_tokens(load: Any) -> None:
    model = load("translation")
    (alignment,) = [model.align("the cat sees the dog .", ". DOG THE SEES CAT THE")]
    assert alignment.weights.shape == (6, 6)
    assert ((alignment.weights >= 0) & (alignment.weights <= 1)).all()
    assert (alignment.weights.sum(1) <= 1 + 1e-5).all(), "the rest is attention to the end of the source"
    assert alignment.source == ["the", "cat", "sees", "the", "dog", "."]


def test_what_is_asked_of_a_translation_is_done(load: Any) -> None:
    model, text = load("translation"), "the cat sees the dog ."
    best, *others = [(found := model.translate(text, beam=5, nbest=3)), *found.alternatives]
    assert len({answer.text for answer in (best, *others)}) == 3
    assert best.score >= others[0].score >= others[1].score
    assert model.translate(text, prefix="THE DOG").text.startswith("THE DOG")
    assert "MOUSE" in model.translate(text, beam=4, constraints=["MOUSE"]).text.split()
    assert "DOG" not in model.translate(text, beam=4, avoid=["DOG"]).text.split()
    assert len(model.translate(text, min_length=12).tokens) >= 12
    short = model.translate(text, max_length=2)
    assert (len(short.tokens), short.finished, short.flags) == (2, False, ("unfinished",))
    drawn = [model.translate([text] * 8, sample=True, temperature=3.0, seed=seed) for seed in (1, 1, 2)]
    assert drawn[0] == drawn[1] != drawn[2]
    assert len({answer.text for answer in drawn[0]}) > 1, "each text is drawn by itself"
    with pytest.raises(ConfigError, match="sample"):
        model.translate(text, top_k=3)
    with pytest.raises(ConfigError, match=r"beams: is not a known option; did you mean \"beam\"\?"):
        model.translate(text, beams=3)


def test_a_continuation_is_scored_as_the_whole_text_is(load: Any) -> None:
    model = load("language-model")
    found = model.generate("the cat", max_length=9)
    assert found.finished
    assert found.text == " " + " ".join(found.tokens)
    whole = model.score("the cat" + found.text)
    assert whole.tokens[2:] == (*found.tokens, "[EOS]")
    assert list(found.token_scores) == pytest.approx(list(whole.token_scores[2:]), abs=1e-4)
    assert "".join(model.stream("the cat", max_length=9)) == found.text
    assert model.generate("the", prefix=" dog", max_length=9).text.startswith(" dog ")
    assert not model.generate("the", max_length=1).finished
    assert len(model.generate("the", max_length=12, min_length=8).tokens) >= 8


def test_scores_add_up(load: Any) -> None:
    for run, first, end in (("running-text", True, 1), ("language-model", False, 1)):
        model, text = load(run), "the cat sees the dog ."
        score = model.score(text)
        known = [value for value in score.token_scores if value is not None]
        assert (score.token_scores[0] is not None) == first
        assert score.log_probability == pytest.approx(math.fsum(known))
        assert score.perplexity == pytest.approx(math.exp(-score.log_probability / len(known)))
        size = len(text) + end - (0 if first else len("the "))
        assert score.bits_per_byte == pytest.approx(-score.log_probability / math.log(2) / size)
        assert [text[a:b] for a, b in score.offsets] == [*text.split(), ""]


def test_a_probability_is_that_of_the_model_step_by_step(load: Any) -> None:
    model, text = load("running-text"), "a dog hears the fish ."
    eos = model.tokenizer.roles.eos
    ids = [eos, *model.tokenizer.encode(text).ids, eos]
    state, expected = model.network.start(1, len(ids)), []
    with torch.inference_mode():
        for seen, wanted in pairwise(ids):
            scores, state = model.network.step(torch.tensor([[seen]]), state)
            expected.append(float(scores[0].log_softmax(-1)[wanted]))
    assert list(model.score(text).token_scores) == pytest.approx(expected, abs=1e-4)


def test_a_masked_model_scores_each_token_from_all_others(load: Any) -> None:
    model, words = load("masked-language-model"), ["the", "cat", "sees", "the", "dog", "."]
    score = model.score(" ".join(words))
    for place, word in enumerate(words):
        filling = model.fill(" ".join([*words[:place], "[MASK]", *words[place + 1 :]]), top=1000)
        (mask,) = filling.masks
        chance = {candidate.token: candidate.probability for candidate in mask.candidates}
        assert math.log(chance[word]) == pytest.approx(score.token_scores[place], abs=1e-4)


def test_fillings_are_sorted_and_stand_where_the_mask_stood(load: Any) -> None:
    model = load("masked-language-model")
    filling = model.fill("the [MASK] sees  the [MASK] .", top=3)
    assert [mask.offset for mask in filling.masks] == [(4, 10), (21, 27)]
    for mask in filling.masks:
        chances = [candidate.probability for candidate in mask.candidates]
        assert chances == sorted(chances, reverse=True)
        assert len(chances) == 3
        assert TAGS[mask.candidates[0].token] == "NOUN"
    nouns = [mask.candidates[0].token for mask in filling.masks]
    assert filling.text == f"the {nouns[0]} sees  the {nouns[1]} ."
    assert model.fill("no mask  here").text == "no mask  here"


def test_tags_belong_to_words_between_spaces(load: Any) -> None:
    text = "  the cat\u00a0 sees the dog ."
    found = load("tagging").tag(text)
    assert [text[a:b] for a, b in found.offsets] == list(found.words) == text.split()
    assert found.tags == ("DET", "NOUN", "VERB", "DET", "NOUN", "PUNCT")
    assert all(0.5 < probability <= 1.0 for probability in found.probabilities)
    assert load("tagging").tag("").tags == ()


def test_labels_and_numbers(load: Any) -> None:
    found = load("classification").classify("the horse hears the mouse .")
    assert isinstance(found, Classification)
    assert found.label == "long"
    assert found.probabilities is not None
    assert sum(found.probabilities.values()) == pytest.approx(1.0, abs=1e-5)
    assert found.probability == max(found.probabilities.values())
    numbers = load("regression").classify(["the cat sees the dog .", "a cat sees the dog .", ""])
    assert all(isinstance(number, Quantity) for number in numbers)
    assert numbers[0].value == pytest.approx(1.0, abs=0.2)
    assert numbers[1].value == pytest.approx(0.5, abs=0.2)
    assert numbers[2].value is None
    with pytest.raises(DataError, match="single texts"):
        load("classification").classify("a", "b")


@pytest.mark.parametrize("run", TASKS)
def test_every_model_embeds(run: str, load: Any) -> None:
    model = load(run)
    vectors = model.embed(TEXTS)
    assert vectors.shape == (len(TEXTS), 64 if run.startswith("bi") else 32)
    assert vectors.dtype == np.float32
    assert not vectors[6].any()
    np.testing.assert_allclose(model.embed(TEXTS[0]), vectors[0], atol=1e-5)
    tokens = model.embed(TEXTS, level="token")
    for text, one in zip(TEXTS, tokens, strict=True):
        assert len(one.tokens) == len(one.offsets) == len(one.vectors)
        assert [text[a:b] for a, b in one.offsets] == text.split()
    unit = model.embed(TEXTS, normalise=True)
    np.testing.assert_allclose(np.linalg.norm(unit[:6], axis=1), 1.0, atol=1e-5)
    inputs = model.embed(["the cat", "a cat"], level="token", layer=0)
    assert (inputs[0].vectors[1] == inputs[1].vectors[1]).all(), "the input knows no context"
    states = model.embed(["the cat", "a cat"], level="token")
    assert not np.allclose(states[0].vectors[1], states[1].vectors[1])
    mixed = model.embed(TEXTS[0], layer="mix")
    np.testing.assert_allclose(mixed, (model.embed(TEXTS[0], layer=0) + model.embed(TEXTS[0], layer=1)) / 2, atol=1e-5)
    np.testing.assert_allclose(model.embed(TEXTS[0], layer=1), vectors[0], atol=1e-5)
    every, width = model.embed(TEXTS, layer="all"), vectors.shape[1]
    assert every.shape == (len(TEXTS), 2, width)
    for layer in (0, 1):
        np.testing.assert_array_equal(every[:, layer], model.embed(TEXTS, layer=layer))
    np.testing.assert_allclose(model.embed(TEXTS[0], layer="all"), every[0], atol=1e-5)
    for layers, first, last in zip(
        *(model.embed(TEXTS, level="token", layer=layer) for layer in ("all", 0, 1)), strict=True
    ):
        np.testing.assert_array_equal(layers.vectors, np.stack([first.vectors, last.vectors]))
    assert model.embed([], layer="all").shape == (0, 2, width)
    assert model.width("all") == width
    unit = model.embed(TEXTS[0], layer="all", normalise=True)
    np.testing.assert_allclose(np.linalg.norm(unit, axis=1), 1.0, atol=1e-5)
    with pytest.raises(RunError, match="there is no layer 2: 0 is the input, 1 the last"):
        model.embed(TEXTS[0], layer=2)


def test_all_layers_take_one_pass(load: Any) -> None:
    model, passes = load("masked-language-model"), []
    hook = model.network.encoder.register_forward_hook(lambda *_: passes.append(1))
    model.embed("the cat sees", layer="all")
    hook.remove()
    assert passes == [1]


def test_the_token_and_both_directions(load: Any) -> None:
    """[v; h→; h←] of a bidirectional language model and of a recurrent encoder, for tokens and for their mean."""
    for name, inner in (("bidirectional-language-model", 32), ("tagging/recurrent", 32), ("translation/recurrent", 32)):
        model = load(name)
        token, last, both = (model.embed(TEXTS[0], level="token", layer=layer).vectors for layer in (0, -1, "concat"))
        assert both.shape == (len(token), inner + last.shape[1])
        np.testing.assert_array_equal(both, np.concatenate([token[:, :inner], last], axis=1))
        assert model.width("concat") == both.shape[1]
        assert model.embed(TEXTS, layer="concat").shape == (len(TEXTS), both.shape[1])
    for name in ("masked-language-model", "language-model/recurrent"):
        with pytest.raises(RunError, match="recurrent encoders of both directions have; choose a number, all or mix"):
            load(name).embed(TEXTS[0], layer="concat")


@pytest.mark.parametrize("family", ["recurrent", "convolutional"])
def test_the_layers_of_a_decoder_of_any_family(family: str, load: Any) -> None:
    model = load(f"language-model/{family}")
    first, last = (model.embed(["the cat", "a cat"], level="token", layer=layer) for layer in (0, 1))
    assert (first[0].vectors[1] == first[1].vectors[1]).all()
    assert not np.allclose(last[0].vectors[1], last[1].vectors[1])


def test_poolings(load: Any) -> None:
    model, text = load("classification"), "the cat sees the dog ."
    inner = model._predictor
    rows = inner.pad([inner.frame("text", inner.tokenizer.encode(text).ids)])
    with torch.inference_mode():
        states = model.network.encoder(model.network.embedding(rows.ids), rows.mask).states[0].numpy()
        learned = model.network.pool(torch.from_numpy(states)[None], rows.mask)[0].numpy()
    wanted = {"mean": states.mean(0), "max": states.max(0), "cls": states[0], "attention": learned}
    for pooling, vector in wanted.items():
        np.testing.assert_allclose(model.embed(text, pooling=pooling), vector, atol=1e-5, err_msg=pooling)
    with pytest.raises(RunError, match="mean, cls or max"):
        load("tagging").embed(text, pooling="attention")


LONG = " ".join(sentences(12, seed=4))
"""72 words, where the models read 32 tokens."""


def test_a_text_of_several_sentences_is_translated_as_if_each_were_alone(load: Any) -> None:
    """The model was trained on single sentences, and training noted that."""
    model, own = load("translation"), sentences(12, seed=4)
    assert "translates by sentence" in repr(model)
    one, found = model.translate(["the cat sees the dog .", LONG])
    assert (one.pieces, one.sentences, one.flags) == (1, 1, ())
    assert (found.pieces, found.sentences, found.flags) == (12, 12, ("of several sentences",))
    alone = [model.translate(sentence) for sentence in own]
    assert found.text == " ".join(answer.text for answer in alone)
    assert found.tokens == tuple(token for answer in alone for token in answer.tokens)
    sources, targets, wanted = 0, 0, []
    for sentence, answer in zip(own, alone, strict=True):
        wanted += [(sources + source, targets + target) for source, target in answer.alignment]
        sources, targets = sources + len(sentence.split()), targets + len(answer.text.split())
    assert found.alignment == tuple(wanted)
    assert model.translate(LONG, split="sentence") == found
    assert len(model.translate(LONG, nbest=2, beam=2).alternatives) == 1


def test_white_space_between_sentences_stays_and_none_becomes_a_space(load: Any) -> None:
    model = load("translation")
    one, other = (model.translate(text).text for text in ("the cat sees a dog .", "a bird likes the fish ."))
    for given, wanted in {"\n\n": "\n\n", " ": " ", "   ": " "}.items():
        assert model.translate(f" the cat sees a dog .{given}a bird likes the fish .").text == f"{one}{wanted}{other}"
    joined = Splitting("sentence", "zh")(Piece(0, "我饿了。车站在哪里？", 0, ""))
    assert [(piece.text, piece.start, piece.gap) for piece in joined] == [("我饿了。", 0, " "), ("车站在哪里？", 4, "")]
    assert Splitting("sentence", "en", "zh-Hant")(Piece(0, "I see. We go.", 0, ""))[0].gap == ""


def test_languages_are_those_of_the_configuration_unless_given(runs: Runs) -> None:
    model = seqloom.load(runs("translation"), source_language="de-AT", target_language="en")
    assert ", de-AT → en, translates by sentence," in repr(model)
    assert model.config.data.source_language == "de-AT"
    with pytest.raises(ConfigError, match='source_language: "German" is not a BCP 47 language tag, such as de'):
        seqloom.load(runs("translation"), source_language="German")
    with pytest.raises(ConfigError, match="target_language: only translation models have one"):
        seqloom.load(runs("tagging"), target_language="en")


def test_a_long_text_is_translated_piece_by_piece(load: Any) -> None:
    model = load("translation")
    found = model.translate([LONG, "the cat sees the dog ."], split="line")
    assert (found[0].pieces, found[0].flags) == (3, ("split",))
    assert found[1].pieces == 1
    parts = model.translate([" ".join(LONG.split()[start : start + 30]) for start in (0, 30, 60)], split="line")
    assert found[0].text == " ".join(part.text for part in parts)
    assert found[0].score == pytest.approx(sum(part.score for part in parts), abs=1e-4)
    shifted = [pair for n, part in enumerate(parts) for pair in _shift(part.alignment, n * 30)]
    begun = [0, *np.cumsum([len(part.text.split()) for part in parts]).tolist()]
    assert {target for _, target in found[0].alignment} == set(range(begun[-1]))
    assert [source for source, _ in found[0].alignment] == [source for source, _ in shifted]


def _shift(pairs: Sequence[tuple[int, int]], by: int) -> list[tuple[int, int]]:
    return [(source + by, target) for source, target in pairs]


def test_a_long_text_loses_nothing_in_any_verb(load: Any) -> None:
    words = LONG.split()
    tagged = load("tagging").tag(LONG)
    assert (list(tagged.words), tagged.pieces) == (words, 3)
    assert [LONG[a:b] for a, b in tagged.offsets] == words
    for run in ("language-model", "running-text", "masked-language-model", "bidirectional-language-model"):
        score = load(run).score(LONG)
        assert score.pieces >= 3
        assert [LONG[a:b] for a, b in score.offsets if b > a] == words
    tokens = load("masked-language-model").embed(LONG, level="token")
    assert (list(tokens.tokens), tokens.vectors.shape) == (words, (72, 32))
    filled = load("masked-language-model").fill(LONG.replace("fish", "[MASK]"))
    assert len(filled.masks) == LONG.count("fish")
    assert len(filled.text.split()) == 72
    label = load("classification").classify(LONG)
    assert (label.pieces, label.label) == (3, "long")
    continued = load("language-model").generate(LONG + " the", max_length=4)
    assert continued.pieces > 1
    assert TAGS[continued.text.split()[0]] == "NOUN"


def test_a_table_of_positions_is_never_overrun(load: Any) -> None:
    model = load("table")
    found = model.translate(LONG, split="line")
    assert found.pieces == 6
    assert len(model.translate("the cat sees the dog .", min_length=500, max_length=1000).tokens) <= 1000


def test_labels_by_example_are_what_the_model_finds_probable(load: Any) -> None:
    model = load("running-text")
    shots = [("the cat sees the", "dog"), ("a bird hears the", "fish")]
    found = model.classify(["the goat likes the", ""], shots=shots, separator=" . ")
    prompt = "the cat sees the dog . a bird hears the fish . the goat likes the"
    chances = {}
    for label in ("dog", "fish"):
        score = model.score(f"{prompt} {label}")
        chances[label] = math.exp(score.token_scores[score.tokens.index("[EOS]") - 1] or 0.0)
    assert found[0].probabilities == pytest.approx(
        {label: chance / sum(chances.values()) for label, chance in chances.items()}, abs=1e-4
    )
    assert found[1].label == ""
    plain = model.classify("the goat likes", labels=["the", "a", "cat"])
    assert plain.label == "the"
    with pytest.raises(DataError, match="fewer or shorter examples"):
        model.classify("the goat", shots=shots * 5)
    with pytest.raises(ConfigError, match="two labels"):
        model.classify("the goat", shots=shots[:1])
    with pytest.raises(ConfigError, match="must hold"):
        model.classify("the goat", shots=shots, template="{text}")
    with pytest.raises(ConfigError, match="shots: only for a language model"):
        load("tagging").classify("the goat", shots=shots)


def test_a_run_can_be_given_itself(runs: Runs) -> None:
    from seqloom.runs.run import Run

    assert seqloom.load(Run(runs("tagging"))).tag("the cat").tags == ("DET", "NOUN")
    assert seqloom.load(str(runs("tagging"))).labels == ("DET", "NOUN", "PUNCT", "VERB")
    with pytest.raises(RunError, match="there is no run here"):
        seqloom.load("nowhere")


def test_a_model_is_loaded_onto_a_device(runs):
    assert seqloom.load(runs("tagging"), device="cpu").device.type == "cpu"
    best = seqloom.load(runs("tagging"), device="auto")
    assert best.device.type in ("cpu", "cuda", "mps")
    assert best.tag("the cat").tags
    if not torch.cuda.is_available():
        with pytest.raises(ConfigError, match='device: this machine has no cuda; use "auto" or "cpu"'):
            seqloom.load(runs("tagging"), device="cuda")


def test_what_is_not_a_number_is_no_answer(runs):
    """A broken model says so; it does not answer confidently."""
    asked = {"translation": "translate", "language-model": "generate", "tagging": "tag", "classification": "classify"}
    for task, verb in asked.items():
        model = seqloom.load(runs(task))
        with torch.no_grad():
            next(p for name, p in model.network.named_parameters() if "norm" in name).fill_(torch.nan)
        for engine in ("compiled", "open"):
            model._predictor._compiler.enabled = engine == "compiled"
            with pytest.raises(RunError, match="not numbers"):
                getattr(model, verb)("the cat sees a dog")
    model = seqloom.load(runs("translation"))
    with torch.no_grad():
        model.network.output.weight[0, 0] = torch.nan
    with pytest.raises(RunError, match="not numbers"):
        model.translate("the cat sees a dog", beam=3)
