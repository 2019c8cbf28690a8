"""The route of the view Words: a word in sentences that the page sends, or in those of the run's own data."""

from dataclasses import asdict
from typing import Annotated, Any

from fastapi import APIRouter
from pydantic import BaseModel, ConfigDict, Field

from seqloom.errors import RunError
from seqloom.predict.contexts import find_contexts
from seqloom.serve.sentences import find_sentences
from seqloom.serve.subject import Subject


class WordRequest(BaseModel):
    """A word and sentences with it; without sentences, the run's own data have them, and without a word a word, too."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    word: Annotated[str, Field(max_length=100)] = ""
    texts: Annotated[tuple[Annotated[str, Field(max_length=2_000)], ...], Field(max_length=100)] = ()


def word_routes(subject: Subject) -> APIRouter:
    """POST /words."""
    routes = APIRouter()

    @routes.post("/words")
    def words(request: WordRequest) -> dict[str, Any]:
        if subject.model is None:
            raise RunError("there is no model to read sentences with yet")
        model = subject.model._predictor
        word, texts, origin = request.word, [*request.texts], None
        if not texts:
            word, texts, origin = find_sentences(model, word)
        return {**asdict(find_contexts(model, word, texts)), "origin": origin}

    return routes
