"""Requests: JSON checked against the types of the `openai` package, refused by name, described."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from typing import Any, Final, Literal

from pydantic import TypeAdapter
from pydantic_core import ErrorDetails, SchemaValidator, ValidationError, from_json

from penstock.backend import suggestion
from penstock_backends.openai_kit.errors import ApiError, refuse_field

Schema = dict[str, Any]

_NAMED: Final = "#/components/schemas/{model}"
_EVENTS: Final = "text/event-stream; charset=utf-8"
_DISCRIMINATORS: Final = ("role", "type")
_FORMS: Final[Mapping[str, Mapping[str, Any]]] = {"stream": {"type": "boolean"}}
"""JSON schemas of further fields, as far as they are checked here."""
_TYPE_NAMES: Final = ("str", "int", "float", "bool", "constrained-str")
_FREE: Final = ("arguments", "metadata", "parameters", "schema")
"""Members of OpenAI's types whose JSON is the client's own, where null is a value."""


class BodyReader:
    """Reads requests of one endpoint: its type of the `openai` package, and further fields.

    The package's lists are lazy to pydantic; here they are lists. All end with their first error:
    those of 100,000 wrong members took a second, in which nobody else was served.
    """

    def __init__(self, type_: Any, further: Iterable[str] = (), *, ignore_unknown: bool) -> None:
        self.type = type_
        self._validator = _validator(type_)
        self._further = tuple(further)
        self._known = {*type_.__annotations__, *self._further}
        self._ignore_unknown = ignore_unknown

    def check(
        self, given: Mapping[str, Any], parameters: Mapping[str, Any] | None = None
    ) -> dict[str, Any]:
        """The fields of a request that are not null; raises `ApiError` that names the first wrong.

        `parameters` are the server's; with `unknown_fields` of `ignore`, it refuses none.
        Lists, objects and further fields are returned as they came, but for members of messages,
        tools and other objects of OpenAI's that are null: clients send back what they have got.
        """
        fields = {
            name: _without_nulls(value) if name in self.type.__annotations__ else value
            for name, value in given.items()
            if value is not None
        }
        ignored = (parameters or {}).get("unknown_fields") == "ignore" or self._ignore_unknown
        for name in fields:
            if name not in self._known and not ignored:
                refuse_field(
                    name,
                    f"unknown field '{name[:100]}'{suggestion(name[:100], self._known)}",
                    "unknown_parameter",
                )
        if not isinstance(fields.get("stream", False), bool):
            refuse_field("stream", "'stream' must be a boolean")
        try:
            checked: dict[str, Any] = self._validator.validate_python(fields)
        except ValidationError as error:
            raise _explained(error) from error
        plain = {n: value for n, value in checked.items() if not isinstance(value, dict | list)}
        return {**fields, **plain}

    def closed(self, schema: Mapping[str, Any]) -> dict[str, Any]:
        """The JSON schema of its type, with the further fields, and closed unless it ignores."""
        more = {name: _FORMS.get(name, {}) for name in self._further}
        properties = {**more, **schema["properties"]}
        closed = {} if self._ignore_unknown else {"additionalProperties": False}
        return {**schema, "properties": properties, **closed}


def read_object(body: bytes) -> dict[str, Any]:
    """The JSON object of a body; raises `ApiError`.

    It may be nested 200 deep; NaN, halves of surrogate pairs and text that is not UTF-8 are errors.
    """
    try:
        given = from_json(body, allow_inf_nan=False)
    except ValueError as error:
        raise ApiError(f"the body is not JSON: {error}", code="invalid_json") from error
    if not isinstance(given, dict):
        raise ApiError("the body must be a JSON object", code="invalid_json")
    return given


def _without_nulls(value: Any) -> Any:
    """A value whose objects have no members that are null."""
    if isinstance(value, dict):
        return {
            name: one if name in _FREE else _without_nulls(one)
            for name, one in value.items()
            if one is not None
        }
    return [_without_nulls(one) for one in value] if isinstance(value, list) else value


@cache
def _validator(type_: Any) -> SchemaValidator:
    adapter: TypeAdapter[Any] = TypeAdapter(type_)
    return SchemaValidator(_with_lists(adapter.core_schema))


def _with_lists(schema: Any) -> Any:
    """A schema of pydantic's whose lazy iterables are lists; lists end with their first error."""
    if isinstance(schema, dict):
        rewritten = {name: _with_lists(value) for name, value in schema.items()}
        if rewritten.get("type") in ("generator", "list"):
            return {**rewritten, "type": "list", "fail_fast": True}
        return rewritten
    if isinstance(schema, list | tuple):
        return type(schema)(_with_lists(value) for value in schema)
    return schema


