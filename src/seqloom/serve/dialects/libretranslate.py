"""LibreTranslate's dialect (github.com/LibreTranslate/LibreTranslate): /translate, /languages, /detect.

Clients send JSON, a form, or everything in the query. Languages are never guessed: `auto` is accepted where only one
model translates to the target, and /detect is refused.
"""

from typing import Annotated, Any, Literal

from fastapi import APIRouter, Request
from pydantic import BaseModel, ConfigDict, Field

from seqloom.errors import import_extra
from seqloom.serve.dialects.base import Dialect, say_plainly
from seqloom.serve.faults import RefusalError
from seqloom.serve.fields import describe_body, read_fields
from seqloom.serve.models import UNKNOWN
from seqloom.serve.service import Ask, Service


class TranslateFields(BaseModel):
    """What /translate takes."""

    model_config = ConfigDict(extra="ignore")  # clients add fields of their own, such as `secret`

    q: str | list[str]
    source: str
    target: str
    format: Literal["text", "html"] = "text"
    alternatives: Annotated[int, Field(ge=0)] = 0
    api_key: str | None = None


def routes(service: Service) -> APIRouter:
    """What LibreTranslate's clients ask."""
    router = APIRouter(tags=["LibreTranslate"])

    @router.post("/translate", openapi_extra=describe_body(TranslateFields))
    async def translate(request: Request) -> dict[str, Any]:
        """Translate a text, or a list of texts."""
        asked = await read_fields(request, TranslateFields)
        if asked.format == "html":
            raise RefusalError("format: this server translates plain text; take the tags out, and send text")
        texts = [asked.q] if isinstance(asked.q, str) else asked.q
        options: dict[str, Any] = {"align": False}
        if asked.alternatives:
            options |= {"beam": asked.alternatives + 1, "nbest": asked.alternatives + 1}
        answer = await service.ask(Ask("translate", texts, options, None, (asked.source, asked.target)))
        found = [one.text for one in answer.results]
        written: dict[str, Any] = {"translatedText": found[0] if isinstance(asked.q, str) else found}
        if asked.alternatives:
            others = [[one.text for one in result.alternatives] for result in answer.results]
            written["alternatives"] = others[0] if isinstance(asked.q, str) else others
        return written

    @router.get("/languages")
    async def languages() -> list[dict[str, Any]]:
        """The languages of the models, and what each is translated to."""
        targets: dict[str, list[str]] = {}
        for model in service.models:
            if model.languages is not None:
                source, target = model.languages
                own = targets.setdefault(source, [])
                if target not in own:
                    own.append(target)
        return [{"code": code, "name": name_language(code), "targets": own} for code, own in targets.items()]

    @router.post("/detect")
    async def detect() -> None:
        """Refused: no model here knows languages apart."""
        raise RefusalError("this server does not detect languages; say which it is with source")

    @router.get("/frontend/settings")
    async def settings() -> dict[str, Any]:
        """What LibreTranslate's own page asks first."""
        return {
            "apiKeys": False,
            "charLimit": service.limits.characters,
            "filesTranslation": False,
            "frontendTimeout": 500,
            "keyRequired": False,
            "suggestions": False,
            "supportedFilesFormat": [],
        }

    return router


def name_language(code: str) -> str:
    """The English name of a language where babel is installed (the extra `demo`); its code otherwise."""
    if code == UNKNOWN:
        return code
    try:
        babel = import_extra("babel", "demo")
        return str(babel.Locale.parse(code.replace("-", "_")).get_display_name("en") or code)
    except Exception:  # babel is missing, or knows no such language
        return code


PATHS = ("/translate", "/languages", "/detect", "/frontend/settings")
DIALECT = Dialect("libretranslate", PATHS, routes, say_plainly)
