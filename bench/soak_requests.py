"""What the clients of bench/soak.py ask, in every dialect, and the command that prints the same."""

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

JSON = "application/json"


@dataclass(frozen=True)
class Kind:
    """A kind of request: how it is written for a text, and where the answer is."""

    name: str
    path: str
    write: Callable[[str], str]
    read: Callable[[bytes], Any]
    command: tuple[str, ...]
    """The command that prints the same: its verb, the model, and options."""
    pick: Callable[[Any], Any]
    """What to compare of a line that the command prints."""
    form: str = JSON
    is_drawn: bool = False
    """Whether the number of a line matters: in a request, each text is the first."""


def own(verb: str, model: str, *command: str, **options: Any) -> Kind:
    """A verb of our own dialect, which answers with what `--json` prints."""
    return Kind(
        " ".join((verb, *command)),
        f"/seqloom/v1/{verb}",
        lambda text: json.dumps({"model": model, "texts": text, **options}),
        lambda body: without_line(json.loads(body)["results"][0]),
        (verb, model, "--json", *command),
        without_line,
    )


def without_line(result: dict[str, Any]) -> dict[str, Any]:
    """A result without the number of its line."""
    return {name: value for name, value in result.items() if name != "line"}


def read_stream(body: bytes, field: str) -> str:
    """The parts of a streamed answer, put together."""
    lines = [line.removeprefix("data: ") for line in body.decode().splitlines() if line and "[DONE]" not in line]
    parts = [json.loads(line) for line in lines]
    return "".join(part["choices"][0]["text"] if field == "choices" else part[field] for part in parts)


TRANSLATE = ("translate", "translation", "--json")
DRAWN = ("--sample", "--temperature", "1", "--nbest", "2", "--seed", "7")
KINDS = (
    own("translate", "translation"),
    own("translate", "translation", "--beam", "3", "--nbest", "2", beam=3, nbest=2),
    own("generate", "language-model", "--max-length", "40", max_length=40),
    own("classify", "classification"),
    own("tag", "tagging"),
    Kind(
        "LibreTranslate",
        "/translate",
        lambda text: f"q={quote(text)}&source=en&target=de",
        lambda body: json.loads(body)["translatedText"],
        TRANSLATE,
        lambda line: line["text"],
        "application/x-www-form-urlencoded",
    ),
    Kind(
        "DeepL",
        "/v2/translate",
        lambda text: json.dumps({"text": [text, text], "target_lang": "DE"}),
        lambda body: json.loads(body)["translations"][1]["text"],
        TRANSLATE,
        lambda line: line["text"],
    ),
    Kind(
        "OpenAI, streamed",
        "/v1/completions",
        lambda text: json.dumps(
            {"model": "language-model", "prompt": text, "max_tokens": 30, "temperature": 0, "stream": True}
        ),
        lambda body: read_stream(body, "choices"),
        ("generate", "language-model", "--json", "--max-length", "30"),
        lambda line: line["text"],
    ),
    Kind(
        "OpenAI, drawn",
        "/v1/completions",
        lambda text: json.dumps(
            {"model": "language-model", "prompt": text, "max_tokens": 30, "temperature": 1, "n": 2, "seed": 7}
        ),
        lambda body: sorted(one["text"] for one in json.loads(body)["choices"]),
        ("generate", "language-model", "--json", "--max-length", "30", *DRAWN),
        lambda line: sorted((line["text"], *(one["text"] for one in line["alternatives"]))),
        is_drawn=True,
    ),
    Kind(
        "Ollama, streamed",
        "/api/generate",
        lambda text: json.dumps(
            {"model": "language-model", "prompt": text, "options": {"num_predict": 20, "temperature": 0}}
        ),
        lambda body: read_stream(body, "response"),
        ("generate", "language-model", "--json", "--max-length", "20"),
        lambda line: line["text"],
    ),
    Kind(
        "Hugging Face",
        "/models/translation",
        lambda text: json.dumps({"inputs": text}),
        lambda body: json.loads(body)[0]["translation_text"],
        TRANSLATE,
        lambda line: line["text"],
    ),
    Kind(
        "TEI",
        "/embed",
        lambda text: json.dumps({"model": "classification", "inputs": text}),
        lambda body: json.loads(body)[0],
        ("embed", "classification", "--json", "--normalise"),
        lambda line: line["vector"],
    ),
    Kind(
        "embeddings",
        "/v1/embeddings",
        lambda text: json.dumps({"model": "classification", "input": [text], "encoding_format": "float"}),
        lambda body: json.loads(body)["data"][0]["embedding"],
        ("embed", "classification", "--json"),
        lambda line: line["vector"],
    ),
)
MALFORMED = (
    ("/translate", "{"),
    ("/seqloom/v1/translate", json.dumps({"texts": 5})),
    ("/seqloom/v1/generate", json.dumps({"model": "no such model", "texts": "a"})),
    ("/seqloom/v1/translate", json.dumps({"model": "translation", "texts": "a", "beam": 10**9})),
    ("/v1/completions", json.dumps({"model": "language-model", "prompt": "a", "presence_penalty": 1})),
    ("/nowhere", "{}"),
)
