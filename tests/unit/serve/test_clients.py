"""Clients of others, unchanged, at a real address: each gets what the model answers in Python."""

from collections.abc import Iterator
from pathlib import Path

import httpx
import numpy as np
import openai
import pytest
import requests
from deep_translator import LibreTranslator
from deep_translator.exceptions import AuthorizationException
from libretranslatepy import LibreTranslateAPI

import seqloom
from unit.serve.served import Served, make_folders

pytestmark = pytest.mark.usefixtures("as_users_run")  # whole models: shapes are checked elsewhere

KEY = "a-key-of-our-own"
TEXT = "the cat sees a dog"


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    return make_folders(tmp_path_factory.mktemp("served"))


@pytest.fixture(scope="module")
def address(folders: dict[str, Path]) -> Iterator[str]:
    with Served(folders) as served, served.listen() as found:
        yield found


@pytest.fixture(scope="module")
def lm(folders: dict[str, Path]) -> seqloom.Model:
    return seqloom.load(folders["language-model"])


@pytest.fixture(scope="module")
def mt(folders: dict[str, Path]) -> seqloom.Model:
    return seqloom.load(folders["translation"])


@pytest.fixture(scope="module")
def client(address: str) -> openai.OpenAI:
    return openai.OpenAI(base_url=f"{address}/v1", api_key="none", max_retries=0)


def test_libretranslatepy(address: str, mt: seqloom.Model) -> None:
    client = LibreTranslateAPI(address)
    assert client.translate(TEXT, "de", "en") == mt.translate(TEXT).text
    assert client.languages() == [{"code": "und", "name": "und", "targets": ["und"]}]
    with pytest.raises(Exception, match="400"):
        client.detect(TEXT)


def test_deep_translator(address: str, mt: seqloom.Model) -> None:
    client = LibreTranslator(source="de", target="en", custom_url=f"{address}/", api_key="none")
    assert client.translate(TEXT) == mt.translate(TEXT).text
    assert client.translate_batch([TEXT, "a dog"]) == [one.text for one in mt.translate([TEXT, "a dog"])]


def test_weblate_sends_a_list(address: str, mt: seqloom.Model) -> None:
    """As recorded: GET /languages first, then JSON with a list of texts."""
    assert requests.get(f"{address}/languages", timeout=60).status_code == 200
    body = {"q": [TEXT, ""], "source": "de", "target": "en", "format": "text", "api_key": ""}
    answer = requests.post(f"{address}/translate", json=body, timeout=60).json()
    assert answer == {"translatedText": [mt.translate(TEXT).text, ""]}


def test_alternatives_and_faults_of_libretranslate(address: str, mt: seqloom.Model) -> None:
    def ask(**body: object) -> httpx.Response:
        return httpx.post(f"{address}/translate", json={"source": "auto", "target": "en", **body}, timeout=60)

    found = mt.translate(TEXT, beam=3, nbest=3)
    expected = {"translatedText": found.text, "alternatives": [one.text for one in found.alternatives]}
    assert ask(q=TEXT, alternatives=2).json() == expected
    for body, said in [({"q": TEXT, "format": "html"}, "plain text"), ({}, "q: field required")]:
        assert said in ask(**body).json()["error"]


def test_openai_completions(client: openai.OpenAI, lm: seqloom.Model) -> None:
    answer = client.completions.create(model="language-model", prompt=TEXT, max_tokens=9, temperature=0)
    found = lm.generate(TEXT, max_length=9)
    assert answer.choices[0].text == found.text
    assert answer.choices[0].finish_reason == ("stop" if found.finished else "length")
    assert answer.usage is not None
    assert answer.usage.completion_tokens == len(found.tokens)
    several = client.completions.create(
        model="language-model", prompt=[TEXT, "a dog"], max_tokens=6, n=3, temperature=0.7, seed=5
    )
    drawn = lm.generate([TEXT, "a dog"], max_length=6, sample=True, nbest=3, temperature=0.7, seed=5)
    for at, one in enumerate(drawn):
        ours = {choice.text for choice in several.choices[3 * at : 3 * at + 3]}
        assert ours == {other.text for other in (one, *one.alternatives)}
    same = client.completions.create(model="language-model", prompt=TEXT, max_tokens=4, temperature=0, n=2)
    assert [choice.text for choice in same.choices] == [lm.generate(TEXT, max_length=4).text] * 2


def test_openai_logprobs_and_echo(client: openai.OpenAI, lm: seqloom.Model) -> None:
    found = lm.generate(TEXT, max_length=7)
    answer = client.completions.create(model="language-model", prompt=TEXT, max_tokens=7, temperature=0, logprobs=2)
    given = answer.choices[0].logprobs
    assert given is not None
    assert given.token_logprobs == pytest.approx(found.token_scores[: len(found.tokens)], abs=1e-5)
    assert "".join(given.tokens or ()) == answer.choices[0].text
    assert all(len(best) == 2 for best in given.top_logprobs or ())
    echoed = client.completions.create(
        model="language-model", prompt=TEXT, max_tokens=0, temperature=0, logprobs=1, echo=True
    ).choices[0]
    assert echoed.text == TEXT
    assert echoed.logprobs is not None
    known = [score for score in echoed.logprobs.token_logprobs or () if score is not None]
    scored = [score for score in lm.score(TEXT).token_scores if score is not None]
    assert known == pytest.approx(scored[: len(known)], abs=1e-5)
    assert (echoed.logprobs.text_offset or ())[0] == 0
    assert len(echoed.logprobs.tokens or ()) == len(echoed.logprobs.token_logprobs or ())


