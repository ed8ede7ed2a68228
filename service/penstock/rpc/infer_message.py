"""Parser of `ModelInferRequest` messages: tensors are not copied, repeated heads are cached."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

from penstock.core.buffer import Buffer
from penstock.core.region import RegionSlice
from penstock.core.request import InferenceRequest
from penstock.core.request_limits import MOST_TENSORS
from penstock.core.tensor import DataType, Tensor
from penstock.protocol import grpc_service_pb2 as pb
from penstock.shared_memory.message_memory import WORTH, MessageMemory

_RAW = 0x3A  # field 7, raw_input_contents, length-delimited
_LENGTH_DELIMITED = 2
_ONE_BYTE = 0x80
"""Tags from here on take more than one byte."""
_MOST = 256
"""Limit of cached templates, and of remembered message lengths."""
_LONGEST = 1024
"""Bytes of the longest head that is cached."""
_MOST_FIELDS = 1024
"""Limit of fields in a message that is split here: a megabyte may hold many empty ones."""
_ALIKE = 8
"""Limit of templates with equal length and beginning, and of beginnings' lengths per length."""
_NO_TEMPLATES: dict[int, dict[bytes, list[RequestTemplate]]] = {}
_CLEAR_AFTER = 16 * _MOST
"""Requests that match no template, after which a full cache is cleared for them."""


class InferMessage(NamedTuple):
    """A parsed request message: all but its raw contents, and these, one buffer per input.

    Messages with the same `template` share their `head`. `places` are where the contents lie in
    shared memory that other processes can map, as far as they do.
    """

    head: pb.ModelInferRequest
    raw: Sequence[Buffer]
    template: RequestTemplate | None = None
    places: Sequence[RegionSlice | None] = ()


def parse_infer(data: Buffer, memory: MessageMemory | None = None) -> InferMessage:
    """Parse a request message; the tensors of a large one are views of `data`.

    Raises protobuf's `DecodeError`.
    """
    if len(data) >= LARGE and (found := _split(data)) is not None:
        size, spans = found
        view = memoryview(data)
        head = pb.ModelInferRequest.FromString(bytes(view[:size]))
        raw: list[Buffer] = [view[begin:end] for begin, end in spans]
        return InferMessage(head, raw, None, _places(data, spans, raw, memory))
    message = pb.ModelInferRequest.FromString(data)
    return InferMessage(message, message.raw_input_contents)


class InferReader:
    """Parses requests; one that matches a cached template is only compared with it.

    Clients send the same request again and again with other tensors. A message matches a template
    if it has the same length and differs from it in no byte outside the tensors' contents, so that
    a parser would find the same fields.
    """

    def __init__(self) -> None:
        # By the length of a message, the length of its beginning, and the beginning itself.
        self._templates: dict[int, dict[int, dict[bytes, list[RequestTemplate]]]] = {}
        self._count = self._misses = 0
        self._seen: set[int] = set()
        self._memory: MessageMemory | None = None

    def reserve(self, size: int, beginning: memoryview) -> memoryview | None:
        """Allocate the buffer of a message of `size` bytes, whose first bytes are received."""
        memory = self._memory
        if memory is None:
            memory = self._memory = MessageMemory()
        return memory.reserve(size, self._first_contents(size, beginning))

    def _first_contents(self, size: int, beginning: memoryview) -> int:
        """Offset of the first raw contents in such a message; 0 if it is not known."""
        for length, templates in self._templates.get(size, _NO_TEMPLATES).items():
            if bytes(beginning[:length]) in templates:
                return length
        return _first(beginning)

    def read(self, data: Buffer) -> InferMessage:
        """Parse a request message: see `parse_infer`."""
        size = len(data)
        if size in self._templates:
            for length, templates in self._templates[size].items():
                for template in templates.get(bytes(data[:length]), ()):
                    raw = template.contents(data)
                    if raw is not None:
                        places = _places(data, template.spans, raw, self._memory)
                        return InferMessage(template.head, raw, template, places)
        message = parse_infer(data, self._memory)
        if RequestTemplate.fits(message.head):
            if size in self._seen:
                self._add_template(data)
            else:  # it may be the only one of its length
                self._remember_size(size)
        return message

    def _remember_size(self, size: int) -> None:
        if len(self._seen) >= _MOST:
            self._seen.clear()
        self._seen.add(size)

    def _add_template(self, data: Buffer) -> None:
        if self._count >= _MOST and not self._make_room():
            return
        found = _split(data)
        if found is None or found[0] > _LONGEST:
            return
        size, spans = found
        head = pb.ModelInferRequest.FromString(bytes(data[:size]))
        if len(spans) == len(head.inputs):
            self._cache(len(data), RequestTemplate(head, data, spans))

    def _make_room(self) -> bool:
        """Clear a full cache once many requests have matched none of its templates."""
        self._misses += 1
        if self._misses < _CLEAR_AFTER:
            return False
        self._templates.clear()
        self._count = self._misses = 0
        return True

    def _cache(self, size: int, template: RequestTemplate) -> None:
        """Cache a template, unless too many are like it to be compared with a message."""
        beginnings = self._templates.setdefault(size, {})
        length = len(template.beginning)
        if length not in beginnings and len(beginnings) >= _ALIKE:
            return
        alike = beginnings.setdefault(length, {}).setdefault(template.beginning, [])
        if len(alike) < _ALIKE:
            alike.append(template)
            self._count += 1


