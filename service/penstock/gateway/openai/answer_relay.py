"""`AnswerRelay`: relays the parts of a model's answer to the client, unopened, at its pace."""

from __future__ import annotations

import logging
from typing import Final

from penstock.core.errors import InferenceError, InternalError, RequestCancelledError
from penstock.core.http_exchange import HttpHead
from penstock.core.log.log_throttle import log_fault
from penstock.core.request import CALL_ID, ExchangePart
from penstock.core.stream import ResponseStream
from penstock.core.timeline import Timeline
from penstock.gateway.connections.event_keep_alive import EventKeepAlive
from penstock.gateway.connections.http_call import HttpCall
from penstock.gateway.observability.traced_request import (
    add_explanation,
    explained,
    wants_explanation,
)
from penstock.gateway.openai.errors import RETRY_AFTER, error_event, error_reply
from penstock.gateway.replies import Reply
from penstock.http1.requests import Field
from penstock.tracing.explain import EXPLAIN

logger = logging.getLogger(__name__)

_DROPPED: Final = frozenset(
    ("connection", "content-length", "date", "keep-alive", "server", "transfer-encoding")
)
_HEADLESS: Final = "the model's application answered without a status"
_NO_EVENTS: Final = "the model was loaded for this stream, and answers it with no events"
_LATER: Final = (429, 503)
"""Statuses after which clients ask again; engines' own applications do not say when."""
_MOST_HELD: Final = 1 << 20
"""Bytes of an answer that wait for its end, where headers are to explain it."""


