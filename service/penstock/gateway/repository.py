"""The model repository endpoints: index, load and unload (contract H-13 to H-16)."""

from __future__ import annotations

from base64 import b64decode
from collections.abc import Mapping
from typing import Any

from starlette.requests import Request
from starlette.types import ASGIApp

from penstock.core.errors import (
    InferenceError,
    InternalError,
    InvalidRequestError,
    UnsupportedError,
)
from penstock.gateway.body import read_body
from penstock.gateway.json.fields import ABSENT, as_bool, as_string, member, members_of
from penstock.gateway.json.text import parse
from penstock.gateway.replies import json_reply, reply
from penstock.gateway.router import Target
from penstock.server.answers import ModelIndexEntry
from penstock.server.server import InferenceServer


class RepositoryEndpoints:
    """Handlers of the paths below `/v2/repository`."""

    def __init__(self, server: InferenceServer, max_input_size: int) -> None:
        self._server = server
        self._limit = max_input_size

    async def index(self, request: Request, _: Target) -> ASGIApp:
        ready = member(await self._json(request), "ready")
        ready_only = ready is not ABSENT and as_bool(ready)
        entries = await self._server.index(ready_only)
        return json_reply([_entry(entry) for entry in entries])

    async def load(self, request: Request, target: Target) -> ASGIApp:
        _refuse_repository_name(target)
        parameters = _load_parameters(await self._json(request))
        await self._server.load(target.model, parameters)
        return reply()

    async def unload(self, request: Request, target: Target) -> ASGIApp:
        """Unload a model; an invalid body is ignored."""
        _refuse_repository_name(target)
        try:
            parameters = member(await self._json(request), "parameters")
        except InferenceError:
            parameters = ABSENT
        dependents = member(parameters, "unload_dependents") is True
        await self._server.unload(target.model, unload_dependents=dependents)
        return reply()

    async def _json(self, request: Request) -> Any:
        body = await read_body(request, self._limit)
        return parse(body) if body else ABSENT


def _entry(entry: ModelIndexEntry) -> dict[str, str]:
    """An entry of the index, without empty members."""
    fields = {
        "name": entry.name,
        "version": entry.version,
        "state": entry.state,
        "reason": entry.reason,
    }
    return {key: value for key, value in fields.items() if value}


def _load_parameters(json: Any) -> Mapping[str, str | bytes]:
    """The parameters of a load: the configuration as text, files as bytes (contract H-14)."""
    given = member(json, "parameters")
    parameters: dict[str, str | bytes] = {}
    for key, value in ({} if given is ABSENT else members_of(given)).items():
        text = as_string(value)
        if key == "config":
            parameters[key] = text
        elif key.startswith("file:"):
            parameters[key] = _file(key, text)
        else:
            raise InternalError("unexpected error on creating Triton parameter")
    return parameters


def _file(key: str, text: str) -> bytes:
    try:
        return b64decode(text, validate=True)
    except ValueError as error:
        raise InvalidRequestError(f"load parameter '{key}' is not base64: {error}") from error


def _refuse_repository_name(target: Target) -> None:
    if target.repository:
        raise UnsupportedError("'repository_name' specification is not supported")
