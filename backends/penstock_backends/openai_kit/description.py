"""The OpenAPI document of an application: routes, and the types that bodies are checked by."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

from pydantic import TypeAdapter

from penstock_backends.openai_kit.json_body import BodyReader

Schema = dict[str, Any]

_NAMED = "#/components/schemas/{model}"
_EVENTS = "text/event-stream; charset=utf-8"


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