class AnswerRelay:
    """Writes parts as they come, by callbacks and without a task; the request ends with its client.

    An answer that is there as a whole is sent as one. An idle stream of events gets a comment each
    `keep_alive` seconds; one that `waits` for the load of its model begins with one, and has the
    model's JSON as an event. A client that wants an explanation has it in headers, for which an
    answer is held until it is whole, or in the last event.
    """

    def __init__(
        self,
        call: HttpCall,
        stream: ResponseStream,
        timeline: Timeline | None,
        request_id: str,
        keep_alive: float,
    ) -> None:
        self._call = call
        self._stream = stream
        self._timeline = timeline
        self._request_id = request_id
        self._keep_alive = EventKeepAlive(call, keep_alive)
        self._head: HttpHead | None = None
        self._held: list[bytes] = []
        self._explains = timeline is not None and wants_explanation(call)
        self._begun = self._done = self._events = self._taking = self._wraps = False

    def start(self, *, waits: bool = False) -> None:
        """Write what is there, and the rest when it comes."""
        self._call.on_disconnect(self._cancel)
        if waits:
            self._keep_alive.start_before(self._begin_early)
        self._stream.watch(self._pump)

    # -- from the model -----------------------------------------------------------------------

    def _pump(self) -> None:
        """Write what can be written; a fault ends this answer, not the sender of its parts."""
        try:
            self._write_ready()
        except Exception as error:  # such as a header field that cannot be sent
            self._break_off(error)

    def _write_ready(self) -> None:
        stream = self._stream
        if self._done or self._taking:
            return
        if not self._call.is_flushed:  # so one window waits here, and no more
            self._call.when_writable(self._pump)
            return
        self._take_parts()
        if stream.exhausted:
            self._finish(self._take_held())
        elif self._has_enough:
            self._write(self._take_held())
        if stream.backlog and not self._done:
            self._write_ready()

    def _take_parts(self) -> None:
        """Keep what is there: it makes room for parts that come at once, behind it."""
        self._taking = True
        parts = self._stream.take_ready()
        self._taking = False
        for part in parts:
            assert isinstance(part, ExchangePart)
            if part.head is not None:
                self._take_head(part.head)
            if part.body:
                self._held.append(part.body)

    @property
    def _has_enough(self) -> bool:
        """Whether what has come of the answer is sent before the rest is there."""
        if self._wraps:
            if sum(map(len, self._held)) > _MOST_HELD:
                raise InternalError(_NO_EVENTS)
            return False
        if self._events and not self._begun:
            return True
        if self._explains and not self._begun:
            return sum(map(len, self._held)) > _MOST_HELD
        return bool(self._held)

    def _take_held(self) -> bytes:
        held, self._held = self._held, []
        return b"".join(held)

    def _take_head(self, head: HttpHead) -> None:
        """Keep the head until there is a body, except that of events, which may take long."""
        began = self._begun
        if not began:
            self._keep_alive.stop()
        self._head = head
        types = (value for name, value in head.headers if name == "content-type")
        kind = next(types, "")
        self._events = kind.startswith("text/event-stream")
        if began and not self._events:
            if not kind.startswith("application/json"):
                raise InternalError(_NO_EVENTS)
            self._events = self._wraps = True

    def _write(self, data: bytes) -> None:
        if not self._begun:
            self._begin()
        if data:
            self._mark("HTTP_SEND_START")
            self._call.write_nowait(data)
            self._mark("HTTP_SEND_END")
            self._keep_alive.written(between=data.endswith(b"\n\n"))

    def _begin_early(self) -> None:
        """Begin a stream of events before the model has."""
        self._take_head(HttpHead(200, (("content-type", "text/event-stream; charset=utf-8"),)))
        self._begin()

    def _begin(self) -> None:
        if self._head is None:
            raise InternalError(_HEADLESS)
        self._call.begin(self._head.status, self._fields(self._head))
        self._begun = True
        self._note_status(self._head.status)
        if self._events:
            self._keep_alive.start()

    def _fields(self, head: HttpHead) -> list[Field]:
        fields = [
            (name.encode("latin-1"), value.encode("latin-1"))
            for name, value in head.headers
            if name not in _DROPPED and name != CALL_ID
        ]
        if head.status in _LATER and all(name != RETRY_AFTER for name, _ in head.headers):
            fields.append((RETRY_AFTER.encode(), b"1"))
        return [*fields, (CALL_ID.encode(), self._request_id.encode("latin-1"))]

    # -- the end ------------------------------------------------------------------------------

    def _finish(self, data: bytes) -> None:
        """Write the rest, and end the answer: as the model has, or with the error of the stream."""
        error, head = self._stream.error, self._head
        if self._wraps:  # JSON has line breaks between its members alone
            data = b"data: %b\n\n" % data.replace(b"\n", b" ")
        if self._events and not self._begun and (self._explains or error is not None):
            self._begin()
        if not self._begun:
            self._send_whole(data, error if head is None else None)
        else:
            self._finish_begun(data, None if self._reported_by_model() else error)
        self._end(error)

    def _finish_begun(self, data: bytes, error: InferenceError | None) -> None:
        """End an answer that is being sent; `error` is one that the model has not reported."""
        event = self._last_events(error)
        if data or event:
            gap = b"\n\n" if event and data and not data.endswith(b"\n\n") else b""
            self._write(data + gap + event)
        if error is not None and not self._events:
            self._call.abort()  # the client sees that the body is not complete
        else:
            self._call.end()

    def _last_events(self, error: InferenceError | None) -> bytes:
        """The last events of a stream: an error that the model has not reported, and the times."""
        if not self._events:
            return b""
        event = b"" if error is None else error_event(error)
        if self._explains:
            assert self._timeline is not None
            text = explained(self._call, self._timeline, self._stream.error)
            event += b"event: %b\ndata: %b\n\n" % (EXPLAIN.encode(), text.encode())
        return event

    def _break_off(self, fault: Exception) -> None:
        """End with an error as far as it can still be sent; the log has the details."""
        if self._done:
            return
        call = self._call
        log_fault(logger, fault, "%s %s failed", call.method, call.path)
        error = InternalError("unexpected error, see the server's log")
        if self._begun:
            call.abort()
        else:
            self._send_whole(b"", error)
        self._end(error)

    def _reported_by_model(self) -> bool:
        """Whether the answer itself reports the failure that the stream has ended with."""
        return self._head is not None and self._head.status >= 400

    def _send_whole(self, data: bytes, error: InferenceError | None) -> None:
        head = self._head
        if head is None or error is not None:
            answer = error_reply(error or InternalError(_HEADLESS))
            answer.add_header(CALL_ID, self._request_id)
        else:
            answer = Reply(head.status, self._fields(head), [data])
        self._note_status(answer.status)
        if self._explains:
            assert self._timeline is not None
            add_explanation(self._call, answer, self._timeline, self._stream.error or error)
        self._mark("HTTP_SEND_START")
        self._call.send(answer)
        self._mark("HTTP_SEND_END")

    def _cancel(self) -> None:
        """The client has gone."""
        if not self._done:
            self._end(RequestCancelledError())

    def _end(self, error: InferenceError | None) -> None:
        self._done = True
        self._call.when_writable(None)  # breaks the reference cycle
        self._keep_alive.stop()
        self._stream.close()
        if self._timeline is not None:
            self._timeline.finish(error)

    # -- the trace ----------------------------------------------------------------------------

    def _note_status(self, status: int) -> None:
        if self._timeline is not None:
            self._timeline.facts["http.response.status_code"] = int(status)

    def _mark(self, activity: str) -> None:
        if self._timeline is not None:
            self._timeline.mark(activity)
