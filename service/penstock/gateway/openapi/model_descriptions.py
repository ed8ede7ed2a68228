"""Descriptions by models of their own applications, put together by kinds of models."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

from penstock.gateway.openapi.document import operation_name
from penstock.gateway.openapi.schemas import Schema, ref

Documents = Mapping[str, Mapping[str, Any]]
"""OpenAPI documents of applications, by the names of their models."""

_REFERENCE = "#/components/schemas/"
_METHODS = frozenset(("get", "post", "put", "patch", "delete"))


class _Kind(NamedTuple):
    """Models whose applications are described alike; `name` is that of their schemas, too."""

    name: str
    models: list[str]
    document: Mapping[str, Any]

    @property
    def title(self) -> str:
        return f"{self.name}: {', '.join(self.models)}"


class _Described(NamedTuple):
    """An operation as one kind describes it."""

    kind: _Kind
    operation: Mapping[str, Any]


def add_models(
    document: dict[str, Any], described: Documents, is_served: Callable[[str], bool]
) -> None:
    """Add to the server's `document` the paths and schemas of its models' applications.

    A path that several kinds of models serve takes the body of any of them. Paths that the server
    does not give to models, by `is_served`, are left out, and so are those of its own.
    """
    schemas: dict[str, Schema] = document["components"]["schemas"]
    operations: dict[tuple[str, str], list[_Described]] = {}
    for kind in _kinds(described):
        own = kind.document.get("components", {}).get("schemas", {})
        schemas.update({f"{kind.name}.{name}": _renamed(one, kind) for name, one in own.items()})
        for path, method, operation in _operations(kind):
            if path not in document["paths"] and is_served(path):
                found = operations.setdefault((path, method), [])
                found.append(_Described(kind, _renamed(operation, kind)))
    for (path, method), found in operations.items():
        document["paths"].setdefault(path, {})[method] = _merged(path, method, found)


def _kinds(described: Documents) -> list[_Kind]:
    """Equal documents are one kind, named after its title, with a number where titles repeat."""
    kinds: list[_Kind] = []
    for model, document in described.items():
        alike = next((kind for kind in kinds if kind.document == document), None)
        if alike is not None:
            alike.models.append(model)
            continue
        title = re.sub(r"\W+", "", str(document.get("info", {}).get("title", ""))) or "Model"
        names = {kind.name for kind in kinds}
        candidates = (title, *(f"{title}{number}" for number in range(2, len(kinds) + 2)))
        name = next(one for one in candidates if one not in names)
        kinds.append(_Kind(name, [model], document))
    return kinds


def _operations(kind: _Kind) -> Iterator[tuple[str, str, Mapping[str, Any]]]:
    for path, operations in kind.document.get("paths", {}).items():
        for method, operation in operations.items():
            if method in _METHODS:
                yield path, method, operation


def _renamed(given: Any, kind: _Kind) -> Any:
    """The description of a kind, with references to its schemas by their new names."""
    if isinstance(given, Mapping):
        return {
            name: value.replace(_REFERENCE, f"{_REFERENCE}{kind.name}.", 1)
            if name == "$ref" and isinstance(value, str)
            else _renamed(value, kind)
            for name, value in given.items()
        }
    return [_renamed(one, kind) for one in given] if isinstance(given, list) else given


def _merged(path: str, method: str, found: list[_Described]) -> Schema:
    """One operation for all kinds that serve it."""
    first = found[0].operation
    bodies = [(one.kind, one.operation.get("requestBody", {})) for one in found]
    answers = [(one.kind, one.operation.get("responses", {}).get("200", {})) for one in found]
    parameters = [one for one in first.get("parameters", ()) if one.get("in") in ("path", "query")]
    merged: Schema = {
        "summary": first.get("summary", ""),
        "description": "\n".join(one.kind.title for one in found),
        "tags": ["openai"],
        "operationId": operation_name(method, path),
        "parameters": parameters,
        "responses": {
            "200": {"description": "Done", "content": _contents(answers)},
            "default": {
                "description": "An error",
                "content": {
                    kind: {"schema": ref("OpenAiError")}
                    for kind in ("application/json", "text/plain")
                },
            },
        },
    }
    if content := _contents(bodies):
        merged["requestBody"] = {"content": content, "required": True}
    return merged


def _contents(found: list[tuple[_Kind, Mapping[str, Any]]]) -> Schema:
    """Schemas by media type: any of those of the kinds that have it."""
    schemas: dict[str, list[Schema]] = {}
    for kind, one in found:
        for media_type, given in one.get("content", {}).items():
            schema = {"title": kind.title, **given.get("schema", {})}
            schemas.setdefault(media_type, []).append(schema)
    return {
        media_type: {"schema": any_of[0] if len(any_of) == 1 else {"anyOf": any_of}}
        for media_type, any_of in schemas.items()
    }
