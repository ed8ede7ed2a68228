"""The inference endpoint (contract H-08): tensors in JSON, or as binary data behind it."""

from __future__ import annotations

from penstock.core.buffer import Buffer, octets
from penstock.core.config import ModelConfig
from penstock.core.errors import InferenceError, UnsupportedError
from penstock.core.request import InferenceRequest
from penstock.core.tensor import Tensor
from penstock.core.timeline import Timeline
from penstock.gateway.body import (
    RequestBody,
    can_decompress,
    is_compressed,
    json_length,
    not_unpacked,
    open_body,
)
from penstock.gateway.connections.http_call import HttpCall
from penstock.gateway.decompression import Decompression
from penstock.gateway.inference.body_memory import JSON_LENGTH, BodyMemory, Place
from penstock.gateway.inference.codec import OutputEncoding, decode_request, read_request
from penstock.gateway.inference.element_counts import ElementCounts
from penstock.gateway.inference.infer_answer import InferAnswer, release
from penstock.gateway.inference.json_templates import JsonTemplates
from penstock.gateway.inference.raw_request import decode_raw_request
from penstock.gateway.inference.request_templates import RequestTemplates
from penstock.gateway.json.text import parse_tensors
from penstock.gateway.json_bodies import JsonBodies
from penstock.gateway.memory_quota import Share
from penstock.gateway.observability.traced_request import begin_timeline, send_recorded
from penstock.gateway.replies import JSON, PLAIN, Refusal, Reply
from penstock.gateway.request_scope import (
    ForwardedHeaders,
    with_call_id,
    with_deadline,
    with_sender,
)
from penstock.gateway.router import Target
from penstock.server.server import InferenceServer
from penstock.settings import HttpSettings

_SMALL = 64 << 10
"""Bytes of JSON up to which it is decoded where it is received."""


