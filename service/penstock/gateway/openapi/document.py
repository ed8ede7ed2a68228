"""The OpenAPI 3.1 document of the HTTP endpoint: a row for each operation."""

from __future__ import annotations

import re
from typing import Any, NamedTuple

from penstock import __version__
from penstock.gateway.openapi.schemas import OPENAI_SCHEMAS, SCHEMAS, Schema, ref


class _Operation(NamedTuple):
    """A call: `body`, `answer` and `error` are names of schemas, the first two empty for none."""

    method: str
    path: str
    tag: str
    summary: str
    body: str = ""
    answer: str = ""
    media_type: str = "application/json"
    error: str = "Error"


def _of_versions(*operations: _Operation) -> list[_Operation]:
    """Calls of a model, and of one of its versions."""
    return [
        each._replace(path=f"{prefix}{each.path}", summary=each.summary + end)
        for each in operations
        for prefix, end in (
            ("/v2/models/{model}", ""),
            ("/v2/models/{model}/versions/{version}", ", of a version"),
        )
    ]


_EVENTS = "text/event-stream"

_OPERATIONS = [
    _Operation("get", "/v2", "server", "Name, version and extensions", answer="ServerMetadata"),
    _Operation("get", "/v2/health/live", "server", "Whether the server is alive", answer="Live"),
    _Operation(
        "get",
        "/v2/health/ready",
        "server",
        "Whether the server and its models are ready",
        answer="Ready",
    ),
    _Operation("get", "/v2/models/stats", "models", "Statistics of all", answer="Statistics"),
    *_of_versions(
        _Operation("get", "", "models", "Inputs and outputs of a model", answer="ModelMetadata"),
        _Operation("get", "/ready", "models", "Whether a model is ready", answer="ModelReady"),
        _Operation("get", "/config", "models", "Configuration of a model", answer="ModelConfig"),
        _Operation("get", "/stats", "models", "Statistics of a model", answer="Statistics"),
        _Operation("post", "/infer", "inference", "Infer", "InferRequest", "InferResponse"),
        _Operation(
            "post", "/generate", "inference", "Generate", "GenerateRequest", "GenerateResponse"
        ),
        _Operation(
            "post",
            "/generate_stream",
            "inference",
            "Generate, as server-sent events",
            "GenerateRequest",
            "GenerateResponse",
            _EVENTS,
        ),
        _Operation("post", "/engine/{action}", "engine", "Control an engine", "Any", "Any"),
        _Operation("get", "/adapters", "engine", "Adapters of an engine", answer="Any"),
        _Operation("post", "/adapters/{adapter}", "engine", "Add an adapter", "Any", "Any"),
        _Operation("delete", "/adapters/{adapter}", "engine", "Remove an adapter", answer="Any"),
    ),
    _Operation(
        "post", "/v2/repository/index", "repository", "Models and states", "IndexRequest", "Index"
    ),
    _Operation(
        "post", "/v2/repository/models/{model}/load", "repository", "Load a model", "LoadRequest"
    ),
    _Operation(
        "post",
        "/v2/repository/models/{model}/unload",
        "repository",
        "Unload a model",
        "UnloadRequest",
    ),
    _Operation("get", "/v2/repository/aliases", "repository", "Aliases", answer="Aliases"),
    *(
        _Operation(method, "/v2/repository/aliases/{alias}", "repository", text, body, answer)
        for method, text, body, answer in (
            ("get", "An alias and its history", "", "AliasWithHistory"),
            ("post", "Set an alias", "Alias", "AliasWithHistory"),
            ("delete", "Remove an alias", "", ""),
        )
    ),
    _Operation(
        "post",
        "/v2/repository/aliases/{alias}/promote",
        "repository",
        "A target gets more and more",
        "Promotion",
        "AliasWithHistory",
    ),
    _Operation(
        "post",
        "/v2/repository/aliases/{alias}/rollback",
        "repository",
        "The first target takes all",
    ),
    *(
        _Operation(method, path, "settings", f"{verb} settings of traces", body, "TraceSettings")
        for path in ("/v2/trace/setting", "/v2/models/{model}/trace/setting")
        for method, verb, body in (("get", "Read", ""), ("post", "Change", "TraceSettings"))
    ),
    _Operation("get", "/v2/logging", "settings", "Read settings of the log", answer="LogSettings"),
    _Operation(
        "post",
        "/v2/logging",
        "settings",
        "Change settings of the log",
        "LogSettings",
        "LogSettings",
    ),
    *(
        operation
        for kind in ("System", "Cuda")
        for prefix in (f"/v2/{kind.lower()}sharedmemory",)
        for operation in (
            _Operation("get", f"{prefix}/status", "memory", "Regions", answer=f"{kind}Regions"),
            _Operation(
                "get",
                f"{prefix}/region/{{region}}/status",
                "memory",
                "A region",
                answer=f"{kind}Regions",
            ),
            _Operation(
                "post",
                f"{prefix}/region/{{region}}/register",
                "memory",
                "Register a region",
                f"{kind}Region",
            ),
            _Operation(
                "post", f"{prefix}/region/{{region}}/unregister", "memory", "Unregister a region"
            ),
            _Operation("post", f"{prefix}/unregister", "memory", "Unregister all regions"),
        )
    ),
]


