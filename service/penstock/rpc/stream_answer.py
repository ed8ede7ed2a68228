"""The answer to one request of a `ModelStreamInfer` call, pulled message by message.

Its encoder caches the head that repeats between responses.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from struct import Struct

from google.protobuf.message import Message

from penstock.core.buffer import Buffer
from penstock.core.errors import InferenceError, InternalError, RequestCancelledError, shortened
from penstock.core.log.log_throttle import repeat_note
from penstock.core.request import InferenceRequest, InferenceResponse, TextResponse
from penstock.core.stream import ResponseStream
from penstock.protocol import grpc_service_pb2 as pb
from penstock.rpc.call_record import CallRecord
from penstock.rpc.infer_layout import varint
from penstock.rpc.messages import encode_response, mark_final
from penstock.rpc.responses import CONTENTS, add_contents, field
from penstock.rpc.status import replace_surrogates

logger = logging.getLogger(__name__)


class StreamAnswer:
    """The remaining messages for one request.

    `model` and `size` (bytes of its tensors) are the request's. `ordered` answers are written
    after those of the requests before them (GP-16), and have exactly one message (DC-04): what
    the model sends after it is logged. `error` is the error in the last message; of a refusal
    only one that may end the call (GP-19). `on_close` is called once the answer is
    complete or cancelled.
    """

    __slots__ = (
        "_dropped",
        "_empty_final",
        "_id",
        "_refusal",
        "_refused",
        "_replies",
        "_stream",
        "_written",
        "done",
        "error",
        "model",
        "on_close",
        "ordered",
        "queued",
        "record",
        "size",
    )

    def __init__(self, model: str) -> None:
        self.model = model
        self.ordered = True
        self.on_close: Callable[[], None] | None = None
        self.size = 0
        self.done = False
        self.queued = False
        self.error: InferenceError | None = None
        self._id = ""
        self._empty_final = False
        self._written = False
        self._dropped = 0
        self._refusal: bytes | None = None
        self._refused: InferenceError | None = None
        self.record: CallRecord | None = None
        self._stream: ResponseStream | None = None
        self._replies: StreamReplies

    def refuse(self, message: bytes, error: InferenceError | None = None) -> None:
        """Answer with just this message; an `error` may end the call instead."""
        self._refusal, self._refused = message, error

    def connect(self, request: InferenceRequest, stream: ResponseStream, empty_final: bool) -> None:
        """Answer with the responses of `stream`."""
        self._id = request.id
        self._empty_final = empty_final
        self.size = sum(tensor.nbytes for tensor in request.inputs.values())
        self._stream = stream
        self._replies = StreamReplies(request, stream.model_version)

    def close(self) -> None:
        """Cancel the request if it is in flight, and release its resources."""
        self.done = True
        stream, self._stream = self._stream, None  # breaks the reference cycle
        if stream is not None:
            stream.close()
        if self.on_close is not None:
            self.on_close()
        if self.record is not None:
            cancelled = stream is not None and isinstance(stream.error, RequestCancelledError)
            error = stream.error if cancelled and stream is not None else self.error
            self.record.explain(error)
            self.record.finish(error)

    @property
    def ready(self) -> bool:
        """Whether there may be a message now."""
        stream = self._stream
        return stream is None or bool(stream.backlog) or stream.exhausted

    @property
    def next_error(self) -> InferenceError | None:
        """The error that the next message holds, if the request was admitted."""
        return None if self._stream is None else self._stream.next_error

    def next(self) -> bytes | None:
        """The next message, if there is one now; `done` after the last."""
        stream = self._stream
        if stream is None:
            self.done, self.error = True, self._refused
            return self._refusal
        if self.ordered and self._written:
            self._drop(stream)
            return None
        response = stream.take_next()
        if response is None:
            return self._end(stream) if stream.exhausted else None
        self._written = True
        self.done, self.error = response.final, response.error
        if self.record is not None:
            self.record.response_complete()
        try:
            return self._replies.response(response)
        except InferenceError as error:
            return self._fail(stream, error)

    def _end(self, stream: ResponseStream) -> bytes | None:
        self.done = True
        if stream.error is not None:
            return self._fail(stream, stream.error)
        if self.ordered:
            return self._fail(stream, InternalError("expected a single response, got 0"))
        return self._replies.end() if self._empty_final else None

    def _drop(self, stream: ResponseStream) -> None:
        """Take what follows the one message of a model that is not decoupled."""
        self.error = None
        self._dropped += len(stream.take_ready())
        if not stream.exhausted:
            return
        self.done = True
        if self._dropped or stream.error is not None:
            self._log_dropped(stream.error)

    def _log_dropped(self, error: InferenceError | None) -> None:
        note = repeat_note("dropped responses", self.model)
        if note is None:
            return
        logger.error(
            "the model '%s' is not decoupled, and the request '%s' has its one response: %s%s",
            self.model,
            shortened(self._id),
            f"{self._dropped} more are dropped" if error is None else error.message,
            note,
            extra={"model": self.model, "request_id": shortened(self._id)},
        )

    def _fail(self, stream: ResponseStream, error: InferenceError) -> bytes:
        self.done, self.error = True, error
        stream.close()
        return self._replies.error(error, final=True)


_LENGTH = Struct("<I")
_RESPONSE = 0x12  # field 2 of ModelStreamInferResponse, length-delimited


class StreamReplies:
    """The messages of one request's responses.

    Tokens of a language model differ in their text only: everything before it is serialized once.
    """

    __slots__ = ("_head", "_request", "_shape", "_version")

    def __init__(self, request: InferenceRequest, version: str) -> None:
        self._request = request
        self._version = version
        self._shape: object = None
        self._head = b""

    def response(self, response: InferenceResponse) -> bytes:
        """The message of a response; raises when it cannot be encoded."""
        if response.error is not None:
            return self.error(response.error, response.final)
        if response.parameters or self._request.requested_outputs:
            return self._whole(response)
        if type(response) is TextResponse:
            return self._text(response)
        outputs = response.outputs
        shape: object
        if len(outputs) == 1:
            ((name, tensor),) = outputs.items()
            shape = response.final, name, tensor.datatype, tensor.shape
        else:
            shape = response.final, *((name, t.datatype, t.shape) for name, t in outputs.items())
        if shape != self._shape:
            self._head = self._encode_head(response)
            self._shape = shape
        parts: list[Buffer] = [self._head]
        add_contents(parts, outputs)
        return field(_RESPONSE, b"".join(parts))

    def _text(self, response: TextResponse) -> bytes:
        """The same bytes as of a tensor of one string, which is not made."""
        shape = response.final, TextResponse
        if shape != self._shape:
            self._head = self._encode_head(response)
            self._shape = shape
        text = response.text
        size = len(text)
        parts = self._head, CONTENTS, varint(size + 4), _LENGTH.pack(size), text
        return field(_RESPONSE, b"".join(parts))

    def error(self, error: InferenceError, final: bool) -> bytes:
        """The message with an error, and the id of its request."""
        message = self._bare(final)
        message.error_message = replace_surrogates(error.message)
        return _serialized(message)

    def end(self) -> bytes:
        """The empty final message."""
        return _serialized(self._bare(final=True))

    def _encode_head(self, response: InferenceResponse) -> bytes:
        empty = InferenceResponse({}, {}, response.final)
        reply = encode_response(self._request, self._version, empty)
        for name, tensor in response.outputs.items():
            reply.outputs.add(name=name, datatype=tensor.datatype.value, shape=tensor.shape)
        mark_final(reply, response.final)
        return _serialized(reply)

    def _whole(self, response: InferenceResponse) -> bytes:
        reply = encode_response(self._request, self._version, response)
        mark_final(reply, response.final)
        return _serialized(pb.ModelStreamInferResponse(infer_response=reply))

    def _bare(self, final: bool) -> pb.ModelStreamInferResponse:
        request = self._request
        reply = pb.ModelInferResponse(model_name=request.model_name, id=request.id)
        mark_final(reply, final)
        return pb.ModelStreamInferResponse(infer_response=reply)


def refusal(message: pb.ModelInferRequest, error: InferenceError) -> bytes:
    """The error message for a request that was not admitted; it holds the id and nothing else."""
    reply = pb.ModelStreamInferResponse(error_message=replace_surrogates(error.message))
    reply.infer_response.id = message.id
    return _serialized(reply)


def _serialized(message: Message) -> bytes:
    data: bytes = message.SerializeToString()
    return data
