"""The service `xds.service.orca.v3.OpenRcaService`: load reports out of band."""

from __future__ import annotations

import asyncio
from typing import NoReturn

from penstock.core.errors import UnavailableError
from penstock.protocol import orca_load_report_pb2, orca_pb2
from penstock.rpc.context import Method, RpcContext, Service
from penstock.rpc.orca.trailers import message
from penstock.rpc.status import STOPPED
from penstock.server.server import InferenceServer

NAME = "xds.service.orca.v3.OpenRcaService"

SHORTEST = 1.0
"""Seconds between two reports at least: the rates in them are averages of as much."""


class OrcaServicer:
    """Streams load reports to whoever asks."""

    def __init__(self, server: InferenceServer, shortest: float = SHORTEST) -> None:
        self._server = server
        self._shortest = shortest

    def service(self) -> Service:
        """The service with its only method."""
        method = Method(
            "StreamCoreMetrics",
            orca_pb2.OrcaLoadReportRequest,
            orca_load_report_pb2.OrcaLoadReport,
            self.StreamCoreMetrics,
            server_streaming=True,
        )
        return Service(NAME, [method])

    async def StreamCoreMetrics(
        self, request: orca_pb2.OrcaLoadReportRequest, context: RpcContext
    ) -> NoReturn:
        """Send a report at once and at each interval, until the client or the server goes."""
        interval = max(request.report_interval.ToNanoseconds() / 1e9, self._shortest)
        stopping = asyncio.ensure_future(self._server.wait_stopping())
        try:
            while not stopping.done():
                await context.write(message(self._server.load_meter.report()))
                await asyncio.wait([stopping], timeout=interval)
        finally:
            stopping.cancel()
        raise UnavailableError(STOPPED)
