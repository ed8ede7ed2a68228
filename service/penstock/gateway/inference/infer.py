"""The inference endpoint (contract H-08): tensors in JSON, or as binary data behind it.

Its answer is sent by callbacks without a task. Where the body is nothing but the data of the
model's only input (HI-14), it is read here.
"""

from __future__ import annotations

import logging
from math import prod

from penstock.core.buffer import Buffer, octets
from penstock.core.config import ModelConfig, ModelInput
from penstock.core.errors import (
    InferenceError,
    InternalError,
    InvalidRequestError,
    RequestCancelledError,
    UnsupportedError,
    request_prefix,
    shortened,
)
from penstock.core.log.log_fields import name_request, request_fields
from penstock.core.log.log_throttle import log_fault
from penstock.core.request import InferenceRequest, InferenceResponse, RequestScope
from penstock.core.request_limits import FEW_ELEMENTS, elements_in, too_many_elements
from penstock.core.stream import ResponseStream, require_single
from penstock.core.tensor import DataType, Tensor, count_in_steps, encode_elements
from penstock.core.timeline import Timeline
from penstock.core.turns import Turns
from penstock.gateway.body import (
    RequestBody,
    can_decompress,
    compress,
    is_compressed,
    json_length,
    negotiate_encoding,
    not_unpacked,
    open_body,
)
from penstock.gateway.connections.http_call import HttpCall
from penstock.gateway.decompression import Decompression
from penstock.gateway.inference.body_memory import JSON_LENGTH, BodyMemory, Place, nowhere
from penstock.gateway.inference.codec import (
    EncodedResponse,
    OutputEncoding,
    decode_request,
    encode_large,
    encode_response,
    read_request,
)
from penstock.gateway.inference.templates import JsonTemplates, RequestTemplates
from penstock.gateway.json.text import parse_tensors
from penstock.gateway.json_bodies import JsonBodies
from penstock.gateway.memory_quota import Share
from penstock.gateway.observability.traced_request import (
    begin_timeline,
    send_recorded,
)
from penstock.gateway.replies import JSON, PLAIN, Refusal, Reply
from penstock.gateway.router import (
    Target,
    fill_scope,
    forwarded_headers,
)
from penstock.http1.requests import Field
from penstock.inflight.inference import SingleAnswer
from penstock.models.serving.served_model import ServedModel
from penstock.server.faces import Inference
from penstock.settings import HttpSettings
from penstock.shared_memory.registry import Regions

logger = logging.getLogger(__name__)

_SMALL = 64 << 10
"""Bytes of JSON up to which it is decoded where it is received."""


class InferEndpoint:
    """Answers `POST .../infer`. Errors before JSON is parsed, and the model's, are plain text."""

    def __init__(
        self,
        server: Inference,
        settings: HttpSettings,
        bodies: JsonBodies,
        memory: BodyMemory,
    ) -> None:
        self._server = server
        self._bodies = bodies
        self._limit = bodies.limit
        self._largest = settings.max_body_size
        self._forward = forwarded_headers(
            settings.header_forward_pattern, settings.restrictions, server.access
        )
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
        model = self._model(target)
        try:
            rest = memoryview(data)[length:].toreadonly()
            place = self._memory.places(rest, length) if rest else nowhere
            inference, form = self._decode(target, text, rest, place)
            uncounted = self._counts.uncounted(inference) if len(data) > _SMALL else []
        except InferenceError as error:
            call.send(Refusal(error, JSON))
            return True
        if uncounted:
            call.run(self._run_counted(call, model, inference, form, uncounted))
        else:
            self._run(call, model, inference, form)
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
        self._model(target)
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
            model = self._server.find(target.model, target.version)  # may be another one by now
        except InferenceError as error:
            return Refusal(error, JSON)
        self._run(call, model, inference, form, body.take_share())
        return None

    def _model(self, target: Target) -> ServedModel:
        """The model that is called; raises if there is none, or it is decoupled."""
        model = self._server.find(target.model, target.version)
        if model.decoupled:
            raise UnsupportedError(
                "HTTP end point doesn't support models with decoupled transaction policy"
            )
        return model

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
        model: ServedModel,
        inference: InferenceRequest,
        form: OutputEncoding,
        inputs: list[tuple[str, Tensor]],
    ) -> None:
        await self._counts.count(inputs)
        self._run(call, model, inference, form)

    def _run(
        self,
        call: HttpCall,
        model: ServedModel,
        inference: InferenceRequest,
        form: OutputEncoding,
        share: Share | None = None,
    ) -> None:
        """Run a request; its answer, or the refusal, releases its memory."""
        timeline: Timeline | None = None
        regions = self._server.regions
        try:
            if self._forward is not None:
                inference = self._forward.added_to(inference, call)
            fill_scope(inference.scope, call, self._server.tenants)
            call.inference = inference
            timeline = begin_timeline(self._server.tracer, call, inference, call.opened)
            stream = model.infer(inference)
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


