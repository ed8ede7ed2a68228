"""The endpoint's part of the timeline of a traced HTTP request (contract T-10)."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from starlette.requests import Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from penstock.core.errors import InferenceError, InternalError, RequestCancelledError
from penstock.core.request import InferenceRequest, traced
from penstock.core.timeline import Timeline
from penstock.tracing.explain import EXPLAIN, explanation
from penstock.tracing.generation_headers import generation_headers
from penstock.tracing.tracer import Tracer


def wants_explanation(request: Request) -> bool:
    """Whether the client wants the explanation of its request."""
    return request.headers.get(EXPLAIN) == "1"


def begin_timeline(
    tracer: Tracer, request: Request, inference: InferenceRequest, since: int
) -> Timeline | None:
    """The timeline of a request that has been read, from `since` on; `None` if it is not traced."""
    headers = request.headers
    explains = wants_explanation(request)
    if not (explains or tracer.active):
        return None
    fields = headers.items() if "traceparent" in headers else ()
    timeline = tracer.begin(inference.model_name, headers, since, explains=explains, fields=fields)
    if timeline is None:
        return None
    timeline.facts |= {
        "http.request.method": request.method,
        "url.path": request.url.path,
        "network.protocol.version": request.scope.get("http_version", "1.1"),
    }
    if request.client is not None:
        timeline.facts["client.address"] = request.client.host
    timeline.request_id = inference.id
    timeline.mark("HTTP_RECV_START", since)
    timeline.mark("HTTP_RECV_END")
    traced(inference, timeline)
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


class RecordedReply:
    """A reply whose sending is part of the timeline, and its end; `error` is what it says, if any.

    If the client wants an explanation, headers have it, and what is told of a generation.
    """

    def __init__(
        self,
        reply: ASGIApp,
        timeline: Timeline,
        request: Request,
        error: InferenceError | None = None,
    ) -> None:
        self._reply = reply
        self._timeline = timeline
        self._error = error
        self._explains = wants_explanation(request)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        timeline = self._timeline

        async def noting(message: Message) -> None:
            if message["type"] == "http.response.start":
                timeline.facts["http.response.status_code"] = int(message["status"])
                if self._explains:
                    text = explanation(timeline, self._error)
                    told = [(EXPLAIN, text), *generation_headers(timeline)]
                    lines = [(name.encode(), value.encode()) for name, value in told]
                    message["headers"] = [*message["headers"], *lines]
            await send(message)

        timeline.mark("HTTP_SEND_START")
        with ending(timeline):
            await self._reply(scope, receive, noting)
        timeline.mark("HTTP_SEND_END")
        timeline.finish(self._error)
