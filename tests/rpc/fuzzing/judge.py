"""Compares what is understood of a message with what protobuf understands of it."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
from google.protobuf.message import DecodeError

from penstock.core.errors import InferenceError
from penstock.core.request import RequestScope
from penstock.core.tensor import DataType, Tensor
from penstock.protocol import grpc_service_pb2 as pb
from penstock.rpc.infer_layout import varint
from penstock.rpc.messages import InferMessage, decode_request, parse_infer

LARGE = 8 << 10
_NUMBER = varint(1000 << 3 | 2)


def padded(message: bytes) -> bytes:
    """The message behind an unknown field, which makes it large."""
    return _NUMBER + varint(LARGE) + bytes(LARGE) + message


def by_protobuf(message: bytes) -> InferMessage:
    """The message as protobuf parses it whole. Raises `DecodeError`."""
    whole = pb.ModelInferRequest.FromString(message)
    return InferMessage(whole, whole.raw_input_contents)


def understood(message: InferMessage) -> tuple[Any, ...]:
    """All that a model sees of a request, or the error that refuses it."""
    try:
        request = decode_request(message, RequestScope(5.0))
    except InferenceError as error:
        return type(error), error.message
    inputs = request.inputs.items()
    tensors = [(name, t.datatype, t.shape, _bits(t)) for name, t in inputs]
    return repr(request._replace(inputs={}, template=None)), tensors


def _bits(tensor: Tensor) -> bytes:
    """The bytes of a tensor. Python's numbers, as which protobuf hands them out, have no signalling
    NaN of 32 bits."""
    data = bytes(tensor.buffer)
    if tensor.datatype is not DataType.FP32 or len(data) % 4:
        return data
    with np.errstate(invalid="ignore"):
        return np.frombuffer(data, "<f4").astype("<f8").astype("<f4").tobytes()


def outcome(message: bytes, *, whole: bool) -> tuple[Any, ...]:
    """What is understood of a message, by protobuf if it is parsed whole."""
    try:
        return understood(by_protobuf(message) if whole else parse_infer(padded(message)))
    except DecodeError:
        return (DecodeError,)


def compare(message: bytes) -> tuple[Any, ...]:
    """The outcome of a message, which must be the same both ways; for one that protobuf cannot
    parse, any refusal will do."""
    found, expected = outcome(message, whole=False), outcome(message, whole=True)
    if expected == (DecodeError,):
        assert isinstance(found[0], type), f"{found} is refused by protobuf"
    elif found != expected:
        assert found == (DecodeError,), f"{found} is not {expected}"
        lenient = _may_have_group(message) or _OVERLONG.search(message)
        assert lenient, f"{expected} is refused"
    return found


_OVERLONG = re.compile(rb"[\x80-\xff]{9}[^\x00\x01\x80-\xff]")
"""A number of more than 64 bits, of which protobuf leaves out those beyond: we refuse it."""


def _may_have_group(message: bytes) -> bool:
    """Whether any byte of it could be the tag of a group."""
    return any(byte & 7 in (3, 4) for byte in message)
