"""Traces as the server records them, made by hand."""

from __future__ import annotations

from penstock.core.errors import InferenceError
from penstock.core.timeline import Batch, Timeline, Trace, TraceContext

BEGIN = 1_000_000_000


def finish_request(timeline: Timeline, begin: int, error: InferenceError | None = None) -> None:
    """Complete the timeline of an executed request as the server does."""
    timeline.mark("REQUEST_START", begin)
    timeline.mark("QUEUE_START", begin)
    timeline.mark("COMPUTE_START", begin + 100)
    timeline.mark("COMPUTE_INPUT_END", begin + 110)
    timeline.mark("COMPUTE_OUTPUT_START", begin + 190)
    timeline.mark("COMPUTE_END", begin + 200)
    timeline.mark("REQUEST_END", begin + 210)
    timeline.finish(error, begin + 210)


def plain_trace(
    model: str = "plain",
    *,
    caller: TraceContext | None = None,
    batch: Batch | None = None,
    error: InferenceError | None = None,
) -> Trace:
    """A finished trace of one executed request that came over gRPC."""
    trace = Trace(BEGIN, frozenset({"TIMESTAMPS"}), caller, iter(range(7, 100)))
    root = trace.root
    root.facts |= {"rpc.system": "grpc", "network.peer.address": "ipv4:127.0.0.1:5000"}
    root.mark("GRPC_WAITREAD_START", BEGIN)
    root.mark("GRPC_WAITREAD_END", BEGIN + 10)
    request = root.nest(model, "1", "mine", BEGIN + 20)
    (batch or Batch(BEGIN + 120, 1, 1, f"{model}_0")).add(request)
    finish_request(request, BEGIN + 20, error)
    root.mark("GRPC_SEND_START", BEGIN + 240)
    root.mark("GRPC_SEND_END", BEGIN + 250)
    root.finish(error, BEGIN + 260)
    return trace
