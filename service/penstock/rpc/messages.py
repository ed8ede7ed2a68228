"""Inference messages: protobuf to core values and back; error texts are Triton's.

The parser does not copy tensors, and caches heads that repeat.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise, zip_longest
from types import MappingProxyType
from typing import Any, NamedTuple

from penstock.core.body_quota import BodyQuota
from penstock.core.buffer import Buffer
from penstock.core.errors import (
    InferenceError,
    InternalError,
    InvalidRequestError,
    request_prefix,
    shortened,
)
from penstock.core.region import RegionSlice
from penstock.core.request import NO_SCOPE, InferenceRequest, InferenceResponse, RequestScope
from penstock.core.request_limits import (
    FEW_ELEMENTS,
    MOST_TENSORS,
    check_dimensions,
    check_inputs,
    check_outputs,
    check_parameters,
    elements_in,
    repeated_output,
    too_many_elements,
)
from penstock.core.tensor import DataType, Tensor, count_in_steps
from penstock.core.turns import Sliced, Steps, Turns, begun, finished
from penstock.protocol import grpc_service_pb2 as pb
from penstock.rpc.context import LARGE
from penstock.rpc.control_messages import CLASSIFICATION, FINAL, class_count, split_parameters
from penstock.rpc.infer_layout import Layout, TooManyError, first_raw, model_name
from penstock.rpc.shared_memory import REGION, shared_slice
from penstock.rpc.typed_contents import ContentLimits, LargeContents, counted, decode_contents
from penstock.shared_memory.message_memory import WORTH
from penstock.shared_memory.message_pools import MessagePools
from penstock.shared_memory.registry import NO_REGIONS, Regions
from penstock.shared_memory.tensors import put, tensor_in

_PARAMETER_FIELDS = (
    (bool, "bool_param"),
    (int, "int64_param"),
    (float, "double_param"),
    (str, "string_param"),
)


def decode_request(
    received: InferMessage,
    scope: RequestScope = NO_SCOPE,
    regions: Regions = NO_REGIONS,
    forwarded: Mapping[str, str] | None = None,
) -> InferenceRequest:
    """Decode a request message; raises `InvalidRequestError` for one that no model would accept.

    `scope` becomes that of the request. `regions` are the clients' shared memory, where tensors may
    lie; `forwarded` are headers of the call that become parameters.
    """
    message = received.head
    if received.template is not None and not forwarded:
        return received.template.request(received.raw, scope, received.places)
    if received.refusal is not None:
        raise received.refusal
    check_parameters(message.parameters)
    check_inputs(message.inputs)
    check_outputs(message.outputs)
    fields, custom = split_parameters(message.parameters)
    if forwarded:
        custom |= forwarded
    outputs, classes = _decode_outputs(message.outputs)
    return InferenceRequest(
        model_name=message.model_name,
        model_version=message.model_version,
        id=message.id,
        inputs=_decode_inputs(received, regions),
        requested_outputs=outputs,
        parameters=custom,
        classes=classes,
        output_places=_output_places(message.outputs, regions),
        scope=scope,
        **fields,
    )


def encode_response(
    request: InferenceRequest, version: str, response: InferenceResponse
) -> pb.ModelInferResponse:
    """Encode a response, always with raw contents, one entry per output (G-25)."""
    message = pb.ModelInferResponse(
        model_name=request.model_name, model_version=version, id=request.id
    )
    _encode_parameters(message, response.parameters)
    wanted = request.requested_outputs
    for name, tensor in response.outputs.items():
        if wanted and name not in wanted:
            continue
        message.outputs.add(name=name, datatype=tensor.datatype.value, shape=tensor.shape)
        place = request.output_places.get(name)
        if place is None:
            message.raw_output_contents.append(bytes(tensor.buffer))
        else:
            put(name, tensor, place)
            message.raw_output_contents.append(b"")
    return message


def mark_final(message: pb.ModelInferResponse, final: bool) -> None:
    """Set the parameter for the last response of a request (GP-06)."""
    message.parameters[FINAL].bool_param = final


def _encode_parameters(message: pb.ModelInferResponse, parameters: Mapping[str, object]) -> None:
    for key, value in parameters.items():
        field = next((name for kind, name in _PARAMETER_FIELDS if isinstance(value, kind)), "")
        try:
            setattr(message.parameters[key], field, value)
        except (AttributeError, ValueError) as error:  # a backend may return any value
            raise InternalError(
                f"response parameter '{key}' is not a boolean, 64-bit integer, float or string"
            ) from error


def _decode_outputs(
    outputs: Sequence[pb.ModelInferRequest.InferRequestedOutputTensor],
) -> tuple[tuple[str, ...], Mapping[str, int]]:
    """The names of the outputs, and the number of classes for those to be classified (GP-10)."""
    classes: dict[str, int] = {}
    names: set[str] = set()
    for output in outputs:
        if output.name in names:
            raise repeated_output(output.name)
        names.add(output.name)
        if not output.parameters:
            continue
        if CLASSIFICATION in output.parameters:
            classes[output.name] = class_count(output.parameters[CLASSIFICATION])
            if REGION in output.parameters:
                raise InvalidRequestError(
                    "output can't set both 'shared_memory_region' and 'classification'"
                )
    return tuple(output.name for output in outputs), classes


def _output_places(
    outputs: Sequence[pb.ModelInferRequest.InferRequestedOutputTensor], regions: Regions
) -> dict[str, RegionSlice]:
    """The slices of shared memory for outputs that the client requests there."""
    if not outputs:
        return {}
    places: dict[str, RegionSlice] = {}
    for output in outputs:
        given = output.parameters
        place = shared_slice(output.name, given, regions) if given else None
        if place is not None:
            places[output.name] = place
    return places


def _decode_inputs(received: InferMessage, regions: Regions) -> dict[str, Tensor]:
    tensors: dict[str, Tensor] = {}
    message = received.head
    raw = zip_longest(received.raw, received.places)
    for number, tensor in enumerate(message.inputs):
        if tensor.name in tensors:
            raise InvalidRequestError(
                f"{request_prefix(message.id)}input '{shortened(tensor.name)}'"
                " already exists in request"
            )
        check_dimensions(tensor.name, tensor.shape)
        tensors[tensor.name] = _decode_input(received, number, tensor, raw, regions)
    return tensors


def _decode_input(
    received: InferMessage,
    number: int,
    tensor: pb.ModelInferRequest.InferInputTensor,
    raw: Iterator[tuple[Buffer, RegionSlice | None]],
    regions: Regions,
) -> Tensor:
    datatype = DATATYPES.get(tensor.datatype, DataType.INVALID)
    where = input_name(received.head, tensor)
    place = shared_slice(tensor.name, tensor.parameters, regions) if tensor.parameters else None
    if place is not None:
        _refuse_contents(tensor, where)
        return tensor_in(place, datatype, tensor.shape)
    buffer: Buffer | None
    if tensor.HasField("contents"):
        if received.raw:
            raise InvalidRequestError(
                f"contents field must not be specified when using raw_input_contents for {where}"
            )
        buffer = _typed_contents(received, number, tensor, datatype)
    else:
        buffer, place = next(raw, (None, None))
    if buffer is None:
        raise InvalidRequestError(f"unable to find data for input tensor {where} in request.")
    return Tensor(datatype, tensor.shape, buffer, place, None, received.counts.get(number))


def _typed_contents(
    received: InferMessage,
    number: int,
    tensor: pb.ModelInferRequest.InferInputTensor,
    datatype: DataType,
) -> Buffer:
    decoded = received.typed.get(number)
    if decoded is None:
        return decode_contents(tensor.contents, datatype, input_name(received.head, tensor))
    if isinstance(decoded, InferenceError):
        raise decoded
    return decoded


def _refuse_contents(tensor: pb.ModelInferRequest.InferInputTensor, where: str) -> None:
    if tensor.HasField("contents"):
        raise InvalidRequestError(
            f"unexpected 'content' provided when using shared memory for input tensor {where}"
        )


_MOST = 256
"""Limit of cached templates, and of remembered message lengths."""
_LONGEST = 1024
"""Bytes of the longest head that is cached."""
_ALIKE = 8
"""Limit of templates with equal length and beginning, and of beginnings' lengths per length."""
_NO_TEMPLATES: dict[int, dict[bytes, list[RequestTemplate]]] = {}
_NOTHING: Mapping[int, Any] = MappingProxyType({})
_CLEAR_AFTER = 16 * _MOST
"""Requests that match no template, after which a full cache is cleared for them."""


