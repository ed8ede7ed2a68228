"""Load reports in the trailing metadata of calls whose clients ask for one."""

from __future__ import annotations

from penstock.protocol import orca_load_report_pb2 as pb
from penstock.rpc.context import CompletionCallbacks, Reply, RpcContext
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
