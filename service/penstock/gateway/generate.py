"""The generate endpoints: tensors as plain JSON members, one response or server-sent events."""

from __future__ import annotations

from typing import Any, NamedTuple

from starlette.requests import Request
from starlette.types import ASGIApp, Receive, Scope, Send

from penstock.core.errors import DeadlineExceededError, InferenceError, InvalidRequestError
from penstock.core.request import InferenceRequest, InferenceResponse
from penstock.core.stream import ResponseStream
from penstock.gateway.codec import wanted_outputs
from penstock.gateway.generate_request import decode_generate
from penstock.gateway.json.tensors import tensor_to_json, tensor_to_text
from penstock.gateway.json.text import dump, dump_sorted
from penstock.gateway.json_bodies import JsonBodies
from penstock.gateway.replies import reply
from penstock.gateway.request_scope import ForwardedHeaders, closed_on_disconnect, with_deadline
from penstock.gateway.router import Target
from penstock.server.server import InferenceServer
from penstock.settings import HttpSettings

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
        async with closed_on_disconnect(answers.stream, request.receive):
            first, second = await answers.next(), await answers.next()
        if first is None or second is not None:
            return reply(dump_sorted({"error": _NOT_ONE}), first.status if first else 200)
        return reply(first.json, first.status)

    async def generate_stream(self, request: Request, target: Target) -> ASGIApp:
        """Stream one server-sent event per response."""
        return _EventStream(await self._start(request, target))

    async def _start(self, request: Request, target: Target) -> _AnswerReader:
        metadata = await self._server.model_metadata(target.model, target.version)
        if request.headers.get("content-encoding", "") not in ("", "identity"):
            raise InvalidRequestError("Unsupported content-encoding, only 'identity' is supported.")
        request_id = request.headers.get("triton-request-id", "")

        def decode(json: Any) -> InferenceRequest:
            return decode_generate(metadata, target.version, json, request_id)

        inference = await self._bodies.read(request, decode)
        inference = with_deadline(self._forward.added_to(inference, request), request)
        return _AnswerReader(inference, self._server.infer(inference))


class _EncodedAnswer(NamedTuple):
    """A response as JSON, with the HTTP status to use if it is the first."""

    json: bytes
    status: int = 200


class _AnswerReader:
    """Reads and encodes the responses to one request; an error is the last of them."""

    def __init__(self, request: InferenceRequest, stream: ResponseStream) -> None:
        self.stream = stream
        self._request = request
        self._failed = False

    async def next(self) -> _EncodedAnswer | None:
        """The next response; `None` after the last."""
        if self._failed:
            return None
        try:
            response = await anext(self.stream, None)
        except InferenceError as error:
            self._failed = True
            return _failure(error)
        return None if response is None else await self._encode(response)

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
    late = isinstance(error, DeadlineExceededError)
    return _EncodedAnswer(dump_sorted({"error": error.message}), 504 if late else 400)


class _EventStream:
    """An event stream with backpressure: responses are read only as fast as the client reads."""

    def __init__(self, answers: _AnswerReader) -> None:
        self._answers = answers

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async with closed_on_disconnect(self._answers.stream, receive):
            batch = await self._next()
            status = batch[0].status if batch else 200
            headers = [(b"content-type", _EVENTS.encode())]
            await send({"type": "http.response.start", "status": status, "headers": headers})
            while batch:
                events = b"".join(b"data: %s\n\n" % answer.json for answer in batch)
                await send({"type": "http.response.body", "body": events, "more_body": True})
                batch = await self._next()
            await send({"type": "http.response.body"})

    async def _next(self) -> list[_EncodedAnswer]:
        """Wait for the next response; returns all available ones, or none at the end."""
        first = await self._answers.next()
        return [] if first is None else [first, *await self._answers.ready()]
