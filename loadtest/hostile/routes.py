"""Every route of every HTTP port, with a path that leads to it, made from the route's pattern.

Those of the gateway and of OpenAI's API are read from the router itself, so that one that is added
joins by itself; what the cloud endpoints and the metrics port answer has no router, and is listed.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from importlib import import_module
from itertools import product
from typing import Any
from unittest.mock import Mock

from penstock.gateway.app import gateway_router
from penstock.gateway.json.helper import JsonHelper
from penstock.gateway.router import Route
from penstock.settings import HttpSettings, OpenAiSettings

_parser = import_module("re._parser")
_SAMPLES = {
    "model": "simple",
    "version": "1",
    "repository": "x",
    "region": "x",
    "action": "x",
    "adapter": "x",
    "alias": "x",
}
"""What stands in paths for the groups of patterns."""

_ANYTHING = "x"
_CHANGING = ("POST", "DELETE")
_OPENAI = {
    "/v1/requests": ("DELETE",),
    "/v1/models": ("GET", "POST"),
    "/v1/responses/": ("GET", "POST"),
    "/health": ("GET",),
}
"""Methods below these paths, where they are others than POST alone."""


@dataclass(frozen=True, slots=True)
class Place:
    """Where a request goes: a port, a method, a path, and the header fields that lead there."""

    port: str
    method: str
    path: str
    headers: tuple[tuple[str, str], ...] = ()

    @property
    def label(self) -> str:
        port = "" if self.port == "http" else f"{self.port} "
        target = "".join(f" ({value})" for _, value in self.headers)
        return f"{port}{self.method} {self.path}{target}"


def _cloud_places() -> Iterator[Place]:
    for path in ("/ping", "/models", "/models/simple"):
        yield Place("sagemaker", "GET", path)
    for path in ("/invocations", "/models", "/models/simple/invoke"):
        yield Place("sagemaker", "POST", path)
    yield Place("sagemaker", "DELETE", "/models/simple")
    yield Place("vertex", "GET", "/health")
    yield Place("vertex", "POST", "/predict")
    for target in ("v2/models/simple/generate", "v2/models/simple/config", "metrics"):
        yield Place("vertex", "POST", "/predict", (("X-Vertex-Ai-Triton-Redirect", target),))


def gateway_routes() -> Sequence[Route]:
    """The routes of the HTTP port, in the order in which they are tried."""
    with closing(JsonHelper()) as helper:
        router = gateway_router(
            Mock(access=None, most_elements=1), HttpSettings(docs=True), helper, OpenAiSettings()
        )
    return [route for _, route in router._routes]


def places() -> list[Place]:
    """A place for each route, with each method that is one of its own."""
    found = [
        Place("http", method, path)
        for route in gateway_routes()
        for path in paths(route.path)
        for method in _methods(route, path)
    ]
    openai = [Place("openai", "POST", "/v1/completions"), Place("openai", "GET", "/metrics")]
    metrics = [Place("metrics", "GET", "/metrics"), Place("metrics", "GET", "/other")]
    return list(dict.fromkeys([*found, *openai, *metrics, *_cloud_places()]))


def _methods(route: Route, path: str) -> Sequence[str]:
    """The methods that are a route's own; OpenAI's take any, and refuse most themselves."""
    if len(route.methods) <= len(_CHANGING):
        return route.methods
    return next((own for prefix, own in _OPENAI.items() if path.startswith(prefix)), ("POST",))


def paths(pattern: str) -> list[str]:
    """Paths that a pattern matches: each of its branches; parameters only where they must be."""
    return list(dict.fromkeys(_texts(_parser.parse(pattern))))


def _texts(items: Any) -> list[str]:
    """The texts that a pattern, or a part of one, matches."""
    names = {number: name for name, number in items.state.groupdict.items()}
    return ["".join(parts) for parts in product(*(_parts(item, names) for item in items))]


def _parts(item: Any, names: dict[int, str]) -> list[str]:
    """The texts of one part of a pattern."""
    kind, value = str(item[0]), item[1]
    if kind == "LITERAL":
        return [chr(value)]
    if kind == "SUBPATTERN":
        return [_SAMPLES[names[value[0]]]] if value[0] in names else _texts(value[3])
    if kind == "BRANCH":
        return [text for branch in value[1] for text in _texts(branch)]
    if kind == "MAX_REPEAT":
        return _repeats(value, names)
    if kind == "IN" and str(value[0][0]) == "LITERAL":
        return [chr(one[1]) for one in value]
    return [_ANYTHING]


def _repeats(value: Any, names: dict[int, str]) -> list[str]:
    """None and one of what may be absent, but parameters; one of what is repeated."""
    least, _, items = value
    once = _texts(items)
    named = any(str(item[0]) == "SUBPATTERN" and item[1][0] in names for item in items)
    if least:
        return once
    return [""] if named else ["", *once]
