"""`SeenModels`: the server as the caller at hand may see it, where an access policy is on."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping, Sequence, Set
from contextlib import AbstractContextManager
from typing import Any, Final, cast

from penstock.access.current import current_caller, current_permit
from penstock.core.access import AuditEvent
from penstock.core.config import ModelConfig
from penstock.core.errors import InferenceError, NotFoundError, PermissionDeniedError
from penstock.core.request import InferenceRequest, parse_version
from penstock.core.stream import ResponseStream
from penstock.models.releases.definition import parse_alias
from penstock.models.releases.releases import Event, Releases
from penstock.models.serving.answers import ModelMetadata, ModelStatistics
from penstock.models.serving.loaded_model import LoadedModel
from penstock.models.serving.served_model import ServedModel
from penstock.server.answers import Engine, EngineControlled, ModelIndexEntry, model_statistics
from penstock.server.server import InferenceServer, untraced_model
from penstock.tracing.settings import Texts

OF_NO_MODEL: Final = frozenset(
    {
        *("access", "cancel", "changes", "check_model_control", "control_policy", "exiting"),
        *("explicit_control", "live", "load_meter", "log_settings", "messages", "metadata"),
        *("most_elements", "ready", "regions", "register_repository", "tenants", "tracer"),
        *("unregister_repository", "wait_stopping"),
    }
)
"""What frontends use of the server that neither takes nor tells models' names."""


def seen(server: InferenceServer) -> InferenceServer:
    """The server as frontends have it: itself, unless a policy says who sees what."""
    return server if server.access is None else cast(InferenceServer, SeenModels(server))