def test_openai_streams(client: openai.OpenAI, lm: seqloom.Model) -> None:
    parts = list(
        client.completions.create(model="language-model", prompt=TEXT, max_tokens=9, temperature=0, stream=True)
    )
    assert "".join(part.choices[0].text for part in parts) == lm.generate(TEXT, max_length=9).text
    assert len(parts) > 2
    assert parts[-1].choices[0].finish_reason in ("stop", "length")
    texts = ["", "", ""]
    for part in client.completions.create(
        model="language-model",
        prompt=TEXT,
        max_tokens=8,
        n=3,
        seed=1,
        stream=True,
        stream_options={"include_usage": True},
    ):
        for choice in part.choices:
            texts[choice.index] += choice.text
    drawn = lm.generate(TEXT, max_length=8, sample=True, nbest=3, temperature=1.0, seed=1)
    assert sorted(texts) == sorted(one.text for one in (drawn, *drawn.alternatives))


def test_openai_stops(client: openai.OpenAI, lm: seqloom.Model) -> None:
    whole = lm.generate(TEXT, max_length=12).text
    stop = whole.split()[3]
    expected = whole[: whole.index(stop)]
    options = {"model": "language-model", "prompt": TEXT, "max_tokens": 12, "temperature": 0, "stop": [stop]}
    answer = client.completions.create(**options)  # type: ignore[call-overload]
    assert (answer.choices[0].text, answer.choices[0].finish_reason) == (expected, "stop")
    parts = client.completions.create(stream=True, **options)  # type: ignore[call-overload]
    assert "".join(part.choices[0].text for part in parts) == expected


def test_openai_embeddings_and_models(client: openai.OpenAI, folders: dict[str, Path]) -> None:
    texts = [TEXT, "a dog"]
    expected = seqloom.load(folders["classification"]).embed(texts)
    for form in (openai.NOT_GIVEN, "float"):  # unasked, the client takes base64
        answer = client.embeddings.create(model="classification", input=texts, encoding_format=form)  # type: ignore[arg-type]
        np.testing.assert_allclose([one.embedding for one in answer.data], expected, atol=1e-5)
    assert {model.id for model in client.models.list()} == {*folders}
    assert client.models.retrieve("tagging").id == "tagging"


def test_openai_faults(client: openai.OpenAI) -> None:
    with pytest.raises(openai.NotFoundError, match="there is no model 'gpt'") as missing:
        client.completions.create(model="gpt", prompt=TEXT)
    assert missing.value.code == "model_not_found"
    with pytest.raises(openai.BadRequestError, match="it can translate"):
        client.completions.create(model="translation", prompt=TEXT)
    for options in ({"suffix": "x"}, {"presence_penalty": 0.5}, {"logit_bias": {"1": 1}}, {"n": 1000}):
        with pytest.raises(openai.BadRequestError, match=next(iter(options)) if "n" not in options else "nbest"):
            client.completions.create(model="language-model", prompt=TEXT, **options)  # type: ignore[call-overload]
    with pytest.raises(openai.UnprocessableEntityError):
        client.completions.create(model="language-model", prompt=[1, 2, 3])
    with pytest.raises(openai.BadRequestError, match="shorten it"):
        client.completions.create(model="language-model", prompt="the cat " * 2000)


def test_keys(folders: dict[str, Path], tmp_path: Path, mt: seqloom.Model) -> None:
    import hashlib

    from seqloom.serve.keys import Keys

    file = tmp_path / "keys.txt"
    file.write_text(f"# of the test\n{hashlib.sha256(KEY.encode()).hexdigest()}  website\n")
    with Served({"mt": folders["translation"]}, keys=Keys(file)) as served, served.listen() as address:
        assert httpx.get(f"{address}/health", timeout=60).status_code == 200
        assert LibreTranslateAPI(address, KEY).translate(TEXT, "de", "en") == mt.translate(TEXT).text
        right = LibreTranslator(source="de", target="en", custom_url=f"{address}/", api_key=KEY)
        assert right.translate(TEXT) == mt.translate(TEXT).text
        with pytest.raises(AuthorizationException):
            LibreTranslator(source="de", target="en", custom_url=f"{address}/", api_key="x").translate(TEXT)
        assert openai.OpenAI(base_url=f"{address}/v1", api_key=KEY).models.list().data[0].id == "mt"
        with pytest.raises(openai.AuthenticationError, match="missing or wrong"):
            openai.OpenAI(base_url=f"{address}/v1", api_key=KEY + "x", max_retries=0).models.list()
        assert '"client": "website"' in served.heard.getvalue()
        assert KEY not in served.heard.getvalue()
