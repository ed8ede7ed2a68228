"""The endpoint's part of the timeline of a traced HTTP request (contract T-10)."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial

from penstock.core.errors import InferenceError, InternalError, RequestCancelledError
from penstock.core.request import InferenceRequest
from penstock.core.timeline import Timeline
from penstock.gateway.call_guard import may_see
from penstock.gateway.connections.http_call import HttpCall
from penstock.gateway.replies import Reply
from penstock.tracing.explain import EXPLAIN, explanation
from penstock.tracing.generation_headers import generation_headers
from penstock.tracing.tracer import Tracer


def wants_explanation(call: HttpCall) -> bool:
    """Whether the client wants the explanation of its request."""
    return call.headers.get(EXPLAIN) == "1"


def begin_timeline(
    tracer: Tracer, call: HttpCall, inference: InferenceRequest, since: int
) -> Timeline | None:
    """The timeline of a request that has been read, from `since` on; `None` if it is not traced."""
    headers = call.headers
    explains = headers.get(EXPLAIN) == "1"
    if not (explains or tracer.active):
        return None
    fields = headers.items() if "traceparent" in headers else ()
    timeline = tracer.begin(inference.model_name, headers, since, explains=explains, fields=fields)
    if timeline is None:
        return None
    timeline.facts |= {
        "http.request.method": call.method,
        "url.path": call.path,
        "network.protocol.version": call.head.version,
    }
    if call.client is not None:
        timeline.facts["client.address"] = call.client[0]
    if call.permit is not None and call.permit.caller:
        timeline.facts["enduser.id"] = call.permit.caller
    timeline.request_id = inference.id
    timeline.mark("HTTP_RECV_START", since)
    timeline.mark("HTTP_RECV_END")
    inference.scope.timeline = timeline
    return timeline


def response_complete(timeline: Timeline | None) -> None:
    """Note that a response is there, and is going to be encoded and sent, if traced."""
    if timeline is not None:
        timeline.mark("INFER_RESPONSE_COMPLETE")


@contextmanager
def ending(timeline: Timeline) -> Iterator[None]:
    """End the timeline with the error that the block raises, if any."""
    try:
        yield
    except InferenceError as error:
        timeline.finish(error)
        raise
    except Exception:
        timeline.finish(InternalError("internal error; see the server's log"))
        raise
    except BaseException:
        timeline.finish(RequestCancelledError())
        raise


def send_recorded(
    call: HttpCall, reply: Reply, timeline: Timeline, error: InferenceError | None = None
) -> None:
    """Send a reply as part of the timeline, and end that; `error` is what the reply says, if any.

    If the client wants an explanation, headers have it, and what is told of a generation.
    """
    timeline.facts["http.response.status_code"] = int(reply.status)
    if wants_explanation(call):
        add_explanation(call, reply, timeline, error)
    timeline.mark("HTTP_SEND_START")
    with ending(timeline):
        call.send(reply)
    timeline.mark("HTTP_SEND_END")
    timeline.finish(error)


def explained(call: HttpCall, timeline: Timeline, error: InferenceError | None) -> str:
    """The explanation of a request for its caller; `error` is what failed."""
    return explanation(timeline, error, partial(may_see, call))


def add_explanation(
    call: HttpCall, reply: Reply, timeline: Timeline, error: InferenceError | None
) -> None:
    """Have headers explain a request, and tell of its generation; `error` is what failed."""
    for name, text in ((EXPLAIN, explained(call, timeline, error)), *generation_headers(timeline)):
        reply.add_header(name, text)
