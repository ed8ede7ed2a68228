"""The health service `grpc.health.v1.Health`: readiness of the server and of models (G-22)."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from random import uniform
from typing import NoReturn

from google.protobuf.message import Message

from penstock.core.errors import InferenceError, UnavailableError
from penstock.protocol import health_pb2 as pb
from penstock.rpc.context import Method, RpcContext, Service
from penstock.rpc.status import STOPPED
from penstock.server.faces import Views

NAME = "grpc.health.v1.Health"
SERVER = ("", "inference.GRPCInferenceService")
"""Service names that stand for the server as a whole."""

_POLL_SECONDS = 0.75, 1.25
"""Poll interval between change notifications: an instance may become unhealthy without one. By
chance, so that thousands who watch do not poll in one turn of the event loop.
"""

_UNKNOWN = pb.HealthCheckResponse.UNKNOWN
_SERVING = pb.HealthCheckResponse.SERVING
_NOT_SERVING = pb.HealthCheckResponse.NOT_SERVING
_SERVICE_UNKNOWN = pb.HealthCheckResponse.SERVICE_UNKNOWN


class HealthServicer:
    """The standard health service. A service name is the server's, or that of a model."""

    def __init__(self, server: Views) -> None:
        self._server = server
        self._listings: dict[tuple[str, ...], asyncio.Future[Message]] = {}

    def service(self) -> Service:
        """The methods by name, for a transport to serve."""
        request, response = pb.HealthCheckRequest, pb.HealthCheckResponse
        return Service(
            NAME,
            [
                Method("Check", request, response, self.Check),
                Method("Watch", request, response, self.Watch, server_streaming=True, endless=True),
                Method("List", pb.HealthListRequest, pb.HealthListResponse, self.List),
            ],
        )

    async def Check(self, message: pb.HealthCheckRequest, _: RpcContext) -> Message:
        """The status of a model, or of the server for any other name, as Triton answers for all."""
        known = message.service in self._server.model_names()
        return pb.HealthCheckResponse(status=await self._status(message.service if known else ""))

    async def List(self, _: pb.HealthListRequest, __: RpcContext) -> Message:
        """The status of the server and of each model; calls at the same time have one answer.

        Not every caller need see every model: those that see the same share an answer.
        """
        seen = tuple(self._server.model_names())
        listing = self._listings.get(seen)
        if listing is None:
            listing = self._listings[seen] = asyncio.ensure_future(self._list(seen))
            listing.add_done_callback(lambda _: self._listings.pop(seen, None))
        return await asyncio.shield(listing)

    async def _list(self, seen: Sequence[str]) -> Message:
        names = ["", *seen]
        whole, *statuses = await asyncio.gather(*map(self._status, names))
        names, statuses = [*SERVER, *names[1:]], [whole] * len(SERVER) + statuses
        answers = [pb.HealthCheckResponse(status=status) for status in statuses]
        return pb.HealthListResponse(statuses=dict(zip(names, answers, strict=True)))

    async def Watch(self, message: pb.HealthCheckRequest, context: RpcContext) -> NoReturn:
        """Send the status now and whenever it changes, until the client cancels."""
        sent = None
        while not self._server.exiting:
            change = self._server.changes.next
            status = await self._status(message.service)
            if status != sent:
                sent = status
                await context.write(pb.HealthCheckResponse(status=status))
            with suppress(TimeoutError):
                async with asyncio.timeout(uniform(*_POLL_SECONDS)):
                    await change.wait()
        await context.write(pb.HealthCheckResponse(status=_NOT_SERVING))
        raise UnavailableError(STOPPED)

    async def _status(self, service: str) -> pb.HealthCheckResponse.ServingStatus:
        try:
            if service in SERVER:
                ready = await self._server.ready()
            elif service in self._server.model_names():
                ready = await self._server.model_ready(service, "")
            else:
                return _SERVICE_UNKNOWN
        except InferenceError:
            return _UNKNOWN
        return _SERVING if ready else _NOT_SERVING