class InferEndpoint:
    """Answers `POST .../infer`. Errors before JSON is parsed, and the model's, are plain text."""

    def __init__(
        self,
        server: InferenceServer,
        settings: HttpSettings,
        bodies: JsonBodies,
        memory: BodyMemory,
    ) -> None:
        self._server = server
        self._bodies = bodies
        self._limit = bodies.limit
        self._largest = settings.max_body_size
        self._forward = ForwardedHeaders(settings.header_forward_pattern, settings.restrictions)
        self._memory = memory
        self._decompression = Decompression(bodies.limit)
        self._templates = RequestTemplates()
        self._json_templates = JsonTemplates()
        self._counts = ElementCounts(server.most_elements)

    def start(self, call: HttpCall, target: Target) -> bool:
        """Answer a request whose whole body has come, if it is of the usual form."""
        data = call.body.data
        length = self._small_json(call, len(data)) if len(data) <= self._largest else 0
        if not (length and self._bodies.takes(text := bytes(data[:length]))):
            return False
        self._check_model(target)
        try:
            rest = memoryview(data)[length:].toreadonly()
            place = self._memory.places(rest, length)
            inference, form = self._decode(target, text, rest, place)
            uncounted = self._counts.uncounted(inference) if len(data) > _SMALL else []
        except InferenceError as error:
            call.send(Refusal(error, JSON))
            return True
        if uncounted:
            call.run(self._run_counted(call, inference, form, uncounted))
        else:
            self._run(call, inference, form)
        return True

    def _decode(
        self, target: Target, text: bytes, rest: memoryview, place: Place
    ) -> tuple[InferenceRequest, OutputEncoding]:
        """Decode a request of small JSON and the binary tensors behind it."""
        model, version, size = target.model, target.version, len(rest)
        if size:
            template = self._templates.find(model, version, text, size)
            if template is not None:
                return template.request(model, version, rest, place), template.form
        elif (found := self._json_templates.decode(model, version, text)) is not None:
            return found
        json, regions = parse_tensors(text), self._server.regions
        request, form = decode_request(model, version, json, rest, self._limit, regions, place)
        if size:
            self._templates.add(text, request, form, size)
        else:
            self._json_templates.add(text, request, form)
        return request, form

    async def infer(self, call: HttpCall, target: Target) -> Reply | None:
        """Run one request, whose body is read as it comes."""
        self._check_model(target)
        if not can_decompress(call):
            answer = Refusal(UnsupportedError("Unsupported compression type"), PLAIN)
            answer.add_header("accept-encoding", "gzip, deflate")
            return answer
        body = await open_body(call, self._decompression, self._largest)
        try:
            return await self._begin(call, target, body)
        finally:
            body.release()

    async def _begin(self, call: HttpCall, target: Target, body: RequestBody) -> Refusal | None:
        """Read the request and run it; the reply if it cannot be decoded."""
        length = await json_length(call, body, self._limit)
        raw = b"" if length else await body.read(self._limit)
        try:
            if length:
                inference, form = await self._read(target, body, length)
            else:
                config = self._server.find(target.model, target.version).config
                inference, form = _raw(call, target, raw, config)
            await self._counts.count(self._counts.uncounted(inference))
        except InferenceError as error:
            return Refusal(error, JSON)
        self._run(call, inference, form, body.take_share())
        return None

    def _check_model(self, target: Target) -> None:
        if self._server.find(target.model, target.version).decoupled:
            raise UnsupportedError(
                "HTTP end point doesn't support models with decoupled transaction policy"
            )

    def _small_json(self, call: HttpCall, size: int) -> int:
        """The length of the JSON in a body of `size` bytes, if it is of the usual form; else 0."""
        headers = call.headers
        if "content-encoding" in headers:
            return 0
        text = headers.get(JSON_LENGTH)
        length = size
        if text is not None:
            length = int(text) if text.isdecimal() and len(text) < 6 else 0
        return length if length <= min(size, _SMALL, self._limit) else 0

    async def _run_counted(
        self,
        call: HttpCall,
        inference: InferenceRequest,
        form: OutputEncoding,
        inputs: list[tuple[str, Tensor]],
    ) -> None:
        await self._counts.count(inputs)
        self._run(call, inference, form)

    def _run(
        self,
        call: HttpCall,
        inference: InferenceRequest,
        form: OutputEncoding,
        share: Share | None = None,
    ) -> None:
        """Run a request; its answer, or the refusal, releases its memory."""
        timeline: Timeline | None = None
        regions = self._server.regions
        try:
            inference = with_deadline(self._forward.added_to(inference, call), call)
            inference = with_call_id(with_sender(inference, call, self._server.tenants), call)
            call.inference = inference
            timeline = begin_timeline(self._server.tracer, call, inference, call.opened)
            stream = self._server.infer(inference)
        except InferenceError as error:
            release(regions, inference, share)
            answer = Refusal(error, JSON)
            if timeline is None:
                call.send(answer)
            else:
                send_recorded(call, answer, timeline, error)
            return
        except BaseException:
            release(regions, inference, share)
            raise
        InferAnswer(call, inference, form, regions, timeline, share).follow(stream)

    async def _read(
        self, target: Target, body: RequestBody, length: int
    ) -> tuple[InferenceRequest, OutputEncoding]:
        model, version, memory = target.model, target.version, self._memory
        text, size = b"", 0
        if length <= _SMALL and body.declared is not None:
            text, size = bytes((await body.read_until(length))[:length]), body.declared - length
            template = self._templates.find(model, version, text, size)
            if template is not None:
                rest = memoryview(await body.read_until(body.declared))[length:].toreadonly()
                place = memory.places(rest, length)
                return template.request(model, version, rest, place), template.form
        regions = self._server.regions
        request, form = await read_request(
            model, version, body, length, self._bodies, regions, memory
        )
        if text:
            self._templates.add(text, request, form, size)
        return request, form


def _raw(
    call: HttpCall, target: Target, body: Buffer, config: ModelConfig
) -> tuple[InferenceRequest, OutputEncoding]:
    """Decode a request without JSON: the body is its only input (HI-14)."""
    view = memoryview(octets(body)).toreadonly()
    inference = decode_raw_request(target.model, target.version, view, config)
    if not body and is_compressed(call):
        raise not_unpacked()
    return inference, OutputEncoding(binary=True)
