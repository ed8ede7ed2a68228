"""`ModelInferRequest` messages whose tensors stay in the memory that they were received in."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

from penstock.core.buffer import Buffer
from penstock.core.region import RegionSlice
from penstock.core.request import InferenceRequest
from penstock.core.tensor import DataType, Tensor
from penstock.protocol import grpc_service_pb2 as pb
from penstock.shared_memory.message_memory import WORTH, MessageMemory

_RAW = 0x3A  # field 7, raw_input_contents, length-delimited
_LENGTH_DELIMITED = 2
_ONE_BYTE = 0x80
"""Tags from here on go on in the next byte."""
_MOST = 256
"""Forms that are kept, and lengths of messages that came before."""
_LONGEST = 1024
"""Bytes of a head that is worth keeping."""
_MOST_FIELDS = 1024
"""Fields of a message up to which it is cut here: a client may fill a megabyte with empty ones."""
_ALIKE = 8
"""Forms that messages of one length and beginning are compared with, and such beginnings' sizes."""
_NO_TEMPLATES: dict[int, dict[bytes, list[RequestTemplate]]] = {}
_PATIENCE = 16 * _MOST
"""Requests of other templates until all that are kept are forgotten for them."""


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
    """The request that `data` holds; the tensors of a large one are views of it.

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
    """Parses requests; those of a template that came before are only compared with it.

    Clients send the same request again and again with other numbers in it. Which messages are of
    one template is not guessed: they are equal in every byte but those of the tensors, which are as
    many and in the same places, so a parser would find the same in them.
    """

    def __init__(self) -> None:
        # By the length of a message, that of its beginning, and the beginning itself.
        self._templates: dict[int, dict[int, dict[bytes, list[RequestTemplate]]]] = {}
        self._count = self._others = 0
        self._seen: set[int] = set()
        self._memory: MessageMemory | None = None

    def reserve(self, size: int, beginning: memoryview) -> memoryview | None:
        """Memory for a message of `size` bytes, of which the first are known."""
        memory = self._memory
        if memory is None:
            memory = self._memory = MessageMemory()
        return memory.reserve(size, self._first_contents(size, beginning))

    def _first_contents(self, size: int, beginning: memoryview) -> int:
        """Where the first raw contents begin in such a message; 0 if that is not known."""
        for length, templates in self._templates.get(size, _NO_TEMPLATES).items():
            if bytes(beginning[:length]) in templates:
                return length
        return _first(beginning)

    def read(self, data: Buffer) -> InferMessage:
        """As `parse_infer`."""
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
                self._remember(data)
            else:  # perhaps the only one of its length
                self._look_for(size)
        return message

    def _look_for(self, size: int) -> None:
        if len(self._seen) >= _MOST:
            self._seen.clear()
        self._seen.add(size)

    def _remember(self, data: Buffer) -> None:
        if self._count >= _MOST and not self._make_room():
            return
        found = _split(data)
        if found is None or found[0] > _LONGEST:
            return
        size, spans = found
        head = pb.ModelInferRequest.FromString(bytes(data[:size]))
        if len(spans) == len(head.inputs):
            self._keep(len(data), RequestTemplate(head, data, spans))

    def _make_room(self) -> bool:
        """Forget all templates, but not before many requests have come that are of none of them."""
        self._others += 1
        if self._others < _PATIENCE:
            return False
        self._templates.clear()
        self._count = self._others = 0
        return True

    def _keep(self, size: int, template: RequestTemplate) -> None:
        """Keep a template, unless so many are like it that to look for one would take long."""
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
    """Where the first raw contents begin in a message that begins so; 0 if they do later."""
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
    """The size of all before the raw contents, and where each of these begins and ends.

    `None` where they are not last of all, where a field has a number that no field of ours has, or
    where there are so many fields that protobuf reads them sooner.
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
    """A varint of 32 bits at most, and where it ends; `None` if there is none."""
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
"""Bytes of a message from which a copy of its tensors costs more than a view."""


class RequestTemplate:
    """The head of such requests, decoded, and where their messages have the contents.

    `spans` are where the raw contents begin and end in a message, one an input; `beginning` is
    what stands before the first.
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
        """Whether requests with this head need no look at anything but the tensors' contents."""
        if head.id or head.parameters or not head.inputs:
            return False
        if len({tensor.name for tensor in head.inputs}) != len(head.inputs):
            return False
        if any(tensor.parameters or tensor.HasField("contents") for tensor in head.inputs):
            return False
        return not any(output.parameters for output in head.outputs)

    def contents(self, message: Buffer) -> list[Buffer] | None:
        """The raw contents of a message of this length and beginning, if it is of this template."""
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
        """The request with these contents, of which some lie in `places`."""
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
            form=self,
        )
