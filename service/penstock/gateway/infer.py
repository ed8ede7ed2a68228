"""The inference endpoint (contract H-08): tensors in JSON, or as binary data behind it."""

from __future__ import annotations

import time

from starlette.requests import Request
from starlette.types import ASGIApp

from penstock.core.buffer import Buffer
from penstock.core.config import ModelConfig
from penstock.core.errors import (
    InferenceError,
    InvalidRequestError,
    UnsupportedError,
)
from penstock.core.request import InferenceRequest
from penstock.core.stream import ResponseStream, single_response
from penstock.core.timeline import Timeline
from penstock.gateway.body import (
    RequestBody,
    can_decompress,
    compress,
    is_compressed,
    json_length,
    negotiate_encoding,
    open_body,
)
from penstock.gateway.codec import EncodedResponse, OutputEncoding, encode_response, read_request
from penstock.gateway.json.bodies import JsonBodies
from penstock.gateway.observability.traced_request import (
    RecordedReply,
    begin_timeline,
    ending,
    response_complete,
)
from penstock.gateway.raw_request import decode_raw_request
from penstock.gateway.replies import JSON, PLAIN, PartsReply, refusal
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

_BINARY = "application/octet-stream"


class InferEndpoint:
    """Answers `POST .../infer`."""

    def __init__(self, server: InferenceServer, settings: HttpSettings, bodies: JsonBodies) -> None:
        self._server = server
        self._bodies = bodies
        self._limit = bodies.limit
        self._forward = ForwardedHeaders(settings.header_forward_pattern)

    async def infer(self, request: Request, target: Target) -> ASGIApp:
        """Run one request. Errors before the JSON is parsed, and the model's, are plain text."""
        since = time.monotonic_ns()
        model = self._server.find(target.model, target.version)
        if model.decoupled:
            raise UnsupportedError(
                "HTTP end point doesn't support models with decoupled transaction policy"
            )
        if not can_decompress(request):
            answer = refusal(UnsupportedError("Unsupported compression type"), PLAIN)
            answer.headers["accept-encoding"] = "gzip, deflate"
            return answer
        body = await open_body(request, self._limit)
        length = await json_length(request, body, self._limit)
        raw = b"" if length else await body.read(self._limit)
        try:
            if length:
                inference, form = await self._read(target, body, length)
            else:
                inference, form = _raw(request, target, raw, model.config)
        except InferenceError as error:
            return refusal(error, JSON)
        try:
            return await self._run(request, inference, form, since)
        finally:
            self._server.regions.release(inference)

    async def _run(
        self, request: Request, inference: InferenceRequest, form: OutputEncoding, since: int
    ) -> ASGIApp:
        timeline = None
        try:
            inference = with_deadline(self._forward.added_to(inference, request), request)
            inference = with_sender(inference, request, self._server.tenants)
            request.scope[REQUEST] = inference
            timeline = begin_timeline(self._server.tracer, request, inference, since)
            stream = self._server.infer(inference)
        except InferenceError as error:
            answer = refusal(error, JSON)
            return answer if timeline is None else RecordedReply(answer, timeline, request, error)
        if timeline is None:
            return await self._answer(request, inference, stream, form)
        with ending(timeline):
            try:
                reply = await self._answer(request, inference, stream, form, timeline)
            except InferenceError as error:
                response_complete(timeline)
                return RecordedReply(refusal(error, PLAIN), timeline, request, error)
        return RecordedReply(reply, timeline, request)

    async def _answer(
        self,
        request: Request,
        inference: InferenceRequest,
        stream: ResponseStream,
        form: OutputEncoding,
        timeline: Timeline | None = None,
    ) -> ASGIApp:
        async with closed_on_disconnect(stream, request.receive):
            response = await single_response(stream)
        response_complete(timeline)
        encoded = await encode_response(inference, stream.model_version, response, form)
        return await _reply(encoded, request.headers.get("accept-encoding", ""))

    async def _read(
        self, target: Target, body: RequestBody, length: int
    ) -> tuple[InferenceRequest, OutputEncoding]:
        regions = self._server.regions
        return await read_request(target.model, target.version, body, length, self._bodies, regions)


def _raw(
    request: Request, target: Target, body: Buffer, config: ModelConfig
) -> tuple[InferenceRequest, OutputEncoding]:
    """Decode a request without JSON: the body is its only input (HI-14)."""
    view = memoryview(body).toreadonly()
    inference = decode_raw_request(target.model, target.version, view, config)
    if not body and is_compressed(request):
        raise InvalidRequestError("unable to decompress the request body")
    return inference, OutputEncoding(binary=True)


async def _reply(response: EncodedResponse, accepted: str) -> PartsReply:
    """The reply with a response, compressed if the client accepts it, binary if a tensor is."""
    parts: list[Buffer] = [*response.header, *response.tensors]
    headers = [("content-type", JSON)]
    if any(memoryview(tensor).nbytes for tensor in response.tensors):
        length = str(sum(map(len, response.header)))
        headers = [("content-type", _BINARY), ("inference-header-content-length", length)]
    encoding = negotiate_encoding(accepted) if accepted else "identity"
    if encoding != "identity":
        parts = [await compress(parts, encoding)]
        headers.append(("content-encoding", encoding))
    return PartsReply(parts, headers)
