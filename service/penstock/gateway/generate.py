"""The generate endpoints: tensors as plain JSON members, one response or server-sent events."""

from __future__ import annotations

import time
from contextlib import AbstractContextManager, nullcontext
from typing import Any, NamedTuple

from starlette.requests import Request
from starlette.types import ASGIApp, Receive, Scope, Send

from penstock.core.errors import (
    DeadlineExceededError,
    ExhaustedError,
    InferenceError,
    InvalidRequestError,
)
from penstock.core.request import InferenceRequest, InferenceResponse
from penstock.core.stream import ResponseStream
from penstock.core.timeline import Timeline
from penstock.gateway.codec import wanted_outputs
from penstock.gateway.generate_request import decode_generate
from penstock.gateway.json.bodies import JsonBodies
from penstock.gateway.json.tensors import tensor_to_json, tensor_to_text
from penstock.gateway.json.text import dump, dump_sorted
from penstock.gateway.observability.load_header import with_load
from penstock.gateway.observability.traced_request import (
    RecordedReply,
    begin_timeline,
    ending,
    wants_explanation,
)
from penstock.gateway.replies import http_status, reply
from penstock.gateway.request_scope import (
    REQUEST,
    ForwardedHeaders,
    closed_on_disconnect,
    with_deadline,
    with_sender,
)
from penstock.gateway.router import Target
from penstock.server.server import InferenceServer
from penstock.settings import HttpSettings
from penstock.tracing.explain import EXPLAIN, explanation

_EVENTS = "text/event-stream; charset=utf-8"
_NOT_ONE = (
    "generate expects model to produce exactly 1 response, use generate stream for model that"
    " generates various number of responses"
)

_LARGE = 1 << 16
"""Outputs of more bytes are written in parts."""


class GenerateEndpoints:
    """Answers `POST .../generate` and `POST .../generate_stream`."""

    def __init__(self, server: InferenceServer, settings: HttpSettings, bodies: JsonBodies) -> None:
        self._server = server
        self._bodies = bodies
        self._forward = ForwardedHeaders(settings.header_forward_pattern)

    async def generate(self, request: Request, target: Target) -> ASGIApp:
        """Reply with the only response as a JSON object.

        The status is that of the first response, also where there are more.
        """
        answers = await self._start(request, target)
        with answers.recorded():
            async with closed_on_disconnect(answers.stream, request.receive):
                first, second = await answers.next(), await answers.next()
        answer: ASGIApp
        if first is None or second is not None:
            answer = reply(dump_sorted({"error": _NOT_ONE}), first.status if first else 200)
        else:
            answer = reply(first.json, first.status)
        timeline = answers.timeline
        if timeline is not None:
            answer = RecordedReply(answer, timeline, request, answers.stream.error)
        return with_load(answer, request, self._server)

    async def generate_stream(self, request: Request, target: Target) -> ASGIApp:
        """Stream one server-sent event per response."""
        events = _EventStream(await self._start(request, target), wants_explanation(request))
        return with_load(events, request, self._server)

    async def _start(self, request: Request, target: Target) -> _AnswerReader:
        since = time.monotonic_ns()
        metadata = await self._server.model_metadata(target.model, target.version)
        if request.headers.get("content-encoding", "") not in ("", "identity"):
            raise InvalidRequestError("Unsupported content-encoding, only 'identity' is supported.")
        request_id = request.headers.get("triton-request-id", "")

        def decode(json: Any) -> InferenceRequest:
            return decode_generate(metadata, target.version, json, request_id)

        inference = await self._bodies.read(request, decode)
        inference = with_deadline(self._forward.added_to(inference, request), request)
        inference = with_sender(inference, request, self._server.tenants)
        request.scope[REQUEST] = inference
        timeline = begin_timeline(self._server.tracer, request, inference, since)
        with nullcontext() if timeline is None else ending(timeline):
            stream = self._server.infer(inference)
        return _AnswerReader(inference, stream, timeline)


class _EncodedAnswer(NamedTuple):
    """A response as JSON, with the HTTP status to use if it is the first."""

    json: bytes
    status: int = 200


