"""Caches of JSON that clients send again: around tensors, and in front of binary data."""

from __future__ import annotations

import re
import struct
from math import prod
from typing import Generic, TypeVar

import orjson

from penstock.core.request import InferenceRequest, RequestScope
from penstock.core.tensor import DataType, Tensor, encode_elements
from penstock.gateway.inference.body_memory import Place, nowhere
from penstock.gateway.inference.codec import OutputEncoding
from penstock.gateway.json.tensors import FORMATS

_MOST_LISTS = 16

_DATA = re.compile(rb'"data"[ \t\r\n]*+:[ \t\r\n]*+\[')

_WHOLE, _ANY = frozenset({int}), frozenset({int, float})
_TYPES = {
    DataType.BOOL: frozenset({bool}),
    DataType.FP32: _ANY,
    DataType.FP64: _ANY,
    DataType.BYTES: frozenset({str}),
}
"""The types of a list's elements, where they are not integers alone."""


class JsonTemplate:
    """The part that requests with the same JSON around their lists share: all but the elements."""

    __slots__ = ("_fixed", "_inputs", "_outputs", "form")

    def __init__(self, request: InferenceRequest, form: OutputEncoding) -> None:
        tensors = request.inputs.items()
        self._inputs = [(name, _List(tensor)) for name, tensor in tensors]
        self._outputs = request.requested_outputs
        self._fixed = all(tensor.datatype is not DataType.BYTES for _, tensor in tensors)
        self.form = form

    @staticmethod
    def fits(request: InferenceRequest, lists: int) -> bool:
        """Whether requests with this JSON around so many lists differ in the lists alone.

        Each input has one: those in shared memory, and without elements, may have none.
        """
        if lists != len(request.inputs):
            return False
        tensors = request.inputs.values()
        return all(tensor.shared is None and len(tensor.buffer) for tensor in tensors)

    def request(self, model: str, version: str, lists: list[bytes]) -> InferenceRequest | None:
        """The request with these lists; `None` if one is not as usual, and left to the parser."""
        inputs: dict[str, Tensor] = {}
        for (name, form), text in zip(self._inputs, lists, strict=True):
            tensor = form.tensor(text)
            if tensor is None:
                return None
            inputs[name] = tensor
        # Templates stand for sizes too, which those of strings differ in.
        template = self if self._fixed else None
        return InferenceRequest(
            model, version, "", inputs, self._outputs, template=template, scope=RequestScope()
        )


class _List:
    """The form of a list: so many elements of a datatype, not nested."""

    __slots__ = ("_count", "_datatype", "_layout", "_shape", "_types")

    def __init__(self, tensor: Tensor) -> None:
        self._datatype = tensor.datatype
        self._shape = tensor.shape
        self._types = _TYPES.get(tensor.datatype, _WHOLE)
        self._count = prod(tensor.shape)
        code = FORMATS.get(tensor.datatype)  # of BYTES, each element has a length of its own
        self._layout = None if code is None else struct.Struct(f"<{self._count}{code}")

    def tensor(self, text: bytes) -> Tensor | None:
        """The tensor of a list; `None` if it has other elements, or numbers out of range."""
        try:
            values = orjson.loads(text)
        except orjson.JSONDecodeError:
            return None
        if len(values) != self._count or not self._types.issuperset(map(type, values)):
            return None
        if self._layout is None:
            contents = encode_elements([value.encode() for value in values])
            return Tensor(self._datatype, self._shape, contents)
        try:
            return Tensor(self._datatype, self._shape, self._layout.pack(*values))
        except (struct.error, OverflowError):  # to be truncated, or to become infinite
            return None


class JsonTemplates:
    """The templates of one endpoint."""

    def __init__(self) -> None:
        self._templates: TemplateCache[JsonTemplate] = TemplateCache()

    def decode(
        self, model: str, version: str, text: bytes
    ) -> tuple[InferenceRequest, OutputEncoding] | None:
        """The request of a text that differs from a cached one in its lists alone."""
        if self._templates.empty:
            return None
        around, lists = split(text)
        template = self._templates.get((model, version, around))
        if template is None:
            return None
        request = template.request(model, version, lists)
        return None if request is None else (request, template.form)

    def add(self, text: bytes, request: InferenceRequest, form: OutputEncoding) -> None:
        """Remember a request that was decoded from this text."""
        if not differs_in_tensors_alone(request):
            return
        around, lists = split(text)
        # In a string, or a name, with escapes there may be what looks like a list.
        if not 0 < len(around) <= LONGEST or b"\\" in around:
            return
        if JsonTemplate.fits(request, len(lists)):
            key = request.model_name, request.model_version, around
            self._templates.add(key, JsonTemplate(request, form))


