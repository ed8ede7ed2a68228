"""The answer to an inference request over HTTP, sent by callbacks without a task."""

from __future__ import annotations

import logging

from penstock.core.buffer import Buffer, octets
from penstock.core.errors import InferenceError, InternalError, RequestCancelledError
from penstock.core.log.log_fields import name_request, request_fields
from penstock.core.log.log_throttle import log_fault
from penstock.core.request import InferenceRequest, InferenceResponse
from penstock.core.stream import ResponseStream, require_single
from penstock.core.timeline import Timeline
from penstock.gateway.body import compress, negotiate_encoding
from penstock.gateway.connections.http_call import HttpCall
from penstock.gateway.inference.codec import (
    EncodedResponse,
    OutputEncoding,
    encode_large,
    encode_response,
)
from penstock.gateway.memory_quota import Share
from penstock.gateway.observability.traced_request import response_complete, send_recorded
from penstock.gateway.replies import JSON, PLAIN, Refusal, Reply
from penstock.http1.requests import Field
from penstock.inflight.inference import SingleAnswer
from penstock.shared_memory.registry import Regions

logger = logging.getLogger(__name__)

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
        response_complete(self._timeline)
        version = stream.model_version
        try:
            response = require_single(self._responses, stream.error)
            encoded = encode_response(self._request, version, response, self._form)
            accepted = self._call.headers.get("accept-encoding", "")
            encoding = negotiate_encoding(accepted) if accepted else "identity"
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