class InferMessage(NamedTuple):
    """A parsed request message: all but its raw contents, and these, one buffer per input.

    Messages with the same `template` share their `head`. `places` are where the contents lie in
    shared memory that other processes can map, as far as they do. `typed` are typed contents that
    are decoded already, by the number of the input, or what is wrong with them; `counts` are, in
    the same form, the numbers of elements of large BYTES tensors. `refusal` is why there is no more
    of the head than its names.
    """

    head: pb.ModelInferRequest
    raw: Sequence[Buffer]
    template: RequestTemplate | None = None
    places: Sequence[RegionSlice | None] = ()
    typed: Mapping[int, Buffer | InferenceError] = _NOTHING
    counts: Mapping[int, int | InvalidRequestError] = _NOTHING
    refusal: InvalidRequestError | None = None


def parse_infer(data: Buffer) -> InferMessage:
    """Parse a request message, whatever time it takes; the tensors of a large one are views of it.

    Raises protobuf's `DecodeError`.
    """
    message: InferMessage = finished(_Parsing(data, ContentLimits()).run())
    return message


class _Parsing:
    """Parses one message, in steps if it is large."""

    def __init__(
        self,
        data: Buffer,
        limits: ContentLimits,
        memory: MessagePools | None = None,
        quota: BodyQuota | None = None,
    ) -> None:
        self._data = data
        self._limits = limits
        self._memory = memory
        self._quota = quota
        self._view = memoryview(data)
        self._typed: dict[int, Buffer | InferenceError] = {}
        self._typed_size = 0
        self._counts: dict[int, int | InvalidRequestError] = {}

    def run(self) -> Steps[InferMessage]:
        """The message. Raises `DecodeError`; errors of the request are part of it."""
        if len(self._data) < LARGE:
            message = pb.ModelInferRequest.FromString(self._data)
            return InferMessage(message, message.raw_input_contents)
        try:
            layout = yield from Layout(self._view).read()
        except TooManyError as many:  # compiled code has one type for each name
            return InferMessage(pb.ModelInferRequest.FromString(many.names), (), refusal=many)
        head = pb.ModelInferRequest.FromString(layout.head)
        raw: list[Buffer] = [self._view[begin:end] for begin, end in layout.raw]
        try:
            for number in layout.typed:
                yield from self._decode_typed(head, number, layout)
            yield from self._count_elements(head, raw)
        except InvalidRequestError as error:
            return InferMessage(head, (), refusal=error)
        places = _places(self._data, layout.raw, raw, self._memory)
        return InferMessage(head, raw, None, places, self._typed, self._counts)

    def _decode_typed(self, head: pb.ModelInferRequest, number: int, layout: Layout) -> Steps[None]:
        tensor = head.inputs[number]
        where, before = input_name(head, tensor), self._typed_size
        contents = LargeContents(self._view, layout.typed[number], where, self._limits, before)
        try:
            datatype = DATATYPES.get(tensor.datatype, DataType.INVALID)
            decoded, count = yield from counted(contents.decode(datatype), contents, self._quota)
        except InferenceError as error:
            self._typed[number] = error
            return
        self._typed[number] = decoded
        self._typed_size += len(decoded)
        if count is not None:
            self._counts[number] = count

    def _count_elements(self, head: pb.ModelInferRequest, raw: Sequence[Buffer]) -> Steps[None]:
        """Count the elements of BYTES tensors of many, which would take admission too long."""
        contents = iter(raw)
        for number, tensor in enumerate(head.inputs):
            if tensor.HasField("contents") or REGION in tensor.parameters:
                continue
            buffer = next(contents, b"")
            if tensor.datatype != DataType.BYTES or len(buffer) <= 4 * FEW_ELEMENTS:
                continue
            expected = elements_in(tensor.shape, self._limits.elements)
            if expected > self._limits.elements:
                raise too_many_elements(input_name(head, tensor), self._limits.elements)
            if expected > FEW_ELEMENTS:
                where = f" for inference input '{tensor.name}'"
                try:
                    self._counts[number] = yield from count_in_steps(buffer, where, expected)
                except InvalidRequestError as error:
                    self._counts[number] = error
            yield


