"""The model repository endpoints: index, load and unload (contract H-13 to H-16), and aliases."""

from __future__ import annotations

from base64 import b64decode
from collections.abc import Mapping
from functools import partial
from typing import Any

from penstock.core.errors import (
    InferenceError,
    InternalError,
    InvalidRequestError,
    UnsupportedError,
)
from penstock.gateway.connections.http_call import HttpCall
from penstock.gateway.control_bodies import ControlBodies
from penstock.gateway.json.fields import ABSENT, as_bool, as_string, member, members_of
from penstock.gateway.json_bodies import JsonBodies
from penstock.gateway.replies import Reply, json_reply, reply
from penstock.gateway.router import Target
from penstock.models.repository.override import CONFIG, VERSIONS, parse_versions
from penstock.server.answers import ModelIndexEntry
from penstock.server.control_policy import ControlPolicy
from penstock.server.faces import Repository


class RepositoryEndpoints:
    """Handlers of the paths below `/v2/repository`.

    Bodies of loads may hold files, as far as the `policy` lets them; those of others are `small`.
    """

    def __init__(
        self,
        server: Repository,
        bodies: JsonBodies,
        small: ControlBodies,
        policy: ControlPolicy,
    ) -> None:
        self._server = server
        self._bodies = bodies
        self._small = small
        self._policy = policy
        self._decode_load = partial(_load_parameters, policy)

    async def index(self, call: HttpCall, target: Target) -> Reply:
        _refuse_repository_name(target)
        ready_only = await self._small.read(call, _ready_only, optional=True)
        entries = await self._server.index(ready_only)
        return json_reply([_entry(entry) for entry in entries])

    async def load(self, call: HttpCall, target: Target) -> Reply:
        _refuse_repository_name(target)
        self._server.check_model_control()
        parameters = await self._bodies.read(call, self._decode_load, optional=True)
        await self._server.load(target.model, parameters, trusted=self._policy.upload)
        return reply()

    async def unload(self, call: HttpCall, target: Target) -> Reply:
        """Unload a model; an invalid body is ignored, but for versions that are no numbers."""
        _refuse_repository_name(target)
        self._server.check_model_control()
        try:
            dependents, named = await self._small.read(call, _unloaded, optional=True)
        except InferenceError:
            dependents, named = False, None
        versions = frozenset[int]() if named is None else parse_versions(str(named))
        await self._server.unload(target.model, dependents, versions)
        return reply()


class ReleaseEndpoints:
    """Handlers of the paths below `/v2/repository/aliases`, which are Penstock's own."""

    def __init__(self, server: Repository, bodies: ControlBodies) -> None:
        self._server = server
        self._bodies = bodies

    async def listed(self, _: HttpCall, __: Target) -> Reply:
        return json_reply(self._server.releases.listed())

    async def shown(self, call: HttpCall, target: Target) -> Reply | None:
        """GET shows an alias with its history, POST sets it, DELETE removes it."""
        if call.method == "POST":
            fields = await self._read(call)
            self._server.check_model_control()
            self._server.releases.set(target.alias, fields)
        elif call.method == "DELETE":
            self._server.check_model_control()
            self._server.releases.remove(target.alias)
            return reply()
        return json_reply(self._server.releases.shown(target.alias))

    async def _read(self, call: HttpCall, *, optional: bool = False) -> Mapping[str, Any]:
        """The object in a body; what is no JSON is the client's fault, as these paths are ours."""
        try:
            return await self._bodies.read(call, _definition, optional=optional)
        except InternalError as error:
            raise InvalidRequestError(error.message) from error

    async def promoted(self, call: HttpCall, target: Target) -> Reply:
        """A target gets its first share; the others follow."""
        fields = await self._read(call, optional=True)
        self._server.check_model_control()
        self._server.releases.promote(target.alias, fields)
        return json_reply(self._server.releases.shown(target.alias))

    async def rolled_back(self, _: HttpCall, target: Target) -> Reply:
        """The first target takes all requests."""
        self._server.check_model_control()
        self._server.releases.roll_back(target.alias)
        return reply()


def _load_parameters(policy: ControlPolicy, json: Any) -> Mapping[str, str | bytes]:
    """The parameters of a load: the configuration as text, files as bytes (contract H-14)."""
    given = member(json, "parameters")
    found = {} if given is ABSENT else members_of(given)
    policy.check_files(found)
    return {key: _parameter(key, as_string(value)) for key, value in found.items()}


def _definition(json: Any) -> Mapping[str, Any]:
    """The members of an object that defines something; none without a body."""
    if json is ABSENT:
        return {}
    if not isinstance(json, dict):
        raise InvalidRequestError("the body is to be a JSON object")
    return json


def _ready_only(json: Any) -> bool:
    ready = member(json, "ready")
    return ready is not ABSENT and as_bool(ready)


def _unloaded(json: Any) -> tuple[bool, Any]:
    """Whether to unload the models that it needs, too; and the versions, `None` for all."""
    given = member(json, "parameters")
    versions = member(given, VERSIONS)
    dependents = member(given, "unload_dependents") is True
    return dependents, None if versions is ABSENT else versions


def _entry(entry: ModelIndexEntry) -> dict[str, str]:
    """An entry of the index, without empty members."""
    fields = {
        "name": entry.name,
        "version": entry.version,
        "state": entry.state,
        "reason": entry.reason,
    }
    return {key: value for key, value in fields.items() if value}


def _parameter(key: str, text: str) -> str | bytes:
    if key in (CONFIG, VERSIONS):
        return text
    if key.startswith("file:"):
        return _file(key, text)
    raise InternalError("unexpected error on creating Triton parameter")


def _file(key: str, text: str) -> bytes:
    try:
        return b64decode(text, validate=True)
    except ValueError as error:
        raise InvalidRequestError(f"load parameter '{key}' is not base64: {error}") from error


def _refuse_repository_name(target: Target) -> None:
    if target.repository:
        raise UnsupportedError("'repository_name' specification is not supported")
