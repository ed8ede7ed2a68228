"""`CallRecord`: the endpoint's part of the timeline of a traced gRPC request (contract T-10)."""

from __future__ import annotations

import time

from penstock.core.errors import InferenceError, InternalError
from penstock.core.timeline import Timeline
from penstock.protocol import grpc_service_pb2 as pb
from penstock.rpc.context import RpcContext
from penstock.rpc.status import StatusCode, status_code
from penstock.tracing.explain import EXPLAIN, MOST_BYTES, explanation
from penstock.tracing.generation_headers import generation_headers
from penstock.tracing.tracer import Tracer

_SERVICE = "inference.GRPCInferenceService"


class Explanations:
    """The explanations in the trailing metadata of a call, of as many requests as have room."""

    __slots__ = ("_left", "context", "wanted")

    def __init__(self, context: RpcContext) -> None:
        self.context = context
        self.wanted = context.metadata.get(EXPLAIN) == "1"
        self._left = MOST_BYTES

    def add(self, timeline: Timeline, error: InferenceError | None) -> None:
        """Add that of one request, whose answer is sent next."""
        permit = self.context.permit
        text = explanation(timeline, error, None if permit is None else permit.sees)
        if len(text) <= self._left:
            metadata = [(EXPLAIN, text), *generation_headers(timeline)]
            self._left -= sum(len(value) for _, value in metadata)
            self.context.add_trailing_metadata(metadata)


class CallRecord:
    """Records one request of a call; explains it in the call's trailing metadata, if asked to."""

    __slots__ = ("_explanations", "_sending", "timeline")

    def __init__(self, timeline: Timeline, explanations: Explanations) -> None:
        self.timeline = timeline
        self._explanations = explanations
        self._sending = False

    @classmethod
    def begin(
        cls,
        tracer: Tracer,
        message: pb.ModelInferRequest,
        method: str,
        explanations: Explanations,
        since: int,
    ) -> CallRecord | None:
        """A record of a request that has been read, from `since` on; `None` if not traced."""
        wanted = explanations.wanted
        if not (wanted or tracer.active):
            return None
        context = explanations.context
        timeline = tracer.begin(
            message.model_name,
            context.metadata,
            since,
            explains=wanted,
            fields=context.metadata_fields,
        )
        if timeline is None:
            return None
        if context.permit is not None and context.permit.caller:
            timeline.facts["enduser.id"] = context.permit.caller
        timeline.facts |= {
            "rpc.system": "grpc",
            "rpc.service": _SERVICE,
            "rpc.method": method,
            "network.peer.address": context.peer,
        }
        timeline.request_id = message.id
        context.trace_id = timeline.trace.trace_id
        timeline.mark("GRPC_WAITREAD_START", since)
        timeline.mark("GRPC_WAITREAD_END")
        return cls(timeline, explanations)

    def response_complete(self) -> None:
        """A response is there, and is going to be encoded and sent."""
        now = time.monotonic_ns()
        self._sending = True
        self.timeline.mark("INFER_RESPONSE_COMPLETE", now)
        self.timeline.mark("GRPC_SEND_START", now)

    def response_sent(self) -> None:
        """The transport has taken the message that was encoded last, if one was."""
        if self._sending:
            self._sending = False
            self.timeline.mark("GRPC_SEND_END")

    def explain(self, error: BaseException | None = None) -> None:
        """Add the explanation to the trailing metadata, which is sent next."""
        if self._explanations.wanted:
            self._explanations.add(self.timeline, _as_inference_error(error))

    def finish(self, error: BaseException | None = None) -> None:
        """End the record, with the error that the client gets, if any."""
        failure = _as_inference_error(error)
        status = StatusCode.OK if failure is None else status_code(failure)
        self.timeline.facts["rpc.grpc.status_code"] = status.value
        self.timeline.finish(failure)


def _as_inference_error(error: BaseException | None) -> InferenceError | None:
    if error is None or isinstance(error, InferenceError):
        return error
    return InternalError("internal error; see the server's log")