def split(text: bytes) -> tuple[bytes, list[bytes]]:
    """The text around lists named `data`, and these, each up to the first closing bracket.

    Both are empty where there is no such list, or more than are cached.
    """
    around, lists, at = list[bytes](), list[bytes](), 0
    while found := _DATA.search(text, at):
        begin = found.end() - 1
        end = text.find(b"]", begin) + 1
        if not end or len(lists) == _MOST_LISTS:
            return b"", []
        around.append(text[at:begin])
        lists.append(text[begin:end])
        at = end
    if not lists:
        return b"", []
    around.append(text[at:])
    return b"[]".join(around), lists


Template = TypeVar("Template")
Key = tuple[str, str, bytes]

_MOST = 256
"""Templates that are cached."""

LONGEST = 1024
"""Bytes of the longest JSON that is cached."""


class RequestTemplate:
    """The part that requests with the same JSON share: all but the contents of tensors."""

    __slots__ = ("_inputs", "_outputs", "form", "size")

    def __init__(self, request: InferenceRequest, form: OutputEncoding) -> None:
        self._inputs = [
            (name, tensor.datatype, tensor.shape, tensor.nbytes)
            for name, tensor in request.inputs.items()
        ]
        self._outputs = request.requested_outputs
        self.form = form
        self.size = sum(size for _, _, _, size in self._inputs)

    @staticmethod
    def fits(request: InferenceRequest, size: int) -> bool:
        """Whether requests with this JSON, and `size` bytes behind it, differ in these alone.

        Tensors of clients' shared memory are not among these bytes, nor those in the JSON.
        """
        if not size or not differs_in_tensors_alone(request):
            return False
        return sum(tensor.nbytes for tensor in request.inputs.values()) == size

    def request(
        self, model: str, version: str, rest: memoryview, place: Place = nowhere
    ) -> InferenceRequest:
        """The request with these contents, `size` bytes, which may lie in shared memory."""
        inputs: dict[str, Tensor] = {}
        begin = 0
        for name, datatype, shape, size in self._inputs:
            end = begin + size
            contents = rest[begin:end]
            inputs[name] = Tensor(datatype, shape, contents, place(begin, contents))
            begin = end
        return InferenceRequest(
            model, version, "", inputs, self._outputs, template=self, scope=RequestScope()
        )


class RequestTemplates:
    """The templates of one endpoint."""

    def __init__(self) -> None:
        self._templates: TemplateCache[RequestTemplate] = TemplateCache()

    def find(self, model: str, version: str, json: bytes, size: int) -> RequestTemplate | None:
        """The template of requests with this JSON and `size` bytes behind it."""
        template = self._templates.get((model, version, json))
        return template if template is not None and template.size == size else None

    def add(self, json: bytes, request: InferenceRequest, form: OutputEncoding, size: int) -> None:
        """Remember a request that was decoded from this JSON and `size` bytes behind it."""
        if len(json) > LONGEST or not RequestTemplate.fits(request, size):
            return
        key = request.model_name, request.model_version, json
        self._templates.add(key, RequestTemplate(request, form))


class TemplateCache(Generic[Template]):
    """Templates by model, version and JSON; one is cached when it comes for the second time."""

    def __init__(self) -> None:
        self._templates: dict[Key, Template] = {}
        self._seen: set[Key] = set()

    @property
    def empty(self) -> bool:
        """Whether nothing can be found."""
        return not self._templates

    def get(self, key: Key) -> Template | None:
        """The template of a key."""
        return self._templates.get(key)

    def add(self, key: Key, template: Template) -> None:
        """Cache a template, unless its key comes for the first time."""
        if key not in self._seen:
            if len(self._seen) >= _MOST:
                self._seen.clear()
            self._seen.add(key)
            return
        if len(self._templates) >= _MOST:
            self._templates.clear()
        self._templates[key] = template


def differs_in_tensors_alone(request: InferenceRequest) -> bool:
    """Whether a request has nothing of its own but tensors, and wants tensors alone."""
    if request.id or request.parameters or request.classes:
        return False
    if request.output_places or request.priority or request.timeout:
        return False
    return not (request.correlation_id or request.sequence_start or request.sequence_end)