def _places(
    data: Buffer,
    spans: Sequence[tuple[int, int]],
    raw: Sequence[Buffer],
    memory: MessageMemory | None,
) -> Sequence[RegionSlice | None]:
    if memory is None or len(data) < WORTH:
        return ()
    each = zip(spans, raw, strict=True)
    return [memory.place(data, begin, tensor) for (begin, _), tensor in each]


def _first(beginning: memoryview) -> int:
    """Offset of the first raw contents, given the first bytes of a message; 0 if beyond them."""
    at, end = 0, len(beginning)
    for _ in range(_MOST_FIELDS):
        if at >= end:
            return 0
        tag = beginning[at]
        length = _length(beginning, at + 1)
        if length is None or tag & 7 != _LENGTH_DELIMITED or tag >= _ONE_BYTE:
            return 0
        size, at = length
        if tag == _RAW:
            return at
        at += size
    return 0


def _split(data: Buffer) -> tuple[int, list[tuple[int, int]]] | None:
    """The size of the head before the raw contents, and the begin and end of each of these.

    `None` if other fields follow the raw contents, if a field number takes more than one byte, or
    if there are so many fields that protobuf parses them faster.
    """
    view = memoryview(data)
    at, end = 0, len(view)
    head, spans = end, list[tuple[int, int]]()
    for _ in range(_MOST_FIELDS):
        if at >= end:
            return head, spans
        start, tag = at, view[at]
        length = _length(view, at + 1)
        if length is None or tag & 7 != _LENGTH_DELIMITED or tag >= _ONE_BYTE:
            return None
        if spans and tag != _RAW:
            return None
        size, at = length
        if at + size > end:
            return None
        if tag == _RAW:
            head = min(head, start)
            spans.append((at, at + size))
        at += size
    return None


def _length(view: memoryview, at: int) -> tuple[int, int] | None:
    """A varint of at most 32 bits, and where it ends; `None` if it is invalid."""
    value = shift = 0
    for position in range(at, min(at + 5, len(view))):
        byte = view[position]
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, position + 1
        shift += 7
    return None


DATATYPES = {datatype.value: datatype for datatype in DataType if datatype is not DataType.INVALID}

LARGE = 8 << 10
"""Bytes of a message from which copying its tensors costs more than a view."""


class RequestTemplate:
    """The parsed head of repeated requests, and the layout of their messages.

    `spans` are the begin and end of the raw contents in a message, one per input; `beginning` are
    the bytes before the first.
    """

    __slots__ = ("_inputs", "_literals", "_outputs", "beginning", "head", "spans")

    def __init__(
        self, head: pb.ModelInferRequest, message: Buffer, spans: Sequence[tuple[int, int]]
    ) -> None:
        self.head = head
        self._inputs = [
            (tensor.name, DATATYPES.get(tensor.datatype, DataType.INVALID), tuple(tensor.shape))
            for tensor in head.inputs
        ]
        self._outputs = tuple(output.name for output in head.outputs)
        self.spans = tuple(spans)
        self.beginning = bytes(message[: spans[0][0]])
        self._literals = [
            (end, begin, bytes(message[end:begin])) for (_, end), (begin, _) in pairwise(spans)
        ]

    @staticmethod
    def fits(head: pb.ModelInferRequest) -> bool:
        """Whether requests with this head differ in nothing but their tensors' contents."""
        if head.id or head.parameters or not head.inputs:
            return False
        if max(len(head.inputs), len(head.outputs)) > MOST_TENSORS:
            return False
        if len({tensor.name for tensor in head.inputs}) != len(head.inputs):
            return False
        if any(tensor.parameters or tensor.HasField("contents") for tensor in head.inputs):
            return False
        return not any(output.parameters for output in head.outputs)

    def contents(self, message: Buffer) -> list[Buffer] | None:
        """The raw contents of a message with this length and beginning; `None` if it differs."""
        for begin, end, literal in self._literals:
            if message[begin:end] != literal:
                return None
        if len(message) >= LARGE:
            message = memoryview(message)
        return [message[begin:end] for begin, end in self.spans]

    def request(
        self,
        raw: Sequence[Buffer],
        deadline: float | None,
        places: Sequence[RegionSlice | None] = (),
    ) -> InferenceRequest:
        """The request with the contents `raw`, some of which lie in shared memory: `places`."""
        inputs = {
            name: Tensor(datatype, shape, buffer)
            for (name, datatype, shape), buffer in zip(self._inputs, raw, strict=True)
        }
        if places:
            for tensor, place in zip(inputs.values(), places, strict=True):
                tensor.shared = place
        head = self.head
        return InferenceRequest(
            head.model_name,
            head.model_version,
            "",
            inputs,
            self._outputs,
            deadline=deadline,
            template=self,
        )