class SeenModels:
    """`InferenceServer`, where models that the caller does not see are unknown ones.

    Changes of such models are refused by their names alone, whether there are any or not, and so
    is an unload that would take such models with it. All that is neither here nor in
    `OF_NO_MODEL` is not there.
    """

    def __init__(self, server: InferenceServer) -> None:
        self._server = server
        # What every call asks for, and what stays as it is.
        self.regions, self.tenants, self.tracer = server.regions, server.tenants, server.tracer

    def __getattr__(self, name: str) -> Any:
        if name in OF_NO_MODEL:
            return getattr(self._server, name)
        raise AttributeError(f"frontends behind an access policy have no '{name}'")

    # -- inference ----------------------------------------------------------------------------

    def find(self, name: str, version: str) -> ServedModel:
        if not current_permit().sees(name):
            raise self._hidden(name, version)
        return self._server.find(name, version)

    def infer(self, request: InferenceRequest) -> ResponseStream:
        self._require(request.model_name, request.model_version)
        return self._server.infer(request)

    def _require(self, name: str, version: str) -> None:
        if not current_permit().sees(name):
            raise self._hidden(name, version)

    def _hidden(self, name: str, version: str) -> InferenceError:
        """The error for a model that the caller does not see, of which the audit log is told."""
        if self._server.audit is not None:
            event = AuditEvent(time.time(), "model", "HIDDEN", current_caller(), target=name)
            self._server.audit.add(event)
        return self._server.unknown_model(name, version)

    # -- health and metadata ------------------------------------------------------------------

    def model_names(self) -> Sequence[str]:
        return [*filter(current_permit().sees, self._server.model_names())]

    async def model_ready(self, name: str, version: str) -> bool:
        if current_permit().sees(name):
            return await self._server.model_ready(name, version)
        parse_version(version)
        return False

    def resident(self, name: str) -> bool | None:
        return self._server.resident(name) if current_permit().sees(name) else None

    async def model_metadata(self, name: str, version: str) -> ModelMetadata:
        self._require(name, version)
        return await self._server.model_metadata(name, version)

    async def model_config(self, name: str, version: str) -> ModelConfig:
        self._require(name, version)
        return await self._server.model_config(name, version)

    async def statistics(self, name: str, version: str) -> tuple[ModelStatistics, ...]:
        sees = current_permit().sees
        if name and not sees(name):
            parse_version(version)
            return model_statistics(name, (), None)  # raises, as for any unknown name
        found = await self._server.statistics(name, version)
        seen = tuple(one for one in found if sees(one.name))
        return seen if seen or not name else model_statistics(name, (), None)

    async def adapters(self, name: str) -> list[str]:
        return await self._server.adapters(name) if current_permit().sees(name) else []

    async def speaks_openai(self, name: str) -> bool:
        return current_permit().sees(name) and await self._server.speaks_openai(name)

    async def engine(self, name: str, *, load: bool = True) -> Engine | None:
        self._require(name, "")
        return await self._server.engine(name, load=load)

    async def engines(self) -> Sequence[str]:
        return [*filter(current_permit().sees, await self._server.engines())]

    async def openai_descriptions(self) -> Mapping[str, Mapping[str, Any]]:
        sees = current_permit().sees
        told = await self._server.openai_descriptions()
        return {name: described for name, described in told.items() if sees(name)}

    # -- model repository ---------------------------------------------------------------------

    async def index(self, ready_only: bool = False) -> tuple[ModelIndexEntry, ...]:
        sees = current_permit().sees
        return tuple(one for one in await self._server.index(ready_only) if sees(one.name))

    async def load(
        self, name: str, parameters: Mapping[str, str | bytes], *, trusted: bool = False
    ) -> None:
        _check_change(name)
        for meant in await self._server.meant(name):
            _check_change(meant)
        await self._server.load(name, parameters, trusted=trusted)

    async def unload(
        self, name: str, unload_dependents: bool = False, versions: Set[int] = frozenset()
    ) -> None:
        _check_change(name)
        for gone in await self._server.meant(name, unload_dependents):
            _check_change(gone)
        await self._server.unload(name, unload_dependents, versions)

    @property
    def releases(self) -> SeenReleases:
        return SeenReleases(self._server.releases)

    # -- settings -----------------------------------------------------------------------------

    async def control(
        self, name: str, version: str, action: str, arguments: Mapping[str, Any]
    ) -> EngineControlled:
        self.check_engine_control(name, version)
        return await self._server.control(name, version, action, arguments)

    def check_engine_control(self, name: str, version: str) -> LoadedModel:
        self._server.check_commands()
        self._require(name, version)
        return self._server.check_engine_control(name, version)

    async def trace_settings(self, model: str = "", changes: Texts | None = None) -> Texts:
        if model and not current_permit().sees(model):
            raise untraced_model(model)
        return await self._server.trace_settings(model, changes)


class SeenReleases:
    """`Releases`, where aliases that the caller does not see are unknown ones.

    Who sees an alias is told the names of its targets; who sets one has to see these, too. Who
    promotes it or takes it back moves its traffic among those that it has, and need not.
    """

    def __init__(self, releases: Releases) -> None:
        self._releases = releases

    def listed(self) -> list[dict[str, Any]]:
        return [*filter(lambda one: current_permit().sees(one["name"]), self._releases.listed())]

    def shown(self, name: str) -> dict[str, Any]:
        if not current_permit().sees(name):
            raise NotFoundError(f"there is no alias '{name}'")
        return self._releases.shown(name)

    def watching(self) -> AbstractContextManager[asyncio.Queue[Event]]:
        return self._releases.watching(current_permit().sees)

    def set(self, name: str, fields: Mapping[str, Any]) -> None:
        for named in (name, *sorted(parse_alias(name, fields).models)):
            _check_change(named)
        self._releases.set(name, fields, current_permit().sees)

    def remove(self, name: str) -> None:
        _check_change(name)
        self._releases.remove(name)

    def promote(self, name: str, fields: Mapping[str, Any]) -> None:
        _check_change(name)
        self._releases.promote(name, fields)

    def roll_back(self, name: str) -> None:
        _check_change(name)
        self._releases.roll_back(name)


def _check_change(name: str) -> None:
    if not current_permit().sees(name.strip()):
        raise PermissionDeniedError("the caller may not change models of this name")