_OPENAI_OPERATIONS = [
    operation._replace(tag="openai", error="OpenAiError")
    for operation in (
        _Operation("get", "/v1/models", "", "Models that are ready", answer="OpenAiModels"),
        _Operation("get", "/v1/models/{model}", "", "A model", answer="OpenAiModel"),
        _Operation("post", "/v1/models/{model}/load", "", "Load a model", answer="OpenAiModel"),
        _Operation(
            "post", "/v1/models/{model}/unload", "", "Unload a model", answer="OpenAiUnloaded"
        ),
        _Operation("delete", "/v1/requests/{id}", "", "Stop a request", answer="OpenAiCancelled"),
        _Operation("get", "/health/ready", "", "Whether the server is ready"),
    )
]
"""Those of OpenAI's API that the server itself answers."""


def document(*, openai: bool = False) -> dict[str, Any]:
    """The whole document, as JSON; with `openai`, also of that API what models do not answer."""
    paths: dict[str, dict[str, Any]] = {}
    for operation in (*_OPERATIONS, *(_OPENAI_OPERATIONS if openai else ())):
        paths.setdefault(operation.path, {})[operation.method] = _described(operation)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Penstock",
            "version": __version__,
            "description": "KServe v2 with Triton's extensions. Binary tensors stand behind JSON"
            " in the same body, where the header Inference-Header-Content-Length says how long"
            " the JSON is; here only JSON is described.",
        },
        "paths": paths,
        "components": {"schemas": {**SCHEMAS, **(OPENAI_SCHEMAS if openai else {})}},
    }


def _described(operation: _Operation) -> Schema:
    errors = {kind: {"schema": ref(operation.error)} for kind in ("application/json", "text/plain")}
    answer: Schema = {"description": "Done"}
    if operation.answer:
        schema: Schema = ref(operation.answer)
        if operation.media_type == _EVENTS:
            schema = {"type": "string"}
        answer["content"] = {operation.media_type: {"schema": schema}}
    found: Schema = {
        "summary": operation.summary,
        "tags": [operation.tag],
        "operationId": operation_name(operation.method, operation.path),
        "parameters": [
            {"name": name, "in": "path", "required": True, "schema": _of_path(name)}
            for name in re.findall(r"{(\w+)}", operation.path)
        ],
        "responses": {"200": answer, "default": {"description": "An error", "content": errors}},
    }
    if operation.media_type == _EVENTS:
        errors[f"{_EVENTS}; charset=utf-8"] = {"schema": {"type": "string"}}
    if operation.body:
        content = {"application/json": {"schema": ref(operation.body)}}
        needed = operation.body in ("InferRequest", "GenerateRequest")
        found["requestBody"] = {"content": content, "required": needed}
    return found


def operation_name(method: str, path: str) -> str:
    """The unique name of an operation."""
    return "_".join((method, *re.findall(r"\w+", path)))


def _of_path(name: str) -> Schema:
    """The schema of a parameter of the path."""
    if name == "version":
        return {"type": "string", "pattern": "^[0-9]+$"}
    return {"type": "string", "minLength": 1}
