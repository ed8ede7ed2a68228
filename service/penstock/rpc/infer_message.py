"""Requests whose tensors stay in the memory that they came in."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from penstock.core.tensor import Buffer
from penstock.protocol import grpc_service_pb2 as pb

_RAW = 0x3A  # field 7, raw_input_contents, length-delimited
_LENGTH_DELIMITED = 2
_LARGE = 8 << 10
"""Bytes of a message from which copying its tensors costs more than finding them."""


class InferMessage(NamedTuple):
    """A request message: all but its raw contents, and these, one buffer an input."""

    head: pb.ModelInferRequest
    raw: Sequence[Buffer]


def parse_infer(data: Buffer) -> InferMessage:
    """The request that `data` holds; the tensors of a large one are views of it.

    Raises protobuf's `DecodeError`.
    """
    if len(data) >= _LARGE and (found := _split(memoryview(data))) is not None:
        head, raw = found
        return InferMessage(pb.ModelInferRequest.FromString(bytes(head)), raw)
    message = pb.ModelInferRequest.FromString(data)
    return InferMessage(message, message.raw_input_contents)


def _split(view: memoryview) -> tuple[memoryview, list[memoryview]] | None:
    """The message up to its raw contents, and these; `None` where they are not last of all."""
    at, end = 0, len(view)
    head, raw = end, list[memoryview]()
    while at < end:
        start, tag = at, view[at]
        length = _length(view, at + 1)
        if length is None or tag & 7 != _LENGTH_DELIMITED or (raw and tag != _RAW):
            return None
        size, at = length
        if at + size > end:
            return None
        if tag == _RAW:
            head = min(head, start)
            raw.append(view[at : at + size])
        at += size
    return view[:head], raw


def _length(view: memoryview, at: int) -> tuple[int, int] | None:
    """A varint of 32 bits at most, and where it ends; `None` if there is none."""
    value = shift = 0
    for position in range(at, min(at + 5, len(view))):
        byte = view[position]
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, position + 1
        shift += 7
    return None
