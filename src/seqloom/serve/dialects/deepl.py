"""DeepL's dialect: /v2/translate, /v2/languages and /v2/usage, as its Python and node clients ask them."""

from typing import Any, Literal

from fastapi import APIRouter, Request
from pydantic import BaseModel, ConfigDict

from seqloom.serve.dialects.base import Dialect
from seqloom.serve.dialects.libretranslate import name_language
from seqloom.serve.faults import RefusalError
from seqloom.serve.fields import describe_body, read_fields
from seqloom.serve.service import Ask, Service

_REFUSED = {
    "glossary_id": "there are no glossaries here",
    "tag_handling": "this server translates plain text; take the tags out",
    "context": "each text is translated by itself",
    "custom_instructions": "the models here take none",
    "style_id": "there are no styles here",
}


class TranslateFields(BaseModel):
    """What /v2/translate takes."""

    model_config = ConfigDict(extra="ignore")  # such as preserve_formatting and show_billed_characters

    text: str | list[str]
    target_lang: str
    source_lang: str | None = None
    split_sentences: Literal["0", "1", "nonewlines"] | bool | None = None
    formality: str | None = None
    glossary_id: str | None = None
    tag_handling: str | None = None
    context: str | None = None
    custom_instructions: list[str] | None = None
    style_id: str | None = None


def routes(service: Service) -> APIRouter:
    """What DeepL's clients ask."""
    router = APIRouter(prefix="/v2", tags=["DeepL"])

    @router.post("/translate", openapi_extra=describe_body(TranslateFields))
    async def translate(request: Request) -> dict[str, Any]:
        """Translate texts."""
        asked = await read_fields(request, TranslateFields, many=("text",))
        for name, why in _REFUSED.items():
            if getattr(asked, name):
                raise RefusalError(f"{name}: {why}; leave it out")
        if asked.formality not in (None, "", "default", "prefer_more", "prefer_less"):
            raise RefusalError("formality: the models here have none; leave it out")
        texts = [asked.text] if isinstance(asked.text, str) else asked.text
        options: dict[str, Any] = {"align": False}
        if asked.split_sentences is not None:
            options["split"] = "line" if asked.split_sentences in ("0", False) else "sentence"
        pair = asked.source_lang or "auto", asked.target_lang
        answer = await service.ask(Ask("translate", texts, options, None, pair))
        assert answer.model.languages is not None
        source = (asked.source_lang or answer.model.languages[0]).upper()
        return {
            "translations": [
                {"detected_source_language": source, "text": one.text, "billed_characters": len(text)}
                for text, one in zip(texts, answer.results, strict=True)
            ]
        }

    @router.get("/languages")
    async def languages(type: Literal["source", "target"] = "source") -> list[dict[str, Any]]:
        """The languages of the models, on one side."""
        pairs = [model.languages for model in service.models if model.languages is not None]
        codes = dict.fromkeys(pair[type == "target"] for pair in pairs)
        return [{"language": code.upper(), "name": name_language(code), "supports_formality": False} for code in codes]

    @router.get("/usage")
    async def usage() -> dict[str, int]:
        """The characters that were translated since the server began; there is no limit on their sum."""
        return {"character_count": service.count_characters("translate"), "character_limit": 10**12}

    return router


def say(status: int, sentence: str) -> dict[str, Any]:
    """A refusal as DeepL's clients read it."""
    return {"message": sentence}


DIALECT = Dialect("deepl", ("/v2/",), routes, say)
