"""Server-sent events of one request: an event per response, sent by callbacks without a task."""

from __future__ import annotations

import logging
from functools import partial

from penstock.core.errors import InferenceError, InternalError, RequestCancelledError
from penstock.core.log.log_fields import request_fields
from penstock.core.log.log_throttle import log_fault
from penstock.core.request import InferenceRequest, InferenceResponse, TextResponse
from penstock.core.stream import ResponseStream
from penstock.core.timeline import Timeline
from penstock.gateway.connections.event_keep_alive import EventKeepAlive
from penstock.gateway.connections.http_call import HttpCall
from penstock.gateway.inference.generate_codec import (
    TextAnswers,
    answer_of,
    answer_of_large,
    failure,
)
from penstock.gateway.observability.load_header import load_header
from penstock.gateway.observability.traced_request import explained, wants_explanation
from penstock.server.faces import Inference
from penstock.tracing.explain import EXPLAIN

logger = logging.getLogger(__name__)

EVENTS = (b"content-type", b"text/event-stream; charset=utf-8")


class EventStream:
    """Writes the responses to a request as they come, and only as fast as the client reads.

    An idle stream gets a comment each `keep_alive` seconds from its first response on, and from its
    start where it `waits` for the load of its model.
    """

    __slots__ = (
        "_begun",
        "_busy",
        "_call",
        "_done",
        "_keep_alive",
        "_request",
        "_server",
        "_stream",
        "_texts",
        "_timeline",
    )

    def __init__(
        self,
        call: HttpCall,
        request: InferenceRequest,
        stream: ResponseStream,
        timeline: Timeline | None,
        server: Inference,
        keep_alive: float,
    ) -> None:
        self._call = call
        self._keep_alive = EventKeepAlive(call, keep_alive)
        self._request = request
        self._stream = stream
        self._texts = TextAnswers(request, stream.model_version)
        self._timeline = timeline
        self._server = server
        self._begun = self._busy = self._done = False

    def start(self, *, waits: bool = False) -> None:
        """Write what is there, and the rest when it comes; the request ends with its client."""
        self._call.on_disconnect(self._cancel)
        if waits:
            self._keep_alive.start_before(partial(self._begin, 200))
        self._stream.watch(self._pump)

    def _cancel(self) -> None:
        if not self._done:
            self._done = True
            self._keep_alive.stop()
            self._call.when_writable(None)  # breaks the reference cycle
            self._stream.close()
            if self._timeline is not None:
                self._timeline.finish(RequestCancelledError())

    def _pump(self) -> None:
        """Write what can be written; a fault ends this stream, not the sender of a response."""
        try:
            self._write_ready()
        except Exception as error:
            self._break_off(error)

    def _write_ready(self) -> None:
        """Write the responses that are there, as far as the client reads."""
        call, stream = self._call, self._stream
        if self._busy or self._done:
            return
        if not call.is_writable:
            call.when_writable(self._pump)
            return
        # This makes room for responses that come at once: they are behind those that are taken.
        self._busy = True
        responses = stream.take_ready()
        self._busy = False
        if responses:
            self._mark("INFER_RESPONSE_COMPLETE")
            events: list[bytes] = []
            for at, response in enumerate(responses):
                event = self._event_of(response)
                if event is None:
                    self._busy = True
                    call.run(self._write_large(events, responses[at:]))
                    return
                events.append(event)
            self._write(events)
        if stream.exhausted:
            self._finish()
        elif stream.backlog:
            self._write_ready()

    def _event_of(self, response: InferenceResponse) -> bytes | None:
        """The event of a response, of which the first begins the reply with its status.

        `None` if it takes long, see `_write_large`.
        """
        if type(response) is TextResponse:
            json = self._texts.json_of(response)
            if json is not None:
                self._begin(200)
                return _event(json)
        answer = answer_of(self._request, self._stream.model_version, response)
        if answer is None:
            return None
        self._begin(answer.status)
        return _event(answer.json)

    async def _write_large(self, events: list[bytes], responses: list[InferenceResponse]) -> None:
        version = self._stream.model_version
        try:
            for response in responses:
                answer = await answer_of_large(self._request, version, response)
                self._begin(answer.status)
                events.append(_event(answer.json))
        except Exception as error:  # ends this stream
            if not self._done:
                self._break_off(error)
            return
        self._busy = False
        if not self._done:
            self._write(events)
            self._pump()

    def _break_off(self, fault: Exception) -> None:
        """End with an event for a fault of the server; the log has the details."""
        call = self._call
        fields = request_fields(self._request)
        log_fault(logger, fault, "%s %s failed", call.method, call.path, extra=fields)
        error = InternalError("unexpected error, see the server's log")
        self._end(error)

    def _write(self, events: list[bytes]) -> None:
        """Write these events at once."""
        self._mark("HTTP_SEND_START")
        self._call.write_nowait(events[0] if len(events) == 1 else b"".join(events))
        self._mark("HTTP_SEND_END")
        self._keep_alive.written()

    def _begin(self, status: int) -> None:
        if self._begun:
            return
        self._begun = True
        if self._timeline is not None:
            self._timeline.facts["http.response.status_code"] = int(status)
        self._call.begin(status, [EVENTS, *load_header(self._call, self._server)])
        self._keep_alive.start()

    def _finish(self) -> None:
        error = self._stream.error
        if error is not None:
            self._mark("INFER_RESPONSE_COMPLETE")
        self._end(error)

    def _end(self, error: InferenceError | None) -> None:
        """Write the event of an error, if there is one, and end the reply."""
        call = self._call
        if error is not None:
            answer = failure(error)
            self._begin(answer.status)
            self._write([_event(answer.json)])
        self._begin(200)
        self._done = True
        self._keep_alive.stop()
        timeline = self._timeline
        if timeline is not None and wants_explanation(call):
            text = explained(call, timeline, error)
            call.write_nowait(b"event: %b\ndata: %b\n\n" % (EXPLAIN.encode(), text.encode()))
        self._stream.close()
        call.end()
        if timeline is not None:
            timeline.finish(error)

    def _mark(self, activity: str) -> None:
        """Note an activity of the endpoint, if the request is traced."""
        if self._timeline is not None:
            self._timeline.mark(activity)


def _event(json: bytes) -> bytes:
    return b"data: %b\n\n" % json
