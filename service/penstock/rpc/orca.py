"""ORCA: load reports for load balancers, in the trailing metadata of calls whose clients ask for
one, and out of band by the service `xds.service.orca.v3.OpenRcaService`.
"""

from __future__ import annotations

import asyncio
from typing import NoReturn

from penstock.core.errors import UnavailableError
from penstock.protocol import orca_load_report_pb2, orca_pb2
from penstock.protocol import orca_load_report_pb2 as pb
from penstock.rpc.context import CompletionCallbacks, Method, Reply, RpcContext, Service
from penstock.rpc.status import STOPPED
from penstock.server.faces import Inference
from penstock.server.load_meter import FORMAT, REPORT, LoadMeter, LoadReport

BINARY = "endpoint-load-metrics-bin"
"""The key under which clients of gRPC expect a report: a serialized `OrcaLoadReport`."""


def message(report: LoadReport) -> pb.OrcaLoadReport:
    """The report as the message of ORCA."""
    return pb.OrcaLoadReport(
        cpu_utilization=report.cpu_utilization,
        mem_utilization=report.mem_utilization,
        rps_fractional=report.rps_fractional,
        eps=report.eps,
        named_metrics=report.named_metrics,
    )


def add_report(context: RpcContext, meter: LoadMeter) -> None:
    """Add a report in the form that the client asks for: `bin`, `json` or `text`, else none."""
    form = context.metadata.get(FORMAT, "")
    if form == "bin":
        context.add_trailing_metadata([(BINARY, message(meter.report()).SerializeToString())])
    elif (text := meter.report().text(form)) is not None:
        context.add_trailing_metadata([(REPORT, text)])


class Reporting:
    """Completion callbacks that add a report to the trailing metadata of an answer."""

    __slots__ = ("_callbacks", "_context", "_meter")

    def __init__(
        self, callbacks: CompletionCallbacks, context: RpcContext, meter: LoadMeter
    ) -> None:
        self._callbacks = callbacks
        self._context = context
        self._meter = meter

    def returned(self, response: Reply | None) -> None:
        """The call succeeded."""
        add_report(self._context, self._meter)
        self._callbacks.returned(response)

    def raised(self, error: BaseException) -> None:
        """The call failed, which costs as well."""
        add_report(self._context, self._meter)
        self._callbacks.raised(error)


NAME = "xds.service.orca.v3.OpenRcaService"

SHORTEST = 1.0
"""Seconds between two reports at least: the rates in them are averages of as much."""


class OrcaServicer:
    """Streams load reports to whoever asks."""

    def __init__(self, server: Inference, shortest: float = SHORTEST) -> None:
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
            endless=True,
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
