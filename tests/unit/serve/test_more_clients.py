"""More clients of others, unchanged: Hugging Face's, DeepL's, Ollama's, LangChain's, and requests of TEI's."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import deepl
import httpx
import numpy as np
import ollama
import pytest
from huggingface_hub import InferenceClient
from langchain_openai import OpenAI, OpenAIEmbeddings

import seqloom
from unit.serve.served import Served, make_folders

pytestmark = pytest.mark.usefixtures("as_users_run")  # whole models: shapes are checked elsewhere

TEXT = "the cat sees a dog"


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    return make_folders(tmp_path_factory.mktemp("served"))


@pytest.fixture(scope="module")
def address(folders: dict[str, Path]) -> Iterator[str]:
    with Served(folders) as served, served.listen() as found:
        yield found


@pytest.fixture(scope="module")
def models(folders: dict[str, Path]) -> dict[str, seqloom.Model]:
    return {name: seqloom.load(folder) for name, folder in folders.items()}


def test_hugging_face(address: str, models: dict[str, seqloom.Model]) -> None:
    def client(name: str) -> InferenceClient:
        return InferenceClient(model=f"{address}/models/{name}")

    found = client("translation").translation(TEXT)
    assert found.translation_text == models["translation"].translate(TEXT).text
    generated = client("language-model").text_generation(TEXT, max_new_tokens=6)
    assert generated == models["language-model"].generate(TEXT, max_length=6).text
    drawn = client("language-model").text_generation(TEXT, max_new_tokens=6, do_sample=True, seed=3, top_p=0.9)
    assert drawn == models["language-model"].generate(TEXT, max_length=6, sample=True, seed=3, top_p=0.9).text
    labels = client("classification").text_classification(TEXT)
    expected = models["classification"].classify(TEXT)
    assert labels[0].label == expected.label  # type: ignore[union-attr]
    assert labels[0].score == pytest.approx(expected.probability, abs=1e-5)  # type: ignore[union-attr]
    filled = client("masked-language-model").fill_mask("the [MASK] sees")
    [mask] = models["masked-language-model"].fill("the [MASK] sees").masks
    assert [one.token_str for one in filled] == [one.text for one in mask.candidates]
    vectors = InferenceClient(model=f"{address}/pipeline/feature-extraction/classification").feature_extraction(TEXT)
    np.testing.assert_allclose(vectors[0], models["classification"].embed(TEXT), atol=1e-5)
    alike = client("classification").sentence_similarity(TEXT, other_sentences=[TEXT, "a dog"])
    assert alike[0] == pytest.approx(1.0, abs=1e-5)


def test_hugging_face_tags(address: str, models: dict[str, seqloom.Model]) -> None:
    entities = InferenceClient(model=f"{address}/models/tagging").token_classification(TEXT)
    expected = models["tagging"].tag(TEXT)
    assert [(one.word, one.start, one.end) for one in entities] == [
        (span.text, span.start, span.end) for span in expected.spans
    ]


def test_the_root_is_for_one_model(folders: dict[str, Path], address: str, models: dict[str, seqloom.Model]) -> None:
    assert "ask /models/NAME" in httpx.post(address, json={"inputs": TEXT}, timeout=60).json()["error"]
    with Served({"mt": folders["translation"]}) as served, served.listen() as own:
        found = InferenceClient(model=own).translation(TEXT)
    assert found.translation_text == models["translation"].translate(TEXT).text


def test_deepl(address: str, models: dict[str, seqloom.Model]) -> None:
    client = deepl.DeepLClient("a-key", server_url=address)
    found: Any = client.translate_text([TEXT, "a dog"], source_lang="DE", target_lang="EN-GB")
    assert [one.text for one in found] == [one.text for one in models["translation"].translate([TEXT, "a dog"])]
    assert found[0].detected_source_lang == "DE"
    assert client.get_source_languages()[0].code == "UND"
    used = client.get_usage()
    assert used.character.count is not None
    assert used.character.count >= len(TEXT)
    assert not used.any_limit_reached
    with pytest.raises(deepl.DeepLException, match="plain text"):
        client.translate_text(TEXT, target_lang="EN-GB", tag_handling="xml")
    form = httpx.post(f"{address}/v2/translate", data={"text": [TEXT, "a dog"], "target_lang": "EN"}, timeout=60).json()
    assert [one["text"] for one in form["translations"]] == [one.text for one in found]


def test_ollama(address: str, models: dict[str, seqloom.Model]) -> None:
    client, lm = ollama.Client(address), models["language-model"]
    options = {"temperature": 0, "num_predict": 8}
    whole = client.generate(model="language-model", prompt=TEXT, options=options)
    assert whole.response == lm.generate(TEXT, max_length=8).text
    assert whole.done
    parts = list(client.generate(model="language-model", prompt=TEXT, options=options, stream=True))
    assert "".join(part.response for part in parts) == whole.response
    drawn = client.generate(model="language-model:latest", prompt=TEXT, options={"seed": 4, "num_predict": 5})
    same = lm.generate(TEXT, max_length=5, sample=True, temperature=0.8, top_k=40, top_p=0.9, seed=4)
    assert drawn.response == same.text
    vectors = client.embed(model="classification", input=[TEXT, "a dog"]).embeddings
    np.testing.assert_allclose(vectors, models["classification"].embed([TEXT, "a dog"], normalise=True), atol=1e-5)
    assert {one.model for one in client.list().models} == {*models}
    with pytest.raises(ollama.ResponseError, match="they do not chat"):
        client.chat(model="language-model", messages=[{"role": "user", "content": "hello"}])
    with pytest.raises(ollama.ResponseError, match="there is no model"):
        client.generate(model="llama", prompt=TEXT)


def test_ollama_asked_by_curl(address: str, models: dict[str, seqloom.Model]) -> None:
    """`curl -d` calls JSON a form; Ollama's own examples do that."""

    def ask(path: str, body: str) -> Any:
        form = {"Content-Type": "application/x-www-form-urlencoded"}
        return httpx.post(f"{address}{path}", content=body, headers=form, timeout=60)

    options = '{"temperature": 0, "num_predict": 8}'
    body = f'{{"model": "language-model", "prompt": "{TEXT}", "stream": false, "options": {options}}}'
    assert ask("/api/generate", body).json()["response"] == models["language-model"].generate(TEXT, max_length=8).text
    vectors = ask("/api/embed", f'{{"model": "classification", "input": "{TEXT}"}}').json()["embeddings"]
    np.testing.assert_allclose(vectors, models["classification"].embed([TEXT], normalise=True), atol=1e-5)
    assert ask("/api/show", '{"model": "tagging"}').json()["capabilities"] == ["embedding"]
    assert "not JSON" in ask("/api/generate", "model=language-model").json()["error"]
    assert "Content-Type: application/json" in ask("/seqloom/v1/translate", '{"texts": "a"}').json()["error"]


