"""Encoder of stream responses: the head that repeats between responses is cached."""

from __future__ import annotations

from struct import Struct

from google.protobuf.message import Message

from penstock.core.buffer import Buffer
from penstock.core.errors import InferenceError
from penstock.core.request import InferenceRequest, InferenceResponse, TextResponse
from penstock.protocol import grpc_service_pb2 as pb
from penstock.rpc.codec import encode_response, mark_final
from penstock.rpc.infer_layout import varint
from penstock.rpc.response_encoder import CONTENTS, add_contents, field
from penstock.rpc.status import replace_surrogates

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