class _AnswerReader:
    """Reads and encodes the responses to one request; an error is the last of them."""

    def __init__(
        self, request: InferenceRequest, stream: ResponseStream, timeline: Timeline | None
    ) -> None:
        self.stream = stream
        self.timeline = timeline
        self._request = request
        self._failed = False

    def recorded(self) -> AbstractContextManager[None]:
        """A context whose errors end the timeline, if the request is traced."""
        return nullcontext() if self.timeline is None else ending(self.timeline)

    async def next(self) -> _EncodedAnswer | None:
        """The next response; `None` after the last."""
        if self._failed:
            return None
        try:
            response = await anext(self.stream, None)
        except InferenceError as error:
            self._failed = True
            self.mark("INFER_RESPONSE_COMPLETE")
            return _failure(error)
        self.mark("INFER_RESPONSE_COMPLETE")
        return None if response is None else await self._encode(response)

    def mark(self, activity: str) -> None:
        """Note an activity of the endpoint, if the request is traced."""
        if self.timeline is not None:
            self.timeline.mark(activity)

    def note_status(self, status: int) -> None:
        """Note the HTTP status of the reply, if the request is traced."""
        if self.timeline is not None:
            self.timeline.facts["http.response.status_code"] = int(status)

    def finish(self) -> None:
        """End the timeline, if the request is traced, with the error of the last answer."""
        if self.timeline is not None:
            self.timeline.finish(self.stream.error)

    async def ready(self) -> list[_EncodedAnswer]:
        """Responses that are available without waiting for the model."""
        return [await self._encode(response) for response in self.stream.take_ready()]

    async def _encode(self, response: InferenceResponse) -> _EncodedAnswer:
        try:
            if response.error is not None:
                raise response.error
            return _EncodedAnswer(await self._json(response))
        except InferenceError as error:
            return _failure(error)

    async def _json(self, response: InferenceResponse) -> bytes:
        """Outputs, parameters and names in one object; one element stands without a list.

        Large outputs are written in parts, with turns of the event loop between.
        """
        members: dict[str, Any] = {}
        large: dict[str, list[bytes]] = {}
        for name, tensor in wanted_outputs(self._request, response).items():
            if tensor.nbytes > _LARGE:
                large[name] = await tensor_to_text(name, tensor)
            else:
                elements = tensor_to_json(name, tensor)
                members[name] = elements[0] if len(elements) == 1 else elements
        members = self._with_names(members, response)
        if not large:
            return dump_sorted(members)
        texts = {name: [dump(value)] for name, value in members.items()} | large
        parts = [part for name in sorted(texts) for part in (b",", dump(name), b":", *texts[name])]
        return b"".join((b"{", *parts[1:], b"}"))

    def _with_names(self, members: dict[str, Any], response: InferenceResponse) -> dict[str, Any]:
        request = self._request
        members |= response.parameters
        members |= {"id": request.id} if request.id else {}
        members |= {"model_name": request.model_name, "model_version": self.stream.model_version}
        return members


def _failure(error: InferenceError) -> _EncodedAnswer:
    """The answer of a request that failed after its admission: 400 in Triton, mostly."""
    own = isinstance(error, DeadlineExceededError | ExhaustedError)
    return _EncodedAnswer(dump_sorted({"error": error.message}), http_status(error) if own else 400)


class _EventStream:
    """An event stream with backpressure: responses are read only as fast as the client reads."""

    def __init__(self, answers: _AnswerReader, explains: bool) -> None:
        self._answers = answers
        self._explains = explains

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        answers = self._answers
        with answers.recorded():
            async with closed_on_disconnect(answers.stream, receive):
                batch = await self._next()
                status = batch[0].status if batch else 200
                answers.note_status(status)
                headers = [(b"content-type", _EVENTS.encode())]
                await send({"type": "http.response.start", "status": status, "headers": headers})
                while batch:
                    events = b"".join(b"data: %s\n\n" % answer.json for answer in batch)
                    answers.mark("HTTP_SEND_START")
                    await send({"type": "http.response.body", "body": events, "more_body": True})
                    answers.mark("HTTP_SEND_END")
                    batch = await self._next()
                await send({"type": "http.response.body", "body": self._explanation()})
        answers.finish()

    def _explanation(self) -> bytes:
        """The last event, for a client that wants to know where the time went."""
        timeline = self._answers.timeline
        if timeline is None or not self._explains:
            return b""
        text = explanation(timeline, self._answers.stream.error)
        return b"event: %s\ndata: %s\n\n" % (EXPLAIN.encode(), text.encode())

    async def _next(self) -> list[_EncodedAnswer]:
        """Wait for the next response; returns all available ones, or none at the end."""
        first = await self._answers.next()
        return [] if first is None else [first, *await self._answers.ready()]
