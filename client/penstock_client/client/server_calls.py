"""`ServerCalls`: connections to servers, and what can be asked of these beside inference."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import Any, TypeVar

from penstock_client.client.caller import Answer, Caller, Unary
from penstock_client.client.errors import DeadlineExceededError, UnavailableError
from penstock_client.client.grpc_transport import GrpcTransport
from penstock_client.client.http_transport import HttpTransport
from penstock_client.client.policy import CallPolicy
from penstock_client.client.transport import Connection, Tls, Transport
from penstock_client.reading.address import ServerAddress, parse_server
from penstock_client.reading.views import ModelEntry, ModelMetadata, ModelStatistics, ServerMetadata

Self = TypeVar("Self", bound="ServerCalls")
ONCE = CallPolicy()


class ServerCalls:
    """Health, views and the repository of one server, or of several with the same models."""

    def __init__(
        self,
        *addresses: str,
        timeout: float | None = None,
        headers: Mapping[str, str] | None = None,
        tls: Tls | None = None,
        policy: CallPolicy = ONCE,
    ) -> None:
        connection = Connection(headers=headers or {}, tls=tls or Tls())
        parsed = [
            parse_server(each, secure=tls is not None) for each in addresses or ("localhost:8001",)
        ]
        self._timeout = timeout
        self._caller = Caller([_transport(each, connection) for each in parsed], policy)
        self._metadata: dict[tuple[str, str], ModelMetadata] = {}

    async def __aenter__(self: Self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Close all connections; calls that are open end."""
        await asyncio.gather(*(each.close() for each in self._caller.transports))

    # -- health and views ---------------------------------------------------------------------

    async def live(self, *, timeout: float | None = None) -> bool:
        """Whether the server runs."""
        return await self._call(lambda transport, left: transport.live(left), timeout)

    async def ready(
        self, model: str = "", version: str = "", *, timeout: float | None = None
    ) -> bool:
        """Whether a model, or without one the server, takes requests."""
        if model:
            return await self._call(
                lambda transport, left: transport.model_ready(model, version, left), timeout
            )
        return await self._call(lambda transport, left: transport.ready(left), timeout)

    async def wait_ready(
        self, *models: str, timeout: float | None = None, interval: float = 0.1
    ) -> None:
        """Wait until the server takes requests, and the models do; asks every `interval` seconds.

        Raises `DeadlineExceededError` that says what is not ready after `timeout` seconds, and why
        not, where the server does not answer.
        """
        waiting, why = ["", *models], ""
        try:
            async with asyncio.timeout(timeout):
                while waiting:
                    reason = await self._why_not_ready(waiting[0])
                    why = reason or ""
                    if reason is None:
                        waiting.pop(0)
                    else:
                        await asyncio.sleep(interval)
        except TimeoutError:
            what = f"model '{waiting[0]}'" if waiting[0] else "the server"
            text = f"{what} was not ready within {timeout:g} s{why}"
            raise DeadlineExceededError(text) from None

    async def _why_not_ready(self, model: str) -> str | None:
        """The reason why a model, or the server for "", is not ready: `None` if it is, empty if the
        server only says that it is not.
        """
        try:
            return None if await self.ready(model) else ""
        except (UnavailableError, DeadlineExceededError) as error:  # it is starting, or too busy
            return f": {error.message}"

    async def server_metadata(self, *, timeout: float | None = None) -> ServerMetadata:
        """Name, version and protocol extensions of the server."""
        return await self._call(lambda transport, left: transport.server_metadata(left), timeout)

    async def model_metadata(
        self, model: str, version: str = "", *, timeout: float | None = None
    ) -> ModelMetadata:
        """The inputs and outputs of a model; asked for once, and again after a load."""
        found = self._metadata.get((model, version))
        if found is None:
            found = self._metadata[model, version] = await self._call(
                lambda transport, left: transport.model_metadata(model, version, left), timeout
            )
        return found

    async def model_config(
        self, model: str, version: str = "", *, timeout: float | None = None
    ) -> dict[str, Any]:
        """The configuration of a model, with the names of `config.pbtxt`."""
        return await self._call(
            lambda transport, left: transport.model_config(model, version, left), timeout
        )

    async def statistics(
        self, model: str = "", version: str = "", *, timeout: float | None = None
    ) -> list[ModelStatistics]:
        """The counters of a model version, of a model, or of all."""
        return await self._call(
            lambda transport, left: transport.statistics(model, version, left), timeout
        )

    # -- repository ---------------------------------------------------------------------------

    async def models(
        self, *, ready_only: bool = False, timeout: float | None = None
    ) -> list[ModelEntry]:
        """The models of the repository, loaded or not."""
        return await self._call(lambda transport, left: transport.index(ready_only, left), timeout)

    async def load(
        self,
        model: str,
        *,
        config: str | None = None,
        files: Mapping[str, bytes] | None = None,
        timeout: float | None = None,
    ) -> None:
        """Load a model at every address, or load it anew.

        `config` is a configuration as JSON in place of the file; `files` are contents by paths
        such as `1/model.py`, in place of the folder.
        """
        parameters: dict[str, str | bytes] = {} if config is None else {"config": config}
        parameters.update({f"file:{path}": data for path, data in (files or {}).items()})
        self._metadata.clear()
        limit = self._timeout if timeout is None else timeout
        for transport in self._caller.transports:
            await transport.load(model, parameters, limit)

    async def unload(
        self, model: str, *, dependents: bool = False, timeout: float | None = None
    ) -> None:
        """Unload a model at every address, with `dependents` also those that it consists of."""
        self._metadata.clear()
        limit = self._timeout if timeout is None else timeout
        for transport in self._caller.transports:
            await transport.unload(model, dependents, limit)

    # -- aliases ------------------------------------------------------------------------------

    async def aliases(self, *, timeout: float | None = None) -> list[dict[str, Any]]:
        """Every alias, by name, as it is defined."""
        return await self._call(lambda transport, left: transport.aliases(left), timeout)

    async def alias(self, name: str, *, timeout: float | None = None) -> dict[str, Any]:
        """An alias of the first address: its definition, traffic, promotion, shadow and history."""
        limit = self._timeout if timeout is None else timeout
        return await self._caller.transports[0].alias(name, limit)

    async def set_alias(
        self, name: str, definition: Mapping[str, Any], *, timeout: float | None = None
    ) -> dict[str, Any]:
        """Make an alias at every address, or change it; what the last one shows."""
        return await self._everywhere(
            lambda transport, left: transport.set_alias(name, definition, left), timeout
        )

    async def promote_alias(
        self,
        name: str,
        *,
        target: str | None = None,
        steps: Sequence[float] = (100.0,),
        every: float = 600.0,
        timeout: float | None = None,
    ) -> dict[str, Any]:
        """Give a target more and more of an alias at every address, in percent.

        Each step lasts `every` seconds at least.
        """
        plan: dict[str, Any] = {"steps": [*steps], "every": every}
        if target is not None:
            plan["target"] = target
        return await self._everywhere(
            lambda transport, left: transport.promote_alias(name, plan, left), timeout
        )

    async def roll_back_alias(self, name: str, *, timeout: float | None = None) -> dict[str, Any]:
        """Give the first target of an alias all requests at every address."""
        return await self._everywhere(
            lambda transport, left: transport.roll_back_alias(name, left), timeout
        )

    async def remove_alias(self, name: str, *, timeout: float | None = None) -> None:
        """Remove an alias at every address."""
        await self._everywhere(lambda transport, left: transport.remove_alias(name, left), timeout)

    async def _everywhere(self, send: Unary[Answer], timeout: float | None) -> Answer:
        limit = self._timeout if timeout is None else timeout
        first, *others = self._caller.transports
        answer = await send(first, limit)
        for transport in others:
            answer = await send(transport, limit)
        return answer

    # -- calls --------------------------------------------------------------------------------

    async def _call(
        self,
        send: Unary[Answer],
        timeout: float | None,
        policy: CallPolicy | None = None,
        key: str = "",
    ) -> Answer:
        limit = self._timeout if timeout is None else timeout
        return await self._caller.call(send, limit, policy or self._caller.policy, key)


def _transport(address: ServerAddress, connection: Connection) -> Transport:
    kind = HttpTransport if address.http else GrpcTransport
    return kind(address, connection)
