"""The fields of a request, wherever a client puts them: the query, a form, or JSON."""

import json
from typing import Any, TypeVar
from urllib.parse import parse_qsl

from fastapi import Request
from fastapi.exceptions import RequestValidationError
from pydantic import BaseModel, ValidationError

from seqloom.serve.faults import RefusalError

_M = TypeVar("_M", bound=BaseModel)


async def read_object(request: Request, kind: type[_M]) -> _M:
    """A JSON object as a record, whatever its content type is said to be: `curl -d` says that it is a form."""
    return _validate(kind, _parse(await request.body()))


async def read_fields(request: Request, kind: type[_M], *, many: tuple[str, ...] = ()) -> _M:
    """The fields as a record; those named in `many` may be there several times in a form."""
    found: dict[str, Any] = _collect(request.url.query, many)
    body, form = await request.body(), request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if body and form == "application/x-www-form-urlencoded":
        try:
            found |= _collect(body.decode(), many)
        except UnicodeDecodeError:
            raise RefusalError("the form is not UTF-8") from None
    elif body and form in ("application/json", ""):
        found |= _parse(body)
    elif body:
        raise RefusalError(f"the content type is {form[:60]!r}; send JSON or a form", status=415)
    return _validate(kind, found)


def describe_body(kind: type[BaseModel]) -> dict[str, Any]:
    """What the description of a server says of a body that a route reads by itself."""
    schema = kind.model_json_schema()
    parts = schema.pop("$defs", {})  # of which it could not speak there: they are put where they are meant
    return {"requestBody": {"content": {"application/json": {"schema": _put_in(schema, parts)}}}}


def _put_in(schema: Any, parts: dict[str, Any]) -> Any:
    match schema:
        case {"$ref": str(name)}:
            return _put_in(parts[name.removeprefix("#/$defs/")], parts)
        case dict():
            return {name: _put_in(value, parts) for name, value in schema.items()}
        case list():
            return [_put_in(value, parts) for value in schema]
        case _:
            return schema


def _validate(kind: type[_M], found: dict[str, Any]) -> _M:
    try:
        return kind.model_validate(found)
    except ValidationError as error:
        faults = [{**fault, "loc": ("body", *fault["loc"])} for fault in error.errors(include_url=False)]
        raise RequestValidationError(faults) from None


def _collect(text: str, many: tuple[str, ...]) -> dict[str, Any]:
    try:
        pairs = parse_qsl(text, keep_blank_values=True, errors="strict", max_num_fields=2048)
    except ValueError:
        raise RefusalError("the fields cannot be read: they are not UTF-8, or too many") from None
    found: dict[str, Any] = {}
    for name, value in pairs:
        if name in many:
            found.setdefault(name, []).append(value)
        else:
            found[name] = value
    return found


def _parse(body: bytes) -> dict[str, Any]:
    try:
        value = json.loads(body)
    except (ValueError, RecursionError):
        raise RefusalError("the request is not JSON") from None
    if not isinstance(value, dict):
        raise RefusalError("the request must be a JSON object")
    return value