def test_langchain(address: str, models: dict[str, seqloom.Model]) -> None:
    named: dict[str, Any] = {"base_url": f"{address}/v1", "api_key": "none", "model": "language-model"}
    llm = OpenAI(**named, temperature=0, max_tokens=7)
    assert llm.invoke(TEXT) == models["language-model"].generate(TEXT, max_length=7).text
    assert "".join(llm.stream(TEXT)) == models["language-model"].generate(TEXT, max_length=7).text
    named["model"] = "classification"
    vectors = OpenAIEmbeddings(**named, check_embedding_ctx_length=False).embed_documents([TEXT])
    np.testing.assert_allclose(vectors, models["classification"].embed([TEXT]), atol=1e-5)


def test_tei(address: str, models: dict[str, seqloom.Model]) -> None:
    def ask(path: str, **body: Any) -> Any:
        return httpx.post(f"{address}{path}", json={"model": "classification", **body}, timeout=60).json()

    model = models["classification"]
    np.testing.assert_allclose(
        ask("/embed", inputs=[TEXT, "a dog"]), model.embed([TEXT, "a dog"], normalise=True), atol=1e-5
    )
    np.testing.assert_allclose(ask("/embed", inputs=TEXT, normalize=False), model.embed([TEXT]), atol=1e-5)
    first = ask("/predict", inputs=TEXT)
    assert first[0]["label"] == model.classify(TEXT).label  # type: ignore[union-attr]
    assert [len(one) for one in ask("/predict", inputs=[TEXT, "a dog", "a cat"])] == [2, 2, 2]
    [tokens] = ask("/tokenize", inputs=TEXT)
    assert [token["text"] for token in tokens if not token["special"]] == TEXT.split()
    assert ask("/similarity", inputs={"source_sentence": TEXT, "sentences": [TEXT]})[0] == pytest.approx(1, abs=1e-5)
    refused = ask("/rerank", query=TEXT, texts=["a dog"])
    assert refused["error_type"] == "Validation"
    assert httpx.get(f"{address}/info", timeout=60).json()["model_id"] == "translation"
    assert httpx.get(f"{address}/health", timeout=60).status_code == 200
