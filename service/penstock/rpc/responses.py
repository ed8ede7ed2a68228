"""The answer to a `ModelInfer` request, sent by callbacks without a task, and its encoder.

Messages are sent in parts, without copies of tensors.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping

from penstock.core.buffer import Buffer, octets
from penstock.core.errors import RequestCancelledError
from penstock.core.log.log_fields import name_request
from penstock.core.request import InferenceRequest, InferenceResponse
from penstock.core.stream import ResponseStream, require_single
from penstock.core.tensor import Tensor
from penstock.inflight.inference import SingleAnswer
from penstock.protocol import grpc_service_pb2 as pb
from penstock.rpc.call_record import CallRecord
from penstock.rpc.context import CompletionCallbacks, Reply
from penstock.rpc.infer_layout import varint
from penstock.rpc.messages import encode_response
from penstock.shared_memory.registry import Regions


class UnaryAnswer(SingleAnswer):
    """Sends the only response of a stream to the caller of `ModelInfer`."""

    __slots__ = ("_callbacks", "_encoder", "_record")

    def __init__(
        self,
        request: InferenceRequest,
        callbacks: CompletionCallbacks,
        encoder: ResponseEncoder,
        regions: Regions,
        record: CallRecord | None = None,
    ) -> None:
        SingleAnswer.__init__(self, request, regions)  # without `super()`, which takes longer
        self._callbacks = callbacks
        self._encoder = encoder
        self._record = record

    def follow(self, stream: ResponseStream) -> Callable[[], None] | None:
        """Answer with the response of `stream`.

        Returns a callback to cancel the request, or `None` if it is already answered.
        """
        self._stream = stream
        stream.watch(self._on_response)
        return None if stream.exhausted else self._cancel

    def _on_cancelled(self) -> None:
        if self._record is not None:
            self._record.finish(RequestCancelledError())

    def _answer(self, stream: ResponseStream) -> None:
        record = self._record
        if record is not None:
            record.response_complete()
        try:
            response = require_single(self._responses, stream.error)
            # Writes outputs into the client's shared memory, and so comes before its release.
            reply = self._encoder.encode(self._request, stream.model_version, response)
        except Exception as error:  # the response cannot be encoded
            name_request(error, self._request)
            self._release()
            if record is None:
                self._callbacks.raised(error)
            else:
                self._raise_recorded(record, error)
        else:
            self._release()
            if record is None:
                self._callbacks.returned(reply)
            else:
                self._return_recorded(record, reply)

    def _raise_recorded(self, record: CallRecord, error: Exception) -> None:
        record.explain(error)
        self._callbacks.raised(error)
        record.finish(error)

    def _return_recorded(self, record: CallRecord, reply: Reply) -> None:
        record.explain()
        self._callbacks.returned(reply)
        record.response_sent()
        record.finish()


_ID = 0x1A  # field 3 of ModelInferResponse, length-delimited
CONTENTS = b"\x32"  # field 6 of ModelInferResponse, length-delimited
_REMEMBERED = 256
"""Limit of cached heads, by model, version, and the outputs' names, types and shapes."""


class ResponseEncoder:
    """Serializes responses of unary calls; the head before the tensors is cached."""

    def __init__(self) -> None:
        self._heads: dict[Hashable, bytes] = {}

    def encode(self, request: InferenceRequest, version: str, response: InferenceResponse) -> Reply:
        """The serialized message of a response; raises `InferenceError` if it cannot be encoded."""
        if response.parameters or request.output_places:
            return encode_response(request, version, response)
        wanted, outputs = request.requested_outputs, response.outputs
        if wanted:
            outputs = {name: tensor for name, tensor in outputs.items() if name in wanted}
        parts: list[Buffer] = [self._head(request.model_name, version, outputs)]
        if request.id:
            parts.append(field(_ID, request.id.encode()))
        add_contents(parts, outputs)
        return parts

    def _head(self, model: str, version: str, outputs: Mapping[str, Tensor]) -> bytes:
        """The serialized fields before the id and the contents."""
        key = (model, version, *[(name, t.datatype, t.shape) for name, t in outputs.items()])
        head = self._heads.get(key)
        if head is None:
            message = pb.ModelInferResponse(model_name=model, model_version=version)
            for name, tensor in outputs.items():
                datatype = tensor.datatype.value
                message.outputs.add(name=name, datatype=datatype, shape=tensor.shape)
            if len(self._heads) >= _REMEMBERED:
                self._heads.clear()
            head = self._heads[key] = message.SerializeToString()
        return head


def add_contents(parts: list[Buffer], outputs: Mapping[str, Tensor]) -> None:
    """Append the raw contents of a `ModelInferResponse`, one entry per output (G-25)."""
    for tensor in outputs.values():
        buffer = octets(tensor.buffer)
        parts += (CONTENTS, varint(len(buffer)), buffer)


def field(tag: int, value: bytes) -> bytes:
    """A length-delimited protobuf field; `tag` is the byte of its number and type."""
    return b"%c%b%b" % (tag, varint(len(value)), value)