_JSON_FIELD = (b"content-type", JSON.encode())
_BINARY_FIELD = (b"content-type", b"application/octet-stream")


class InferAnswer(SingleAnswer):
    """Sends the only response of a stream as the reply to a call.

    `share` is the memory of a body that was decompressed.
    """

    __slots__ = ("_call", "_form", "_share", "_timeline")

    def __init__(
        self,
        call: HttpCall,
        request: InferenceRequest,
        form: OutputEncoding,
        regions: Regions,
        timeline: Timeline | None,
        share: Share | None = None,
    ) -> None:
        super().__init__(request, regions)
        self._call = call
        self._form = form
        self._timeline = timeline
        self._share = share

    def follow(self, stream: ResponseStream) -> None:
        """Answer with the response of `stream`; the request is cancelled if the client leaves."""
        self._stream = stream
        self._call.on_disconnect(self._cancel)
        stream.watch(self._on_response)

    def _on_cancelled(self) -> None:
        if self._timeline is not None:
            self._timeline.finish(RequestCancelledError())

    def _answer(self, stream: ResponseStream) -> None:
        if self._timeline is not None:
            self._timeline.mark("INFER_RESPONSE_COMPLETE")
        version = stream.model_version
        try:
            response = require_single(self._responses, stream.error)
            encoded = encode_response(self._request, version, response, self._form)
            accepted = self._call.headers.get("accept-encoding", "")
            encoding = "identity"
            if accepted not in ("", "identity"):
                encoding = negotiate_encoding(accepted)
            if encoded is None or encoding != "identity":
                self._call.run(self._finish_slowly(version, response, encoded, encoding))
                return
        except Exception as error:  # becomes a reply
            self._fail(error)
            return
        self._release()
        self._send(_reply(encoded))

    async def _finish_slowly(
        self,
        version: str,
        response: InferenceResponse,
        encoded: EncodedResponse | None,
        encoding: str,
    ) -> None:
        """Encode what is large, and compress what the client wants compressed."""
        try:
            if encoded is None:
                encoded = await encode_large(self._request, version, response, self._form)
            reply = _reply(encoded)
            if encoding != "identity":
                reply.parts = [await compress(reply.parts, encoding)]
                reply.add_header("content-encoding", encoding)
        except Exception as error:  # becomes a reply
            if self._stream is not None:  # the client has not gone meanwhile
                self._fail(error)
            return
        if self._stream is not None:
            self._release()
            self._send(reply)

    def _fail(self, error: Exception) -> None:
        self._release()
        content_type = PLAIN
        if not isinstance(error, InferenceError):
            name_request(error, self._request)
            call, fields = self._call, request_fields(self._request)
            log_fault(logger, error, "%s %s failed", call.method, call.path, extra=fields)
            error, content_type = InternalError("unexpected error, see the server's log"), JSON
        self._send(Refusal(error, content_type), error)

    def _send(self, reply: Reply, error: InferenceError | None = None) -> None:
        if self._timeline is None:
            self._call.send(reply)
        else:
            send_recorded(self._call, reply, self._timeline, error)

    def _release(self) -> None:
        super()._release()
        if self._share is not None:
            self._share.release()