def input_name(head: pb.ModelInferRequest, tensor: pb.ModelInferRequest.InferInputTensor) -> str:
    """The name of an input in errors."""
    return f"'{shortened(tensor.name)}' for model '{shortened(head.model_name)}'"


class InferReader:
    """Parses requests; one that matches a cached template is only compared with it.

    Clients send the same request again and again with other tensors. A message matches a template
    if it has the same length and differs from it in no byte outside the tensors' contents, so that
    a parser would find the same fields. `quota` counts what typed contents are decoded to.
    """

    def __init__(
        self,
        limits: ContentLimits | None = None,
        quota: BodyQuota | None = None,
        memory: MessagePools | None = None,
    ) -> None:
        self._limits = limits or ContentLimits()
        self._quota = quota
        self._memory = MessagePools() if memory is None else memory
        self._turns = Turns()
        # By the length of a message, the length of its beginning, and the beginning itself.
        self._templates: dict[int, dict[int, dict[bytes, list[RequestTemplate]]]] = {}
        self._count = self._misses = 0
        self._seen: set[int] = set()

    def reserve(self, size: int, beginning: memoryview) -> memoryview | None:
        """Allocate the buffer of a message of `size` bytes, whose first bytes are received."""
        model = model_name(beginning)
        return self._memory.reserve(model, size, self._first_contents(size, beginning))

    def _first_contents(self, size: int, beginning: memoryview) -> int:
        """Offset of the first raw contents in such a message; 0 if it is not known."""
        for length, templates in self._templates.get(size, _NO_TEMPLATES).items():
            if bytes(beginning[:length]) in templates:
                return length
        return first_raw(beginning)

    def read(self, data: Buffer) -> InferMessage | Sliced[InferMessage]:
        """Parse a request message, a large one in steps if need be. Raises `DecodeError`."""
        size = len(data)
        if size in self._templates:
            for length, templates in self._templates[size].items():
                for template in templates.get(bytes(data[:length]), ()):
                    raw = template.contents(data)
                    if raw is not None:
                        places = _places(data, template.spans, raw, self._memory)
                        return InferMessage(template.head, raw, template, places)
        parsing = _Parsing(data, self._limits, self._memory, self._quota)
        message = begun(parsing.run(), self._turns)
        if isinstance(message, InferMessage) and RequestTemplate.fits(message.head):
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
        layout = finished(Layout(memoryview(data)).read())
        if not layout.plain or not layout.raw or len(layout.head) > _LONGEST:
            return
        head = pb.ModelInferRequest.FromString(layout.head)
        if len(layout.raw) == len(head.inputs):
            self._cache(len(data), RequestTemplate(head, data, layout.raw))

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
    memory: MessagePools | None,
) -> Sequence[RegionSlice | None]:
    if memory is None or len(data) < WORTH:
        return ()
    each = zip(spans, raw, strict=True)
    return [memory.place(data, begin, tensor) for (begin, _), tensor in each]


DATATYPES = {datatype.value: datatype for datatype in DataType if datatype is not DataType.INVALID}


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
        if any(
            len({each.name for each in part}) != len(part) for part in (head.inputs, head.outputs)
        ):
            return False
        if any(tensor.parameters or tensor.HasField("contents") for tensor in head.inputs):
            return False
        if any(
            tensor.datatype == "BYTES" and elements_in(tensor.shape, FEW_ELEMENTS) > FEW_ELEMENTS
            for tensor in head.inputs
        ):
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
        scope: RequestScope,
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
            template=self,
            scope=scope,
        )