def _explained(error: ValidationError) -> ApiError:
    """The error of the branch that was meant: one whose `role` or `type` is right."""
    details = error.errors(include_url=False, include_context=False, include_input=False)
    named = [one for one in details if _ends(one)]
    wrong = [one["loc"][:-1] for one in named]
    meant = [one for one in details if not any(_is_within(one["loc"], w) for w in wrong)]
    # Unknown kinds, inside of what is right so far:
    kinds = [one for one in named if not any(_is_within(one["loc"][:-2], w) for w in wrong)]
    deepest = max(map(_depth, kinds), default=0)
    unknown = not meant or deepest > max(map(_depth, meant)) + 1
    best = max(kinds if unknown else meant, key=_depth)
    path = _path(best["loc"])
    message = best["msg"][:1].lower() + best["msg"][1:]
    if unknown:
        same = (one for one in kinds if one["loc"][-1] == best["loc"][-1])
        messages = (one["msg"] for one in same if _depth(one) == deepest)
        expected = (one.removeprefix("Input should be ") for one in messages)
        message = f"must be one of {', '.join(dict.fromkeys(expected))}"
    param = str(best["loc"][0]) if best["loc"] else None
    code = "missing_required_parameter" if best["type"] == "missing" else "invalid_type"
    return ApiError(f"{path}: {message}", param=param, code=code)


def _ends(detail: ErrorDetails) -> bool:
    return detail["type"] == "literal_error" and detail["loc"][-1] in _DISCRIMINATORS


def _is_within(place: tuple[int | str, ...], branch: tuple[int | str, ...]) -> bool:
    return place[: len(branch)] == branch


def _depth(detail: ErrorDetails) -> int:
    return len(detail["loc"])


def _path(place: tuple[int | str, ...]) -> str:
    """A place in the body, without the names of types that pydantic puts between."""
    text = ""
    for part in place:
        if isinstance(part, int):
            text += f"[{part}]"
        elif part.isidentifier() and part[:1].islower() and part not in _TYPE_NAMES:
            text += f".{part}" if text else part
    return text or "the body"


def description(title: str, readers: Mapping[str, Sequence[BodyReader]]) -> Schema:
    """OpenAPI 3.1 of routes that take JSON by POST, by the readers of the forms that it may have.

    It takes up to a second.
    """
    types: list[tuple[tuple[str, int], Literal["validation"], TypeAdapter[Any]]] = [
        ((path, number), "validation", TypeAdapter(reader.type))
        for path, of_path in readers.items()
        for number, reader in enumerate(of_path)
    ]
    found, definitions = TypeAdapter.json_schemas(types, ref_template=_NAMED)
    forms = {key: schema for (key, _), schema in found.items()}
    return {
        "openapi": "3.1.0",
        "info": {"title": title, "version": "1"},
        "paths": {
            path: {
                "post": _operation(
                    path,
                    [
                        reader.closed(_inlined(forms[path, number], definitions["$defs"]))
                        for number, reader in enumerate(of_path)
                    ],
                )
            }
            for path, of_path in readers.items()
        },
        "components": {"schemas": definitions["$defs"]},
    }


def _inlined(schema: Schema, definitions: Mapping[str, Schema]) -> Schema:
    """The form of a body itself, where that is a reference to a definition."""
    name = str(schema.get("$ref", "")).rpartition("/")[2]
    return dict(definitions.get(name, schema))


def _operation(path: str, bodies: Sequence[Schema]) -> Schema:
    schema = bodies[0] if len(bodies) == 1 else {"anyOf": list(bodies)}
    content = {"application/json": {"schema": {"type": "object"}}}
    if any("stream" in body["properties"] for body in bodies):
        content[_EVENTS] = {"schema": {"type": "string"}}
    return {
        "summary": f"POST {path}",
        "requestBody": {"content": {"application/json": {"schema": schema}}, "required": True},
        "responses": {"200": {"description": "Done", "content": content}},
    }
