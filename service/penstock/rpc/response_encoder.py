"""Encoder of unary responses: protobuf messages in parts, without copies of tensors."""

from __future__ import annotations

from collections.abc import Hashable, Mapping

from penstock.core.buffer import Buffer, octets
from penstock.core.request import InferenceRequest, InferenceResponse
from penstock.core.tensor import Tensor
from penstock.protocol import grpc_service_pb2 as pb
from penstock.rpc.codec import encode_response
from penstock.rpc.context import Reply
from penstock.rpc.infer_layout import varint

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
        outputs = _wanted(request, response)
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


def _wanted(request: InferenceRequest, response: InferenceResponse) -> Mapping[str, Tensor]:
    wanted, outputs = request.requested_outputs, response.outputs
    if not wanted or all(name in wanted for name in outputs):
        return outputs
    return {name: tensor for name, tensor in outputs.items() if name in wanted}


def field(tag: int, value: bytes) -> bytes:
    """A length-delimited protobuf field; `tag` is the byte of its number and type."""
    return b"%c%b%b" % (tag, varint(len(value)), value)