def release(regions: Regions, request: InferenceRequest, share: Share | None) -> None:
    """Release the memory of a request, which is not needed any more."""
    regions.release(request)
    if share is not None:
        share.release()


def _reply(encoded: EncodedResponse) -> Reply:
    """The reply with a response, binary if a tensor is."""
    parts: list[Buffer] = [*encoded.header]
    fields: list[Field] = [_JSON_FIELD]
    if encoded.tensors:
        tensors = [octets(tensor) for tensor in encoded.tensors]
        if any(map(len, tensors)):
            size = b"%d" % sum(map(len, encoded.header))
            fields = [_BINARY_FIELD, (b"inference-header-content-length", size)]
            parts += tensors
    return Reply(200, fields, parts)


def decode_raw_request(
    model: str, version: str, body: Buffer, config: ModelConfig
) -> InferenceRequest:
    """Decode a body without JSON; name, datatype and shape come from the model's configuration."""
    if len(config.input) != 1:
        raise _refused(
            "Raw request must only have 1 input (found 1) to be deduced but got"
            f" {len(config.input)} inputs in '{config.name}' model configuration"
        )
    known = config.input[0]
    tensor = _string(known, body) if known.data_type is DataType.BYTES else _numbers(known, body)
    if config.max_batch_size:
        tensor = Tensor(tensor.datatype, (1, *tensor.shape), tensor.buffer)
    return InferenceRequest(model, version, inputs={known.name: tensor}, scope=RequestScope())


def _string(known: ModelInput, body: Buffer) -> Tensor:
    """The body as a tensor of one string element."""
    if -1 in known.dims or prod(known.dims) != 1:
        raise _refused(
            f"For BYTE datatype raw input '{known.name}', the model must have input shape [1]"
        )
    return Tensor(DataType.BYTES, known.dims, encode_elements([bytes(body)]))


def _numbers(known: ModelInput, body: Buffer) -> Tensor:
    """The body as numbers; a variable dimension follows from the size of the data."""
    assert known.data_type is not None
    shape = list(known.dims)
    if shape.count(-1) > 1:
        raise _refused(
            f"The shape of the raw input '{known.name}' can not be deduced because there are"
            " more than one variable-sized dimension"
        )
    if -1 in shape:
        row = -prod(shape) * known.data_type.itemsize
        shape[shape.index(-1)] = len(body) // row
    return Tensor(known.data_type, shape, body)


def _refused(text: str) -> InvalidRequestError:
    return InvalidRequestError(request_prefix("") + text)


class ElementCounts:
    """Counts elements; a tensor may have `most`."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._turns = Turns()

    def uncounted(self, request: InferenceRequest) -> list[tuple[str, Tensor]]:
        """The inputs that take long to count. Raises `InvalidRequestError` for too many."""
        found: list[tuple[str, Tensor]] = []
        for name, tensor in request.inputs.items():
            if tensor.datatype is not DataType.BYTES or tensor.count is not None:
                continue
            if tensor.nbytes <= 4 * FEW_ELEMENTS:
                continue
            expected = elements_in(tensor.shape, self._most)
            if expected > self._most:
                where = f"'{shortened(name)}' for model '{shortened(request.model_name)}'"
                raise too_many_elements(where, self._most)
            if expected > FEW_ELEMENTS:
                found.append((name, tensor))
        return found

    async def count(self, inputs: list[tuple[str, Tensor]]) -> None:
        """Count the elements of these inputs; what is wrong with them, their count says."""
        for name, tensor in inputs:
            where, most = f" for inference input '{name}'", elements_in(tensor.shape, self._most)
            try:
                tensor.count = await self._turns.run(count_in_steps(tensor.buffer, where, most))
            except InvalidRequestError as error:
                tensor.count = error
